// SPDX-License-Identifier: MIT
// From the page into its copy: one warp, which does nothing else. While nothing comes, a poll is
// one read over PCIe: the 128 bytes of the submission ring in which the next entry will stand.
#pragma once

#include "gpu_scheduler/cuda/ahead.cuh"

enum FetchLimits : uint32_t {
    WINDOW = 16,            // entries of the ring in one read
    WIDE_EVERY = 64,        // polls without a look at the other words while nothing is owned,
    WIDE_EVERY_OWNED = 8,   // or a single request
    HEARTBEAT_EVERY = 1024, // polls: about a millisecond
    CHUNKS_A_LANE = WINDOW * FIRST_CHUNKS / 32,
    LENGTH_CHUNK = 1, // of the ingress line: request_slot, slot_ingress
    FIRST_PAYLOAD = FIRST_BYTES - sizeof(slot_ingress),
};

// What a look at the page is about, and what it has found: values that are on their way from the
// host until they are used.
struct Look {
    uint64_t head; // of the ring
    uint64_t next; // of free_slot[], this lane's
    uint64_t word;
    uint32_t expected; // slot, whose chunks are read along; or SLOT_NONE
    uint32_t slot;     // of free_slot[], where wide
    bool wide;
    Bytes16 early;
};

DEVICE Bytes16 *chunk_of(shared_page *page, const Exchange &exchange, uint32_t chunk) {
    uint64_t position = exchange.fetch_head + chunk / FIRST_CHUNKS;
    request_slot *slot = &page->slot[exchange.recent[position % 32]];
    return reinterpret_cast<Bytes16 *>(slot) + chunk % FIRST_CHUNKS;
}

// Copies what is read of each slot at first. Returns whether a payload is longer than that. All
// reads are on their way before the first is waited for.
DEVICE bool slots_fetch(shared_page *page, const Exchange &exchange, uint32_t count) {
    Bytes16 data[CHUNKS_A_LANE];
    uint32_t chunks = count * FIRST_CHUNKS;
    bool longer = false;

#pragma unroll
    for (uint32_t i = 0; i < CHUNKS_A_LANE; i++)
        if (i * 32 + lane_id() < chunks)
            data[i] = load_page16(chunk_of(page, exchange, i * 32 + lane_id()));
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS_A_LANE; i++) {
        uint32_t chunk = i * 32 + lane_id();
        if (chunk >= chunks)
            continue;
        *chunk_of(&mirror, exchange, chunk) = data[i];
        longer |= chunk % FIRST_CHUNKS == LENGTH_CHUNK && data[i].w > FIRST_PAYLOAD;
    }
    return __any_sync(~0u, longer);
}

// Likewise of one request, whose graph is launched at once if the scheduler is idle: on the chunks
// that were read with the ring if they are the request's, and they are read again, in order.
// (Not while: what is read over PCIe holds up whatever this warp waits for after it.)
DEVICE bool slot_fetch(shared_page *page, Block &block, uint32_t slot, const Look &look) {
    Exchange &exchange = block.exchange;
    bool believed = look.expected == slot && __shfl_sync(~0u, look.early.x, 0) ==
                                                 static_cast<uint32_t>(exchange.fetch_head + 1);
    bool early = believed && scheduler_idle(block) && launch_ahead(block, slot, look.early);
    Bytes16 late = {};

    if (lane_id() < FIRST_CHUNKS)
        late = load_page16(reinterpret_cast<Bytes16 *>(&page->slot[slot]) + lane_id());
    uint32_t length = __shfl_sync(~0u, late.w, LENGTH_CHUNK);
    if (!early && scheduler_idle(block))
        launch_ahead(block, slot, late);
    else if (early && !guess_right(look.early, late, length) && lane_id() == 0)
        block.host.ahead.state = AHEAD_VOID;
    if (lane_id() < FIRST_CHUNKS)
        reinterpret_cast<Bytes16 *>(&mirror.slot[slot])[lane_id()] = late;
    return length > FIRST_PAYLOAD;
}

