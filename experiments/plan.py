"""What an experiment runs, and in which order: a pure function of a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

TRANSPORTS = ("epoll", "bpf")
PLAN = "plan.json"


@dataclass(frozen=True)
class Condition:
    """What both arms are asked to do. `rate` is in requests a second, all connections together."""

    # 256 bytes of payload in and 240 out: requests of 280 bytes, replies of 256.
    workload: str = "gemm:m=4,k=16,n=15,work=1"
    rate: float = 1000.0  # half of what two emulated CPUs can do
    connections: int = 128
    wake_us: int = 60


@dataclass(frozen=True)
class Timing:
    """Seconds of a run: system calls are counted first, then the counting has to fade, then
    everything else is measured. The first two are the load's warm-up."""

    counting: float = 1.0
    settling: float = 0.5
    measured: float = 4.0

    @property
    def warmup(self) -> float:
        """Seconds of load before the measured ones."""
        return self.counting + self.settling


@dataclass(frozen=True)
class Run:
    """One arm of one pair. Both arms of a pair have the same `seed`, so the same arrivals."""

    number: int  # from 1, in order of time
    pair: int
    transport: str
    seed: int

    @property
    def name(self) -> str:
        """Of the run's folder."""
        return f"{self.number:02}-pair{self.pair}-{self.transport}"


@dataclass(frozen=True)
class Plan:
    """Transports × pairs under a condition."""

    seed: int
    pairs: int = 2
    transports: tuple[str, ...] = TRANSPORTS
    condition: Condition = Condition()
    timing: Timing = Timing()

    def runs(self) -> Iterator[Run]:
        """The runs in order: pairs one after the other, the arms of each in random order."""
        randomness = random.Random(self.seed)
        for pair in range(1, self.pairs + 1):
            arms = randomness.sample(self.transports, len(self.transports))
            seed = randomness.getrandbits(32)
            for arm, transport in enumerate(arms, start=1):
                number = (pair - 1) * len(arms) + arm
                yield Run(number, pair, transport, seed)

    def write(self, raw: Path) -> None:
        """Into an experiment's folder of raw data."""
        (raw / PLAN).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, raw: Path) -> Self:
        """Raises OSError or ValueError when there is none, or one of another version."""
        values = json.loads((raw / PLAN).read_text())
        condition = _make(Condition, values.pop("condition"))
        timing = _make(Timing, values.pop("timing"))
        transports = tuple(values.pop("transports"))
        return cls(**values, transports=transports, condition=condition, timing=timing)


def _make(kind: type[Any], values: dict[str, Any]) -> Any:
    known = {field.name for field in fields(kind)}
    if values.keys() != known:
        raise ValueError(f"{kind.__name__} has {sorted(known)}, the file has {sorted(values)}")
    return kind(**values)
