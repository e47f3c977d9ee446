"""A run's costs on a terminal: layers by their place on a request's way, and counts of events."""

from __future__ import annotations

from typing import Any

from experiments.cost import layers
from experiments.cost.shares import DIRECTIONS, Summary, total

TITLES = {
    "receive": "from the wire to the service",
    "between": "within the service",
    "send": "from the service to the wire",
}
SERVER = "server, sum"
Rows = list[tuple[str, dict[str, float]]]  # title, and ns a request by transport


def rows(found: dict[str, Summary]) -> Rows:
    """The server's layers with their sums, then what else used the CPUs."""
    lines: Rows = []
    for way in DIRECTIONS:
        parts = {name: of["parts"]["server"][way] for name, of in found.items()}
        lines.append((TITLES[way], {name: sum(part.values()) for name, part in parts.items()}))
        for layer in layers.LAYERS:
            if any(layer in part for part in parts.values()):
                values = {name: part.get(layer, 0.0) for name, part in parts.items()}
                lines.append((f"  {layer}", values))
    for title, side in ((SERVER, "server"), ("client, sum", "client")):
        lines.append((title, {name: total(of["parts"][side]) for name, of in found.items()}))
    lines.append(
        ("  the server's in an idle CPU", {name: of["idle"] for name, of in found.items()})
    )
    lines.append(("accounts of both", {n: sum(of["accounts"].values()) for n, of in found.items()}))
    for title, side in (("idle CPU: switches, interrupts", "idle"), ("other processes", "other")):
        lines.append((title, {name: total(of["parts"][side]) for name, of in found.items()}))
    for tool in ("sampled", "counted"):
        values = {name: of["tool"][tool] for name, of in found.items()}
        lines.append((f"the tool's own, while {tool}", values))
    return lines


def event_rows(found: dict[str, Summary]) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """Events a request: `(title, {transport: {group: count}})`."""
    titles = next(iter(found.values()))["events"]
    return [(title, {name: of["events"][title] for name, of in found.items()}) for title in titles]


def show(found: dict[str, Summary], unit: str) -> None:
    """Prints both tables."""
    from rich.console import Console
    from rich.table import Table

    costs = Table(title=f"What a request costs, {unit}")
    costs.add_column("")
    for name in found:
        costs.add_column(name, justify="right")
        costs.add_column("of server", justify="right")
    lines = rows(found)
    last = [title for title, _ in lines].index(SERVER)
    for at, (title, values) in enumerate(lines):
        cells: list[str] = []
        for name, value in values.items():
            share = value / total(found[name]["parts"]["server"])
            cells += [f"{value:,.0f}", f"{share:.1%}" if at <= last else ""]
        costs.add_row(title, *cells, style="" if title.startswith(" ") else "bold")
    events = Table(title="Events a request: in the service, in the load generator, in others")
    events.add_column("")
    for name in found:
        events.add_column(name, justify="right")
    for title, counts in event_rows(found):
        events.add_row(title, *(counts_text(count) for count in counts.values()))
    console = Console()
    console.print(costs)
    console.print(events)


def counts_text(count: dict[str, Any]) -> str:
    """`1.00 + 2.00 + 0.10`: service, client, others."""
    return " + ".join(f"{count[group]:.2f}" for group in ("service", "client", "other"))
