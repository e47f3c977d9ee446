"""`bpf-gpu-server doctor`."""

from __future__ import annotations

import click

from loader import doctor
from loader.features import examine
from loader.options import EXECUTORS, TRANSPORTS


@click.command("doctor", short_help="Say what this machine can do, why not, and what to do.")
@click.option(
    "--transport",
    type=click.Choice(TRANSPORTS),
    default="epoll",
    show_default=True,
    help="The transport that is meant to run.",
)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="cpu",
    show_default=True,
    help="The executor that is meant to run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(transport: str, executor: str, as_json: bool) -> int:
    """Tries everything that the service may need, and says what is there.

    Each line is an attempt, not a guess from a version: yes, no, or could not tell; why; and what
    to do. The exit status is 0 when the chosen transport and executor can run here, else 1.
    """
    findings = examine(transport, executor)
    if as_json:
        print(doctor.as_json(findings, transport, executor))
    else:
        doctor.print_table(findings, transport, executor)
    return 0 if doctor.can_run(findings) else 1
