/* SPDX-License-Identifier: MIT */
/*
 * Wire protocol, version 1: the only definition, for C, C++, BPF, CUDA and
 * (read through cffi) Python. docs/protocol.md says what the fields mean.
 * All integers are little endian; the structures have no padding.
 */
#ifndef SHARED_PAGE_PROTOCOL_H
#define SHARED_PAGE_PROTOCOL_H

#ifdef __CUDACC_RTC__ /* NVRTC has no standard headers */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
#else
#include <stdint.h>
#endif

enum protocol_constants {
	PROTOCOL_MAGIC = 0x31524742, /* "BGR1" on the wire */
	PROTOCOL_VERSION = 1,
	REQUEST_HEADER_SIZE = 24,
	REPLY_HEADER_SIZE = 16,
	/* A longer payload is refused with STATUS_TOO_LARGE and a close. */
	REQUEST_MAX = 4096,
	RESULT_MAX = 4096,
	/* Unanswered requests of one connection; one more closes it. */
	PIPELINE_MAX = 31,
	/*
	 * What a client may keep unanswered without ever being closed: a
	 * reply is owed until its send has completed, and the client may have
	 * read it and asked again by then. SEND_BATCH_MAX replies leave in
	 * one send.
	 */
	PIPELINE_DEPTH = 24,
	SEND_BATCH_MAX = 7,
	TOKEN_SIZE = 4,
	/* Tokens in one frame of a stream: header and tokens fill 64 bytes. */
	FRAME_TOKENS_MAX = 12,
	/* Longest stream: the tokens of one request fill its result area. */
	STREAM_TOKENS_MAX = 1024,
};

enum request_kind {
	KIND_CANCEL = 0, /* request_id names the request to cancel; no reply */
	KIND_EMPTY = 1, /* no computing: an empty reply */
	KIND_GEMM = 2,
	KIND_FFT = 3,
	KIND_TOYLM = 4, /* payload: struct generation_request, then tokens */
	KIND_LLM = 5,
	KIND_ECHO = 6, /* the reply's payload is the request's */
	KIND_COUNT = 16, /* kinds from here on are unknown to everybody */
};

enum reply_status {
	STATUS_OK = 0,
	STATUS_BUSY = 1, /* the queue is full; the request was not admitted */
	STATUS_BAD_FRAME = 2, /* wrong magic or version; closes */
	STATUS_TOO_LARGE = 3, /* payload over REQUEST_MAX; closes */
	STATUS_TOO_MANY = 4, /* over PIPELINE_MAX unanswered; closes */
	STATUS_UNKNOWN_KIND = 5,
	STATUS_BAD_PAYLOAD = 6,
	STATUS_CANCELLED = 7,
	STATUS_INTERNAL = 8, /* the executor failed; the request is lost */
	STATUS_SHUTTING_DOWN = 9,
	STATUS_TIMEOUT = 10, /* not computed, or not received, in time */
};

enum reply_flags {
	REPLY_LAST = 1, /* no more frames follow for this request */
	REPLY_FINISH_SHIFT =
		8, /* finish reason of a stream, in the last frame */
};

enum finish_reason {
	FINISH_NONE = 0,
	FINISH_STOP = 1, /* an end-of-sequence or stop token */
	FINISH_LENGTH = 2, /* the token limit */
	FINISH_ABORT = 3, /* cancelled, failed, or overdue */
};

struct request_header {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	uint64_t request_id;
	uint32_t flags; /* 0 in version 1; other bits are ignored */
	uint32_t length; /* of the payload that follows */
};

struct reply_header {
	uint64_t request_id;
	uint32_t length; /* of the payload that follows */
	uint16_t status;
	uint16_t flags;
};

/* Payload of KIND_TOYLM and KIND_LLM; prompt_count token ids follow it. */
struct generation_request {
	uint32_t prompt_count;
	uint32_t max_tokens; /* 1..STREAM_TOKENS_MAX */
	uint32_t min_tokens;
	int32_t priority; /* lower is sooner */
	float temperature; /* 0: greedy */
	float top_p;
	uint32_t top_k; /* 0: no limit */
	uint32_t stop_token; /* UINT32_MAX: none */
	uint64_t seed;
};

#endif
