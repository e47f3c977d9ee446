"""`bpf-gpu-server stats`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from loader.instance import read_state

Counters = dict[str, dict[str, int]]


@click.command("stats", short_help="Show the counters of a running service.")
@click.option(
    "--instance", default="default", show_default=True, metavar="NAME", help="Name of the service."
)
@click.option(
    "--watch",
    type=click.FloatRange(0.01),
    metavar="SECONDS",
    help="Go on, every so many seconds, with rates a second.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after N times of --watch.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON each time.")
def command(instance: str, watch: float | None, count: int | None, as_json: bool) -> None:
    """Shows the counters on the page of a running service, read without disturbing it.

    They are grouped by who writes them: ingress takes requests in, the executor computes, egress
    sends replies. "depth" is what is queued or in use at this moment.
    """
    state = read_state(instance)
    for before, now, seconds in readings(state, watch, count if watch else 1):
        if as_json:
            head = {key: state[key] for key in ("instance", "transport", "executor", "port")}
            print(json.dumps({**head, "time": time.time(), "counters": now}), flush=True)
        else:
            print_counters(state, before, now, seconds)


def readings(
    state: dict[str, Any], watch: float | None, count: int | None
) -> Iterator[tuple[Counters | None, Counters, float]]:
    """(the counters before, now, seconds between); the first has none before it."""
    from loader.page_reader import open_page, require_alive

    with open_page(state) as page:
        before, at = None, time.monotonic()
        turn = 0
        while True:
            now, then = page.counters(), at
            at = time.monotonic()
            yield before, now, at - then
            before, turn = now, turn + 1
            if turn == count:
                return
            time.sleep(watch or 0)
            require_alive(state)


def print_counters(
    state: dict[str, Any], before: Counters | None, now: Counters, seconds: float
) -> None:
    """A table; rates are of those that changed since `before`."""
    from rich.console import Console
    from rich.table import Table

    title = (
        f"{state['instance']}: {state['address']}:{state['port']}, transport {state['transport']}, "
        f"executor {state['executor']}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("written by")
    table.add_column("counter")
    table.add_column("value", justify="right")
    if before is not None:
        table.add_column("a second", justify="right")
    for writer, counters in now.items():
        for name, value in counters.items():
            row = [writer, name, f"{value:,}"]
            if before is not None and writer != "depth":
                change = value - before[writer][name]
                row.append(f"{change / seconds:,.1f}" if change else "")
            table.add_row(*row)
        table.add_section()
    Console().print(table)
