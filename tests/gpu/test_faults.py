"""What happens when something breaks: said, answered, and served again by a successor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_scheduler.cuda.errors import OUT_OF_MEMORY
from shared_page import SharedPage, constants
from tests.executor.driver import ROOT, Transport
from tests.executor.executors import Executor, Program, refusal

TRAPPING = """
import sys
import cupy
from gpu_scheduler.cuda import GraphSet, capture, serve_graphs
from gpu_scheduler.cuda.device import require_gpu

require_gpu()
kernel = cupy.RawKernel(
    'extern "C" __global__ void run(const int *x, int *y) { if (*x == 13) asm("trap;"); *y = *x; }',
    "run",
)
graphs = GraphSet()
for _ in range(2):
    x, y = cupy.zeros((1, WORDS), cupy.int32), cupy.zeros((1, WORDS), cupy.int32)
    with capture.own_stream() as stream:
        kernel((1,), (1,), (x, y))
        stream.synchronize()
        graphs.register_graph(8, capture.capture(lambda: kernel((1,), (1,), (x, y))), x, y)
sys.exit(serve_graphs(graphs))
"""


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("words", [1, 4], ids=["launched by the policy", "launched ahead of it"])
def test_a_kernel_that_traps(
    page: SharedPage, transport: Transport, tmp_path: Path, words: int
) -> None:
    """Its request is lost, not run again by the successor, which would end like this one."""
    script = tmp_path / "trapping.py"
    begin = f"import sys\nsys.path[0] = {str(ROOT)!r}\nWORDS = {words}\n"
    script.write_text(TRAPPING.replace("import sys\n", begin, 1))

    def payload(number: int) -> bytes:
        return number.to_bytes(4 * words, "little")

    program = Program((sys.executable, str(script)))
    connection = transport.connect()
    first = Executor(program, page, "echo")
    second = None
    try:
        first.ready()
        assert connection.ask(8, payload(7)).payload == payload(7)
        connection.send(8, payload(13))
        assert first.wait() == 1
        said = first.errors()
        assert "running the scheduler and its graphs" in said
        assert said.count("\n") == 1
        assert page.executor_state == constants.EXECUTOR_FAILED
        assert page.struct.executor.error
        second = Executor(program, page, "echo").ready()
        assert connection.answer().status == constants.STATUS_INTERNAL
        assert connection.ask(8, payload(9)).status == constants.STATUS_OK
        assert second.terminate() == 0
    finally:
        first.close()
        if second:
            second.close()


@pytest.mark.usefixtures("gpu")
def test_memory_of_the_gpu_is_given_back(page: SharedPage, transport: Transport) -> None:
    def used_mib() -> int:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        # Another process: this one's context counts too, before and after.
        return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout)

    before = used_mib()
    program = Program((sys.executable, "-m", "gpu_scheduler.cuda"))
    executor = Executor(program, page, "gemm;fft")
    try:
        executor.ready()
        assert used_mib() > before
        assert executor.terminate() == 0
    finally:
        executor.close()
    assert used_mib() <= before + 8


HOLDING = """
import sys
from cuda.bindings import runtime

(error,) = runtime.cudaFree(0)
assert not int(error)
held = 0
for size in (1 << 30, 1 << 24, 1 << 20):  # whatever is left, in ever smaller pieces
    while not int(runtime.cudaMalloc(size)[0]):
        held += size
print(held >> 20, flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("gpu")
def test_other_processes_leave_no_memory(page: SharedPage, transport: Transport) -> None:
    program = Program((sys.executable, "-m", "gpu_scheduler.cuda"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert int(holder.stdout.readline()) > 1024
        said = refusal(program, "--page-fd", str(page.fd), "--workloads", "gemm;fft", fd=page.fd)
        holder.terminate()
    assert "out of memory" in said
    assert "end what else uses the GPU" in said
    assert page.executor_state in (constants.EXECUTOR_ABSENT, constants.EXECUTOR_FAILED)
    executor = Executor(program, page, "gemm").ready()
    try:
        assert transport.connect().ask(constants.KIND_GEMM, bytes(4 * 16 * 4)).status == (
            constants.STATUS_OK
        )
        assert executor.terminate() == 0
    finally:
        executor.close()


@pytest.mark.usefixtures("gpu")
def test_a_workload_that_does_not_fit(page: SharedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's limit of what a process may take stands for the GPU's."""
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", str(16 << 20))
    program = Program((sys.executable, "-m", "gpu_scheduler.cuda"))
    said = refusal(program, "--page-fd", str(page.fd), "--workloads", "gemm", fd=page.fd)
    assert "preparing the graphs and the scheduler: Out of memory" in said
    assert "Give --workload a smaller batch or in_flight" in said
    assert page.executor_state == constants.EXECUTOR_FAILED
    assert page.struct.executor.error == OUT_OF_MEMORY


def test_without_a_gpu(page: SharedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on this machine, or as if: said in one line, and the page is untouched."""
    from gpu_scheduler.cuda import GpuError, device

    monkeypatch.setattr(device, "gpu_present", lambda: False)
    with pytest.raises(GpuError) as error:
        device.require_gpu()
    assert str(error.value) == (
        "looking for a GPU: no NVIDIA GPU: /dev/nvidia0 is absent. "
        "Serve with --executor cpu on this machine."
    )
    assert page.executor_state == constants.EXECUTOR_ABSENT
