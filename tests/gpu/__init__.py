"""The GPU executor: what it refuses, its bookkeeping, and (with a GPU) graphs of a caller."""
