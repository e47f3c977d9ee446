"""A raw client: whole frames or single bytes out, replies in, and every way of going away."""

from __future__ import annotations

import contextlib
import select
import socket
import struct

from shared_page.wire import Reply, split_replies

# For whatever has to come: an emulated CPU is slow, and a test that waits so long fails anyway.
DEADLINE_S = 20.0


class Client:
    """One connection. Everything that waits gives up after DEADLINE_S with an error.

    `source` is an address to connect from, `receive_buffer` bytes for SO_RCVBUF.
    """

    def __init__(
        self,
        address: tuple[str, int],
        source: str | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(DEADLINE_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
        except BaseException:
            self.socket.close()
            raise
        self._replies: list[Reply] = []
        self._rest = b""  # the beginning of a reply

    def send(self, *frames: bytes) -> None:
        """In one segment, if they fit."""
        self.socket.sendall(b"".join(frames))

    def send_pieces(self, data: bytes, *ends: int) -> None:
        """A segment each: up to each of `ends`, then the rest."""
        start = 0
        for end in (*ends, len(data)):
            if data[start:end]:
                self.socket.sendall(data[start:end])
            start = end

    def read(self) -> Reply:
        """The next frame. Raises EOFError when the server has ended the connection."""
        while not self._replies:
            data = self.socket.recv(1 << 18)
            if not data:
                raise EOFError(f"the connection ended; {self._rest!r} was left")
            self._replies, self._rest = split_replies(self._rest + data)
        return self._replies.pop(0)

    def expect(self, *replies: Reply) -> None:
        """These come next."""
        for at, reply in enumerate(replies):
            got = self.read()
            assert got == reply, f"reply {at} of {len(replies)}"

    def expect_end(self, *replies: Reply) -> None:
        """These come next and then FIN, and not one byte more."""
        self.expect(*replies)
        assert not self._replies
        assert not self._rest
        assert self.socket.recv(1) == b""

    def expect_gone(self) -> None:
        """The server has ended the connection without a byte, by FIN or by a reset."""
        with contextlib.suppress(ConnectionResetError):
            self.expect_end()

    def expect_silence(self, seconds: float) -> None:
        """Nothing comes for so long, not even an end."""
        assert not self._replies
        assert not select.select([self.socket], [], [], seconds)[0], self.socket.recv(1 << 16)

    def read_stream(self) -> tuple[list[int], Reply]:
        """The tokens of a stream's frames, and its last frame."""
        tokens: list[int] = []
        while True:
            frame = self.read()
            tokens += frame.tokens
            if frame.last:
                return tokens, frame

    def half_close(self) -> None:
        """FIN: no more requests; replies still come."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()
