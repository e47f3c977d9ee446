"""The graphs that are served: which kind of request each one answers, with which memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_scheduler.cuda.control import INSTANCES_MAX, LANES_MAX
from gpu_scheduler.cuda.errors import GpuError
from gpu_scheduler.cuda.nodes import describe, require_launchable
from shared_page import constants


@dataclass
class Instance:
    """A graph that was captured, not instantiated, and the memory it works on.

    `graph` is a cudaGraph_t; `keep` holds what must live as long: memory, handles, plans.
    """

    graph: Any
    input: int  # device addresses; 0: no memory
    output: int
    keep: Any = None


@dataclass
class Lane:
    """The instances that answer one kind of request; sizes are in bytes of one request."""

    name: str
    kind: int
    request_min: int
    request_max: int
    batch: int
    input_stride: int = 0
    output_stride: int = 0
    result_bytes: int = 0
    in_flight: int = INSTANCES_MAX
    delay_ns: int = 0
    streams: bool = False
    vocab: int = 0
    instances: list[Instance] = field(default_factory=list)


class GraphSet:
    """What one executor serves. Graphs of one kind are instances: as many can be in flight."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}

    def add_lane(self, lane: Lane) -> None:
        """Raises GpuError when there are too many, or one for its kind already."""
        tried = f"adding the workload {lane.name}"
        if lane.kind in self.lanes:
            raise GpuError(tried, f"kind {lane.kind} is served already", "Give each kind once")
        if len(self.lanes) == LANES_MAX:
            said = f"there are {LANES_MAX} already, which is the most"
            raise GpuError(tried, said, "Serve the others with an executor of their own")
        self.lanes[lane.kind] = lane

    def register_graph(self, kind: int, graph: Any, inputs: Any, outputs: Any) -> None:
        """Serves a captured graph: requests of `kind` are copied to `inputs`, results come from
        `outputs`.

        `graph` is a torch.cuda.CUDAGraph(keep_graph=True) that was captured but never replayed, or
        a cudaGraph_t of cuda.bindings. `inputs` and `outputs` are contiguous arrays on the GPU
        (torch or CuPy), of shape (batch, ...): row i of each belongs to one request, and up to
        `batch` requests are served by one launch. Register several captures, each with arrays of
        its own, for as many launches in flight; two or more avoid waiting for a graph's end.

        Raises GpuError: for nodes that the GPU cannot launch, for sizes that do not fit into a
        request or a result, and for instances of one kind that differ in shape.
        """
        name = f"kind {kind}"
        lane = _lane_of(name, kind, _Array.of(inputs, "inputs"), _Array.of(outputs, "outputs"))
        raw = _raw_graph(graph)
        require_launchable(describe(raw), name)
        known = self.lanes.get(kind)
        if known is None:
            self.add_lane(lane)
            known = lane
        elif _shape(known) != _shape(lane):
            said = f"one has (batch, request, result) = {_shape(lane)}, another {_shape(known)}"
            raise GpuError(f"adding a graph for {name}", said, "Capture equal shapes")
        instance = Instance(
            raw,
            _Array.of(inputs, "").address,
            _Array.of(outputs, "").address,
            (graph, inputs, outputs),
        )
        known.instances.append(instance)


@dataclass(frozen=True)
class _Array:
    """The part of __cuda_array_interface__ that matters here."""

    address: int
    rows: int
    row_bytes: int

    @classmethod
    def of(cls, array: Any, what: str) -> _Array:
        tried = f"looking at {what} of a graph"
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            raise GpuError(tried, f"{type(array).__name__} is no array on the GPU", "Give a tensor")
        if interface.get("strides") is not None:
            raise GpuError(tried, "it is not contiguous", "Give the result of .contiguous()")
        rows, *rest = interface["shape"] or (1,)
        size = int(interface["typestr"][2:])
        for extent in rest:
            size *= extent
        return cls(int(interface["data"][0]), int(rows), size)


def _lane_of(name: str, kind: int, inputs: _Array, outputs: _Array) -> Lane:
    tried = f"adding a graph for {name}"
    slots = constants.SLOT_COUNT
    if not 0 < kind < constants.KIND_COUNT:
        raise GpuError(tried, "there is no such kind", f"Take 1 to {constants.KIND_COUNT - 1}")
    if inputs.rows != outputs.rows or not 0 < inputs.rows <= slots:
        said = f"inputs have {inputs.rows} rows and outputs {outputs.rows}"
        raise GpuError(tried, said, f"Give both the same first dimension, 1 to {slots}: the batch")
    for what, size, most in (
        ("a request", inputs.row_bytes, constants.REQUEST_MAX),
        ("a result", outputs.row_bytes, constants.RESULT_MAX),
    ):
        if size > most:
            do = "Make a row smaller, or raise the limit in shared_page/protocol.h"
            raise GpuError(tried, f"{what} has {size} bytes, {most} is the most", do)
    size = inputs.row_bytes
    return Lane(name, kind, size, size, inputs.rows, size, outputs.row_bytes, outputs.row_bytes)


def _shape(lane: Lane) -> tuple[int, int, int]:
    return lane.batch, lane.request_max, lane.result_bytes


def _raw_graph(graph: Any) -> Any:
    """The cudaGraph_t of whatever a caller calls a graph."""
    from cuda.bindings import runtime

    if isinstance(graph, runtime.cudaGraph_t):
        return graph
    tried = "taking the captured graph"
    if not hasattr(graph, "raw_cuda_graph"):
        do = "Give a torch.cuda.CUDAGraph(keep_graph=True), or a cudaGraph_t of cuda.bindings"
        raise GpuError(tried, f"{type(graph).__name__} is none", do)
    try:
        return runtime.cudaGraph_t(graph.raw_cuda_graph())
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        do = "Make it with torch.cuda.CUDAGraph(keep_graph=True) and capture before registering"
        raise GpuError(tried, said, do) from error
