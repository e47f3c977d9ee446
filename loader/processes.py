"""Processes: telling one from a later one with the same number, starting, ending, last words."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loader.errors import LoaderError

LAST_WORDS = 2000  # bytes of a child's output that an error quotes


@dataclass(frozen=True)
class Identity:
    """A process for good: its number, and its start time in clock ticks since boot."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> Identity:
        """Raises OSError when there is no such process."""
        return cls(pid, int(_stat(pid)[19]))

    def runs(self) -> bool:
        """Whether that very process is there; a zombie, which nobody has reaped yet, is not."""
        try:
            fields = _stat(self.pid)
        except OSError:
            return False
        return int(fields[19]) == self.start_time and fields[0] not in "ZX"

    def as_dict(self) -> dict[str, int]:
        """For a state file."""
        return asdict(self)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the second may itself have spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def boot_id() -> str:
    """Start times mean something only within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def wait_ended(pidfd: int, timeout_s: float) -> bool:
    """Whether the process of a pidfd ended within the time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0.0) * 1000))


def kill_leftover(process: Identity, timeout_s: float = 5.0) -> None:
    """Ends a process of a crashed predecessor, if it is that very process.

    Raises LoaderError when it outlives SIGKILL by `timeout_s`.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # Compared after the pidfd was opened: the signal goes to the process that was compared.
        if not process.runs():
            return
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not wait_ended(pidfd, timeout_s):
            raise LoaderError(
                f"end process {process.pid} of a crashed predecessor",
                f"it still ran {timeout_s:g} s after SIGKILL",
                "see what it waits for in /proc/PID/stack",
            )
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


class Child:
    """A program started by this process, in a process group of its own.

    Ctrl-C on a terminal reaches its whole process group; a child must not leave before the
    supervisor says so. The programs ask for a signal when their parent dies themselves.

    `held` are signals that wait, from its first moment on, until the program takes them: one that
    came before it is ready to would end it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        pass_fds: Sequence[int] = (),
        held: Collection[signal.Signals] = (),
    ) -> None:
        self.name, self.log = name, log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, held)  # a child inherits it
            try:
                self._process = subprocess.Popen(
                    [str(part) for part in command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=pass_fds,
                    process_group=0,
                )
            except OSError as error:
                remedy = "run `make` again; `file` shows what kind of program it is"
                raise LoaderError.from_os_error(f"start {name}", error, remedy) from None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)  # not reaped yet, so it is still our child
        self.identity = Identity.of(self.pid)

    def terminate(self) -> None:
        """Asks it to finish and leave."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        return wait_ended(self.pidfd, timeout_s)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        return self._process.poll()

    def end(self, grace_s: float) -> bool:
        """Ends it: SIGTERM, then SIGKILL after `grace_s`. Whether it left by itself."""
        if self.status is None:
            self.terminate()
        left = self.wait(grace_s)
        if not left:
            self._process.kill()
            self.wait(5.0)
        self.close()
        return left

    def close(self) -> None:
        """Reaps it, once it has ended."""
        self._process.wait()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def fate(self) -> str:
        """How it ended and what it said last, for an error's second part."""
        status = self._process.wait()
        if status < 0:
            how = f"{self.name} was ended by {signal.Signals(-status).name}"
        else:
            how = f"{self.name} left with status {status}"
        said = self.last_words()
        return f"{how}: {said}" if said else how

    def last_words(self) -> str:
        """The end of what it printed."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read()[-LAST_WORDS:].decode(errors="replace").strip()


class Rate:
    """At most `count` events in any `seconds`."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds
        self._times: list[float] = []

    def allow(self) -> bool:
        """Counts an event, and says whether it is still within the limit."""
        now = time.monotonic()
        self._times = [t for t in self._times if t > now - self._seconds] + [now]
        return len(self._times) <= self._count
