"""The GPU executor: CUDA graphs, launched by a scheduler on the GPU itself, served from the page.

`python3 -m gpu_scheduler.cuda --page-fd N --workloads SPEC;SPEC` is executor-cuda. A program of
your own serves graphs of your own: see `serve_graphs` and docs/gpu.md.
"""

from __future__ import annotations

from gpu_scheduler.cuda.errors import GpuError
from gpu_scheduler.cuda.program import serve_graphs
from gpu_scheduler.cuda.served import GraphSet

__all__ = ["GpuError", "GraphSet", "serve_graphs"]
