"""`serve`: sets the service up, waits for a signal or a child's end, takes everything down.

It is not on the path of a request, and sleeps in poll() as long as all goes well.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
from typing import Any

from loader import capabilities, cgroups, executors, listener, transports
from loader.errors import LoaderError, Transaction, summary, trying
from loader.instance import Instance
from loader.options import ServeOptions
from loader.processes import Identity
from loader.signals import StopSignal
from loader.transports import Transport
from shared_page import PageError

OWN_FILES = 64  # descriptors besides one for each connection
# A child that cannot even start says so within this time; "serving" is printed after it.
SETTLE_S = 0.05


def say(text: str) -> None:
    """A line for the operator."""
    with contextlib.suppress(OSError):
        print(f"bpf-gpu-server: {text}", file=sys.stderr, flush=True)


def serve(options: ServeOptions) -> None:
    """Runs a service until SIGTERM, SIGINT or SIGHUP; whatever happens, nothing stays behind.

    Raises LoaderError when it cannot start, cannot go on, or could not answer all it admitted.
    """
    listener.parse_address(options.bind, options.allow_remote)
    if options.transport == "bpf":
        transports.require_features(options.transport)
    capabilities.bound_children()
    raise_file_limit(options.max_connections)
    try:
        with StopSignal() as stop, Transaction() as undo:
            Supervisor(options, stop, undo).run()
    except PageError as error:
        remedy = "build all parts again from the same sources: `make clean build`"
        raise LoaderError("share a page between the parts", str(error), remedy) from None


def raise_file_limit(connections: int) -> None:
    """Room for a descriptor for each connection. Raises LoaderError."""
    need = connections + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= need:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, max(hard, need)))
    except (OSError, ValueError):
        raise LoaderError(
            f"raise the limit of open files to {need}",
            f"EPERM: the hard limit is {hard}",
            f"raise it (`ulimit -Hn {need}` as root), or give a smaller --max-connections",
        ) from None


class Supervisor:
    """One service. Each thing that is set up registers at once how it is taken down."""

    def __init__(self, options: ServeOptions, stop: StopSignal, undo: Transaction) -> None:
        self._options, self._stop, self._undo = options, stop, undo
        self._instance = Instance(options.instance)
        self._address: tuple[str, int] = (options.bind, options.port)
        self._serving = False

    def run(self) -> None:
        """Set-up, service, drain."""
        self._claim_instance()
        self._enter_cgroup()
        socket_ = self._bind()
        self._transport = self._make_transport()
        self._executor = executors.make(self._options, self._instance, self._transport.page)
        self._undo.undo("end the executor", self._executor.close)
        self._executor.start()
        self._record()
        if not self._executor.wait_ready(self._stop):
            return
        listener.listen(socket_)
        self._transport.start(socket_)
        self._settle()
        self._drop_capabilities()
        self._announce()
        self._watch()
        say("stopping: answering what was admitted")
        self._transport.drain(self._stop)
        self._executor.finish()

    def _claim_instance(self) -> None:
        instance = self._instance
        instance.lock()
        self._undo.undo(f"remove {instance.runtime}", instance.remove_runtime)
        if swept := instance.sweep():
            say("removed what a predecessor left: " + ", ".join(swept))

    def _enter_cgroup(self) -> None:
        """Sockets belong to the cgroup of the process that makes them, so this comes first."""
        home = cgroups.current()
        try:
            self._instance.create_groups()
        except LoaderError as error:
            if self._options.transport == "bpf":
                raise
            say(f"no CPU accounts: {summary(error)}")
            return
        groups = self._instance.groups
        assert groups is not None
        self._undo.undo(f"remove the cgroup {groups.base}", self._instance.remove_groups)
        self._undo.undo("leave the cgroup", lambda: cgroups.leave(home))
        with trying(f"enter the cgroup {groups.service}", "run as root (sudo)"):
            cgroups.join(groups.service)

    def _bind(self) -> socket.socket:
        options = self._options
        bound = listener.bind(options.bind, options.port, options.allow_remote)
        self._undo.undo("close the listening socket", bound.close)
        host, port = bound.getsockname()[:2]
        self._address = (host, port)
        return bound

    def _make_transport(self) -> Transport:
        if self._options.transport == "bpf":
            self._undo.undo("remove the pins", self._instance.remove_pins)
        transport = transports.make(self._options, self._instance, self._address[1])
        self._undo.undo(f"end the transport {self._options.transport}", transport.close)
        if self._options.wake_policy == "adaptive":
            transport.page.adapt_wakes(self._options.wake_us)
        return transport

    def _settle(self) -> None:
        self._record()
        ended = self._stop.wait(self._transport.end_fd, timeout_s=SETTLE_S)
        if self._transport.end_fd in ended:
            raise self._transport.failure()

    def _drop_capabilities(self) -> None:
        with trying("drop capabilities", "see which security module refuses capset()"):
            capabilities.keep_only(capabilities.KEPT)

    def _announce(self) -> None:
        self._serving = True
        self._record()
        host, port = self._address
        shown = f"[{host}]" if ":" in host else host
        line = (
            f"serving on {shown}:{port}, transport {self._options.transport}, "
            f"executor {self._options.executor}, pid {os.getpid()}"
        )
        with contextlib.suppress(OSError):
            print(line, flush=True)
        if self._options.ready_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._options.ready_fd, line.encode() + b"\n")
                os.close(self._options.ready_fd)

    def _watch(self) -> None:
        """Until a signal. Raises LoaderError when the service cannot go on."""
        refusals = self._transport.refusals
        while True:
            transport_fd, executor_fds = self._transport.end_fd, self._executor.end_fds
            fds, quiet_s = (transport_fd, *executor_fds), refusals.quiet_s
            if quiet_s is None:
                fds += (refusals.fd,)
            ready = self._stop.wait(*fds, timeout_s=quiet_s)
            if self._stop.take():
                return
            if transport_fd in ready:
                raise self._transport.failure()
            if ready.intersection(executor_fds):
                fate = self._executor.restart()
                self._record()
                say(fate)
            if news := refusals.news(self._transport.page):
                say(news)

    def _record(self) -> None:
        """Writes the state file: for `stats`, for experiments, and for a successor's sweep."""
        options, groups = self._options, self._instance.groups
        state: dict[str, Any] = {
            "serving": self._serving,
            "transport": options.transport,
            "executor": options.executor,
            "workloads": list(options.workloads),
            "address": self._address[0],
            "port": self._address[1],
            "max_connections": options.max_connections,
            "slots": options.slots,
            "wake_us": options.wake_us,
            "wake_policy": options.wake_policy,
            "page": self._transport.page_location,
            "cgroups": {
                "service": str(groups.service) if groups else None,
                "executor": str(groups.executor) if groups else None,
            },
            "supervisor": Identity.of(os.getpid()).as_dict(),
            **self._transport.state(),
        }
        state["processes"] |= self._executor.state()
        self._instance.write_state(state)