RARE void range_fetch(shared_page *page, uint64_t offset, uint64_t bytes) {
    const char *from = reinterpret_cast<const char *>(page) + offset;
    char *to = reinterpret_cast<char *>(&mirror) + offset;

#pragma unroll 8
    for (uint64_t at = lane_id() * 16; at < bytes; at += 32 * 16)
        *reinterpret_cast<Bytes16 *>(to + at) = load_page16(from + at);
}

RARE void long_payloads_fetch(shared_page *page, const Exchange &exchange, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = exchange.recent[(exchange.fetch_head + i) % 32];
        uint32_t length = min(mirror.slot[slot].ingress.length, uint32_t{REQUEST_MAX});
        if (length > FIRST_PAYLOAD)
            range_fetch(page, offset_in(&mirror, mirror.slot[slot].request + FIRST_PAYLOAD),
                        length - FIRST_PAYLOAD);
    }
}

// Entries of the ring from fetch_head on, one a lane from lane `first` on; `count` of them stand.
DEVICE void requests_fetch(shared_page *page, Block &block, const Look &look, uint32_t first,
                           uint32_t count) {
    Exchange &exchange = block.exchange;
    uint32_t number = lane_id() - first;
    bool mine = lane_id() >= first && number < count;
    uint64_t head = exchange.fetch_head;

    if (mine)
        exchange.recent[(head + number) % 32] = look.word & SLOT_MASK;
    __syncwarp();
    bool longer =
        count == 1 ? slot_fetch(page, block, __shfl_sync(~0u, look.word, first) & SLOT_MASK, look)
                   : slots_fetch(page, exchange, count);
    __syncwarp();
    if (longer)
        long_payloads_fetch(page, exchange, count);
    __threadfence_block();
    __syncwarp();
    if (mine)
        mirror.submit[(head + number) & SLOT_MASK] = look.word;
    __threadfence_block();
    __syncwarp();
    if (lane_id() == 0) {
        exchange.fetch_head = head + count;
        exchange.fetched = head + count;
    }
    __syncwarp();
}

// Which word of the page or of the process each lane reads beside the ring.
DEVICE const void *other_word(shared_page *page, const executor_control *control) {
    switch (lane_id()) {
    case WINDOW:
        return &page->ingress.cancel_count;
    case WINDOW + 1:
        return &page->egress.cancel_count;
    case WINDOW + 2:
        return &page->egress.completion_head;
    case WINDOW + 3:
        return &page->supervisor.stop;
    case WINDOW + 4:
        return &control->stop;
    case WINDOW + 5:
        return &page->ingress.submit_tail;
    case WINDOW + 6:
        return &page->ingress.free_slot_head;
    default:
        return nullptr;
    }
}

// Submissions up to now, read after the words that made it necessary.
DEVICE void submit_tail_fetch(shared_page *page) {
    if (lane_id() == 0)
        mirror.ingress.submit_tail = load_acquire_system(&page->ingress.submit_tail);
    __threadfence_block();
    __syncwarp();
}

// The words of single slots follow the counts, and reach the copy before them.
RARE void cancels_fetch(shared_page *page, Exchange &exchange, uint64_t ingress, uint64_t egress) {
    range_fetch(page, offset_in(&mirror, mirror.cancel_client), sizeof(mirror.cancel_client));
    range_fetch(page, offset_in(&mirror, mirror.cancel_close), sizeof(mirror.cancel_close));
    __threadfence_block();
    submit_tail_fetch(page);
    if (lane_id() == 0) {
        exchange.cancels_of_ingress = ingress;
        exchange.cancels_of_egress = egress;
        mirror.ingress.cancel_count = ingress;
        mirror.egress.cancel_count = egress;
        __threadfence_block();
        exchange.cancels = exchange.cancels + 1;
    }
    __syncwarp();
}

