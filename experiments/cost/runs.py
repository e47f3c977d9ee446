"""Runs each transport where it is started, and leaves what was seen of it: raw data, nothing else.

One load, three windows: the accounts alone, with the sampler, with the counting of events. What a
window with a tool costs more for a request than the first one is the tool's own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments import cases, environment, exact_runs
from experiments.accounts import Accounts, Raw
from experiments.cost.events import Events
from experiments.cost.samples import Sampler
from experiments.cost.symbols import Symbols
from experiments.errors import ExperimentError
from experiments.generator import Generator, Server
from experiments.measure import thread_names
from experiments.plan import Condition, Timing
from experiments.progress import Report, print_event
from experiments.service import Service
from experiments.soak import Soak

PLAN, SEEN = "plan.json", "seen.json"
WARM_S = 0.6  # every slot of the page has been used by then, at 2,000 requests a second or more
OTHERS = 0.5  # length of the other windows, in that of sampling
GAP_S = 0.4  # before each window, for attaching and detaching
START_S, COMPILE_S = 8.0, 40.0  # expected, on an emulated CPU
SLOWDOWN = 8  # how much longer a second takes there


@dataclass(frozen=True)
class Asked:
    """What is run. `period_ns` lies between two samples of a CPU."""

    transports: tuple[str, ...] = ("epoll", "bpf")
    rate: float = 5000.0
    connections: int = 128
    seconds: float = 3.0  # of sampling
    period_ns: int = 99_991  # much more than the sampler's interrupt; nobody's multiple
    seed: int = exact_runs.SEED
    exact: bool = False  # where a nanosecond of run time is an instruction

    @property
    def condition(self) -> Condition:
        """No executor computes beside: results fall due."""
        workload = f"due:service_us={exact_runs.SERVICE_US}"
        return Condition(workload=workload, rate=self.rate, connections=self.connections)

    @property
    def timing(self) -> Timing:
        """Of the load: three windows, and gaps around each."""
        windows = self.seconds * (1 + 2 * OTHERS)
        return Timing(counting=0.0, settling=WARM_S, measured=windows + 6 * GAP_S)

    def expected_s(self) -> float:
        """How long it takes, about."""
        return COMPILE_S + len(self.transports) * (START_S + self.load_s())

    def load_s(self) -> float:
        """How long the load of a transport takes, about."""
        return (WARM_S + self.timing.measured) * (SLOWDOWN if self.exact else 1)

    @classmethod
    def read(cls, folder: Path) -> Asked:
        """From plan.json."""
        values = json.loads((folder / PLAN).read_text())
        return cls(**values | {"transports": tuple(values["transports"])})

    def write(self, folder: Path) -> None:
        """Into plan.json, beside the requests."""
        (folder / PLAN).write_text(json.dumps(asdict(self), indent=2) + "\n")
        cases.write_due(folder / exact_runs.CASES, exact_runs.CASE_COUNT, self.seed)


def measure(folder: Path, report: Report = print_event) -> None:
    """Leaves a folder for each transport with seen.json and the load's records.

    Raises ExperimentError.
    """
    asked = Asked.read(folder)
    (folder / "environment.json").write_text(json.dumps(environment.machine(), indent=2) + "\n")
    report("compiling the programs that count events", COMPILE_S)
    with Events() as events:
        for transport in asked.transports:
            report(f"{transport}: starting", START_S)
            with Arm(asked, folder, transport) as arm:
                report(f"{transport}: measuring", asked.load_s())
                arm.look(events)


class Arm:
    """A service under load, from the start of the block to its end."""

    def __init__(self, asked: Asked, folder: Path, transport: str) -> None:
        self._asked, self._folder = asked, folder / transport
        self._folder.mkdir()
        self._service = Service(transport, asked.condition, self._folder / "service.log")

    def __enter__(self) -> Arm:
        with ExitStack() as stack:
            stack.enter_context(self._service)
            self._state = self._service.state()
            self._names = thread_names(self._state)
            asked, file = self._asked, self._folder.parent / exact_runs.CASES
            server = Server(self._state["address"], int(self._state["port"]))
            load = Generator(asked.condition, asked.timing, asked.seed, server, file)
            self._load = stack.enter_context(load.write_to(self._folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        # An idle CPU under --icount jumps to its next timer: reading a page of a program from the
        # host then takes seconds, and the service's deadlines for leaving pass.
        with Soak() if self._asked.exact else nullcontext():
            self._stack.__exit__(*error)

    def look(self, events: Events) -> None:
        """The three windows, and the load's end; leaves seen.json. Raises ExperimentError."""
        groups = {"service": list(self._pids()), "client": [self._load.pid]}
        service, executor = (Path(self._state["cgroups"][one]) for one in ("service", "executor"))
        loop = self._state.get("loop_tid")
        begin = self._load.wait_until_sending() + WARM_S
        with (
            Accounts(service, executor, self._names, loop, self._load.pid) as accounts,
            Sampler(self._asked.period_ns) as sampler,
        ):
            self._accounts = accounts
            plain = self._window(begin, OTHERS)
            sampled = self._window(begin, 1, sampler.start, sampler.stop)
            counts: list[dict[str, dict[str, int]]] = []

            def attach() -> None:
                events.attach(groups)
                counts.append(events.counts())

            def detach() -> None:
                counts.append(events.counts())
                events.detach()

            counted = self._window(begin, OTHERS, attach, detach)
            stacks = folded(sampler, Symbols(), groups)
        self._load.finish()
        windows = {"plain": plain, "sampled": sampled, "counted": counted}
        seen = {"windows": windows, "counts": difference(*counts), "stacks": stacks}
        (self._folder / SEEN).write_text(json.dumps(seen) + "\n")

    def _window(self, begin: float, length: float, *tool: Callable[[], None]) -> list[Raw]:
        """Readings of the accounts at both ends. Starting and stopping the tool is outside."""
        self._sleep(max(begin - time.monotonic(), 0) + GAP_S)
        start, stop = tool or (lambda: None, lambda: None)
        start()
        first = self._accounts.read()
        self._sleep(length * self._asked.seconds)
        last = self._accounts.read()
        stop()
        return [first, last]

    def _sleep(self, seconds: float) -> None:
        if self._load.ended(seconds):
            self._load.finish()
            raise ExperimentError(
                "look at a load", "it ended before all windows were over",
                "see load.json; take fewer --seconds, or a machine that is less busy",
            )  # fmt: skip

    def _pids(self) -> Iterable[int]:
        cgroup = Path(self._state["cgroups"]["service"])
        return map(int, (cgroup / "cgroup.procs").read_text().split())


def difference(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """What was counted between."""
    return {
        event: {group: count - before[event][group] for group, count in of.items()}
        for event, of in after.items()
    }


def folded(sampler: Sampler, symbols: Symbols, groups: dict[str, list[int]]) -> list[list[Any]]:
    """`[group, in user mode, [function, …] innermost first, samples]`, most frequent first."""
    names = {pid: group for group, pids in groups.items() for pid in pids} | {0: "idle"}
    found: Counter[tuple[str, bool, tuple[str, ...]]] = Counter()
    for sample, count in sampler.samples().items():
        stack = tuple(symbols.name(address) for address in sample.stack)
        found[names.get(sample.pid, "other"), sample.user, stack] += count
    return [[group, user, list(stack), n] for (group, user, stack), n in found.most_common()]
