/* SPDX-License-Identifier: MIT */
/*
 * The functions of ingress.h, egress.h, executor.h and wake.h as a library, for tests
 * that call them through cffi: drive_NAME() calls NAME(). Read by gcc and by
 * cffi.
 */
#ifndef TESTS_PAGE_DRIVER_H
#define TESTS_PAGE_DRIVER_H

#include "shared_page/layout.h"

struct drive_reply {
    uint64_t offset;
    uint32_t length;
    uint32_t slot;
    uint32_t tokens;
    uint32_t last;
};

struct shared_page *drive_attach(int fd, char *error, size_t error_size);
struct shared_page *drive_attach_frames(int fd, const uint64_t *frame, size_t count, char *error,
                                        size_t error_size);
void drive_initialise(struct shared_page *page, uint32_t max_connections);
uint64_t drive_layout_hash(void);

int drive_connection_open(struct shared_page *page, uint32_t *index);
uint32_t drive_frames_admit(struct shared_page *page, uint32_t index, const void *bytes,
                            uint32_t length);
void drive_attention_post(struct shared_page *page, uint32_t index);

int drive_request_take(struct shared_page *page, uint32_t *slot);
int drive_request_cancelled(struct shared_page *page, uint32_t slot);
void drive_result_publish(struct shared_page *page, uint32_t slot, uint32_t length, uint16_t status,
                          uint16_t finish);
void drive_stream_begin(struct shared_page *page, uint32_t slot);
void drive_token_publish(struct shared_page *page, uint32_t slot, uint32_t token, int notify);

int drive_completion_take(struct shared_page *page, uint32_t *index);
int drive_attention_take(struct shared_page *page, uint32_t *index);
int drive_hand_move(struct shared_page *page, uint32_t *index);
void drive_frame_watch(struct shared_page *page, uint32_t index);
int drive_frame_turn(struct shared_page *page, uint32_t *index);
uint64_t drive_requests_in_flight(struct shared_page *page);
int drive_results_to_come(struct shared_page *page, uint64_t now);
void drive_wake_learn(struct shared_page *page, uint64_t now);
uint64_t drive_wake_plan(struct shared_page *page, uint64_t now);
int drive_reply_ready(struct shared_page *page, uint32_t index, uint32_t nth,
                      struct drive_reply *reply);
void drive_reply_sent(struct shared_page *page, uint32_t index, uint32_t slot, uint32_t tokens,
                      uint32_t last);
int drive_replies_settled(struct shared_page *page, uint32_t index);
void drive_connection_release(struct shared_page *page, uint32_t index);

#endif
