# SPDX-License-Identifier: MIT
"""What the page has to do, in plain Python: lists and objects, no rings, no words.

Written from docs/protocol.md and docs/page.md, for test_page_model.py to compare the C with.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from shared_page import constants as c
from shared_page import wire


@dataclass(eq=False)
class Request:
    """A request that has a slot, from its header to the slot's next use."""

    slot: int
    connection: Connection
    kind: int
    request_id: int
    length: int
    payload: bytes = b""
    ticket: int = 0
    cancelled: bool = False  # by its client
    orphaned: bool = False  # its connection is gone
    streams: bool = False
    tokens: list[int] = field(default_factory=list)
    result: bytes = b""
    status: int = c.STATUS_OK
    finish: int = c.FINISH_NONE
    announced: bool = False  # egress has taken the final notice
    seen: int = -1  # tokens, when egress looked last
    same: int = 0  # looks since then that found as many

    @property
    def overdue(self) -> bool:
        """Its answer is a time-out, unless the result comes first."""
        return not self.announced and self.same == c.LOOKS_UNTIL_OVERDUE


@dataclass(eq=False)
class Refusal:
    """An error reply that needs no slot."""

    request_id: int
    status: int


@dataclass(eq=False)
class Connection:
    """One use of a connection entry."""

    index: int
    buffer: bytes = b""
    discard: int = 0
    closing: bool = False
    assembling: Request | None = None
    owed: deque[Request | Refusal] = field(default_factory=deque)
    tokens_sent: int = 0


@dataclass(eq=False)
class Frame:
    """A piece of a reply as it goes on the wire."""

    data: bytes
    slot: int
    tokens: int
    last: bool
    offset: int = 0  # in the page; for the test's use


