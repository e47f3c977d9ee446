"""The table of lanes and instances that the scheduler works from: struct executor_config."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from gpu_scheduler.cuda import capture
from gpu_scheduler.cuda.control import FLAGS_BYTES, INSTANCES_MAX
from gpu_scheduler.cuda.errors import GpuError
from gpu_scheduler.cuda.kernels import Kernels
from gpu_scheduler.cuda.nodes import describe, require_launchable
from gpu_scheduler.cuda.served import GraphSet, Instance, Lane
from gpu_scheduler.workloads.spec import Spec
from shared_page.reading import ffi

_INSTANCES_A_LANE = 8
_LONG_GRAPH = 256  # nodes: of such a graph two instances are enough


class Table:
    """Graphs made launchable by the GPU, with their flags. `config` is struct executor_config.

    Raises GpuError for a graph that cannot be launched, and where CUDA refuses something.
    """

    def __init__(self, kernels: Kernels, graphs: GraphSet, specs: list[Spec]) -> None:
        import cupy

        self._kernels = kernels
        self._keep: list[Any] = []
        self._flags = cupy.zeros(INSTANCES_MAX * FLAGS_BYTES, cupy.uint8)
        cupy.cuda.get_current_stream().synchronize()
        self.config: Any = ffi.new("struct executor_config *")
        self.config.flags = self._flags.data.ptr
        for lane in list(graphs.lanes.values()):
            first = self.config.instances
            numbered = enumerate(lane.instances, first)
            self._add(lane, [self._finished(number, instance) for number, instance in numbered])
        for index, spec in enumerate(specs):
            lane = importlib.import_module(f"gpu_scheduler.workloads.{spec.name}.graph").lane(spec)
            graphs.add_lane(lane)
            share = (INSTANCES_MAX - self.config.instances) // (len(specs) - index)
            self._add_workload(lane, spec, max(1, min(share, _INSTANCES_A_LANE)))

    def _add_workload(self, lane: Lane, spec: Spec, most: int) -> None:
        lane.delay_ns = spec["delay_us"] * 1000
        instances: list[Instance] = []
        if not lane.streams:
            source = importlib.import_module(f"gpu_scheduler.workloads.{spec.name}.graph")
            lane.in_flight = spec["in_flight"]
            shared = source.weights(spec)
            # A graph is still ending for a moment after its last kernel: never one instance alone.
            most = min(most, max(2, lane.in_flight))
            while len(instances) < most:
                finish = self._finish_of(self.config.instances + len(instances))
                instances.append(source.instance(spec, shared, finish))
                if describe(instances[0].graph).total() > _LONG_GRAPH:
                    most = 2
        self._add(lane, instances)

    def _finish_of(self, number: int) -> Any:
        """What launches the finishing kernel of an instance on the current stream."""
        if number >= INSTANCES_MAX:
            said = f"there are more than {INSTANCES_MAX}"
            raise GpuError("adding a graph's instance", said, "Register fewer captures")
        flags = self._flags.data.ptr + number * FLAGS_BYTES
        return partial(self._kernels.graph_finish, (1,), (1,), (flags,))

    def _finished(self, number: int, instance: Instance) -> Instance:
        """A caller's graph followed by the finishing kernel of the instance of that number."""
        with capture.own_stream():
            graph = capture.followed_by(instance.graph, self._finish_of(number))
        return Instance(graph, instance.input, instance.output, instance)

    def _add(self, lane: Lane, instances: list[Instance]) -> None:
        at = self.config.lane[self.config.lanes]
        at.kind, at.streams, at.vocab = lane.kind, lane.streams, lane.vocab
        at.request_min, at.request_max = lane.request_min, lane.request_max
        at.batch_max = lane.batch
        at.in_flight_max = min(lane.in_flight, max(1, len(instances)))
        at.first_instance, at.instances = self.config.instances, len(instances)
        at.input_stride, at.output_stride = lane.input_stride, lane.output_stride
        at.result_bytes, at.delay_ns = lane.result_bytes, lane.delay_ns
        self.config.lanes += 1
        for instance in instances:
            self._add_instance(lane.name, instance)

    def _add_instance(self, name: str, instance: Instance) -> None:
        require_launchable(describe(instance.graph), name)
        with capture.own_stream():
            executable = capture.instantiate(instance.graph, name)
            capture.run_once(executable, name)
        at = self.config.instance[self.config.instances]
        at.exec, at.input, at.output = int(executable), instance.input, instance.output
        self.config.instances += 1
        self._keep.append((instance, executable))
