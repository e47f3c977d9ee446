// SPDX-License-Identifier: MIT
// From the page into its copy: one warp, which does nothing else. While nothing comes, a poll is
// one read over PCIe: the 128 bytes of the submission ring in which the next entry will stand.
#pragma once

#include "gpu_scheduler/cuda/block.cuh"

enum FetchLimits : uint32_t {
    WINDOW = 16,            // entries of the ring in one read
    WIDE_EVERY = 64,        // polls without a look at the other words while nothing is in flight
    HEARTBEAT_EVERY = 1024, // polls: about a millisecond
    FIRST_BYTES = 64 + 256, // of a slot: its ingress line and small payloads, read together
    FIRST_CHUNKS = FIRST_BYTES / 16,
    CHUNKS_A_LANE = WINDOW * FIRST_CHUNKS / 32,
};

DEVICE Bytes16 *chunk_of(shared_page *page, const Exchange &exchange, uint32_t chunk) {
    uint64_t position = exchange.fetch_head + chunk / FIRST_CHUNKS;
    request_slot *slot = &page->slot[exchange.recent[position % 32]];
    return reinterpret_cast<Bytes16 *>(slot) + chunk % FIRST_CHUNKS;
}

// Copies what is read of each slot at first. Returns whether a payload is longer than that. All
// reads are on their way before the first is waited for.
DEVICE bool slots_fetch(shared_page *page, const Exchange &exchange, uint32_t count) {
    constexpr uint32_t LENGTH_CHUNK = 1; // of the ingress line: request_slot, slot_ingress
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
        longer |=
            chunk % FIRST_CHUNKS == LENGTH_CHUNK && data[i].w > FIRST_BYTES - sizeof(slot_ingress);
    }
    return __any_sync(~0u, longer);
}

RARE void range_fetch(shared_page *page, uint64_t offset, uint64_t bytes) {
    const char *from = reinterpret_cast<const char *>(page) + offset;
    char *to = reinterpret_cast<char *>(&mirror) + offset;

#pragma unroll 8
    for (uint64_t at = lane_id() * 16; at < bytes; at += 32 * 16)
        *reinterpret_cast<Bytes16 *>(to + at) = load_page16(from + at);
}

RARE void long_payloads_fetch(shared_page *page, const Exchange &exchange, uint32_t count) {
    constexpr uint32_t HAVE = FIRST_BYTES - sizeof(slot_ingress);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = exchange.recent[(exchange.fetch_head + i) % 32];
        uint32_t length = min(mirror.slot[slot].ingress.length, uint32_t{REQUEST_MAX});
        if (length > HAVE)
            range_fetch(page, offset_in(&mirror, mirror.slot[slot].request + HAVE), length - HAVE);
    }
}

// Entries of the ring from fetch_head on, one a lane from lane `first` on; `count` of them stand.
DEVICE void requests_fetch(shared_page *page, Exchange &exchange, uint64_t entry, uint32_t first,
                           uint32_t count) {
    uint32_t number = lane_id() - first;
    bool mine = lane_id() >= first && number < count;
    uint64_t head = exchange.fetch_head;

    if (mine)
        exchange.recent[(head + number) % 32] = entry & SLOT_MASK;
    __syncwarp();
    bool longer = slots_fetch(page, exchange, count);
    __syncwarp();
    if (longer)
        long_payloads_fetch(page, exchange, count);
    __threadfence_block();
    __syncwarp();
    if (mine)
        mirror.submit[(head + number) & SLOT_MASK] = entry;
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
    default:
        return nullptr;
    }
}

// Submissions up to now, read after the words that made it necessary.
DEVICE void submit_tail_fetch(shared_page *page) {
    if (lane_id() == 0)
        store_release(&mirror.ingress.submit_tail, load_acquire_system(&page->ingress.submit_tail));
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
        store_release(&mirror.ingress.cancel_count, ingress);
        store_release(&mirror.egress.cancel_count, egress);
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
        store_release(&mirror.egress.completion_head, completion_head);
    __syncwarp();
}

// Polls until the other warp leaves.
DEVICE void fetch_run(Block &block) {
    shared_page *page = real_page(block);
    Exchange &exchange = block.exchange;
    const void *other = other_word(page, control_of(block));
    uint64_t polls = exchange.polls;

    for (; !__any_sync(~0u, exchange.leaving); polls++) {
        uint64_t head = exchange.fetch_head;
        uint64_t position = head / WINDOW * WINDOW + lane_id();
        bool in_window = lane_id() < WINDOW;
        bool wide = __any_sync(~0u, exchange.owned) || polls % WIDE_EVERY == 0;
        const void *at = in_window ? &page->submit[position & SLOT_MASK] : wide ? other : nullptr;
        uint64_t word = at ? load_relaxed_system(at) : 0;
        bool stands = in_window && position >= head && word >> TICKET_SHIFT == position + 1;
        uint32_t first = head % WINDOW;
        uint32_t standing = __ballot_sync(~0u, stands) >> first;
        uint32_t count = __ffs(~standing) - 1;

        if (count) {
            mark(block, MARK_SEEN);
            requests_fetch(page, exchange, word, first, count);
            mark(block, MARK_FETCHED);
        }
        if (wide)
            others_apply(page, exchange, word);
        if (polls % HEARTBEAT_EVERY == 0 && lane_id() == 0)
            store_system(&page->executor.heartbeat, ++mirror.executor.heartbeat);
    }
    if (lane_id() == 0)
        exchange.polls = polls;
}
