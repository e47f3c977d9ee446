# SPDX-License-Identifier: MIT
"""A server that answers as a test tells it to: rightly, or wrongly on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from shared_page import constants
from shared_page.reading import ffi
from shared_page.wire import unpack_request_header

LAST = constants.REPLY_LAST


@dataclass(frozen=True)
class Asked:
    """A request as it came, and its place on the connection and among all that came."""

    id: int
    kind: int
    payload: bytes
    place: int
    ordinal: int


def pack_reply(request_id: int, payload: bytes, status: int = 0, flags: int = LAST) -> bytes:
    values = {"request_id": request_id, "length": len(payload), "status": status, "flags": flags}
    return bytes(ffi.buffer(ffi.new("struct reply_header *", values))) + payload


class Session:
    """One accepted connection."""

    def __init__(
        self, server: StandIn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.number = server.accepted
        self.places = 0
        server.accepted += 1

    async def asked(self) -> Asked:
        """The next request. Raises IncompleteReadError when the peer has closed."""
        header = unpack_request_header(await self.reader.readexactly(constants.REQUEST_HEADER_SIZE))
        assert header.magic == constants.PROTOCOL_MAGIC
        assert header.version == constants.PROTOCOL_VERSION
        payload = await self.reader.readexactly(header.length)
        request = Asked(header.request_id, header.kind, payload, self.places, self.server.asked)
        self.places += 1
        self.server.asked += 1
        return request

    async def __aiter__(self) -> AsyncIterator[Asked]:
        while True:
            yield await self.asked()

    def reply(self, request: Asked, payload: bytes | None = None, **header: int) -> None:
        """By default right: the request's own payload."""
        request_id = header.pop("request_id", request.id)
        body = request.payload if payload is None else payload
        self.writer.write(pack_reply(request_id, body, **header))

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        peer: Any = self.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Session], Awaitable[None]]


class StandIn:
    """Runs `behaviour` once a connection, in a thread of its own, until the with-block ends."""

    def __init__(self, behaviour: Behaviour, host: str = "127.0.0.1", **listen: Any) -> None:
        self.behaviour = behaviour
        self.accepted = 0
        self.asked = 0
        self.errors: list[BaseException] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family, backlog=1024, **listen)
        self.port: int = self.listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run)
        self.tasks: set[asyncio.Task[Any] | None] = set()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self._serve, sock=self.listener, limit=1 << 20)
        )
        self.loop.run_forever()
        self.stop_listening()
        left = asyncio.gather(*(task for task in self.tasks if task), return_exceptions=True)
        left.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(left)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            await self.behaviour(Session(self, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the generator is done, or the test is
        except AssertionError as error:
            self.errors.append(error)
        finally:
            self.tasks.discard(task)
            writer.transport.close()

    def stop_listening(self) -> None:
        """Connections are refused from here on; to be called in the loop's thread."""
        self.server.close()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert not self.errors, self.errors


async def echo(session: Session) -> None:
    """The server that makes no mistake."""
    async for request in session:
        session.reply(request)