class Model:
    """All connections and requests of a page with that many slots and entries."""

    def __init__(self, slots: int, connections: int, first_ticket: int) -> None:
        self.free_slots = deque(range(slots))
        self.free_entries = deque(range(connections))
        self.connections: dict[int, Connection] = {}
        self.next_ticket = first_ticket
        self.submitted: deque[Request] = deque()
        self.running: list[Request] = []
        self.orphans: list[Request] = []
        self.notices: deque[tuple[Request, bool]] = deque()
        self.attention: deque[int] = deque()
        self.count: Counter[str] = Counter()

    # ingress

    def open(self) -> Connection | None:
        """A new connection, if an entry is free."""
        if not self.free_entries:
            self.count["refused"] += 1
            return None
        index = self.free_entries.popleft()
        self.connections[index] = Connection(index)
        return self.connections[index]

    def feed(self, connection: Connection, data: bytes) -> tuple[bool, bool]:
        """Bytes arrive. Whether a request was submitted, and whether an error reply is owed."""
        self.count["bytes"] += len(data)
        connection.buffer += data
        submitted, refused = self.next_ticket, self.count["busy"] + self.count["bad"]
        while not connection.closing and self._parse(connection):
            pass
        if connection.closing:
            connection.buffer = b""
        replied = self.count["busy"] + self.count["bad"] != refused
        if replied and connection.index not in self.attention:
            self.attention.append(connection.index)
        return self.next_ticket != submitted, replied

    def _parse(self, connection: Connection) -> bool:
        """One step; False when it needs more bytes."""
        buffer = connection.buffer
        if connection.discard:
            skipped = min(connection.discard, len(buffer))
            connection.discard -= skipped
            connection.buffer = buffer[skipped:]
            return not connection.discard
        request = connection.assembling
        if request is None:
            if len(buffer) < c.REQUEST_HEADER_SIZE:
                return False
            connection.buffer = buffer[c.REQUEST_HEADER_SIZE :]
            self._header(connection, wire.unpack_request_header(buffer))
            return True
        if len(buffer) < request.length:
            return False
        request.payload = buffer[: request.length]
        connection.buffer = buffer[request.length :]
        connection.assembling = None
        request.ticket = self.next_ticket
        self.next_ticket += 1
        self.submitted.append(request)
        connection.owed.append(request)
        return True

    def _header(self, connection: Connection, header: Any) -> None:
        if header.magic != c.PROTOCOL_MAGIC:
            self._refuse(connection, 0, c.STATUS_BAD_FRAME)
        elif header.version != c.PROTOCOL_VERSION:
            self._refuse(connection, header.request_id, c.STATUS_BAD_FRAME)
        elif header.length > c.REQUEST_MAX:
            self._refuse(connection, header.request_id, c.STATUS_TOO_LARGE)
        elif header.kind == c.KIND_CANCEL:
            self.count["cancels"] += 1
            connection.discard = header.length
            self._cancel(connection, header.request_id)
        elif len(connection.owed) >= c.PIPELINE_MAX:
            self._refuse(connection, header.request_id, c.STATUS_TOO_MANY)
        elif len(self.free_slots) < max(1, 4 * len(connection.owed)):
            connection.discard = header.length
            self._refuse(connection, header.request_id, c.STATUS_BUSY)
        else:
            slot = self.free_slots.popleft()
            connection.assembling = Request(
                slot, connection, header.kind, header.request_id, header.length
            )

    def _refuse(self, connection: Connection, request_id: int, status: int) -> None:
        busy = status == c.STATUS_BUSY
        self.count["busy" if busy else "bad"] += 1
        connection.closing = not busy
        connection.owed.append(Refusal(request_id, status))

    @staticmethod
    def _cancel(connection: Connection, request_id: int) -> None:
        for owed in connection.owed:
            if isinstance(owed, Request) and owed.request_id == request_id:
                owed.cancelled = True
                return

    # executor

    def take(self) -> Request | None:
        """The next submitted request, now running."""
        if not self.submitted:
            return None
        self.running.append(self.submitted.popleft())
        return self.running[-1]

    def token(self, request: Request, token: int, notify: bool) -> None:
        """A running stream has one more token."""
        request.tokens.append(token)
        if notify and len(self.notices) < c.SLOT_COUNT:
            self.notices.append((request, False))

    def finish(self, request: Request, result: bytes, status: int, finish: int) -> None:
        """A running request has its result."""
        request.result, request.status, request.finish = result, status, finish
        self.running.remove(request)
        self.notices.append((request, True))
        self.count["completed"] += 1

    # egress

    def take_notice(self) -> tuple[Request, bool] | None:
        """The executor's next notice, and whether it is final."""
        if not self.notices:
            return None
        request, final = self.notices.popleft()
        if final:
            request.announced = True
            self.count["finals"] += 1
            if request.orphaned:
                self.count["stale"] += 1
                self.orphans.remove(request)
                self.free_slots.append(request.slot)
        return request, final

    def look(self) -> list[int]:
        """Egress looks at every slot once: the connections of those that have become overdue."""
        waiting = [
            request
            for connection in self.connections.values()
            for request in connection.owed
            if isinstance(request, Request) and not request.announced
        ]
        late = []
        for request in waiting:
            if request.seen != len(request.tokens):
                request.seen, request.same = len(request.tokens), 0
            elif not request.overdue:
                request.same += 1
                late += [request] if request.overdue else []
        return [request.connection.index for request in late]

    def ready(self, connection: Connection, nth: int) -> Frame | None:
        """The nth owed reply, or a piece of it, if it can be sent when those before it were."""
        if nth >= len(connection.owed):
            return None
        owed = connection.owed[nth]
        if isinstance(owed, Refusal):
            return Frame(_reply(owed.request_id, owed.status, c.REPLY_LAST), c.SLOT_NONE, 0, True)
        if owed.announced and owed.finish == c.FINISH_NONE:
            data = _reply(owed.request_id, owed.status, c.REPLY_LAST, owed.result)
            return Frame(data, owed.slot, 0, True)
        if owed.overdue and not owed.streams:
            data = _reply(owed.request_id, c.STATUS_TIMEOUT, c.REPLY_LAST)
            return Frame(data, owed.slot, 0, True)
        return self._stream_frame(connection, owed) if nth == 0 else None

    @staticmethod
    def _stream_frame(connection: Connection, request: Request) -> Frame | None:
        left = request.tokens[connection.tokens_sent :]
        ended = request.announced or request.overdue
        if not left and not ended:
            return None
        last = ended and len(left) <= c.FRAME_TOKENS_MAX
        now = left[: c.FRAME_TOKENS_MAX]
        status, finish = c.STATUS_TIMEOUT, c.FINISH_ABORT
        if request.announced:
            status, finish = request.status, request.finish
        flags = c.REPLY_LAST | finish << c.REPLY_FINISH_SHIFT if last else 0
        payload = b"".join(token.to_bytes(4, "little") for token in now)
        status = status if last else c.STATUS_OK
        data = _reply(request.request_id, status, flags, payload)
        return Frame(data, request.slot, len(now), last)

    def sent(self, connection: Connection, frame: Frame) -> None:
        """The first owed reply, or a piece of it, has left."""
        if not frame.last:
            connection.tokens_sent += frame.tokens
            return
        connection.tokens_sent = 0
        self.count["replies"] += 1
        answered = connection.owed.popleft()
        if isinstance(answered, Request) and answered.announced:
            self.free_slots.append(answered.slot)
        elif isinstance(answered, Request):
            self.count["timeouts"] += 1
            self._orphan(answered)

    def _orphan(self, request: Request) -> None:
        request.orphaned = True
        self.orphans.append(request)

    def close(self, connection: Connection) -> None:
        """The connection is gone; what runs for it runs on for nobody."""
        for owed in connection.owed:
            if isinstance(owed, Request) and not owed.announced:
                self._orphan(owed)
                continue
            self.count["discarded"] += 1
            if isinstance(owed, Request):
                self.free_slots.append(owed.slot)
        if connection.assembling:
            self.free_slots.append(connection.assembling.slot)
        self.count["closed"] += 1
        del self.connections[connection.index]
        self.free_entries.append(connection.index)


def _reply(request_id: int, status: int, flags: int, payload: bytes = b"") -> bytes:
    words = ((request_id, 8), (len(payload), 4), (status, 2), (flags, 2))
    return b"".join(value.to_bytes(size, "little") for value, size in words) + payload
