"""The executor as the supervisor sees it: a child that takes requests from the page."""

from __future__ import annotations

from pathlib import Path

from loader import paths
from loader.errors import LoaderError, trying
from loader.instance import Instance
from loader.options import ServeOptions
from loader.processes import Child, Rate
from loader.signals import StopSignal
from shared_page import SharedPage, constants

READY_S = 30.0
LOOK_S = 0.005  # between looks at the page's word while it starts; never once it serves
LEAVE_S = 2.0
RESTARTS, PER_S = 5, 60.0


class Executor:
    """An executor: started, started again when it dies, asked to leave."""

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
        return fate

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
