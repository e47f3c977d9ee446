# SPDX-License-Identifier: MIT
"""The wire format as docs/protocol.md promises it, byte for byte, and its Python twins."""

import struct

import pytest

from shared_page import constants, reading, wire
from shared_page.reading import ffi


def test_sizes_are_those_of_the_protocol() -> None:
    assert ffi.sizeof("struct request_header") == constants.REQUEST_HEADER_SIZE == 24
    assert ffi.sizeof("struct reply_header") == constants.REPLY_HEADER_SIZE == 16
    assert ffi.sizeof("struct generation_request") == 40


def test_a_request_byte_for_byte() -> None:
    frame = wire.pack_request(constants.KIND_ECHO, 0x1122334455667788, b"hello")
    assert frame == b"BGR1\1\0\6\0" + bytes.fromhex("8877665544332211 00000000 05000000") + b"hello"
    header = wire.unpack_request_header(frame)
    assert (header.magic, header.version, header.kind) == (constants.PROTOCOL_MAGIC, 1, 6)
    assert (header.request_id, header.flags, header.length) == (0x1122334455667788, 0, 5)


def test_a_request_can_be_wrong_on_purpose() -> None:
    frame = wire.pack_request_header(constants.KIND_GEMM, 1, 9999, magic=7, version=8, flags=9)
    assert frame == struct.pack("<IHHQII", 7, 8, constants.KIND_GEMM, 1, 9, 9999)
    assert wire.pack_cancel(3) == struct.pack("<4sHHQII", b"BGR1", 1, 0, 3, 0, 0)


def test_a_generation_request_byte_for_byte() -> None:
    payload = wire.pack_generation([7, 8], 20, temperature=0.5, priority=-1, seed=5)
    expected = (2, 20, 0, -1, 0.5, 1.0, 0, 0xFFFFFFFF, 5)
    assert payload == struct.pack("<IIIiffIIQ", *expected) + struct.pack("<II", 7, 8)


def test_replies_are_split_wherever_the_bytes_end() -> None:
    last = constants.REPLY_LAST
    stop = last | constants.FINISH_STOP << constants.REPLY_FINISH_SHIFT
    frames = [
        struct.pack("<QIHH", 1, 8, 0, 0) + struct.pack("<II", 5, 6),
        struct.pack("<QIHH", 1, 0, 0, stop),
        struct.pack("<QIHH", 2, 0, constants.STATUS_BUSY, last),
    ]
    stream = b"".join(frames)
    for end in range(len(stream) + 1):
        replies, rest = wire.split_replies(stream[:end])
        assert len(replies) == sum(end >= len(b"".join(frames[: i + 1])) for i in range(3))
        again, nothing = wire.split_replies(rest + stream[end:])
        assert nothing == b""
        assert [reply.request_id for reply in replies + again] == [1, 1, 2]
    tokens, end_of_stream, busy = wire.split_replies(stream)[0]
    assert (tokens.tokens, tokens.last, tokens.finish) == ((5, 6), False, constants.FINISH_NONE)
    assert (end_of_stream.last, end_of_stream.finish) == (True, constants.FINISH_STOP)
    assert (busy.status, busy.last, busy.finish) == (constants.STATUS_BUSY, True, 0)


@pytest.mark.parametrize("unpack", [wire.unpack_request_header, wire.unpack_reply_header])
def test_too_few_bytes(unpack: object) -> None:
    with pytest.raises(ValueError, match="and here are 15"):
        unpack(bytes(15))  # type: ignore[operator]
    with pytest.raises(ValueError, match="no whole number of tokens"):
        _ = wire.Reply(1, 0, 0, b"12345").tokens


def test_constants() -> None:
    assert constants.KIND_GEMM == 2
    assert constants.name_of("reply_status", 3) == "STATUS_TOO_LARGE"
    assert constants.name_of("reply_status", 99) == "99"
    assert "EXECUTOR_READY" in dir(constants)
    with pytest.raises(AttributeError, match="has a constant KIND_NONSENSE"):
        _ = constants.KIND_NONSENSE
    names = [name for enum in reading.ENUMERATIONS.values() for name in enum]
    assert len(names) == len(set(names))
