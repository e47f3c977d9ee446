"""Graphs out of captured work, made launchable by the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_scheduler.cuda.errors import GpuError, checked

DEVICE_LAUNCH = 4  # cudaGraphInstantiateFlagDeviceLaunch


def capture(*works: Callable[[], object]) -> Any:
    """The cudaGraph_t of what `works` do, in turn, on CuPy's current stream. Raises GpuError."""
    import cupy
    from cuda.bindings import runtime

    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    stream = cupy.cuda.get_current_stream()
    checked(runtime.cudaStreamBeginCapture(stream.ptr, mode), "beginning a capture")
    try:
        for work in works:
            work()
    finally:
        ended = runtime.cudaStreamEndCapture(stream.ptr)
    return checked(ended, "capturing a graph", "Do nothing that synchronizes in captured work")


@contextmanager
def own_stream() -> Iterator[Any]:
    """A stream for warm-up and capture, current within the block."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        yield stream
        stream.synchronize()


def followed_by(graph: Any, last: Callable[[], object]) -> Any:
    """A graph whose nodes are `graph`, as a child, and then the one kernel that `last` launches.

    The given graph is not changed. Raises GpuError.
    """
    from cuda.bindings import runtime

    tried = "putting the finishing kernel behind a graph"
    whole = capture(last)
    (node,) = checked(runtime.cudaGraphGetNodes(whole, 1), tried)[0]
    child = checked(runtime.cudaGraphAddChildGraphNode(whole, None, 0, graph), tried)
    checked(runtime.cudaGraphAddDependencies(whole, [child], [node], None, 1), tried)
    return whole


def instantiate(graph: Any, name: str) -> Any:
    """The cudaGraphExec_t, uploaded, that a kernel can launch. Raises GpuError."""
    import cupy
    from cuda.bindings import runtime

    tried = f"making the graph of {name} launchable by the GPU"
    do = "Capture kernels, copies within the GPU's memory and fills only, on one GPU"
    executable = checked(runtime.cudaGraphInstantiate(graph, DEVICE_LAUNCH), tried, do)
    stream = cupy.cuda.get_current_stream()
    checked(runtime.cudaGraphUpload(executable, stream.ptr), tried, do)
    stream.synchronize()
    return executable


def run_once(executable: Any, name: str) -> None:
    """From the host: what its kernels load lazily is loaded. Raises GpuError."""
    import cupy
    from cuda.bindings import runtime

    stream = cupy.cuda.get_current_stream()
    tried = f"running the graph of {name} once"
    checked(runtime.cudaGraphLaunch(executable, stream.ptr), tried)
    try:
        stream.synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        said = str(error).partition(":")[0]
        raise GpuError(tried, said, "Look for its fault with compute-sanitizer") from error
