"""VMs that end before their command does, and commands that are ended from outside."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.vm.conftest import Outcome
from vm.errors import SetupError, VmLost
from vm.kernel_log import kernel_log_faults
from vm.qemu import Share
from vm.root import Root

pytestmark = [pytest.mark.timeout(600), pytest.mark.root]

CLI = [sys.executable, "-m", "vm"]
PROJECT = Path(__file__).resolve().parents[2]
LIMIT_S = 300  # of any wait here; a busy machine takes many times the usual five seconds


def processes_with(text: str) -> list[int]:
    """Processes with `text` in their command line: a folder's name finds the VM it is shared in."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
    return found


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command line as a process, from the moment when the command printed `started`."""
    process = subprocess.Popen(
        [*CLI, *arguments], cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            yield process
        finally:
            process.kill()


def test_panic_is_a_lost_vm(root: Root, tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    crash = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger"
    command = [*CLI, "run", "--console-log", str(log), "--", "sh", "-c", crash]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "the guest's kernel panicked" in done.stderr
    assert str(log) in done.stderr
    assert any("sysrq triggered crash" in line for line in kernel_log_faults(log.read_text()))
    assert processes_with(str(log)) == []


def test_time_limit_is_a_lost_vm(run_in_vm: Callable[..., Outcome], tmp_path: Path) -> None:
    """And nothing is left running; the kernel log shows what the guest was doing."""
    log = tmp_path / "console.log"
    with pytest.raises(VmLost) as lost:
        run_in_vm(["sleep", "1000"], timeout_s=7, console_log=log, shares=[Share(tmp_path)], cpus=1)
    assert "time limit of 7 s passed" in str(lost.value)
    assert lost.value.console_log == log
    assert processes_with(str(tmp_path)) == []


def test_vm_ends_with_its_parent(root: Root, tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    arguments = ["--console-log", str(log), "--", "sh", "-c", "echo started; sleep 1000"]
    with started("run", *arguments) as process:
        children = [pid for pid in processes_with(str(log)) if pid != process.pid]
        assert children
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + LIMIT_S
    while processes_with(str(log)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_interrupt_reaches_the_command(root: Root) -> None:
    command = "trap 'echo told; exit 7' INT; echo started; while :; do sleep 1; done"
    with started("run", "--", "sh", "-c", command) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert out == b"told\n"
    assert process.returncode == 7


class Terminal:
    """Ours: what it shows, and its size (rows, columns)."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.shown = b""

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert select.select([self.ours], [], [], deadline - time.monotonic())[0], self.shown
            self.shown += os.read(self.ours, 65536)


def test_shell_has_a_terminal_like_ours(root: Root) -> None:
    terminal = Terminal()
    terminal.resize(33, 101)
    terminal.type(b"stty size; tty\n")  # before there is anybody to read it
    command = [*CLI, "shell", "--", "bash", "--norc"]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=terminal.theirs, stdout=terminal.theirs, start_new_session=True
    ) as process:
        try:
            terminal.wait_for(b"33 101\r\n")
            terminal.wait_for(b"/dev/pts/0\r\n")
            terminal.resize(20, 60)
            terminal.type(b"until stty size | grep 20; do :; done\n")
            terminal.wait_for(b"20 60\r\n")
            terminal.type(b"echo go; sleep 1000\n")
            terminal.wait_for(b"\rgo\r\n")
            terminal.type(b"\x03")  # the guest's terminal makes a signal of it
            terminal.type(b"exit 5\n")
            assert process.wait(LIMIT_S) == 5
        finally:
            process.kill()
    os.close(terminal.ours)
    os.close(terminal.theirs)


def test_share_that_is_no_folder(run_in_vm: Callable[..., Outcome], tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="ENOTDIR"):
        run_in_vm(["true"], shares=[Share(tmp_path / "missing")])
