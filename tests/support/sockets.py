"""TCP sockets of a port by state, asked of the kernel (sock_diag(7)).

/proc/net/tcp would list each TIME_WAIT of a churn, too, and take seconds under emulation.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter

# include/net/tcp_states.h, from 1 on
STATES = (
    *("ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE"),
    *("CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
# struct inet_diag_req_v2: family, protocol, extensions, pad, states, source and destination port
REQUEST = struct.Struct("=BBBxI4s44x")
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr


def states(port: int) -> Counter[str]:
    """How many sockets whose own port it is are in which state; TIME_WAIT is left out.

    Raises OSError where the kernel does not say.
    """
    wanted = sum(1 << at + 1 for at, name in enumerate(STATES) if name != "TIME_WAIT")
    found: Counter[str] = Counter()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = REQUEST.pack(family, socket.IPPROTO_TCP, 0, wanted, port.to_bytes(2, "big"))
            header = (HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
            netlink.send(HEADER.pack(*header) + request)
            found += _collect(netlink)
    return found


def _collect(netlink: socket.socket) -> Counter[str]:
    found: Counter[str] = Counter()
    while True:
        data = netlink.recv(1 << 16)
        while data:
            length, kind, *_ = HEADER.unpack_from(data)
            if kind == NLMSG_DONE:
                return found
            if kind == NLMSG_ERROR:
                error = -int(struct.unpack_from("=i", data, HEADER.size)[0])
                raise OSError(error, "sock_diag")
            found[STATES[data[HEADER.size + 1] - 1]] += 1  # struct inet_diag_msg.idiag_state
            data = data[length + 3 & ~3 :]
