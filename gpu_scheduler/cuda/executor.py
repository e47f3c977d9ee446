"""The executor of a page: graphs instantiated, the scheduler started, watched and stopped."""

from __future__ import annotations

import time
from typing import Any

from gpu_scheduler.cuda import capture
from gpu_scheduler.cuda.control import CONTROL_BYTES, ENDINGS
from gpu_scheduler.cuda.errors import GpuError, checked, cupy_errors, from_code
from gpu_scheduler.cuda.kernels import THREADS, Kernels
from gpu_scheduler.cuda.served import GraphSet
from gpu_scheduler.cuda.table import Table
from gpu_scheduler.workloads.spec import Spec
from shared_page import PAGE_SIZE_BYTES, SharedPage
from shared_page.reading import ffi

_REGISTER_FLAGS = 1 | 2  # cudaHostRegisterPortable | cudaHostRegisterMapped
_START_S = 10.0
_FILL_BLOCKS = 132


class CudaExecutor:
    """Serves a page from the GPU. Use as a context manager: everything is freed at its end.

    Raises GpuError where CUDA refuses something; the message says what to do.
    """

    def __init__(
        self,
        page: SharedPage,
        graphs: GraphSet,
        specs: list[Spec],
        compiler_options: tuple[str, ...] = (),
    ) -> None:
        import cupy
        from cuda.bindings import runtime

        self._page, self._runtime = page, runtime
        self._address = int(ffi.cast("uintptr_t", page.struct))
        tried = "registering the page with CUDA"
        do = "Raise the limit of locked memory (ulimit -l), or run as root"
        answer = runtime.cudaHostRegister(self._address, PAGE_SIZE_BYTES, _REGISTER_FLAGS)
        checked(answer, tried, do)
        with cupy_errors("preparing the graphs and the scheduler"):
            self._kernels = Kernels(compiler_options)
            self._table = Table(self._kernels, graphs, specs)
            pinned = cupy.cuda.alloc_pinned_memory(CONTROL_BYTES)
            ffi.memmove(ffi.cast("char *", pinned.ptr), bytes(CONTROL_BYTES), CONTROL_BYTES)
            self._pinned = pinned
            self.control: Any = ffi.cast("struct executor_control *", pinned.ptr)
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self.lost = self._begin()
            self._start()

    def _begin(self) -> int:
        """Copies the page to the GPU and answers what a predecessor lost: how many those were."""
        import cupy

        table = self._table.config
        table.page, table.control = self._address, self._pinned.ptr
        table.completion_head = self._page.struct.egress.completion_head
        config = cupy.frombuffer(bytes(ffi.buffer(table)), cupy.uint8)
        lost = cupy.zeros(1, cupy.uint32)
        cupy.cuda.get_current_stream().synchronize()
        with self._stream:
            self._kernels.mirror_fill((_FILL_BLOCKS,), (THREADS,), (self._address,))
            self._kernels.scheduler_begin((1,), (1,), (config, lost))
            self._stream.synchronize()
        return int(lost[0])

    def _start(self) -> None:
        run = self._kernels.scheduler_run
        size = self._kernels.shared_bytes()
        run.max_dynamic_shared_size_bytes = size
        with self._stream:
            graph = capture.capture(lambda: run((1,), (THREADS,), (), shared_mem=size))
            self._scheduler = capture.instantiate(graph, "the scheduler")
        tried = "starting the scheduler"
        checked(self._runtime.cudaGraphLaunch(self._scheduler, self._stream.ptr), tried)
        end = time.monotonic() + _START_S
        while not self.control.executions:
            self.check()
            if time.monotonic() > end:
                do = "See whether other processes keep the GPU busy (nvidia-smi)"
                raise GpuError(tried, f"it did not run within {_START_S:g} s", do)
            time.sleep(0.001)

    def stop(self) -> None:
        """Finish what was submitted, then leave: `ended()` says when."""
        self.control.stop = 1

    def check(self) -> None:
        """Raises GpuError when a kernel has failed: nothing of CUDA works in this process then."""
        (error,) = self._runtime.cudaStreamQuery(self._stream.ptr)
        if int(error) not in (0, int(self._runtime.cudaError_t.cudaErrorNotReady)):
            do = "Start it again; look for the kernel at fault with compute-sanitizer"
            raise from_code(int(error), "running the scheduler and its graphs", do)

    def ended(self) -> bool:
        """Whether the scheduler has left. Raises GpuError when it could not finish."""
        self.check()
        ending = self.control.ending
        if ending == ENDINGS["ENDED_REFUSED"]:
            raise from_code(self.control.error, "launching a graph from the GPU")
        if ending == ENDINGS["ENDED_MISSING"]:
            raise GpuError(
                "finishing what was submitted",
                f"{self.control.missing} requests were claimed, but did not come within a second",
                "Make a new page: the transport died while it wrote to this one",
            )
        return bool(ending == ENDINGS["ENDED_STOPPED"])

    def close(self) -> None:
        """Ends the scheduler, if it still runs, and gives the page back."""
        self.stop()
        end = time.monotonic() + _START_S
        try:
            while not self.control.ending and time.monotonic() < end:
                self.check()
                time.sleep(0.001)
        except GpuError:
            return  # what failed was reported; CUDA frees the rest with the process
        self._stream.synchronize()
        self._runtime.cudaHostUnregister(self._address)

    def __enter__(self) -> CudaExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
