"""`run`: one command under one kernel, as one call that returns the command's exit status."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import tempfile
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vm.accelerator import PROBE_LIMIT_S, choose_accelerator
from vm.errors import SetupError, VmLost
from vm.kernel_log import kernel_log_faults
from vm.processes import Daemons
from vm.qemu import PORTS, Machine, Share, qemu_command, virtiofsd_command
from vm.root import (
    Progress,
    Root,
    default_build_folder,
    ensure_root,
    print_progress,
    project_folder,
    require_root,
)
from vm.session import Ended, Session, Streams, TimedOut

POWER_OFF_GRACE_S = 10.0
QEMU_END_GRACE_S = 2.0
HOSTNAME = "vm"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


def run(
    command: Sequence[str] | str,
    *,
    root: Root | None = None,
    cpus: int = 2,
    memory_mib: int = 2048,
    timeout_s: float = 600,
    icount: bool = False,
    shares: Sequence[Share] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    streams: Streams | None = None,
    console_log: Path | None = None,
    guest_ram_file: Path | None = None,
    accelerator: str = "auto",
    report: Progress = print_progress,
) -> int:
    """Boot a VM, run `command` in it, power it off; returns the command's exit status.

    A string is run by /bin/sh; a command killed by signal N gives 128 + N; what it leaves running
    is killed. `shares` (default: the project folder, read-write) appear in the guest at the same
    paths, and the command starts in `cwd` (default: ours, where it is shared). `env` is added to a
    small fixed environment; nothing of ours is inherited. `timeout_s` includes the boot. The
    guest's kernel log goes to `console_log`, or to a file in build/vm/logs that stays only when
    there is a fault in it. With `guest_ram_file` the guest's RAM is that file. `accelerator` is
    "tcg", "kvm" or "auto". `report` gets lines for a person.

    Raises VmLost when the VM ended before the status came (panic, time limit, QEMU), SetupError
    when it cannot be started. Nothing of it is left running in any case.
    """
    require_root()
    streams = streams or Streams()
    root = root or ensure_root(progress=report)
    shares = [Share(project_folder())] if shares is None else shares
    if accelerator == "auto":
        accelerator = "tcg" if icount else probed_accelerator(root)
    machine = Machine(cpus, memory_mib, icount, accelerator, guest_ram_file)
    job = {
        "argv": ["/bin/sh", "-c", command] if isinstance(command, str) else list(command),
        "cwd": str(cwd or default_folder(shares)),
        "env": {**ENVIRONMENT, **(env or {})},
        "hostname": HOSTNAME,
        "mounts": describe_mounts(shares),
        "stdin": streams.stdin is not None,
        "terminal": streams.terminal and streams.terminal_size(),
    }
    deadline = time.monotonic() + timeout_s
    with kernel_log(console_log, report) as log, boot(machine, root, shares, log) as vm:
        session = Session(vm.ports, vm.daemons.pidfds, streams, deadline)
        try:
            status = session.run(job)
        except Ended as ended:
            if isinstance(ended, TimedOut):
                session.ask_for_diagnosis()
            raise vm.lost(f"Running {job['argv']!r} in a VM", ended, timeout_s) from None
        with contextlib.suppress(subprocess.TimeoutExpired):
            vm.qemu.wait(POWER_OFF_GRACE_S)
        return status


def default_folder(shares: Sequence[Share]) -> Path:
    """Our working directory if the guest sees it, else the first share."""
    here = Path.cwd()
    if any(here.is_relative_to(share.host_path) and not share.guest_path for share in shares):
        return here
    return shares[0].mount_point if shares else Path("/")


def describe_mounts(shares: Sequence[Share]) -> list[dict[str, object]]:
    """Mounts in an order in which one may lie inside another."""
    mounts = [
        {"tag": f"share{i}", "path": str(share.mount_point), "read_only": share.read_only}
        for i, share in enumerate(shares)
    ]
    return sorted(mounts, key=lambda mount: str(mount["path"]))


def probed_accelerator(root: Root) -> str:
    """ "kvm" if a VM has booted with it on this host, else "tcg"."""
    folder = default_build_folder()

    def probe() -> int:
        return run(
            ["true"],
            root=root,
            accelerator="kvm",
            cpus=1,
            memory_mib=512,
            shares=[],
            streams=Streams(stdin=None),
            timeout_s=PROBE_LIMIT_S,
            console_log=folder / "logs" / "kvm-probe.log",
        )

    return choose_accelerator(folder / "accelerator.json", f"{root.path} {root.release}", probe)


@contextlib.contextmanager
def kernel_log(chosen: Path | None, report: Progress) -> Iterator[Path]:
    """The file for the guest's console. One of our own goes when there is no fault in it."""
    if chosen:
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_bytes(b"")
        yield chosen.absolute()
        return
    folder = default_build_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(".log", time.strftime("console-%H%M%S-"), folder)
    os.close(descriptor)
    log = Path(name)
    try:
        yield log
    except VmLost:
        raise
    except BaseException:
        log.unlink()
        raise
    if faults := kernel_log_faults(log.read_text(errors="replace")):
        report(f"the guest's kernel reported {faults[0]!r}; its log is in {log}")
    else:
        log.unlink()


