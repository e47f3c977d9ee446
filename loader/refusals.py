"""Connections that are refused: counted by the transport, and said by the supervisor."""

from __future__ import annotations

import contextlib
import os
import time

from shared_page import SharedPage

QUIET_S = 10.0  # after each time


class Refusals:
    """An eventfd that the transport writes when it refuses a connection, once until that was heard.

    It is heard only when the quiet time is over, so that whoever storms the port costs neither the
    transport nor the supervisor anything meanwhile.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._said = 0
        self._unheard = 0
        self._quiet_until: float | None = None

    @property
    def quiet_s(self) -> float | None:
        """Seconds until `news` has to be asked again; None when only the eventfd tells."""
        if self._quiet_until is None:
            return None
        return max(self._quiet_until - time.monotonic(), 0.0)

    def news(self, page: SharedPage) -> str | None:
        """What there is to say now. The page is the transport's, its supervisor words ours."""
        if self.quiet_s:
            return None
        page.struct.supervisor.refusals_heard += self._unheard
        self._unheard, self._quiet_until = 0, None
        with contextlib.suppress(BlockingIOError):
            self._unheard = os.eventfd_read(self.fd)
        refused = int(page.struct.ingress.connections_refused) - self._said
        if self._unheard or refused:
            self._quiet_until = time.monotonic() + QUIET_S
        if not refused:
            return None
        self._said += refused
        places = page.struct.identity.max_connections
        return (
            f"refused {refused} connections: all {places} places are taken; give a larger "
            "--max-connections, or see who holds them (`ss -tn`)"
        )

    def close(self) -> None:
        """The transport must have ended."""
        os.close(self.fd)