DEVICE void others_apply(shared_page *page, Exchange &exchange, uint64_t word) {
    uint64_t ingress = __shfl_sync(~0u, word, WINDOW);
    uint64_t egress = __shfl_sync(~0u, word, WINDOW + 1);
    uint64_t completion_head = __shfl_sync(~0u, word, WINDOW + 2);
    uint64_t stop = __shfl_sync(~0u, word, WINDOW + 3) | __shfl_sync(~0u, word, WINDOW + 4);

    if (ingress != exchange.cancels_of_ingress || egress != exchange.cancels_of_egress)
        cancels_fetch(page, exchange, ingress, egress);
    if (static_cast<uint32_t>(stop) && !exchange.stop) {
        submit_tail_fetch(page);
        exchange.stop = 1;
    }
    if (lane_id() == 0)
        mirror.egress.completion_head = completion_head;
    __syncwarp();
}

// `owned` requests are the policy's: with more, the next one does not find it idle.
DEVICE Look look_begin(shared_page *page, const Exchange &exchange, const Guess &guess,
                       const void *other, bool wide, uint32_t owned) {
    Look look = {};
    look.head = exchange.fetch_head;
    look.wide = wide;
    look.expected = owned < 2 ? guess_slot(guess, look.head) : uint32_t{SLOT_NONE};
    look.next = look.head + guess.skipped + lane_id();
    uint64_t position = look.head / WINDOW * WINDOW + lane_id();
    const void *at = lane_id() < WINDOW ? &page->submit[position & SLOT_MASK]
                     : wide             ? other
                                        : nullptr;

    if (at)
        look.word = load_relaxed_system(at);
    if (owned < 2 && lane_id() < FIRST_CHUNKS)
        look.early =
            load_page16(reinterpret_cast<Bytes16 *>(&page->slot[look.expected]) + lane_id());
    if (wide)
        look.slot = load_relaxed_system32(&page->free_slot[look.next & SLOT_MASK]);
    return look;
}

DEVICE void look_end(shared_page *page, Block &block, Guess &guess, const Look &look) {
    uint64_t position = look.head / WINDOW * WINDOW + lane_id();
    bool stands =
        lane_id() < WINDOW && position >= look.head && look.word >> TICKET_SHIFT == position + 1;
    uint32_t first = static_cast<uint32_t>(look.head % WINDOW);
    uint32_t count = __ffs(~(__ballot_sync(~0u, stands) >> first)) - 1;

    if (count) {
        mark(block, MARK_SEEN);
        requests_fetch(page, block, look, first, count);
        mark(block, MARK_FETCHED);
        if (look.expected != SLOT_NONE &&
            (__shfl_sync(~0u, look.word, first) & SLOT_MASK) != look.expected)
            guess.skipped = ~0ull;
    }
    if (look.wide) {
        guess.slot = look.slot;
        guess.first = look.next - lane_id();
        guess_learn(guess, __shfl_sync(~0u, look.word, WINDOW + 6),
                    __shfl_sync(~0u, look.word, WINDOW + 5));
        others_apply(page, block.exchange, look.word);
    }
}

// Polls until the other warp leaves.
DEVICE void fetch_run(Block &block) {
    shared_page *page = real_page(block);
    Exchange &exchange = block.exchange;
    const void *other = other_word(page, control_of(block));
    uint64_t polls = exchange.polls;
    Guess guess = {~0ull, 0, 0};

    for (; !__any_sync(~0u, exchange.leaving); polls++) {
        uint32_t owned = __shfl_sync(~0u, exchange.owned, 0);
        if (polls % HEARTBEAT_EVERY == 0 && lane_id() == 0)
            store_system(&page->executor.heartbeat, ++mirror.executor.heartbeat);
        bool wide = owned > 1 || polls % (owned ? WIDE_EVERY_OWNED : WIDE_EVERY) == 0;
        Look look = look_begin(page, exchange, guess, other, wide, owned);
        look_end(page, block, guess, look);
    }
    if (lane_id() == 0) {
        exchange.polls = polls;
        block.launches.closed = 1;
    }
}
