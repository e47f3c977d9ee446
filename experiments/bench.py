"""`bench`: what the service costs, as ratios and counts of one run; nothing depends on how fast the
machine is. docs/measuring.md says how each figure is made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments import (
    bench_cost,
    bench_memory,
    bench_saturation,
    cases,
    environment,
    programs,
    remote,
)
from experiments.plan import TRANSPORTS, Condition
from experiments.progress import Bar

BOOT_S = 8.0
LIMIT_S = 1200  # on a machine that is busy with other things
MEMORY_S = 3.0
MIB = 1 << 20
NOT_APPLICABLE = "-"


@dataclass(frozen=True)
class Figure:
    """One line of the result; `limit` is None where there is no target."""

    name: str
    unit: str
    value: float
    limit: float | None = None
    at_least: bool = False  # else at most

    @property
    def met(self) -> bool | None:
        """None without a target."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def run(raw: Path) -> dict[str, Any]:
    """Measures, and leaves raw data in a folder. Raises ExperimentError."""
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    cases.write({raw / bench_cost.CASES: Condition.workload}, seed=1)
    saturation_s = bench_saturation.ROUNDS * bench_saturation.ROUND_S
    with Bar(saturation_s + MEMORY_S + BOOT_S + bench_cost.TOTAL_S) as bar:
        saturation = bench_saturation.compare(raw, bar.phase)
        bar.phase("memory of connections", MEMORY_S)
        connections = bench_memory.connection_bytes(raw)
        bar.phase("booting the VM, which counts instructions", BOOT_S)
        remote.run(guest_command(raw), raw, bar)
    return {
        "environment": environment.host(),
        "saturation": saturation,
        "cost_instructions": json.loads((raw / bench_cost.RESULT).read_text()),
        "connection_bytes": connections,
    }


def guest_command(raw: Path) -> list[str]:
    """Measures costs in a VM whose clock counts instructions, wherever this runs."""
    vm = programs.command_line("vm", "run", "--icount", "--timeout", str(LIMIT_S), "--")
    return [*vm, "python3", "-m", "experiments", "bench-cost", str(raw.absolute())]


def figures(measured: dict[str, Any]) -> Iterator[Figure]:
    """What the table shows, with the targets."""
    by_depth = measured["saturation"]["by_depth"]
    none = not any(of["saturated"] for of in by_depth.values())  # then all are judged
    for depth, of in by_depth.items():
        name = f"throughput of epoll to a bare echo, {depth} unanswered a connection"
        judged = of["saturated"] or none
        yield Figure(
            name if judged else f"{name} (the echo was not saturated)",
            "ratio", of["ratio"], 0.7 if judged else None, at_least=True,
        )  # fmt: skip
    cost = measured["cost_instructions"]
    for transport in TRANSPORTS:
        yield Figure(f"wire to page, {transport}", "instructions", cost[transport]["wire_to_page"])
        yield Figure(f"page to wire, {transport}", "instructions", cost[transport]["page_to_wire"])
        yield Figure(f"a look for nothing, {transport}", "instructions", cost[transport]["look"])
    resident = measured["saturation"]["resident_bytes"]
    yield Figure("memory of the supervisor, epoll", "MiB", resident["supervisor"] / MIB, 80)
    supervisor = cost["bpf"]["supervisor_resident_bytes"]
    yield Figure("memory of the supervisor, bpf", "MiB", supervisor / MIB, 80)
    yield Figure("memory of the native server", "MiB", resident["server"] / MIB, 16)
    for transport in TRANSPORTS:
        of = measured["connection_bytes"][transport]["sum"]
        yield Figure(f"memory of a connection, {transport}", "bytes", of, 1024)


def write(measured: dict[str, Any], file: Path) -> list[Figure]:
    """Writes the result, and gives its figures."""
    lines = list(figures(measured))
    shown = [{**asdict(line), "met": line.met} for line in lines]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"figures": shown, **measured}, indent=2) + "\n")
    return lines


def show(lines: list[Figure], measured: dict[str, Any]) -> None:
    """Prints the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What the service costs")
    for column in ("", "value", "unit", "target", "met"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for line in lines:
        sign = "≥" if line.at_least else "≤"
        target = NOT_APPLICABLE if line.limit is None else f"{sign} {line.limit:g}"
        met = {None: NOT_APPLICABLE, True: "yes", False: "[bold red]NO[/]"}[line.met]
        table.add_row(line.name, number(line), line.unit, target, met)
    console = Console()
    console.print(table)
    cpus = measured["saturation"]["cpus"]
    console.print(
        f"Server and executor shared CPU {cpus['service']}, as the bare echo had it to itself; the "
        f"load generator had CPU {cpus['load']}. Instructions were counted in the VM."
    )


def number(line: Figure) -> str:
    """As precise as it is."""
    form = {"ratio": ".2f", "MiB": ".1f"}.get(line.unit, ",.0f")
    return format(line.value, form)