@dataclass(frozen=True)
class RunningVm:
    """What `boot` started."""

    qemu: subprocess.Popen[bytes]
    daemons: Daemons
    ports: Mapping[str, socket.socket]
    log: Path

    def lost(self, tried: str, ended: Ended, timeout_s: float) -> VmLost:
        """Why it ended: the guest's panic, the time limit, or in QEMU's own words."""
        timed_out = isinstance(ended, TimedOut)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.qemu.wait(0 if timed_out else QEMU_END_GRACE_S)
        faults = kernel_log_faults(self.log.read_text(errors="replace"))
        if timed_out:
            said = f"the time limit of {timeout_s:g} s passed (ETIMEDOUT)"
        elif any("Kernel panic" in line for line in faults):
            said = "the guest's kernel panicked"
        else:
            said = f"{ended}, QEMU with status {self.qemu.returncode}"
            if messages := self.daemons.messages():
                said += f", saying: {messages}"
        return VmLost(tried, said, self.log, faults)


@contextlib.contextmanager
def boot(machine: Machine, root: Root, shares: Sequence[Share], log: Path) -> Iterator[RunningVm]:
    """Start the virtiofsds and QEMU; they are killed at the end, however it comes."""
    with contextlib.ExitStack() as stack:
        daemons = Daemons(stack.enter_context(tempfile.TemporaryFile()))
        stack.callback(daemons.stop)
        shared = {"root": Share(root.path, read_only=True)}
        shared |= {f"share{i}": share for i, share in enumerate(shares)}
        file_systems = {
            tag: serve_folder(stack, daemons, root, share, "always" if tag == "root" else "auto")
            for tag, share in shared.items()
        }
        ours, theirs = {}, {}
        for name in PORTS:
            ours[name], theirs[name] = socket.socketpair()
            stack.enter_context(ours[name])
        with contextlib.ExitStack() as handed_over:  # QEMU's ends: closed here once it has them
            for end in theirs.values():
                handed_over.enter_context(end)
            ends = {name: end.fileno() for name, end in theirs.items()}
            command = qemu_command(machine, root, log, ends, file_systems)
            qemu = daemons.start(command, [*file_systems.values(), *ends.values()])
        yield RunningVm(qemu, daemons, ours, log)


def serve_folder(
    stack: contextlib.ExitStack, daemons: Daemons, root: Root, share: Share, cache: str
) -> int:
    """Start a virtiofsd; returns a socket connected to it, for QEMU to inherit.

    Its listening socket gets a name from the kernel, in the abstract namespace: there is nothing
    to wait for, and no path to remove.
    """
    if not share.host_path.is_dir():
        raise SetupError(
            f"Sharing {share.host_path} with a VM",
            "it is no folder (ENOTDIR)",
            "Name an existing folder.",
        )
    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen(1)
        connection.connect(listener.getsockname())
        command = virtiofsd_command(root, share, cache, listener.fileno())
        daemons.start(command, [listener.fileno()])
    return connection.fileno()


def shell(
    command: Sequence[str] = ("/bin/bash",),
    *,
    root: Root | None = None,
    cpus: int = 2,
    memory_mib: int = 2048,
    shares: Sequence[Share] | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """`run` without a time limit, on a terminal that is like ours; ours is raw meanwhile."""
    streams = Streams(terminal=True)
    env = {"TERM": os.environ.get("TERM", "linux"), **(env or {})}
    with raw_terminal(0):
        return run(
            command,
            root=root,
            cpus=cpus,
            memory_mib=memory_mib,
            shares=shares,
            env=env,
            streams=streams,
            timeout_s=math.inf,
        )


@contextlib.contextmanager
def raw_terminal(descriptor: int) -> Iterator[None]:
    """Every key goes to the guest, Ctrl-C too; does nothing where the descriptor is no terminal."""
    if not os.isatty(descriptor):
        yield
        return
    attributes = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # TCSAFLUSH would drop what was typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
