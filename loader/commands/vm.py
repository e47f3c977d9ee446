"""`bpf-gpu-server vm`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from loader.errors import LoaderError

LOST = 125  # exit status when the machine, not the command in it, failed


@click.group("vm", short_help="Run commands under Linux 7.3 in a virtual machine.")
def command() -> None:
    """Runs commands under Linux 7.3 in a virtual machine; needs root.

    The first use prepares the machine's root folder, QEMU included, in build/ (a minute or two,
    1 GB, mmdebstrap). The
    project's folder is seen in it at the same path; all else that is written ends with the machine.
    """


def machine_options(function: Callable[..., int]) -> Callable[..., int]:
    """What `run` and `shell` have in common."""
    for option in (
        click.option(
            "--kernel", metavar="VERSION", help="Version of the kernel, or its beginning."
        ),
        click.option("--memory", default=2048, show_default=True, help="Memory in MiB."),
        click.option("--cpus", default=2, show_default=True, help="Virtual CPUs."),
    ):
        function = option(function)
    return function


@command.command("run", context_settings={"ignore_unknown_options": True})
@machine_options
@click.option("--icount", is_flag=True, help="One CPU, on which a nanosecond is an instruction.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds it may take in all.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def run_command(
    words: tuple[str, ...],
    kernel: str | None,
    memory: int,
    cpus: int,
    icount: bool,
    timeout: float,
) -> int:
    """Boots a machine, runs COMMAND in it, and returns its exit status; 125: the machine failed.

    \b
      bpf-gpu-server vm run -- uname -r
    """
    from vm.machine import run

    settings = {"cpus": cpus, "memory_mib": memory, "icount": icount, "timeout_s": timeout}
    return in_machine(run, words, kernel, **settings)


@command.command("shell")
@machine_options
def shell_command(kernel: str | None, memory: int, cpus: int) -> int:
    """Opens a shell in a machine; leaving the shell ends the machine."""
    from vm.machine import shell

    return in_machine(shell, ("/bin/bash",), kernel, cpus=cpus, memory_mib=memory)


def in_machine(
    call: Callable[..., int], words: tuple[str, ...], kernel: str | None, **settings: Any
) -> int:
    """The command's status. Raises LoaderError when the machine could not be prepared."""
    from vm.errors import SetupError, VmLost
    from vm.root import DEFAULT_KERNEL, ensure_root

    # As after Ctrl-C, so that QEMU is ended and its files are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return call(list(words), root=ensure_root(kernel or DEFAULT_KERNEL), **settings)
    except SetupError as error:
        raise LoaderError(error.tried, error.said, error.do) from None
    except VmLost as error:
        print(LoaderError(error.tried, error.said, error.do).render(), file=sys.stderr)
        return LOST
