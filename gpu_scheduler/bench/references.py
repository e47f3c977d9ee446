"""Two references of the same run: bare launches from the device, and a host thread's replay."""

from __future__ import annotations

import ctypes
import importlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_scheduler.cuda import capture
from gpu_scheduler.cuda.control import FLAGS_BYTES
from gpu_scheduler.cuda.kernels import ROOT, Kernels, options
from gpu_scheduler.workloads import parse_spec

_INSTANCES = 4
_LAUNCHES = 100  # in one execution; CUDA allows 120
_ROUNDS = 50
_LIBRARY = ROOT / "build/lib/host-replay.so"
_SOURCE = Path(__file__).parent / "launch_cost.cu"


def percentiles(values: Any) -> dict[str, float]:
    """Of an array: p50, p90, p99 and the mean, rounded to three digits after the point."""
    found = {f"p{share}": float(np.percentile(values, share)) for share in (50, 90, 99)}
    found["mean"] = float(np.mean(values))
    return {name: round(value, 3) for name, value in found.items()}


class References:
    """Compiles the kernels of launch_cost.cu."""

    def __init__(self) -> None:
        import cupy

        self._module = cupy.RawModule(code=_SOURCE.read_text(), options=options())
        self._kernels = Kernels()

    def device_launch_us(self) -> dict[str, dict[str, float]]:
        """Microseconds from a launch of an empty graph on the device until the call returned and
        until the flag that its one kernel sets was seen, by the launching thread.
        """
        import cupy

        flags = cupy.zeros(_INSTANCES * FLAGS_BYTES, cupy.uint8)
        execs = np.zeros(_INSTANCES, np.uint64)
        for number in range(_INSTANCES):
            address = flags.data.ptr + number * FLAGS_BYTES
            with capture.own_stream():
                finish = partial(self._kernels.graph_finish, (1,), (1,), (address,))
                graph = capture.capture(finish)
                execs[number] = int(capture.instantiate(graph, "nothing"))
                capture.run_once(int(execs[number]), "nothing")
        on_gpu = cupy.asarray(execs)
        calls, seen = (cupy.zeros(_LAUNCHES, cupy.uint32) for _ in range(2))
        clocks = cupy.zeros(4, cupy.uint64)
        arguments = (on_gpu, flags, np.uint32(_INSTANCES), np.uint32(_LAUNCHES))
        kernel = self._module.get_function("launch_cost")
        rounds = []
        with capture.own_stream():
            graph = capture.capture(lambda: kernel((1,), (1,), (*arguments, calls, seen, clocks)))
            executable = capture.instantiate(graph, "the launching kernel")
            for _ in range(_ROUNDS):
                capture.run_once(executable, "the launching kernel")
                begin_cycles, begin_ns, end_cycles, end_ns = (int(word) for word in clocks.get())
                per_us = (end_cycles - begin_cycles) / (end_ns - begin_ns) * 1000
                rounds.append((calls.get() / per_us, seen.get() / per_us))
        return {
            "call": percentiles(np.concatenate([call for call, _ in rounds])),
            "flag": percentiles(np.concatenate([flag for _, flag in rounds])),
        }

    def host_replay_us(self, text: str, count: int = 5000) -> dict[str, float]:
        """Microseconds from a host thread's launch of the workload's graph until it sees the flag
        that the graph's last kernel sets in the host's memory. Nothing is copied in or out.

        Raises RuntimeError when a launch fails.
        """
        import cupy

        pinned = cupy.cuda.alloc_pinned_memory(128)
        ctypes.memset(pinned.ptr, 0, 128)
        launched, finished = pinned.ptr, pinned.ptr + 64
        finish = self._module.get_function("host_finish")
        spec = parse_spec(text)
        source = importlib.import_module(f"gpu_scheduler.workloads.{spec.name}.graph")
        instance = source.instance(
            spec, source.weights(spec), lambda: finish((1,), (1,), (launched, finished))
        )
        latency = np.zeros(count, np.uint32)
        with capture.own_stream() as stream:
            executable = _host_executable(instance.graph)
            launch = ctypes.CDLL("libcuda.so.1").cuGraphLaunch
            failed = ctypes.CDLL(str(_LIBRARY)).host_replay(
                launch,
                *(ctypes.c_void_p(at) for at in (executable, stream.ptr, launched, finished)),
                ctypes.c_uint32(count),
                ctypes.c_void_p(latency.ctypes.data),
            )
        if failed:
            raise RuntimeError(f"replaying {text} from the host: CUresult {failed}")
        return percentiles(latency[count // 10 :] / 1000)


def _host_executable(graph: Any) -> int:
    from cuda.bindings import runtime

    from gpu_scheduler.cuda.errors import checked

    return int(checked(runtime.cudaGraphInstantiate(graph, 0), "instantiating for the host"))
