# SPDX-License-Identifier: MIT
"""Frames that clients send, right and wrong, for hypothesis to choose from."""

from hypothesis import strategies as st

from shared_page import constants as c
from shared_page import wire

ids = st.integers(0, 7)  # few, so that they collide
lengths = st.sampled_from([0, 1, 7, 256, c.REQUEST_MAX])
kinds = st.sampled_from([c.KIND_GEMM, c.KIND_TOYLM, c.KIND_TOYLM, c.KIND_COUNT])


def payload(length: int, seed: int) -> bytes:
    return bytes((seed * 31 + at * 7 + at // 256) & 0xFF for at in range(length))


good_frames = st.builds(
    lambda kind, request_id, length, seed: wire.pack_request(
        kind, request_id, payload(length, seed)
    ),
    kinds, ids, lengths, st.integers(0, 255),
)  # fmt: skip
cancel_frames = st.builds(
    lambda request_id, length: wire.pack_request(c.KIND_CANCEL, request_id, bytes(length)),
    ids, st.sampled_from([0, 0, 5]),
)  # fmt: skip
bad_frames = st.one_of(
    ids.map(lambda i: wire.pack_request(c.KIND_EMPTY, i, magic=0x31524743)),
    ids.map(lambda i: wire.pack_request(c.KIND_EMPTY, i, version=2)),
    st.builds(
        wire.pack_request_header,
        st.sampled_from([c.KIND_ECHO, c.KIND_CANCEL]),
        ids,
        st.sampled_from([c.REQUEST_MAX + 1, 1 << 31, (1 << 32) - 1]),
    ),
    st.binary(min_size=24, max_size=40),
)
