# SPDX-License-Identifier: MIT
"""The ring of notices never overflows, however late egress reads it."""

from typing import Any

import pytest

from shared_page import SharedPage, wire
from shared_page import constants as c
from shared_page.reading import ffi
from tests.page.programs import driver


def test_completions_never_overflow() -> None:
    """A regression: replies sent ahead of their notices let the executor overrun its ring."""
    lib, index = driver(), ffi.new("uint32_t *")
    reply: Any = ffi.new("struct drive_reply *")
    with SharedPage.create_memfd(1) as page:
        lib.drive_connection_open(page.struct, index)
        answered, frame = 0, wire.pack_request(c.KIND_EMPTY, 1)
        for _ in range(3 * c.COMPLETION_DEPTH // c.PIPELINE_MAX):
            owed = page.struct.connection[0].ingress.order_tail - answered
            for _ in range(c.PIPELINE_MAX - owed):
                lib.drive_frames_admit(page.struct, 0, frame, len(frame))
            while lib.drive_request_take(page.struct, index):
                lib.drive_result_publish(page.struct, index[0], 0, 0, 0)
            # One notice a round, however many replies are there.
            assert lib.drive_completion_take(page.struct, index)
            while lib.drive_reply_ready(page.struct, 0, 0, reply):
                lib.drive_reply_sent(page.struct, 0, reply.slot, reply.tokens, reply.last)
                answered += 1
            unread = page.struct.executor.completion_tail - page.struct.egress.completion_head
            assert unread <= c.COMPLETION_DEPTH
        assert answered >= 3 * c.COMPLETION_DEPTH // c.PIPELINE_MAX


@pytest.mark.parametrize("streams", [1, 31])
def test_progress_leaves_room_for_final_notices(streams: int) -> None:
    lib, index = driver(), ffi.new("uint32_t *")
    with SharedPage.create_memfd(1) as page:
        lib.drive_connection_open(page.struct, index)
        frame = wire.pack_request(c.KIND_TOYLM, 1)
        for _ in range(streams):
            lib.drive_frames_admit(page.struct, 0, frame, len(frame))
            lib.drive_request_take(page.struct, index)
            lib.drive_stream_begin(page.struct, index[0])
            for token in range(c.STREAM_TOKENS_MAX):
                lib.drive_token_publish(page.struct, index[0], token, True)
        posted = page.struct.executor.completion_tail
        assert posted == c.SLOT_COUNT  # half the ring, and no further
