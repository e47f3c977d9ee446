"""`python -m vm`: prepare the root, run a command under a kernel, open a shell there, and pack what
another machine needs to do the same.

The exit status is the command's; 125 when the VM was lost, 126 or 127 when the command could not
be started, 1 when the VM could not be prepared, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from vm.errors import SetupError, VmLost
from vm.machine import run, shell
from vm.pack import pack
from vm.root import DEFAULT_KERNEL, ensure_root, list_kernels, packed_root

SETUP_STATUS = 1
VM_LOST_STATUS = 125


def build_parser() -> argparse.ArgumentParser:
    """Options of all verbs."""
    parser = argparse.ArgumentParser(
        prog="python -m vm", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("kernels", help="list the kernels that can be added now")
    build = verbs.add_parser("build", help="build the root and add a kernel to it")
    running = verbs.add_parser("run", help="run a command, with our stdin, stdout and stderr")
    interactive = verbs.add_parser("shell", help="open a shell, or run a command on a terminal")
    packing = verbs.add_parser("pack", help="archive what boots elsewhere: QEMU, kernel, Python")
    packing.add_argument(
        "archive", type=Path, help="a .tar.xz to write; `run --root` wants its root"
    )
    packing.add_argument("--path", action="append", default=[], help="more of the root's files")
    packing.add_argument("--add", action="append", default=[], type=name_and_file,
                         metavar="NAME=FILE", help="a file beside the root")  # fmt: skip
    for verb in (build, packing, running, interactive):
        verb.add_argument("--kernel", default=DEFAULT_KERNEL, help="version or start of one")
    for verb in (running, interactive):
        verb.add_argument("--root", type=Path, metavar="FOLDER", help="one that `pack` made")
        verb.add_argument("--cpus", type=int, default=2, metavar="N")
        verb.add_argument("--memory", type=int, default=2048, metavar="MIB")
        verb.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    running.add_argument("--timeout", type=float, default=600, metavar="S", help="boot included")
    running.add_argument("--icount", action="store_true", help="guest time counts instructions")
    running.add_argument("--accelerator", choices=("auto", "kvm", "tcg"), default="auto")
    running.add_argument("--ram-file", type=Path, metavar="FILE", help="becomes the guest's RAM")
    running.add_argument("--console-log", type=Path, metavar="FILE", help="keep the kernel log")
    running.add_argument("command", nargs="+")
    interactive.add_argument("command", nargs="*", default=["/bin/bash"])
    return parser


def name_and_file(text: str) -> tuple[str, Path]:
    """`NAME=FILE`. Raises ValueError."""
    name, file = text.split("=", 1)
    return name, Path(file)


def dispatch(options: argparse.Namespace) -> int:
    """Do what the options ask for; returns the exit status."""
    if options.verb == "kernels":
        print("\n".join(list_kernels()))
        return 0
    given = options.verb in ("run", "shell") and options.root
    root = packed_root(given) if given else ensure_root(options.kernel)
    if options.verb == "build":
        print(root.path, root.release)
        return 0
    if options.verb == "pack":
        pack(root, options.archive, options.path, dict(options.add))
        return 0
    env = dict(pair.partition("=")[::2] for pair in options.env)
    if options.verb == "shell":
        return shell(
            options.command, root=root, cpus=options.cpus, memory_mib=options.memory, env=env
        )
    return run(
        options.command,
        root=root,
        cpus=options.cpus,
        memory_mib=options.memory,
        env=env,
        timeout_s=options.timeout,
        icount=options.icount,
        accelerator=options.accelerator,
        console_log=options.console_log,
        guest_ram_file=options.ram_file,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Errors become one message and an exit status."""
    options = build_parser().parse_args(arguments)
    # As after Ctrl-C, so that what was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return dispatch(options)
    except (SetupError, VmLost) as error:
        print(f"vm: {error}", file=sys.stderr)
        return VM_LOST_STATUS if isinstance(error, VmLost) else SETUP_STATUS
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Who read our output has gone; so that Python's own flush at exit does not complain:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
