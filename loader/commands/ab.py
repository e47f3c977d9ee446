"""`bpf-gpu-server ab`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

FOLDER = click.Path(path_type=Path, file_okay=False)


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
def run_command(file: Path, out: Path | None, resume: bool, exact: bool) -> int:
    """Runs the experiment in FILE, or the project's own of that name, and reports.

    It runs on this host if that can run all transports, else in the VM.
    """
    from experiments import ab

    return told(lambda: ab.run(file, out, resume, exact))


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


def told(work: Callable[[], None]) -> int:
    """The exit status; an error is printed."""
    from experiments.errors import status_of

    def worked() -> int:
        work()
        return 0

    return status_of(worked)
