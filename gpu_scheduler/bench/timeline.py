"""Where the time of a request goes: an executor compiled with marks, one request in flight."""

from __future__ import annotations

import time

from gpu_scheduler.bench import page as pages
from gpu_scheduler.cuda.executor import CudaExecutor
from gpu_scheduler.cuda.served import GraphSet
from gpu_scheduler.workloads import parse_spec
from shared_page import SharedPage
from shared_page.reading import ffi

STEPS = {
    "MARK_FETCHED": "request read from the page",
    "MARK_STEPPED": "policy: admitted, batched",
    "MARK_LAUNCHED": "input copied, graph launched",
    "MARK_FINISHED": "graph runs, flag seen",
    "MARK_COLLECTED": "policy: answered",
    "MARK_PUBLISHED": "result and notice written to the page",
}
_STOP_S = 5.0


def timeline_ns(text: str, requests: int = 20_000) -> dict[str, int]:
    """Mean nanoseconds of each step. What is missing to the whole latency is the poll that finds
    the request and the host's look that finds the result.

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
