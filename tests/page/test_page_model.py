# SPDX-License-Identifier: MIT
"""The C functions of the page against model.py, driven at random by hypothesis.

Each rule is one thing that one of the parts may do at that moment; what the page then holds and
hands out must be what the model says. Rings start near their ends, so that they wrap.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared_page import SharedPage, wire
from shared_page import constants as c
from shared_page.reading import ffi
from tests.page.frames import bad_frames, cancel_frames, good_frames, payload
from tests.page.model import Connection, Frame, Model, Refusal, Request
from tests.page.programs import driver

STARTS = (0, c.SLOT_COUNT - 3, c.CONNECTION_COUNT - 2, (1 << 32) - 2, (1 << 47) + 5)
#: of ADMITTED_REQUEST and ADMITTED_REPLY in ingress.h
ADMITTED = {(False, False): 0, (True, False): 1, (False, True): 2, (True, True): 3}


class PageMachine(RuleBasedStateMachine):
    """The page, the model beside it, and what the parts have in hand."""

    def __init__(self) -> None:
        super().__init__()
        self.lib = driver()
        self.page = SharedPage.create_memfd(c.CONNECTION_COUNT)
        self.s: Any = self.page.struct
        self.index = ffi.new("uint32_t *")
        self.outbox: dict[Connection, bytes] = {}  # sent by the client, not yet received
        self.sending: dict[Connection, list[Frame]] = {}
        self.unsent: dict[Connection, int] = {}  # bytes left of these frames
        self.to_look_at: set[int] = set()  # connections that a notice named

    @initialize(
        slots=st.sampled_from([1, 2, 5, 40, 160]),
        entries=st.sampled_from([1, 3]),
        start=st.sampled_from(STARTS),
    )
    def begin(self, slots: int, entries: int, start: int) -> None:
        """A page with so few slots and entries whose rings have already been used."""
        s = self.s
        s.ingress.submit_tail = s.executor.submit_head = s.egress.finals = start
        s.executor.completion_tail = s.egress.completion_head = start
        s.ingress.attention_tail = s.egress.attention_head = start
        s.ingress.free_slot_head, s.egress.free_slot_tail = start, start + slots
        s.ingress.free_connection_head, s.egress.free_connection_tail = start, start + entries
        for at in range(slots):
            s.free_slot[(start + at) & c.SLOT_MASK] = at
        for at in range(entries):
            s.free_connection[(start + at) & c.CONNECTION_MASK] = at
            s.connection[at].ingress.order_tail = start & 0xFFFFFFFF
            s.connection[at].egress.order_head = start & 0xFFFFFFFF
        self.slots, self.entries, self.start = slots, entries, start
        self.model = Model(slots, entries, start + 1)

    def one(self, data: st.DataObject, of: Any) -> Any:
        return data.draw(st.sampled_from(list(of)))

    # the client and ingress

    @rule()
    def open(self) -> None:
        connection = self.model.open()
        generations = [self.s.connection[at].ingress.generation for at in range(self.entries)]
        assert bool(self.lib.drive_connection_open(self.s, self.index)) == (connection is not None)
        if connection is None:
            return
        assert self.index[0] == connection.index
        generation = self.s.connection[connection.index].ingress.generation
        assert generation == generations[connection.index] + 1
        self.outbox[connection], self.sending[connection] = b"", []
        self.unsent[connection] = 0

    @precondition(lambda self: self.outbox)
    @rule(
        data=st.data(),
        frames=st.one_of(
            st.lists(st.one_of(good_frames, cancel_frames), min_size=1, max_size=4),
            st.builds(lambda frame, count: [frame] * count, good_frames, st.integers(8, 34)),
            st.lists(bad_frames, min_size=1, max_size=1),
        ),
    )
    def client_sends(self, data: st.DataObject, frames: list[bytes]) -> None:
        connection = self.one(data, self.outbox)
        self.outbox[connection] += b"".join(frames)
        self.deliver(connection, len(self.outbox[connection]) - data.draw(st.integers(0, 60)))

    @precondition(lambda self: any(self.outbox.values()))
    @rule(data=st.data(), length=st.integers(1, 30))
    def segment_arrives(self, data: st.DataObject, length: int) -> None:
        self.deliver(self.one(data, [one for one, left in self.outbox.items() if left]), length)

    @precondition(lambda self: self.cancellable())
    @rule(data=st.data())
    def client_cancels(self, data: st.DataObject) -> None:
        connection, request_id = self.one(data, self.cancellable())
        self.outbox[connection] += wire.pack_cancel(request_id)
        self.deliver(connection, len(self.outbox[connection]))

    def cancellable(self) -> list[tuple[Connection, int]]:
        return [(one, owed.request_id) for one in self.outbox for owed in one.owed]

    def deliver(self, connection: Connection, length: int) -> None:
        """The next bytes of the outbox arrive as one segment."""
        segment = self.outbox[connection][: max(length, 0)]
        self.outbox[connection] = self.outbox[connection][len(segment) :]
        expected = ADMITTED[self.model.feed(connection, segment)]
        got = self.lib.drive_frames_admit(self.s, connection.index, segment, len(segment))
        assert got == expected
        if got & 2:
            self.lib.drive_attention_post(self.s, connection.index)

    # the executor

    @rule()
    def take(self) -> None:
        request = self.model.take()
        assert bool(self.lib.drive_request_take(self.s, self.index)) == (request is not None)
        if request is None:
            return
        assert self.index[0] == request.slot
        slot = self.s.slot[request.slot]
        mine = (slot.ingress.ticket, slot.ingress.request_id, slot.ingress.kind)
        assert mine == (request.ticket, request.request_id, request.kind)
        assert slot.ingress.connection == request.connection.index
        assert bytes(ffi.buffer(slot.request, slot.ingress.length)) == request.payload
        if request.kind == c.KIND_TOYLM:
            request.streams = True
            self.lib.drive_stream_begin(self.s, request.slot)

    @precondition(lambda self: any(one.streams for one in self.model.running))
    @rule(data=st.data(), count=st.sampled_from([1, 5, 12, 13, 30]), notify=st.booleans())
    def tokens(self, data: st.DataObject, count: int, notify: bool) -> None:
        request = self.one(data, [one for one in self.model.running if one.streams])
        for _ in range(count):
            self.add_token(request, notify)

    def add_token(self, request: Request, notify: bool) -> None:
        token = request.ticket * 1000 + len(request.tokens) & 0xFFFFFFFF
        self.model.token(request, token, notify)
        self.lib.drive_token_publish(self.s, request.slot, token, notify)

    @precondition(lambda self: self.model.running)
    @rule(
        data=st.data(),
        length=st.sampled_from([0, 4, 240, c.RESULT_MAX]),
        status=st.sampled_from([c.STATUS_OK, c.STATUS_BAD_PAYLOAD, c.STATUS_INTERNAL]),
        finish=st.sampled_from([c.FINISH_STOP, c.FINISH_ABORT]),
    )
    def finish(self, data: st.DataObject, length: int, status: int, finish: int) -> None:
        request = self.one(data, self.model.running)
        self.answer(request, length, status, finish)

    @rule(data=st.data())
    def everything_runs(self, data: st.DataObject) -> None:
        while self.model.submitted:
            self.take()
        for request in data.draw(st.permutations(self.model.running)):
            for token in range(request.streams and data.draw(st.sampled_from([0, 12, 30]))):
                self.add_token(request, token % 2 == 1)
            self.answer(request, 4, c.STATUS_OK, c.FINISH_LENGTH)

    def answer(self, request: Request, length: int, status: int, finish: int) -> None:
        result = b"" if request.streams else payload(length, request.ticket)
        ended = finish if request.streams else c.FINISH_NONE
        if not request.streams:
            ffi.memmove(self.s.slot[request.slot].result, result, len(result))
        self.model.finish(request, result, status, ended)
        self.lib.drive_result_publish(self.s, request.slot, len(result), status, ended)

    # egress

    @rule()
    def notice(self) -> None:
        expected = self.model.take_notice()
        assert bool(self.lib.drive_completion_take(self.s, self.index)) == (expected is not None)
        if expected is None:
            return
        request, final = expected
        if final or not request.announced:
            assert self.index[0] == request.connection.index
        self.to_look_at.add(self.index[0])

    @rule()
    def attention(self) -> None:
        posted = self.model.attention
        assert bool(self.lib.drive_attention_take(self.s, self.index)) == bool(posted)
        if posted:
            assert self.index[0] == posted.popleft()
            self.to_look_at.add(self.index[0])

    @rule(rounds=st.sampled_from([1, 1, c.LOOKS_UNTIL_OVERDUE + 1]))
    def time_passes(self, rounds: int) -> None:
        """The hand goes round all slots."""
        for _ in range(rounds):
            late = [self.index[0] for _ in range(c.SLOT_COUNT) if self.hand_finds_one()]
            assert sorted(late) == sorted(self.model.look())
            self.to_look_at.update(late)

    def hand_finds_one(self) -> bool:
        return bool(self.lib.drive_hand_move(self.s, self.index))

    @precondition(lambda self: self.to_look_at)
    @rule(data=st.data(), batch=st.sampled_from([1, 8, 32]))
    def look(self, data: st.DataObject, batch: int) -> None:
        index = self.one(data, sorted(self.to_look_at))
        self.to_look_at.discard(index)
        if index in self.model.connections:
            self.collect(self.model.connections[index], batch)

    def collect(self, connection: Connection, batch: int) -> None:
        """What egress does with a connection that may have something to send."""
        if self.sending[connection]:
            return
        reply: Any = ffi.new("struct drive_reply *")
        frames = self.sending[connection]
        for nth in range(batch):
            frame = self.model.ready(connection, nth)
            ready = self.lib.drive_reply_ready(self.s, connection.index, nth, reply)
            assert bool(ready) == (frame is not None)
            if frame is None:
                break
            got = (reply.slot, reply.tokens, bool(reply.last), self.at(reply.offset, reply.length))
            assert got == (frame.slot, frame.tokens, frame.last, frame.data)
            frame.offset = reply.offset
            frames.append(frame)
            if not frame.last:
                break
        self.unsent[connection] = sum(len(frame.data) for frame in frames)
        settled = self.lib.drive_replies_settled(self.s, connection.index)
        assert bool(settled) == (not connection.owed)

    @rule()
    def everything_is_sent(self) -> None:
        while self.model.notices:
            self.notice()
        while self.model.attention:
            self.attention()
        for connection in list(self.model.connections.values()):
            if connection.index in self.to_look_at:
                self.collect(connection, 8)
            while self.sending[connection]:
                self.send(connection, 1 << 20)
        self.to_look_at.clear()

    def at(self, offset: int, length: int) -> bytes:
        return bytes(ffi.buffer(ffi.cast("char *", self.s) + offset, length))

    @precondition(lambda self: any(self.unsent.values()))
    @rule(data=st.data(), length=st.sampled_from([1, 15, 16, 17, 100, 1 << 20]))
    def socket_takes(self, data: st.DataObject, length: int) -> None:
        self.send(self.one(data, [one for one, left in self.unsent.items() if left]), length)

    def send(self, connection: Connection, length: int) -> None:
        """The socket takes that many bytes, which must not have changed since they were ready."""
        frames = self.sending[connection]
        self.unsent[connection] -= min(length, self.unsent[connection])
        while frames and sum(len(frame.data) for frame in frames[1:]) >= self.unsent[connection]:
            frame = frames.pop(0)
            assert self.at(frame.offset, len(frame.data)) == frame.data
            self.model.sent(connection, frame)
            self.lib.drive_reply_sent(
                self.s, connection.index, frame.slot, frame.tokens, frame.last
            )
        if not frames:
            self.collect(connection, 8)

    @precondition(lambda self: self.outbox)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        connection = self.one(data, self.outbox)
        for held in (self.outbox, self.sending, self.unsent):
            del held[connection]
        self.model.close(connection)
        self.lib.drive_connection_release(self.s, connection.index)

    # what holds at any time

    def ring(self, ring: Any, head: int, tail: int) -> list[int]:
        return [ring[at % len(ring)] for at in range(head, tail)]

    @invariant()
    def every_slot_is_somewhere_once(self) -> None:
        s = self.s
        free = self.ring(s.free_slot, s.ingress.free_slot_head, s.egress.free_slot_tail)
        owed = [
            s.connection[one.index].order[at % c.ORDER_DEPTH].request_id & c.SLOT_MASK
            for one in self.model.connections.values()
            for at in self.order(one)
            if s.connection[one.index].order[at % c.ORDER_DEPTH].length == c.ORDER_IS_SLOT
        ]
        held = [s.connection[one.index].ingress.slot for one in self.model.connections.values()]
        held = [slot for slot in held if slot != c.SLOT_NONE]
        orphaned = [slot for slot in range(self.slots) if s.cancel_close[slot]]
        assert sorted(free + owed + held + orphaned) == list(range(self.slots))
        assert free == list(self.model.free_slots)
        assert orphaned == sorted(one.slot for one in self.model.orphans)

    @invariant()
    def every_entry_is_somewhere_once(self) -> None:
        s = self.s
        head, tail = s.ingress.free_connection_head, s.egress.free_connection_tail
        free = self.ring(s.free_connection, head, tail)
        assert free == list(self.model.free_entries)
        assert sorted(free + list(self.model.connections)) == list(range(self.entries))

    def order(self, connection: Connection) -> range:
        entry = self.s.connection[connection.index]
        owed = (entry.ingress.order_tail - entry.egress.order_head) % (1 << 32)
        return range(entry.egress.order_head, entry.egress.order_head + owed)

    @invariant()
    def replies_are_owed_in_order(self) -> None:
        for connection in self.model.connections.values():
            entry = self.s.connection[connection.index]
            assert bool(entry.ingress.closing) == connection.closing
            for at, owed in zip(self.order(connection), connection.owed, strict=True):
                found = entry.order[at % c.ORDER_DEPTH]
                if isinstance(owed, Refusal):
                    got = (found.request_id, found.length, found.status, found.flags)
                    assert got == (owed.request_id, 0, owed.status, c.REPLY_LAST)
                else:
                    assert found.length == c.ORDER_IS_SLOT
                    assert found.request_id == owed.ticket << c.TICKET_SHIFT | owed.slot

    @invariant()
    def cancels_are_seen(self) -> None:
        for request in (*self.model.submitted, *self.model.running):
            cancelled = self.lib.drive_request_cancelled(self.s, request.slot)
            assert bool(cancelled) == (request.cancelled or request.orphaned)

    @invariant()
    def counters_count(self) -> None:
        ingress, egress, executor = self.s.ingress, self.s.egress, self.s.executor
        assert self.model.count == Counter(  # in which absent is 0
            busy=ingress.frames_busy,
            bad=ingress.frames_bad,
            cancels=ingress.cancels,
            refused=ingress.connections_refused,
            bytes=ingress.bytes_received,
            replies=egress.replies,
            finals=egress.finals - self.start,
            stale=egress.stale_results,
            closed=egress.connections_closed,
            timeouts=egress.timeouts,
            discarded=egress.discarded,
            completed=executor.completed,
        )
        waiting = len(self.model.submitted) + len(self.model.running)
        unannounced = waiting + sum(final for _, final in self.model.notices)
        assert self.lib.drive_requests_in_flight(self.s) == unannounced

    def teardown(self) -> None:
        """Notices are enough: who follows them alone answers everything, and nothing leaks."""
        if not hasattr(self, "model"):
            return self.page.close()
        while self.model.submitted:
            self.take()
        for request in list(self.model.running):
            self.answer(request, 4, c.STATUS_OK, c.FINISH_LENGTH)
        self.everything_is_sent()
        assert not any(connection.owed for connection in self.model.connections.values())
        assert not self.model.orphans
        self.every_slot_is_somewhere_once()
        self.page.close()
        return None


TestPage = pytest.mark.timeout(300)(PageMachine.TestCase)
TestPage.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
