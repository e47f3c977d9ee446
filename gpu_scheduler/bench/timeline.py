"""When what happens to a request: an executor compiled with marks, one request in flight."""

from __future__ import annotations

import time

from gpu_scheduler.bench import page as pages
from gpu_scheduler.cuda.executor import CudaExecutor
from gpu_scheduler.cuda.served import GraphSet
from gpu_scheduler.workloads import parse_spec
from shared_page import SharedPage
from shared_page.reading import ffi

STEPS = {
    "MARK_POSTED": "its graph is asked of the launching warp",
    "MARK_FETCHED": "request read from the page, in order",
    "MARK_NOTICED": "the policy's warp finds it",
    "MARK_LAUNCHED": "the launching call has returned",
    "MARK_FINISHED": "the graph's flag is seen",
    "MARK_PUBLISHED": "result and notice written to the page",
    "MARK_ANSWERED": "the policy has taken and answered it",
}
_STOP_S = 5.0


def timeline_ns(text: str, requests: int = 20_000) -> dict[str, int]:
    """Mean nanoseconds to each step from the look at the ring that found the request. What is
    missing to the whole latency is that look and the host's, which finds the result.

    Raises GpuError, and RuntimeError when the load fails.
    """
    import cupy

    marks = dict(ffi.typeof("enum timeline_mark").relements)
    options = ("-DTIMELINE",)
    with (
        SharedPage.create_memfd(64) as page,
        CudaExecutor(page, GraphSet(), [parse_spec(text)], options) as executor,
    ):
        pages.load(page, text, 1, requests)
        executor.stop()
        end = time.monotonic() + _STOP_S
        while not executor.ended() and time.monotonic() < end:
            time.sleep(0.001)
        control = executor.control
        khz = cupy.cuda.Device().attributes["ClockRate"]
        return {
            step: round(control.cycles[marks[name]] / control.timed / khz * 1e6)
            for name, step in STEPS.items()
        }
