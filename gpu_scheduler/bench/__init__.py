"""`python3 -m gpu_scheduler.bench`: what the GPU executor costs, against two references."""
