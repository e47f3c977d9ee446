"""What an experiment runs, and in which order: a pure function of a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

TRANSPORTS = ("epoll", "bpf")
VLLM = "vllm"  # an arm beside these: another server, over HTTP
PLAN = "plan.json"
CLOSED = 0.0  # as a rate: a closed loop, each connection sends when it gets a reply
WAKE_POLICIES = ("fixed", "adaptive")
SSH = "ssh:"  # as the beginning of a topology: the load is on that host
SLOTS = 1024  # requests that a service can hold at a time; more are refused


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What all arms are asked to do, and on what. `rate` is in requests a second, all connections
    together, in an open loop with Poisson arrivals."""

    # 256 bytes of payload in and 240 out: requests of 280 bytes, replies of 256.
    workload: str = "gemm:m=4,k=16,n=15,work=1"
    rate: float = 1000.0  # half of what two emulated CPUs can do
    share: float = 0.0  # above 0: the rate is that share of what the first transport sustains
    connections: int = 128
    depth: int = 24  # most unanswered requests of a connection
    wake_us: int = 60
    wake_policy: str = WAKE_POLICIES[0]
    slots: int = SLOTS  # requests that the service holds at a time
    # For the service and its executor, the last ones; the load has the others. 0: all share all.
    service_cpus: int = 0
    topology: str = "loopback"
    congestion: str = ""  # as the machine has it
    netem: dict[str, Any] = field(default_factory=dict)  # what topology.Netem takes; none


@dataclass(frozen=True)
class Timing:
    """Seconds of a run: system calls are counted first, then the counting has to fade, then
    everything else is measured. The first two are the load's warm-up."""

    counting: float = 0.5
    settling: float = 1.0
    measured: float = 4.0

    @property
    def warmup(self) -> float:
        """Seconds of load before the measured ones."""
        return self.counting + self.settling


@dataclass(frozen=True)
class Run:
    """One arm of one pair at one point. All arms of a pair have the same `seed`, so the same
    arrivals."""

    number: int  # from 1, in order of time
    point: str
    pair: int
    arm: str
    transport: str
    seed: int

    @property
    def name(self) -> str:
        """Of the run's folder."""
        return f"{self.number:04}-{self.point}-pair{self.pair}-{self.arm}"


@dataclass(frozen=True)
class Plan:
    """Points × pairs × arms. A point is a condition with a name. An arm has the name of its
    transport, and a number from the second time on where one is compared with itself."""

    seed: int
    pairs: int = 2
    transports: tuple[str, ...] = TRANSPORTS
    points: dict[str, Condition] = field(default_factory=lambda: numbered([Condition()]))
    timing: Timing = Timing()
    asks: str = ""
    exact: bool = False  # on one emulated CPU, where a nanosecond of run time is an instruction
    inject: dict[str, float] = field(default_factory=dict)  # see handicap.py; of `handicapped`

    @property
    def arms(self) -> dict[str, str]:
        """Transports by arm. The first is the baseline."""
        arms: dict[str, str] = {}
        for i, transport in enumerate(self.transports):
            before = self.transports[:i].count(transport)
            arms[f"{transport}{before + 1}" if before else transport] = transport
        return arms

    @property
    def handicapped(self) -> str:
        """The arm that has a handicap, where there is one: the last."""
        return list(self.arms)[-1]

    def references(self) -> Iterator[Run]:
        """Where an arm has a handicap: runs before all others, of the baseline, one a point, which
        the handicap is a share of. They are no pairs, and judged by nobody."""
        baseline = next(iter(self.arms))
        for point in self.points if self.inject else ():
            yield Run(0, point, 0, baseline, self.arms[baseline], self.seed)

    def runs(self) -> Iterator[Run]:
        """The runs in order. One pair of every point, in random order, then the next pair of every
        point: what drifts, drifts for all. The arms of a pair follow each other, in random order.
        """
        randomness = random.Random(self.seed)
        arms = self.arms
        number = 0
        for pair in range(1, self.pairs + 1):
            for point in randomness.sample(list(self.points), len(self.points)):
                order = randomness.sample(list(arms), len(arms))
                seed = randomness.getrandbits(32)
                for arm in order:
                    number += 1
                    yield Run(number, point, pair, arm, arms[arm], seed)

    def run_count(self) -> int:
        """How many that are, references aside."""
        return len(self.points) * self.pairs * len(self.transports)

    def write(self, raw: Path) -> None:
        """Into an experiment's folder of raw data."""
        (raw / PLAN).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, raw: Path) -> Self:
        """Raises OSError or ValueError when there is none, or one of another version."""
        values = json.loads((raw / PLAN).read_text())
        values["points"] = {name: _make(Condition, of) for name, of in values["points"].items()}
        values["timing"] = _make(Timing, values["timing"])
        values["transports"] = tuple(values["transports"])
        plan: Self = _make(cls, values)
        return plan


def numbered(conditions: Iterable[Condition]) -> dict[str, Condition]:
    """Points: conditions by name."""
    return {f"p{number:02}": one for number, one in enumerate(conditions, start=1)}


def labels(points: Mapping[str, Condition]) -> dict[str, str]:
    """Each point by what differs among their conditions; by its rate where nothing does."""
    words = {point: _words(of) for point, of in points.items()}
    first = next(iter(words.values()))
    varied = [name for name in first if any(one[name] != first[name] for one in words.values())]
    return {
        point: ", ".join(one[name] for name in varied or ["rate"]) for point, one in words.items()
    }


def _words(of: Condition) -> dict[str, str]:
    rate = f"{of.rate:,.10g}/s" if of.rate else "closed loop"
    cpus = f"{of.service_cpus} CPU{'s'[: of.service_cpus != 1]}"
    return {
        "workload": of.workload,
        "rate": f"{of.share:.0%} of saturation" if of.share else rate,
        "connections": f"{of.connections} connections",
        "depth": f"depth {of.depth}",
        "slots": f"{of.slots:,} slots",
        "wake_us": f"looks every {of.wake_us} µs",
        "wake_policy": f"{of.wake_policy} wake-ups",
        "service_cpus": cpus if of.service_cpus else "all CPUs",
        "topology": of.topology,
        "congestion": of.congestion or "congestion as it is",
        "netem": " ".join(f"{key} {value}" for key, value in of.netem.items()) or "no netem",
    }


def _make(kind: type[Any], values: dict[str, Any]) -> Any:
    # What a file of an older version lacks has its default: it was so before there was a choice.
    unknown = values.keys() - {one.name for one in fields(kind)}
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**values)
