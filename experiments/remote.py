"""`measure` in another process, here or in the VM: started, followed, ended."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import programs
from experiments.errors import ExperimentError
from experiments.hypervisor import Hypervisor, keep
from experiments.progress import Bar, follow

TICK_S = 0.2
INTERRUPT_S = 20.0
NEWS = b"vm: "  # how the VM's lines begin that tell what takes so long

Lines = Callable[[list[bytes]], None]


def run(command: Sequence[str], raw: Path, bar: Bar) -> None:
    """Runs it with a bar, and keeps what the VM cost the host at each mark of a run.

    Raises ExperimentError, or KeyboardInterrupt when what ran has cleaned up after itself.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert process.stdout
    assert process.stderr
    hypervisor = Hypervisor(process.pid)
    readings: dict[str, list[float]] = {}
    said: list[bytes] = []

    def mark(run_: str) -> None:
        cpu_us = hypervisor.cpu_us()
        if cpu_us is not None:
            readings.setdefault(run_, []).append(cpu_us)
            keep(raw / run_, readings[run_])

    def take_events(lines: list[bytes]) -> None:
        for line in lines:
            follow(line, bar.phase, mark)

    def take_messages(lines: list[bytes]) -> None:
        said.extend(lines)
        for line in lines:
            if line.startswith(NEWS):
                bar.note(line.decode(errors="replace"))

    with process.stdout, process.stderr:
        outputs: dict[int, Lines] = {
            process.stdout.fileno(): take_events,
            process.stderr.fileno(): take_messages,
        }
        try:
            relay(outputs, bar.tick)
            process.wait()
        except BaseException:
            # Not to the whole group: each parent stops its children in its own way.
            programs.end(process, INTERRUPT_S, signal.SIGINT)
            raise
    if process.returncode:
        raise failure(command, process.returncode, b"\n".join(said).decode(errors="replace"))


def relay(outputs: dict[int, Lines], tick: Callable[[], None]) -> None:
    """Passes whole lines on as they come, until every output has ended."""
    unfinished = dict.fromkeys(outputs, b"")
    with selectors.DefaultSelector() as selector:
        for fd in outputs:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(TICK_S):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fd)
                *lines, unfinished[key.fd] = (unfinished[key.fd] + data).split(b"\n")
                outputs[key.fd](lines)
            tick()
    for fd, rest in unfinished.items():
        outputs[fd]([rest] if rest else [])


def failure(command: Sequence[str], status: int, said: str) -> ExperimentError:
    """What the failing side printed, when it is a message for people; else all it said."""
    start = said.rfind("error: could not ")
    if start >= 0:
        return Told(said[start:].strip())
    return programs.failed("run the experiment", command, status, said)


class Told(ExperimentError):
    """An error that another process has put into words already."""

    def __init__(self, text: str) -> None:
        super().__init__("run the experiment", text, "")
        self.text = text

    def render(self) -> str:
        """As it was told."""
        return self.text
