"""The command line. Each command is a module of its own, imported when it is asked for."""

from __future__ import annotations

import importlib
import sys

try:
    import click
except ModuleNotFoundError:
    sys.exit(
        "error: could not start bpf-gpu-server\n  said: the Python package click is not installed\n"
        "  do:   apt-get install python3-click, or pip install click"
    )

from loader.errors import LoaderError

PROGRAM = "bpf-gpu-server"
COMMANDS = ("serve", "load", "stats", "doctor", "ab", "cost", "vm")


class LazyGroup(click.Group):
    """A group whose commands are `command` in `loader.commands.NAME`: `serve` stays small."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"loader.commands.{cmd_name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option("0.1.0", prog_name=PROGRAM)
def cli() -> None:
    """Serves small GPU requests over TCP, with the request loop in the kernel or in user space.

    A first try, in two terminals:

    \b
      bpf-gpu-server doctor
      bpf-gpu-server serve
      bpf-gpu-server load --rate 1000 --duration 5
      bpf-gpu-server stats
    """


def run(arguments: list[str]) -> int:
    """Runs a command line; returns the exit status. 1: it failed; 2: it was not understood."""
    try:
        status = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except LoaderError as error:
        print(error.render(), file=sys.stderr)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130


def main() -> None:
    """The program."""
    sys.exit(run(sys.argv[1:]))
