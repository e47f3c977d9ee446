"""Networks between a server and a client, in namespaces: made for a block, removed after it.

| name       | between the two                                                       |
|------------|-----------------------------------------------------------------------|
| `loopback` | nothing: both are here; in a namespace of their own under a condition |
| `veth`     | a pair of virtual Ethernet devices                                    |
| `bridge`   | two pairs, joined by a bridge in a third namespace                    |
| `vxlan`    | an overlay (UDP, port 4789) over a veth pair                          |
| `ssh:HOST` | a real network: the client is on another machine, started through ssh |

Links are made inside namespaces, so that removing these removes all, and nothing of the machine's
own network is touched. A namespace's name has its maker's process id and start time: what a killed
process left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from experiments.errors import ExperimentError
from experiments.plan import SSH
from experiments.programs import output_of

SERVER, CLIENT = "10.98.0.1", "10.98.0.2"  # of the underlay too
OVERLAY_SERVER, OVERLAY_CLIENT = "10.99.0.1", "10.99.0.2"
PREFIX_BITS = 24
VXLAN = {"vxlan_id": 73, "vxlan_port": 4789}  # the port that IANA has given it
DEVICE, OVERLAY = "veth0", "vxlan0"
TCP = Path("/proc/sys/net/ipv4")  # shows the namespace of the thread that opens a file
_OURS = re.compile(r"bgs-(?P<pid>\d+)-(?P<start>\d+)-\d+-\w+")
_numbers = itertools.count()


@dataclass(frozen=True)
class Netem:
    """What happens to packets that leave a side, on their way to the other: see tc-netem(8)."""

    delay_us: int = 0
    jitter_us: int = 0
    loss_percent: float = 0.0
    duplicate_percent: float = 0.0
    reorder_percent: float = 0.0  # sent at once, before those that are delayed; every `gap`-th
    gap: int = 0
    limit: int = 1000  # packets that wait
    on: str = "both"  # or "server", or "client"

    def parameters(self) -> dict[str, float]:
        """In pyroute2's words."""
        return {
            "delay": self.delay_us,
            "jitter": self.jitter_us,
            "loss": self.loss_percent,
            "duplicate": self.duplicate_percent,
            "prob_reorder": self.reorder_percent,
            "gap": self.gap,
            "limit": self.limit,
        }


@dataclass(frozen=True)
class Place:
    """Where server and client run: words to put before their commands, and whom to connect to."""

    server_prefix: tuple[str, ...]
    client_prefix: tuple[str, ...]
    address: str
    server: str = ""  # name of the namespace; none: here
    client: str = ""

    @classmethod
    def between(cls, server: str, client: str, address: str) -> Place:
        """Of two namespaces."""
        return cls(_entering(server), _entering(client), address, server, client)

    def disturb(self, netem: Netem) -> None:
        """Replaces what happens to packets. Raises ExperimentError."""
        with _trying(f"disturb packets with {netem}", "see that the kernel has sch_netem"):
            for side, name in (("server", self.server), ("client", self.client)):
                if netem.on in (side, "both"):
                    with _links(name) as ip:
                        index = (ip.link_lookup(ifname=DEVICE) or ip.link_lookup(ifname="lo"))[0]
                        settings = netem.parameters()
                        ip.tc("replace", "netem", index=index, handle="1:", **settings)


@contextlib.contextmanager
def build(
    name: str, *, netem: Netem | None = None, congestion: str | None = None
) -> Iterator[Place]:
    """The place of that name while the block runs. SIGTERM leaves the block by SystemExit, where
    it would have ended the process. Raises ExperimentError; needs root but for a plain loopback."""
    if name.startswith(SSH):
        yield _remote(name, plain=netem is None and congestion is None)
        return
    make = _check(name, netem)
    if make is _loopback and netem is None and congestion is None:
        yield Place((), (), "127.0.0.1")
        return
    sweep()
    base = f"bgs-{os.getpid()}-{_start_time(os.getpid())}-{next(_numbers)}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_leaving_on_sigterm())
        stack.callback(_remove_all, f"{base}-")
        with _signals_later():
            with _trying(f"make a network of kind {name}", "run as root (sudo); see `dmesg`"):
                place = make(base)
            if congestion is not None:
                _use_congestion(place, congestion, stack)
            if netem is not None:
                place.disturb(netem)
        yield place


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Within the block this thread's sockets, and the processes it starts, are in a namespace."""
    with open("/proc/thread-self/ns/net") as home:
        netns.setns(name)
        try:
            yield
        finally:
            netns.setns(home.fileno())


def sweep() -> None:
    """Removes namespaces whose makers are gone."""
    for name in _names():
        found = _OURS.fullmatch(name)
        if found and _start_time(int(found["pid"])) != int(found["start"]):
            _remove(name)


def _check(name: str, netem: Netem | None) -> Callable[[str], Place]:
    if name not in MAKERS:
        known = ", ".join([*MAKERS, f"{SSH}HOST"])
        raise ExperimentError(f"make a network of kind {name}", "there is none", f"take {known}")
    if netem is not None and netem.on not in ("both", "server", "client"):
        said = f"netem acts on both sides, not on {netem.on!r}"
        do = 'correct `on`: "both", "server" or "client"'
        raise ExperimentError(f"make a network of kind {name}", said, do)
    return MAKERS[name]


def _loopback(base: str) -> Place:
    name = _namespace(base, "both")
    return Place.between(name, name, "127.0.0.1")


def _veth(base: str) -> Place:
    server, client = _namespace(base, "server"), _namespace(base, "client")
    _pair(server, DEVICE, client, DEVICE)
    _up(server, DEVICE, SERVER)
    _up(client, DEVICE, CLIENT)
    return Place.between(server, client, SERVER)


