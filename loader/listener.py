"""The listening socket, alike for every transport; accepted sockets inherit its options."""

from __future__ import annotations

import errno
import ipaddress
import socket

from loader.errors import LoaderError
from shared_page import constants

BACKLOG = 4096
# Half of what the kernel reserves; at least four times the largest request must fit, or assembling
# one can stall on a closed window. Also the stock default, so that both transports have it fixed.
RECEIVE_BUFFER = 131072
LARGEST_REQUEST = constants.REQUEST_HEADER_SIZE + constants.REQUEST_MAX


def parse_address(text: str, allow_remote: bool) -> tuple[socket.AddressFamily, str]:
    """The family and address of `--bind`. Raises LoaderError for a name or a public address."""
    tried = f"bind to {text}"
    try:
        address = ipaddress.ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        remedy = "give --bind an IPv4 or IPv6 address, such as 127.0.0.1 or ::1"
        raise LoaderError(tried, "it is not an IP address", remedy) from None
    if not address.is_loopback and not allow_remote:
        raise LoaderError(
            tried, "it is not a loopback address, and clients are not authenticated",
            "bind to 127.0.0.1 or ::1, or add --allow-remote if any host may send requests",
        )  # fmt: skip
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return family, str(address)


def bind(address: str, port: int, allow_remote: bool = False) -> socket.socket:
    """A bound socket that does not listen yet; port 0 takes a free one. Raises LoaderError."""
    family, host = parse_address(address, allow_remote)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        # Without it a small reply waits for the peer's delayed ACK of the one before, 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An urgent byte is one of the stream's: ingress in the kernel sees it in its place, and
        # recv() without this would leave it out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        _require_buffer(listener)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise LoaderError.from_os_error(f"bind to {host} port {port}", error,
                                        _remedy(error, port)) from None  # fmt: skip
    except LoaderError:
        listener.close()
        raise
    return listener


def _remedy(error: OSError, port: int) -> str:
    if isinstance(error, PermissionError):
        return "ports below 1024 need root: choose another --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "give --bind an address of this machine; `ip address` shows them"
    return f"choose another --port, or see who has it with `ss -ltnp 'sport = :{port}'`"


def _require_buffer(listener: socket.socket) -> None:
    size = listener.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if size < 4 * LARGEST_REQUEST:
        raise LoaderError(
            "give the listener a receive buffer",
            f"the kernel granted {size} bytes, less than four requests of {LARGEST_REQUEST}",
            "raise it: `sysctl net.core.rmem_max=212992`",
        )


def listen(listener: socket.socket) -> None:
    """From now on clients can connect. Raises LoaderError."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        tried = f"listen on {host} port {port}"
        raise LoaderError.from_os_error(tried, error, _remedy(error, port)) from None
