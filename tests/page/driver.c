/* SPDX-License-Identifier: MIT */
#include "shared_page/attach.h"

#include "shared_page/egress.h"
#include "shared_page/executor.h"

static int copy_bytes(void *source, uint32_t offset, void *to, uint32_t length) {
    memcpy(to, (const char *)source + offset, length);
    return 0;
}

#include "shared_page/ingress.h"

#include "driver.h"

struct shared_page *drive_attach(int fd, char *error, size_t error_size) {
    return page_attach(fd, error, error_size);
}

struct shared_page *drive_attach_frames(int fd, const uint64_t *frame, size_t count, char *error,
                                        size_t error_size) {
    return page_attach_frames(fd, frame, count, error, error_size);
}

void drive_initialise(struct shared_page *page, uint32_t max_connections) {
    page_initialise(page, max_connections, SLOT_COUNT);
}

uint64_t drive_layout_hash(void) {
    return layout_hash();
}

int drive_connection_open(struct shared_page *page, uint32_t *index) {
    return connection_open(page, index);
}

uint32_t drive_frames_admit(struct shared_page *page, uint32_t index, const void *bytes,
                            uint32_t length) {
    return frames_admit(page, index, (void *)bytes, length);
}

void drive_attention_post(struct shared_page *page, uint32_t index) {
    attention_post(page, index);
}

int drive_request_take(struct shared_page *page, uint32_t *slot) {
    return request_take(page, slot);
}

int drive_request_cancelled(struct shared_page *page, uint32_t slot) {
    return request_cancelled(page, slot);
}

void drive_result_publish(struct shared_page *page, uint32_t slot, uint32_t length, uint16_t status,
                          uint16_t finish) {
    result_publish(page, slot, length, status, finish);
}

void drive_stream_begin(struct shared_page *page, uint32_t slot) {
    stream_begin(page, slot);
}

void drive_token_publish(struct shared_page *page, uint32_t slot, uint32_t token, int notify) {
    token_publish(page, slot, token, notify);
}

int drive_completion_take(struct shared_page *page, uint32_t *index) {
    return completion_take(page, index);
}

int drive_attention_take(struct shared_page *page, uint32_t *index) {
    return attention_take(page, index);
}

int drive_hand_move(struct shared_page *page, uint32_t *index) {
    return hand_move(page, index);
}

void drive_frame_watch(struct shared_page *page, uint32_t index) {
    frame_watch(page, index);
}

int drive_frame_turn(struct shared_page *page, uint32_t *index) {
    return frame_turn(page, index);
}

uint64_t drive_requests_in_flight(struct shared_page *page) {
    return requests_in_flight(page);
}

int drive_results_to_come(struct shared_page *page, uint64_t now) {
    return results_to_come(page, now);
}

void drive_wake_learn(struct shared_page *page, uint64_t now) {
    wake_learn(page, now);
}

uint64_t drive_wake_plan(struct shared_page *page, uint64_t now) {
    return wake_plan(page, now);
}

int drive_reply_ready(struct shared_page *page, uint32_t index, uint32_t nth,
                      struct drive_reply *reply) {
    struct reply_view view;

    if (!reply_ready(page, index, nth, &view))
        return 0;
    reply->offset = view.offset;
    reply->length = view.length;
    reply->slot = view.slot;
    reply->tokens = view.tokens;
    reply->last = view.last;
    return 1;
}

void drive_reply_sent(struct shared_page *page, uint32_t index, uint32_t slot, uint32_t tokens,
                      uint32_t last) {
    reply_sent(page, index, slot, tokens, last);
}

int drive_replies_settled(struct shared_page *page, uint32_t index) {
    return replies_settled(page, index);
}

void drive_connection_release(struct shared_page *page, uint32_t index) {
    connection_release(page, index);
}
