"""`bpf-gpu-server ab`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("ab", short_help="Compare transports in experiments; report and confirm.")
def command() -> None:
    """Compares transports under the same load, in experiments that TOML files describe.

    \b
      bpf-gpu-server ab list
      bpf-gpu-server ab run small_requests
      bpf-gpu-server ab confirm build/ab/small_requests
    """


@command.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=FOLDER, help="Folder for it. [default: build/ab/NAME]")
@click.option("--resume", is_flag=True, help="Go on with it where it was interrupted.")
@click.option("--exact", is_flag=True, help="Count instructions, in the VM on one emulated CPU.")
@click.option(
    "--inject",
    multiple=True,
    metavar="WHAT=+N%",
    help="A handicap for the last arm, to see it found: cpu=+10% or latency=+10%.",
)
def run_command(
    file: Path, out: Path | None, resume: bool, exact: bool, inject: tuple[str, ...]
) -> int:
    """Runs the experiment in FILE, or the project's own of that name, and reports.

    It runs on this host if that can run all transports, else in the VM.
    """
    from experiments import ab

    return told(lambda: ab.run(file, out, resume, exact, inject))


@command.command("report")
@click.argument("folder", type=FOLDER)
def report_command(folder: Path) -> int:
    """Makes tables, plots and pages again from the raw data in FOLDER."""
    from experiments import ab

    return told(lambda: ab.report(folder))


@command.command("confirm")
@click.argument("folder", type=FOLDER)
@click.option("--resume", is_flag=True, help="Go on with it where it was interrupted.")
def confirm_command(folder: Path, resume: bool) -> int:
    """Runs points of the experiment in FOLDER again with new seeds, into FOLDER/confirm.

    They are all points with an advantage, and the two that came nearest to one.
    """
    from experiments import ab

    return told(lambda: ab.confirm(folder, resume))


@command.command("list")
@click.argument("folder", type=FOLDER, required=False)
def list_command(folder: Path | None) -> int:
    """Lists the project's experiments, or the points of the experiment in FOLDER."""
    from experiments import ab

    def show() -> None:
        lines = ab.list_points(folder) if folder else ab.list_files()
        for name, what, size in lines:
            click.echo(f"{name}: {what}\n    {size}")

    return told(show)


@command.command("show")
@click.argument("folder", type=FOLDER)
@click.argument("point", required=False)
def show_command(folder: Path, point: str | None) -> int:
    """Prints what the experiment in FOLDER found: of all points, or of POINT in detail."""
    from experiments import ab

    return told(lambda: ab.show(folder, point))


@command.command("selftest")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 0.9, min_open=True),
    default=0.8,
    show_default=True,
    help="Length of a burn; the kernel lets a real-time task run no longer at a time.",
)
@click.option("--json", "file", type=FILE, help="Write the result there, too.")
@click.option("--exact", is_flag=True, help="Count instructions, in the VM on one emulated CPU.")
def selftest_command(seconds: float, file: Path | None, exact: bool) -> int:
    """Burns known amounts of CPU, and looks for them in every CPU account.

    They are burnt in user mode, in the kernel, on an io_uring's threads and in softirq, as far as
    this machine can. Status 1: an account did not find within 2 % what is its own. Needs root.
    """
    from experiments import selftest

    return told(lambda: (selftest.run_in_vm if exact else selftest.run_and_show)(seconds, file))


def told(work: Callable[[], int | None]) -> int:
    """The exit status; an error is printed."""
    from experiments.errors import status_of

    return status_of(lambda: work() or 0)
