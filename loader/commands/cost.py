"""`bpf-gpu-server cost`."""

from __future__ import annotations

from pathlib import Path

import click

from loader.options import TRANSPORTS


@click.command("cost", short_help="Show where a request's CPU goes, by layer of the kernel.")
@click.option(
    "--transport",
    "transports",
    type=click.Choice(TRANSPORTS),
    multiple=True,
    default=TRANSPORTS,
    help="Which; can be given again. [default: both]",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=5000.0,
    show_default=True,
    help="Requests a second.",
)
@click.option(
    "--connections", type=click.IntRange(1), default=128, show_default=True, help="Connections."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=3.0,
    show_default=True,
    help="Length of sampling; half of it before, and after it, for accounts and counts.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/cost"),
    show_default=True,
    help="Folder for raw data, table, picture and flame graphs.",
)
@click.option("--again", is_flag=True, help="Only report, from the raw data in --out.")
def command(
    transports: tuple[str, ...],
    rate: float,
    connections: int,
    seconds: float,
    out: Path,
    again: bool,
) -> int:
    """Serves a load with each transport, and shows where the CPU time of a request goes: by layer
    of the kernel, for the server and for its client apart, with counts of events.

    Needs root and BCC (python3-bpfcc). Where this machine cannot run a transport, it runs in the
    VM and counts instructions. The exit status is 1 when it could not run, or when samples and
    CPU accounts disagree by more than 5 %.
    """
    from experiments.cost import run
    from experiments.cost.runs import Asked
    from experiments.errors import status_of

    asked = Asked(tuple(dict.fromkeys(transports)), rate, connections, seconds)
    return status_of(lambda: run.report(out) if again else run.run(asked, out))
