"""The executors as the supervisor sees them: who takes requests from the page.

A child of its own, or somebody else's: a program outside of the virtual machine that this is.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from loader import paths
from loader.errors import LoaderError, trying
from loader.instance import Instance
from loader.options import ServeOptions
from loader.processes import Child, Rate
from loader.signals import StopSignal
from shared_page import SharedPage, constants
from shared_page.frames import write_frames

READY_S = 30.0
LOOK_S = 0.005  # between looks at the page's word while it starts; never once it serves
LEAVE_S = 5.0
RESTARTS, PER_S = 5, 60.0
EXTERNAL = "external"
EXTERNAL_LOOK_S = 0.05
EXTERNAL_LEAVE_S = 10.0  # it may be on the other side of an emulated CPU


class Executor(Protocol):
    """Who takes requests from the page: made to serve, asked to leave."""

    def start(self) -> None:
        """Raises LoaderError."""

    def wait_ready(self, stop: StopSignal) -> bool:
        """False when a signal came first. Raises LoaderError when it does not get ready."""

    @property
    def end_fds(self) -> tuple[int, ...]:
        """Become readable when it has ended."""

    def restart(self) -> str:
        """Replaces one that ended; says what happened. Raises LoaderError when too often."""

    def state(self) -> dict[str, dict[str, int]]:
        """What belongs into the state file's `processes`."""

    def finish(self) -> None:
        """Asks it to leave after what was submitted. Raises LoaderError when it does not."""

    def close(self) -> None:
        """Ends it, if it still runs."""


def make(options: ServeOptions, instance: Instance, page: SharedPage) -> Executor:
    """The executor that was chosen, not started yet. Raises LoaderError."""
    external = options.executor == EXTERNAL
    if options.page_frames and not (external and options.transport == "bpf"):
        raise LoaderError(
            "write the page's frames",
            "only a BPF map stays where it is, and only an external executor needs to know",
            "leave --page-frames out, or add --transport bpf --executor external",
        )
    if external:
        return ExternalExecutor(options, page)
    return ChildExecutor(options, instance, page)


class ExternalExecutor:
    """Somebody else starts it, and watches it; the page says how it is."""

    def __init__(self, options: ServeOptions, page: SharedPage) -> None:
        self._page, self._frames = page, options.page_frames
        self.end_fds: tuple[int, ...] = ()

    def start(self) -> None:
        """Says where the page is. Raises LoaderError."""
        if self._frames:
            remedy = "run as root (sudo), and name a file in a folder that can be written"
            with trying(f"write the page's frames to {self._frames}", remedy):
                write_frames(self._frames, self._page.frames())

    def wait_ready(self, stop: StopSignal) -> bool:
        """Waits for as long as it takes."""
        while self._page.executor_state != constants.EXECUTOR_READY:
            if stop.wait(timeout_s=EXTERNAL_LOOK_S):
                return False
        return True

    def restart(self) -> str:
        """Nobody here sees it end."""
        raise AssertionError("end_fds is empty")

    def state(self) -> dict[str, dict[str, int]]:
        """It is no process of ours."""
        return {}

    def finish(self) -> None:
        """Waits until the page says that it has left."""
        self._page.request_stop()
        for _ in range(int(EXTERNAL_LEAVE_S / EXTERNAL_LOOK_S)):
            if self._page.executor_state != constants.EXECUTOR_READY:
                return
            time.sleep(EXTERNAL_LOOK_S)
        said = f"it had not left {EXTERNAL_LEAVE_S:g} s after it was asked to"
        raise LoaderError("let the executor finish", said, "see whether it still runs")

    def close(self) -> None:
        """Whoever started it ends it; it is told once more."""
        self._page.request_stop()


class ChildExecutor:
    """A child: started, started again when it dies, asked to leave."""

    def __init__(self, options: ServeOptions, instance: Instance, page: SharedPage) -> None:
        self._page, self._instance = page, instance
        self._log = instance.runtime / "executor.log"
        self._rate = Rate(RESTARTS, PER_S)
        self._command: list[str | Path] = [
            *paths.executor(options.executor),
            *("--page-fd", str(page.fd), "--workloads", ";".join(options.workloads)),
        ]
        if options.executor_poll:
            self._command += ["--poll", options.executor_poll]
        if options.executor_sleep_us is not None:
            self._command += ["--sleep-us", str(options.executor_sleep_us)]
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """The process that runs now."""
        assert self._child is not None, "start() comes first"
        return self._child

    @property
    def end_fds(self) -> tuple[int, ...]:
        """Its pidfd."""
        return (self.child.pidfd,)

    def state(self) -> dict[str, dict[str, int]]:
        """The process, by number and start time."""
        return {"executor": self.child.identity.as_dict()}

    def start(self) -> None:
        """Starts it, in its own cgroup. Raises LoaderError."""
        self._child = Child("executor", self._command, self._log, (self._page.fd,))
        if groups := self._instance.groups:
            with trying(f"move the executor to {groups.executor}", "run as root (sudo)"):
                (groups.executor / "cgroup.procs").write_text(str(self.child.pid))

    def wait_ready(self, stop: StopSignal) -> bool:
        """False when a signal came first. Raises LoaderError when it does not get ready."""
        tried = "start the executor"
        looks = int(READY_S / LOOK_S)
        for _ in range(looks):
            if self._page.executor_state == constants.EXECUTOR_READY:
                return True
            ready = stop.wait(self.child.pidfd, timeout_s=LOOK_S)
            if self.child.pidfd in ready:
                remedy = "correct --workload: see `serve --help`"
                raise LoaderError(tried, self.child.fate(), remedy)
            if ready:
                return False
        said = f"it was not ready after {READY_S:g} s. {self.child.last_words()}"
        raise LoaderError(tried, said, "see whether the machine is overloaded, and try again")

    def restart(self) -> str:
        """Replaces a dead child; says how the old one ended. Raises LoaderError when too often."""
        fate = self.child.fate()
        self.child.close()
        if not self._rate.allow():
            raise LoaderError(
                "keep the executor running",
                f"it ended more than {RESTARTS} times in {PER_S:g} s; {fate}",
                "see its last words, and try another --workload to find which one it is",
            )
        self.start()
        return f"{fate}; started it again as process {self.child.pid}"

    def finish(self) -> None:
        """Asks it to leave after what was submitted. Raises LoaderError when it does not."""
        tried, remedy = "let the executor finish", "nothing: it was ended; report its last words"
        self._page.request_stop()
        if not self.child.wait(LEAVE_S):
            raise LoaderError(tried, f"it still ran {LEAVE_S:g} s after it was asked to", remedy)
        if self.child.status:
            raise LoaderError(tried, self.child.fate(), remedy)

    def close(self) -> None:
        """Ends it if it still runs."""
        if self._child:
            self._page.request_stop()
            self._child.end(0.5)
