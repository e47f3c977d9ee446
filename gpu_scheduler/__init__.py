"""The scheduler that takes requests from the shared page: its policy, executors and workloads."""
