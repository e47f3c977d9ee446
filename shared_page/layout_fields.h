/* SPDX-License-Identifier: MIT */
/*
 * Every member of every structure of layout.h (PAGE_FIELDS) and of protocol.h
 * (WIRE_FIELDS), so that two parts can find out whether they were built with
 * the same layout. A test fails when a member is missing here.
 *
 * A member is described by where it ends: that one number moves with the
 * member's place as well as with its size.
 */
#ifndef SHARED_PAGE_LAYOUT_FIELDS_H
#define SHARED_PAGE_LAYOUT_FIELDS_H

#include "layout.h"

/* clang-format off */
#define PAGE_FIELDS(FIELD) \
	FIELD(page_identity, magic) \
	FIELD(page_identity, layout_version) \
	FIELD(page_identity, size) \
	FIELD(page_identity, layout_hash) \
	FIELD(page_identity, layout_fields) \
	FIELD(page_identity, max_connections) \
	FIELD(page_identity, max_slots) \
	FIELD(page_identity, pad) \
	FIELD(page_identity, layout_field) \
	FIELD(page_supervisor, stop) \
	FIELD(page_supervisor, refusals_heard) \
	FIELD(page_supervisor, adaptive_wake_ns) \
	FIELD(page_supervisor, pad) \
	FIELD(page_ingress, submit_tail) \
	FIELD(page_ingress, free_slot_head) \
	FIELD(page_ingress, free_connection_head) \
	FIELD(page_ingress, attention_tail) \
	FIELD(page_ingress, cancel_count) \
	FIELD(page_ingress, rung) \
	FIELD(page_ingress, timer_armed) \
	FIELD(page_ingress, ticks) \
	FIELD(page_ingress, pad0) \
	FIELD(page_ingress, bytes_received) \
	FIELD(page_ingress, frames_busy) \
	FIELD(page_ingress, frames_bad) \
	FIELD(page_ingress, cancels) \
	FIELD(page_ingress, connections_refused) \
	FIELD(page_ingress, doorbells) \
	FIELD(page_ingress, stale_segments) \
	FIELD(page_ingress, insert_failures) \
	FIELD(page_ingress, timer_looks) \
	FIELD(page_ingress, early_looks) \
	FIELD(page_ingress, pad1) \
	FIELD(page_egress, free_slot_tail) \
	FIELD(page_egress, free_connection_tail) \
	FIELD(page_egress, completion_head) \
	FIELD(page_egress, attention_head) \
	FIELD(page_egress, cancel_count) \
	FIELD(page_egress, sleep) \
	FIELD(page_egress, draining) \
	FIELD(page_egress, hand) \
	FIELD(page_egress, frame_ticks) \
	FIELD(page_egress, watch_head) \
	FIELD(page_egress, watch_tail) \
	FIELD(page_egress, replies) \
	FIELD(page_egress, bytes_sent) \
	FIELD(page_egress, connections_accepted) \
	FIELD(page_egress, connections_closed) \
	FIELD(page_egress, finals) \
	FIELD(page_egress, steps) \
	FIELD(page_egress, timer_wakes) \
	FIELD(page_egress, doorbell_wakes) \
	FIELD(page_egress, sends) \
	FIELD(page_egress, submissions) \
	FIELD(page_egress, stale_results) \
	FIELD(page_egress, accept_failures) \
	FIELD(page_egress, timeouts) \
	FIELD(page_egress, frames_late) \
	FIELD(page_egress, discarded) \
	FIELD(page_egress, pad1) \
	FIELD(page_executor, submit_head) \
	FIELD(page_executor, completion_tail) \
	FIELD(page_executor, state) \
	FIELD(page_executor, error) \
	FIELD(page_executor, heartbeat) \
	FIELD(page_executor, pad0) \
	FIELD(page_executor, steps) \
	FIELD(page_executor, launches) \
	FIELD(page_executor, batched) \
	FIELD(page_executor, completed) \
	FIELD(page_executor, dropped) \
	FIELD(page_executor, tokens) \
	FIELD(page_executor, pad1) \
	FIELD(page_due, service_ns) \
	FIELD(page_due, pad) \
	FIELD(page_wake, next_ns) \
	FIELD(page_wake, looked_ns) \
	FIELD(page_wake, awaited) \
	FIELD(page_wake, missed) \
	FIELD(page_wake, pad) \
	FIELD(page_wake, expected_ns) \
	FIELD(order_entry, request_id) \
	FIELD(order_entry, length) \
	FIELD(order_entry, status) \
	FIELD(order_entry, flags) \
	FIELD(connection_ingress, generation) \
	FIELD(connection_ingress, order_tail) \
	FIELD(connection_ingress, attention_posted) \
	FIELD(connection_ingress, closing) \
	FIELD(connection_ingress, header_have) \
	FIELD(connection_ingress, slot) \
	FIELD(connection_ingress, payload_have) \
	FIELD(connection_ingress, discard) \
	FIELD(connection_ingress, header) \
	FIELD(connection_ingress, frames) \
	FIELD(connection_ingress, inside) \
	FIELD(connection_egress, order_head) \
	FIELD(connection_egress, attention_seen) \
	FIELD(connection_egress, tokens_sent) \
	FIELD(connection_egress, watched) \
	FIELD(connection_egress, late) \
	FIELD(connection_egress, inside_past) \
	FIELD(connection_egress, pad) \
	FIELD(connection_entry, ingress) \
	FIELD(connection_entry, egress) \
	FIELD(connection_entry, order) \
	FIELD(slot_ingress, ticket) \
	FIELD(slot_ingress, request_id) \
	FIELD(slot_ingress, connection) \
	FIELD(slot_ingress, generation) \
	FIELD(slot_ingress, kind) \
	FIELD(slot_ingress, length) \
	FIELD(slot_ingress, admitted_ns) \
	FIELD(slot_ingress, pad) \
	FIELD(slot_executor, done) \
	FIELD(slot_executor, tokens) \
	FIELD(slot_executor, tokens_ticket) \
	FIELD(slot_executor, length) \
	FIELD(slot_executor, status) \
	FIELD(slot_executor, finish) \
	FIELD(slot_executor, pad) \
	FIELD(slot_egress, frame) \
	FIELD(slot_egress, header) \
	FIELD(request_slot, ingress) \
	FIELD(request_slot, request) \
	FIELD(request_slot, executor) \
	FIELD(request_slot, egress) \
	FIELD(request_slot, result) \
	FIELD(slot_look, ticket) \
	FIELD(slot_look, tokens) \
	FIELD(slot_look, same) \
	FIELD(frame_watch, connection) \
	FIELD(frame_watch, since) \
	FIELD(frame_watch, frame) \
	FIELD(shared_page, identity) \
	FIELD(shared_page, supervisor) \
	FIELD(shared_page, ingress) \
	FIELD(shared_page, egress) \
	FIELD(shared_page, executor) \
	FIELD(shared_page, due) \
	FIELD(shared_page, wake) \
	FIELD(shared_page, submit) \
	FIELD(shared_page, completion) \
	FIELD(shared_page, attention) \
	FIELD(shared_page, free_slot) \
	FIELD(shared_page, free_connection) \
	FIELD(shared_page, cancel_client) \
	FIELD(shared_page, cancel_close) \
	FIELD(shared_page, final_taken) \
	FIELD(shared_page, look) \
	FIELD(shared_page, watch) \
	FIELD(shared_page, connection) \
	FIELD(shared_page, slot) \
	FIELD(shared_page, tail_guard)

/* Not in the page's identity: PROTOCOL_VERSION speaks for these. */
#define WIRE_FIELDS(FIELD) \
	FIELD(request_header, magic) \
	FIELD(request_header, version) \
	FIELD(request_header, kind) \
	FIELD(request_header, request_id) \
	FIELD(request_header, flags) \
	FIELD(request_header, length) \
	FIELD(reply_header, request_id) \
	FIELD(reply_header, length) \
	FIELD(reply_header, status) \
	FIELD(reply_header, flags) \
	FIELD(generation_request, prompt_count) \
	FIELD(generation_request, max_tokens) \
	FIELD(generation_request, min_tokens) \
	FIELD(generation_request, priority) \
	FIELD(generation_request, temperature) \
	FIELD(generation_request, top_p) \
	FIELD(generation_request, top_k) \
	FIELD(generation_request, stop_token) \
	FIELD(generation_request, seed)
/* clang-format on */

/* Entries of an array of uint32_t, and of one of strings. */
#define FIELD_END(type, member)                                                \
	(uint32_t)(__builtin_offsetof(struct type, member) +                   \
		   sizeof(((struct type *)0)->member)),
#define FIELD_NAME(type, member) #type "." #member,

#endif
