"""executor-cuda as a process: command line, signals, the state that the supervisor sees."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_scheduler.cuda.device import require_gpu
from gpu_scheduler.cuda.errors import GpuError
from gpu_scheduler.cuda.served import GraphSet
from gpu_scheduler.workloads import SpecError, names, parse_spec
from gpu_scheduler.workloads.spec import Spec
from shared_page import PageError, SharedPage, constants
from shared_page.frames import read_frames

_LOOK_S = 0.02  # between looks whether the scheduler still runs; requests do not wait for it
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HELP = """\
usage: executor-cuda --page-fd N --workloads SPEC[;SPEC...]
Takes requests from a shared page, computes them with CUDA graphs that the GPU launches itself, and
publishes the results there.

  --page-fd N         descriptor of the page, inherited (required)
  --page-frames FILE  the descriptor is the memory of a virtual machine, and the page consists
                      of the frames whose numbers the file lists
  --workloads SPECS   what to serve, for example 'gemm:m=4,k=16,n=15,work=1;empty'

SIGTERM, SIGINT and the page's stop word let it finish what was submitted and leave.
"""


def serve_graphs(graphs: GraphSet | None = None, argv: Sequence[str] | None = None) -> int:
    """Runs an executor until the supervisor stops it; returns the exit status.

    `graphs` are served beside the --workloads of the command line (`argv`, by default the
    process's). Errors go to stderr, as one line.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    _die_with_parent()
    try:
        _run(graphs or GraphSet(), argv)
    except (GpuError, SpecError, PageError) as error:
        print(f"executor-cuda: {error}", file=sys.stderr, flush=True)
        if isinstance(error, GpuError) and error.code:
            os._exit(1)  # what CuPy would free at a normal exit, CUDA refuses to free by now
        return 1
    return 0


def _die_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl()
        sys.exit(1)


def _run(graphs: GraphSet, argv: Sequence[str] | None) -> None:
    given = _parse(sys.argv[1:] if argv is None else argv, not graphs.lanes)
    specs = _parse_specs(given["--workloads"]) if given["--workloads"] else []
    frames = _read_frames(given["--page-frames"]) if given["--page-frames"] else None
    with SharedPage.attach(int(given["--page-fd"]), frames) as page:
        require_gpu()
        _serve(page, graphs, specs)


def _parse(argv: Sequence[str], needs_workloads: bool) -> dict[str, str]:
    """Each option's value, "" where it is missing. Raises GpuError; prints the help and exits."""
    given = {"--page-fd": "", "--page-frames": "", "--workloads": ""}
    rest = list(argv)
    while rest:
        option = rest.pop(0)
        if option in ("-h", "--help"):
            print(_HELP, end="")
            sys.exit(0)
        if option not in given or not rest:
            said = f"'{option}' is not understood"
            raise GpuError("reading the command line", said, "See --help for the options")
        given[option] = rest.pop(0)
    text = given["--page-fd"]
    if not text:
        do = "Pass the descriptor of a shared page"
        raise GpuError("reading the command line", "--page-fd is missing", do)
    if not text.isascii() or not text.isdigit():
        do = "Give a whole number, 0 or more"
        raise GpuError("reading --page-fd", f"'{text}' is not usable", do)
    if not given["--workloads"] and needs_workloads:
        do = "Name what to serve, such as 'empty'"
        raise GpuError("reading the command line", "--workloads is missing", do)
    return given


def _read_frames(path: str) -> list[int]:
    try:
        return read_frames(Path(path))
    except (OSError, ValueError) as error:
        do = "Give the file that `serve --page-frames` wrote"
        raise GpuError("reading --page-frames", str(error), do) from error


def _parse_specs(text: str) -> list[Spec]:
    texts = text.removesuffix(";").split(";")
    specs: list[Spec] = []
    for part in texts:
        spec = parse_spec(part)
        if any(spec.kind == other.kind for other in specs):
            spec.fail("this workload is there already", "Give each one once")
        specs.append(spec)
    if not specs:
        known = ", ".join(names())
        raise SpecError(f"reading --workloads: it is empty. Give at least one of {known}")
    return specs


def _serve(page: SharedPage, graphs: GraphSet, specs: list[Spec]) -> None:
    from gpu_scheduler.cuda.executor import CudaExecutor

    executor = page.struct.executor
    try:
        with CudaExecutor(page, graphs, specs) as running:
            if running.lost:
                said = f"answered {running.lost} lost requests of a predecessor"
                print(f"executor-cuda: {said}", file=sys.stderr)
            executor.state = constants.EXECUTOR_READY
            while not running.ended():
                if signal.sigtimedwait(_SIGNALS, _LOOK_S):
                    running.stop()
    except GpuError as error:
        executor.error = error.code
        executor.state = constants.EXECUTOR_FAILED
        raise
    executor.state = constants.EXECUTOR_STOPPED
