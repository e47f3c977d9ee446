"""Which graphs the GPU can launch by itself, judged by the kinds of their nodes.

The rules are those of the CUDA Programming Guide, "Device Graph Creation". Nothing here needs a
GPU: a graph is described by the names of its nodes' kinds (enum cudaGraphNodeType).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpu_scheduler.cuda.errors import GpuError, checked

ALLOWED = frozenset({"Kernel", "Memcpy", "Memset", "Graph"})
_REMEDIES = {
    "Host": "Move the host function out of the capture: the host takes no part in a request",
    "MemAlloc": "Allocate before the capture; with PyTorch keep its native caching allocator "
    "(not backend:cudaMallocAsync), and give cuBLAS a workspace of its own",
    "MemFree": "Free after the capture; see MemAlloc",
    "EventRecord": "Use no events with external flags in the captured region",
    "WaitEvent": "Use no events with external flags in the captured region",
    "Conditional": "Compute the condition into data",
}


def require_launchable(kinds: Counter[str], name: str) -> None:
    """Raises GpuError, naming the first kind of node that a device launch does not allow."""
    tried = f"checking the graph of {name}"
    for kind, count in kinds.items():
        if kind not in ALLOWED:
            said = f"{count} of its nodes are of kind {kind}, which the GPU cannot launch"
            raise GpuError(tried, said, _REMEDIES.get(kind, "Capture without it"))
    if not kinds:
        raise GpuError(tried, "it is empty", "Capture the work on the stream that is captured")


def describe(graph: Any) -> Counter[str]:
    """The kinds of a cudaGraph_t's nodes, those of child graphs included. Raises GpuError."""
    return Counter(_kinds(graph))


def _kinds(graph: Any) -> list[str]:
    from cuda.bindings import runtime

    tried = "reading a graph's nodes"
    count = checked(runtime.cudaGraphGetNodes(graph), tried)[1]
    nodes = checked(runtime.cudaGraphGetNodes(graph, count), tried)[0] if count else []
    kinds = []
    for node in nodes:
        kind = checked(runtime.cudaGraphNodeGetType(node), tried)
        name = kind.name.removeprefix("cudaGraphNodeType")
        kinds.append(name)
        if name == "Graph":
            kinds += _kinds(checked(runtime.cudaGraphChildGraphNodeGetGraph(node), tried))
    return kinds
