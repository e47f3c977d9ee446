"""Graphs that are not ours, served by the GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_scheduler.cuda import GpuError, GraphSet, capture
from gpu_scheduler.cuda.executor import CudaExecutor
from shared_page import SharedPage, constants
from tests.executor.driver import ROOT, Transport, wait_until
from tests.executor.executors import Executor, Program

pytestmark = pytest.mark.usefixtures("gpu")
KIND = 8
BATCH, VALUES = 4, 24


def serve_and_check(page: SharedPage, transport: Transport, graphs: GraphSet) -> None:
    """Each request's values come back doubled, plus one; alone, and as many as fit in a batch."""
    numbers = np.random.default_rng()
    connections = transport.connect_many(32)
    with CudaExecutor(page, graphs, []) as executor:
        for together in (1, 32):
            sent = [numbers.standard_normal(VALUES).astype(np.float32) for _ in range(together)]
            for connection, values in zip(connections, sent, strict=False):
                connection.send(KIND, values.tobytes())
            for connection, values in zip(connections, sent, strict=False):
                answer = connection.answer()
                assert answer.status == constants.STATUS_OK
                got = np.frombuffer(answer.payload, np.float32)
                np.testing.assert_allclose(got, values * np.float64(2) + 1, rtol=1e-6, atol=1e-6)
        assert connections[0].ask(KIND, b"short").status == constants.STATUS_BAD_PAYLOAD
        assert connections[0].ask(KIND + 1).status == constants.STATUS_UNKNOWN_KIND
        executor.stop()
        wait_until(executor.ended, "the scheduler to leave")
    assert transport.settled()


def cupy_graph() -> tuple[Any, Any, Any]:
    import cupy

    x, y = (cupy.zeros((BATCH, VALUES), cupy.float32) for _ in range(2))

    def work() -> None:
        cupy.multiply(x, np.float32(2), out=y)
        cupy.add(y, np.float32(1), out=y)

    with capture.own_stream() as stream:
        work()
        stream.synchronize()
        return capture.capture(work), x, y


def test_a_graph_of_cuda_bindings(page: SharedPage, transport: Transport) -> None:
    graphs = GraphSet()
    for _ in range(3):
        graphs.register_graph(KIND, *cupy_graph())
    serve_and_check(page, transport, graphs)


def test_one_instance_is_enough(page: SharedPage, transport: Transport) -> None:
    graphs = GraphSet()
    graphs.register_graph(KIND, *cupy_graph())
    serve_and_check(page, transport, graphs)


def test_a_graph_of_torch(page: SharedPage, transport: Transport) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    graphs = GraphSet()
    for _ in range(2):
        x = torch.zeros(BATCH, VALUES, device="cuda")
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            y = x * 2 + 1
        graphs.register_graph(KIND, graph, x, y)
    serve_and_check(page, transport, graphs)


def test_a_graph_that_allocates_is_refused() -> None:
    import cupy
    from cuda.bindings import runtime

    x = cupy.zeros((1, 4), cupy.float32)
    with capture.own_stream() as stream:

        def work() -> None:
            error, memory = runtime.cudaMallocAsync(1024, stream.ptr)
            assert not int(error)
            runtime.cudaFreeAsync(memory, stream.ptr)

        graph = capture.capture(work)
    with pytest.raises(GpuError, match="MemAlloc"):
        GraphSet().register_graph(KIND, graph, x, x)


def test_something_that_is_no_graph() -> None:
    import cupy

    x = cupy.zeros((1, 4), cupy.float32)
    with pytest.raises(GpuError, match="object is none"):
        GraphSet().register_graph(KIND, object(), x, x)


def test_the_example_of_the_documentation(
    page: SharedPage, transport: Transport, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example
    assert len(example[1].splitlines()) < 15
    script = tmp_path / "softmax.py"
    script.write_text(f"import sys\nsys.path[0] = {str(ROOT)!r}\n" + example[1])
    executor = Executor(Program((sys.executable, str(script))), page, "echo")
    try:
        executor.ready()
        values = np.random.default_rng().standard_normal(64).astype(np.float32)
        got = np.frombuffer(transport.connect().ask(KIND, values.tobytes()).payload, np.float32)
        exact = np.exp(values.astype(np.float64))
        np.testing.assert_allclose(got, exact / exact.sum(), rtol=1e-5)
        assert executor.terminate() == 0
    finally:
        executor.close()
