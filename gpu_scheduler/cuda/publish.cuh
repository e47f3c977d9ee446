// SPDX-License-Identifier: MIT
// From the copy into the page: results, and the notices that the policy has posted for them.
//
// A chunk of up to 32 notices is made visible with one fence: results and `done` before it, notices
// after it. Readers come to a result through its notice. Only a successor may look at `done` alone,
// and what was done without a notice it takes for lost (recover.cuh).
#pragma once

#include "gpu_scheduler/cuda/block.cuh"

// What one lane publishes.
struct Notice {
    uint64_t entry;
    uint32_t slot;
    uint32_t length; // bytes to copy from `from`
    uint32_t begin;  // where they go in the slot's result
    const void *from;
    uint64_t done; // of a final one: the slot's ticket,
    uint64_t rest; // and its length, status and finish, one word of the page
};

DEVICE Notice notice_read(Block &block, uint64_t position) {
    uint64_t entry = mirror.completion[position & (COMPLETION_DEPTH - 1)];
    uint32_t slot = entry & SLOT_MASK;
    const slot_executor &out = mirror.slot[slot].executor;
    uint64_t rest = *reinterpret_cast<const uint64_t *>(&out.length);
    GraphHost &host = block.host;

    if (out.tokens_ticket != mirror.slot[slot].ingress.ticket)
        return {entry,    slot, host.source[slot] ? out.length : 0, 0, host.source[slot],
                out.done, rest};
    uint32_t begin = host.published[slot] * TOKEN_SIZE / 16 * 16;
    uint32_t end = static_cast<uint32_t>(out.tokens) * TOKEN_SIZE;
    return {entry, slot, end - begin, begin, mirror.slot[slot].result + begin, out.done, rest};
}

DEVICE void results_copy(shared_page *page, const Notice &notice, uint32_t count) {
    constexpr uint32_t GROUP_LANES = 16; // 256 bytes at a time

    for (uint32_t i = lane_id() / GROUP_LANES; i < (count + 1) / 2 * 2; i += 2) {
        uint32_t slot = __shfl_sync(~0u, notice.slot, i);
        uint32_t length = __shfl_sync(~0u, notice.length, i);
        uint32_t begin = __shfl_sync(~0u, notice.begin, i);
        auto from = __shfl_sync(~0u, reinterpret_cast<uint64_t>(notice.from), i);

        if (i < count)
            copy_bytes(page->slot[slot].result + begin, reinterpret_cast<const void *>(from),
                       length, lane_id() % GROUP_LANES, GROUP_LANES);
    }
}

// Where the notice is final, the line that says so.
DEVICE void slot_store(shared_page *page, const Notice &notice) {
    slot_executor *to = &page->slot[notice.slot].executor;

    store_system(&to->length, notice.rest);
    store_system(&to->done, notice.done);
}

// Tokens before their count, the count before the ticket that makes it valid.
RARE void stream_store(shared_page *page, Block &block, const Notice &notice, bool mine) {
    const slot_executor &from = mirror.slot[notice.slot].executor;
    slot_executor *to = &page->slot[notice.slot].executor;

    __threadfence_system();
    if (mine)
        store_system(&to->tokens, from.tokens);
    __threadfence_system();
    if (mine) {
        store_system(&to->tokens_ticket, from.tokens_ticket);
        block.host.published[notice.slot] = static_cast<uint16_t>(from.tokens);
    }
    __syncwarp(); // a chunk may have several notices of one stream, the last of them final
}

// One notice in each of the first lanes.
DEVICE void chunk_publish(Block &block, const Notice &notice, uint32_t count) {
    shared_page *page = real_page(block);
    uint64_t position = block.progress.published + lane_id();
    bool mine = lane_id() < count;

    results_copy(page, notice, count);
    __syncwarp();
    bool stream = mine && mirror.slot[notice.slot].executor.tokens_ticket ==
                              mirror.slot[notice.slot].ingress.ticket;
    if (__any_sync(~0u, stream))
        stream_store(page, block, notice, stream);
    if (mine && notice.entry & COMPLETION_FINAL)
        slot_store(page, notice);
    __syncwarp();
    if (mine)
        store_release_system(&page->completion[position & (COMPLETION_DEPTH - 1)], notice.entry);
    if (mine && notice.entry & COMPLETION_FINAL) {
        block.host.source[notice.slot] = nullptr;
        block.host.published[notice.slot] = 0;
    }
    __syncwarp();
    if (lane_id() == 0) {
        // These the fence above has ordered: all notices before this chunk's.
        store_system(&page->executor.completion_tail, block.progress.published);
        block.progress.counted = block.progress.published;
        block.progress.published += count;
    }
    __syncwarp();
}

DEVICE bool counts_behind(const Block &block) {
    return block.progress.counters || block.progress.counted != block.progress.published;
}

// What nobody waits for, when there is nothing else to do: counters, and notices that the page's
// own count does not know yet.
RARE void counts_store(Block &block) {
    const page_executor &from = mirror.executor;
    page_executor *to = &real_page(block)->executor;
    uint32_t first = offset_in(&from, &from.steps) / 8;
    uint32_t end = offset_in(&from, from.pad1) / 8;

    if (block.progress.counters && lane_id() >= first && lane_id() < end)
        store_system(reinterpret_cast<uint64_t *>(to) + lane_id(),
                     reinterpret_cast<const uint64_t *>(&from)[lane_id()]);
    bool behind = block.progress.counted != block.progress.published;
    if (behind && lane_id() == 0)
        store_release_system(&to->completion_tail, block.progress.published);
    __syncwarp();
    block.progress.counters = 0;
    block.progress.counted = block.progress.published;
    __syncwarp();
}

// Returns whether there were any.
DEVICE bool results_publish(Block &block) {
    uint64_t tail = mirror.executor.completion_tail;
    bool any = block.progress.published != tail;

    while (block.progress.published != tail) {
        uint64_t left = tail - block.progress.published;
        uint32_t count = left < 32 ? static_cast<uint32_t>(left) : 32;
        Notice notice = {};
        if (lane_id() < count)
            notice = notice_read(block, block.progress.published + lane_id());
        chunk_publish(block, notice, count);
    }
    return any;
}

// Of a request that was launched ahead, and alone since: what the policy is bound to post for it,
// as its next notice. Without what a chunk of notices needs, and with all lanes for its result.
DEVICE void lone_publish(shared_page *page, const Ahead &lone, uint64_t position) {
    request_slot &to = page->slot[lone.slot];

    copy_bytes(to.result, reinterpret_cast<const void *>(lone.from), lone.length, lane_id(), 32);
    __syncwarp();
    if (lane_id() == 0) {
        store_system(&to.executor.length,
                     uint64_t{FINISH_NONE} << 48 | uint64_t{STATUS_OK} << 32 | lone.length);
        store_system(&to.executor.done, lone.ticket);
        store_release_system(&page->completion[position & (COMPLETION_DEPTH - 1)],
                             (position + 1) << TICKET_SHIFT | COMPLETION_FINAL | lone.slot);
        store_system(&page->executor.completion_tail, position);
    }
    __syncwarp();
}
