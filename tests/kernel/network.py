# SPDX-License-Identifier: MIT
"""Two network namespaces with a veth pair between them, and what netem does to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pyroute2 import NetNS, netns

SERVER, CLIENT = "10.98.0.1", "10.98.0.2"


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Within the block this thread's sockets, and the processes it starts, are in a namespace."""
    with open("/proc/thread-self/ns/net") as home:
        netns.setns(name)
        try:
            yield
        finally:
            netns.setns(home.fileno())


class Network:
    """Namespaces `server` and `client`; what happens to packets is set for both directions."""

    def __init__(self) -> None:
        self.server, self.client = (f"{side}-{os.getpid()}" for side in ("server", "client"))

    def __enter__(self) -> Network:
        ends = {self.server: ("veth0", SERVER), self.client: ("veth1", CLIENT)}
        for name in ends:
            netns.create(name)
        with NetNS(self.server) as ip:
            peer = {"ifname": "veth1", "net_ns_fd": self.client}
            ip.link("add", ifname="veth0", kind="veth", peer=peer)
        for name, (device, address) in ends.items():
            with NetNS(name) as ip:
                index = ip.link_lookup(ifname=device)[0]
                ip.addr("add", index=index, address=address, prefixlen=24)
                ip.link("set", index=index, state="up")
                ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        return self

    def disturb(self, **netem: float) -> None:
        """`disturb(loss=5, delay=2000, jitter=1000, prob_reorder=20)`: percent and microseconds."""
        for name, device in ((self.server, "veth0"), (self.client, "veth1")):
            with NetNS(name) as ip:
                index = ip.link_lookup(ifname=device)[0]
                ip.tc("replace", "netem", index=index, handle="1:", **netem)

    def __exit__(self, *_: object) -> None:
        for name in (self.server, self.client):
            with contextlib.suppress(OSError):
                netns.remove(name)
