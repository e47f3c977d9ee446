"""What register_graph() refuses before it asks CUDA anything: no GPU is needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_scheduler.cuda import GpuError, GraphSet, served
from gpu_scheduler.cuda.control import LANES_MAX


@dataclass
class Array:
    """A GPU array as its interface describes it."""

    shape: tuple[int, ...]
    typestr: str = "<f4"
    strides: tuple[int, ...] | None = None
    address: int = 0x7000

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": self.shape, "typestr": self.typestr, "strides": self.strides, "data": data}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> GraphSet:
    """Takes descriptions for graphs."""
    monkeypatch.setattr(served, "_raw_graph", lambda graph: graph)
    monkeypatch.setattr(served, "describe", Counter)
    return GraphSet()


GRAPH = ["Kernel"]


def test_a_graph_and_its_instances(graphs: GraphSet) -> None:
    for address in (0x7000, 0x8000):
        graphs.register_graph(8, GRAPH, Array((16, 64), address=address), Array((16, 60)))
    (lane,) = graphs.lanes.values()
    assert (lane.kind, lane.batch, lane.request_min, lane.request_max) == (8, 16, 256, 256)
    assert (lane.input_stride, lane.output_stride, lane.result_bytes) == (256, 240, 240)
    assert [instance.input for instance in lane.instances] == [0x7000, 0x8000]


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "said"),
    [
        (0, Array((1, 4)), Array((1, 4)), "no such kind"),
        (16, Array((1, 4)), Array((1, 4)), "no such kind"),
        (8, Array((2, 4)), Array((1, 4)), "inputs have 2 rows and outputs 1"),
        (8, Array((2000, 4)), Array((2000, 4)), "2000 rows"),
        (8, Array((1, 1025)), Array((1, 4)), "a request has 4100 bytes, 4096 is the most"),
        (8, Array((1, 4)), Array((1, 513), "<c8"), "a result has 4104 bytes"),
        (8, Array((4, 4), strides=(4, 16)), Array((4, 4)), "not contiguous"),
        (8, [1.0], Array((1, 4)), "list is no array on the GPU"),
    ],
)
def test_what_is_refused(graphs: GraphSet, kind: int, inputs: Any, outputs: Any, said: str) -> None:
    with pytest.raises(GpuError) as error:
        graphs.register_graph(kind, GRAPH, inputs, outputs)
    assert said in str(error.value)
    assert error.value.do
    assert not graphs.lanes


def test_instances_that_differ(graphs: GraphSet) -> None:
    graphs.register_graph(8, GRAPH, Array((16, 64)), Array((16, 60)))
    with pytest.raises(GpuError, match="Capture equal shapes"):
        graphs.register_graph(8, GRAPH, Array((8, 64)), Array((8, 60)))


def test_a_graph_with_a_forbidden_node(graphs: GraphSet) -> None:
    with pytest.raises(GpuError, match="kind Host"):
        graphs.register_graph(8, ["Kernel", "Host"], Array((1, 4)), Array((1, 4)))
    assert not graphs.lanes


def test_too_many_kinds(graphs: GraphSet) -> None:
    for kind in range(7, 7 + LANES_MAX):
        graphs.register_graph(kind, GRAPH, Array((1, 4)), Array((1, 4)))
    with pytest.raises(GpuError, match="which is the most"):
        graphs.register_graph(15, GRAPH, Array((1, 4)), Array((1, 4)))