def _bridge(base: str) -> Place:
    server, client = _namespace(base, "server"), _namespace(base, "client")
    switch = _namespace(base, "switch")
    with _links(switch) as ip:
        ip.link("add", ifname="bridge0", kind="bridge")
        bridge = ip.link_lookup(ifname="bridge0")[0]
    for number, (side, address) in enumerate(((server, SERVER), (client, CLIENT))):
        _pair(side, DEVICE, switch, f"port{number}")
        with _links(switch) as ip:
            ip.link("set", index=ip.link_lookup(ifname=f"port{number}")[0], master=bridge)
        _up(side, DEVICE, address)
        _up(switch, f"port{number}")
    _up(switch, "bridge0")
    return Place.between(server, client, SERVER)


def _vxlan(base: str) -> Place:
    place = _veth(base)
    ends = ((place.server, CLIENT, OVERLAY_SERVER), (place.client, SERVER, OVERLAY_CLIENT))
    for side, remote, address in ends:
        with _links(side) as ip:
            under = ip.link_lookup(ifname=DEVICE)[0]
            ip.link("add", ifname=OVERLAY, kind="vxlan", vxlan_link=under, vxlan_group=remote,
                    **VXLAN)  # fmt: skip
        _up(side, OVERLAY, address)
    return Place.between(place.server, place.client, OVERLAY_SERVER)


def _remote(name: str, plain: bool) -> Place:
    """A client on another machine. Raises ExperimentError."""
    tried = f"use a client at {name}"
    if not plain:
        said = "netem and congestion control would change the networks of both machines"
        raise ExperimentError(tried, said, "set them up there, and leave them out here")
    # Words reach the other shell without quotes, here as in each later use.
    prefix = ("ssh", "-o", "BatchMode=yes", name.removeprefix(SSH))
    connection = output_of([*prefix, "echo", "$SSH_CONNECTION"], tried).split()
    if len(connection) != 4:
        said = f"its SSH_CONNECTION is {connection}"
        raise ExperimentError(tried, said, "choose a host that OpenSSH's sshd serves")
    return Place((), prefix, connection[0])


MAKERS = {"loopback": _loopback, "veth": _veth, "bridge": _bridge, "vxlan": _vxlan}


def _namespace(base: str, side: str) -> str:
    """A new one, with loopback up."""
    name = f"{base}-{side}"
    netns.create(name)
    _up(name, "lo")
    return name


@contextlib.contextmanager
def _links(namespace: str) -> Iterator[IPRoute]:
    """Not pyroute2's NetNS, which ends a child of ours by SIGTERM: our handler would take it."""
    with inside(namespace), IPRoute() as ip:
        yield ip


def _pair(one: str, device: str, other: str, other_device: str) -> None:
    with _links(one) as ip:
        peer = {"ifname": other_device, "net_ns_fd": other}
        ip.link("add", ifname=device, kind="veth", peer=peer)


def _up(namespace: str, device: str, address: str = "") -> None:
    with _links(namespace) as ip:
        index = ip.link_lookup(ifname=device)[0]
        if address:
            ip.addr("add", index=index, address=address, prefixlen=PREFIX_BITS)
        ip.link("set", index=index, state="up")


def _entering(namespace: str) -> tuple[str, ...]:
    # Not `ip netns exec`, which mounts a /sys of its own: without bpffs and cgroups.
    return ("nsenter", f"--net={netns.NETNS_RUN_DIR}/{namespace}", "--")


def _use_congestion(place: Place, algorithm: str, stack: contextlib.ExitStack) -> None:
    """For connections to come, at both ends. Raises ExperimentError."""
    try:
        try:
            _set_congestion(place, algorithm)
        except PermissionError:
            # Namespaces but the first may have only what the machine allows to all users.
            stack.enter_context(_allowed(algorithm))
            _set_congestion(place, algorithm)
    except OSError as error:
        have = (TCP / "tcp_available_congestion_control").read_text().split()
        said = f"{os.strerror(error.errno or 0)}: this kernel has {', '.join(have)}"
        do = f"take one of these, or a kernel with the module tcp_{algorithm}"
        raise ExperimentError(f"use congestion control {algorithm}", said, do) from None


def _set_congestion(place: Place, algorithm: str) -> None:
    """The kernel loads the algorithm's module where there is one. Raises OSError."""
    for name in {place.server, place.client}:
        with inside(name):
            (TCP / "tcp_congestion_control").write_text(algorithm)


@contextlib.contextmanager
def _allowed(algorithm: str) -> Iterator[None]:
    """A setting of the whole machine, put back after the block. Raises OSError."""
    setting = TCP / "tcp_allowed_congestion_control"
    before = setting.read_text()
    setting.write_text(f"{before.strip()} {algorithm}")
    try:
        yield
    finally:
        setting.write_text(before)


def _names() -> list[str]:
    """Namespaces of ours, whoever made them."""
    return [name for name in netns.listnetns() if _OURS.fullmatch(name)]


def _remove_all(beginning: str) -> None:
    for name in _names():
        if name.startswith(beginning):
            _remove(name)


def _remove(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another one that sweeps was faster
        netns.remove(name)


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to a process's start; None when it is gone, or only not yet reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@contextlib.contextmanager
def _trying(what: str, do: str) -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        raise ExperimentError(what, f"{os.strerror(error.code)} (by netlink)", do) from error
    except OSError as error:
        raise ExperimentError(what, str(error), do) from error


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Signals that end us are handled after the block. pyroute2's destructors run within it, and
    what a handler raises in a destructor is lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _leaving_on_sigterm() -> Iterator[None]:
    def leave(number: int, frame: FrameType | None) -> Any:
        sys.exit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
