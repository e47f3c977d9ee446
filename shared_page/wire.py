# SPDX-License-Identifier: MIT
"""Frames of protocol.h packed and taken apart, for tests and tools; docs/protocol.md explains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .reading import CONSTANTS, ffi

_REPLY_SIZE = CONSTANTS["REPLY_HEADER_SIZE"]
_NO_TOKEN = 0xFFFFFFFF


class Reply(NamedTuple):
    """One frame from the server."""

    request_id: int
    status: int
    flags: int
    payload: bytes

    @property
    def last(self) -> bool:
        """No more frames follow for this request."""
        return bool(self.flags & CONSTANTS["REPLY_LAST"])

    @property
    def finish(self) -> int:
        """enum finish_reason; FINISH_NONE unless this ends a stream."""
        return self.flags >> CONSTANTS["REPLY_FINISH_SHIFT"]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The payload as token ids. Raises ValueError when it is not a multiple of 4 bytes."""
        if len(self.payload) % CONSTANTS["TOKEN_SIZE"]:
            raise ValueError(f"{len(self.payload)} bytes are no whole number of tokens")
        return tuple(memoryview(self.payload).cast("I"))


def _packed(structure: str, values: dict[str, Any]) -> bytes:
    return bytes(ffi.buffer(ffi.new(f"struct {structure} *", values)))


def pack_request_header(kind: int, request_id: int, length: int, **other: int) -> bytes:
    """24 bytes; other sets magic, version or flags, to be wrong on purpose."""
    values = {
        "magic": CONSTANTS["PROTOCOL_MAGIC"],
        "version": CONSTANTS["PROTOCOL_VERSION"],
        "kind": kind,
        "request_id": request_id,
        "length": length,
    }
    return _packed("request_header", values | other)


def pack_request(kind: int, request_id: int, payload: bytes = b"", **other: int) -> bytes:
    """A whole request frame; other as for pack_request_header()."""
    return pack_request_header(kind, request_id, len(payload), **other) + payload


def pack_cancel(request_id: int) -> bytes:
    """Cancels the unanswered request of that id."""
    return pack_request(CONSTANTS["KIND_CANCEL"], request_id)


def pack_generation(prompt: Sequence[int], max_tokens: int, **sampling: float) -> bytes:
    """The payload of KIND_TOYLM and KIND_LLM: sampling sets members of generation_request."""
    values = {"stop_token": _NO_TOKEN, "top_p": 1.0} | sampling
    values |= {"prompt_count": len(prompt), "max_tokens": max_tokens}
    return _packed("generation_request", values) + bytes(ffi.buffer(ffi.new("uint32_t[]", prompt)))


def unpack_request_header(data: bytes) -> Any:
    """The struct request_header at the start of data, with its members as attributes.

    Raises ValueError when there are fewer than 24 bytes.
    """
    return _unpacked("request_header", data)


def unpack_reply_header(data: bytes) -> Any:
    """The struct reply_header at the start of data. Raises ValueError under 16 bytes."""
    return _unpacked("reply_header", data)


def _unpacked(structure: str, data: bytes) -> Any:
    size = ffi.sizeof(f"struct {structure}")
    if len(data) < size:
        raise ValueError(f"a {structure} has {size} bytes, and here are {len(data)}")
    value = ffi.new(f"struct {structure} *")
    ffi.memmove(value, data, size)
    return value


def split_replies(data: bytes) -> tuple[list[Reply], bytes]:
    """The complete reply frames at the start of data, and the bytes that are left over."""
    replies: list[Reply] = []
    at = 0
    while len(data) - at >= _REPLY_SIZE:
        header = unpack_reply_header(data[at : at + _REPLY_SIZE])
        end = at + _REPLY_SIZE + header.length
        if end > len(data):
            break
        payload = data[at + _REPLY_SIZE : end]
        replies.append(Reply(header.request_id, header.status, header.flags, payload))
        at = end
    return replies, data[at:]
