/* SPDX-License-Identifier: MIT */
/*
 * The page that transport and executor share: the only definition, plain C11
 * for clang's BPF target, gcc, g++, NVRTC and (through cffi) Python.
 *
 * Every member names its one writer in [brackets]:
 *   creator     whoever made the page, before anybody attached
 *   supervisor  the process that started the service
 *   ingress     bytes in: the sock_ops and sk_skb programs (on any CPU, hence
 *               with atomics), or the receiving half of a native server
 *   egress      bytes out: the io_uring loop, or the sending half
 *   executor    takes requests, publishes results (GPU or CPU)
 * Members of different writers never share a cache line; the GPU reads its
 * words over PCIe, a line at a time. Indices into rings only grow and are
 * reduced by the ring's size, a power of two, at use.
 */
#ifndef SHARED_PAGE_LAYOUT_H
#define SHARED_PAGE_LAYOUT_H

#include "protocol.h"

enum page_constants {
	PAGE_MAGIC = 0x50534742, /* "BGSP" */
	PAGE_LAYOUT_VERSION = 1,
	CACHE_LINE = 64,
	SLOT_COUNT = 1024,
	CONNECTION_COUNT = 4096,
	/* Replies owed to one connection: PIPELINE_MAX and a closing error. */
	ORDER_DEPTH = 32,
	/*
	 * Room for one final notice of every slot and as many notices of
	 * progress; the executor posts the latter only while half is free.
	 */
	COMPLETION_DEPTH = 2048,
	/* In order_entry.length: the entry refers to a slot. */
	ORDER_IS_SLOT = 0x7fffffff,
	SLOT_NONE = 0xffff,
	/* A ring's entry: (position + 1) << TICKET_SHIFT | index and flags. */
	TICKET_SHIFT = 16,
	SLOT_MASK = 1023,
	CONNECTION_BITS = 12,
	CONNECTION_MASK = 4095,
	COMPLETION_FINAL = 0x8000, /* the slot's request is finished */
	LAYOUT_FIELDS_MAX = 160,
};

/* See deadlines.h. */
enum deadline_limits {
	/* Looks that find a request as the one before did: it is overdue. */
	LOOKS_UNTIL_OVERDUE = 4,
	HAND_SLOTS = 128, /* that the hand passes in a tick */
	/* A request's time limit in ticks of the hand, a frame's in its own. */
	REQUEST_TICKS = LOOKS_UNTIL_OVERDUE * SLOT_COUNT / HAND_SLOTS,
	FRAME_TICKS = 8,
};

/* See wake.h. */
enum wake_limits {
	EXPECTED_LEAST_NS = 1000,
	EXPECTED_MOST_NS = 50000000,
	/* One look in about nine comes too soon, by less than an eighth. */
	EXPECTED_LESS = 64, /* a part of itself, after a look in time */
	EXPECTED_MORE = 8, /* after one that came too soon */
	/* Results found at a look are skipped to find the next to wait for. */
	OLDEST_STEPS = 4,
};

enum executor_state {
	EXECUTOR_ABSENT = 0,
	EXECUTOR_READY = 1,
	EXECUTOR_STOPPED = 2,
	EXECUTOR_FAILED = 3,
};

/* What ingress found wrong with a connection: why it is being closed. */
enum ingress_closing {
	INGRESS_OPEN = 0,
	INGRESS_CLOSING = 1, /* an error reply stands last in the order ring */
};

/* Values of connection_ingress.inside that name no frame. */
enum inside_no_frame {
	INSIDE_NOTHING = 0,
	/* Egress has declared the frame late: nothing more is admitted. */
	INSIDE_LATE = 1,
};

/* A frame was not finished in time: why egress closes a connection. */
enum frame_late {
	FRAME_IN_TIME = 0,
	FRAME_LATE = 1, /* when what is owed has left */
	FRAME_LATE_OWED = 2, /* and its header was whole, so it is answered */
};

/* [creator] What an attaching part compares before it touches the rest. */
struct page_identity {
	uint32_t magic;
	uint32_t layout_version;
	uint64_t size; /* bytes, sizeof(struct shared_page) */
	uint64_t layout_hash; /* FNV-1a over layout_field[] */
	uint32_t layout_fields; /* entries used in layout_field[] */
	uint32_t max_connections; /* 1..CONNECTION_COUNT */
	uint32_t max_slots; /* 1..SLOT_COUNT, those that are ever free */
	uint32_t pad[7];
	/* Where each member ends, in the order of layout_fields.h. */
	uint32_t layout_field[LAYOUT_FIELDS_MAX];
};

/* [supervisor] */
struct page_supervisor {
	uint32_t stop; /* executor: finish what was submitted, then leave */
	uint32_t refusals_heard; /* times that it was told of some */
	uint32_t adaptive_wake_ns; /* see wake.h; 0: looks at equal intervals */
	uint32_t pad[13];
};

/*
 * [ingress] Heads and tails are claimed with atomics, since the programs run
 * on every CPU. submit_tail is also the count of admitted requests.
 */
struct page_ingress {
	uint64_t submit_tail;
	uint64_t free_slot_head;
	uint64_t free_connection_head;
	uint64_t attention_tail;
	uint64_t cancel_count; /* rises with each word in cancel_client[] */
	uint32_t rung; /* the sleep that the doorbell was rung for */
	uint32_t timer_armed; /* looks for results while any are to come */
	uint32_t ticks; /* of the timer: egress looks for overdue requests */
	uint32_t pad0[3];
	/* counters, off the line that the executor polls */
	uint64_t bytes_received;
	uint64_t frames_busy; /* not admitted: BUSY, or SHUTTING_DOWN */
	uint64_t frames_bad; /* answered with an error that closes */
	uint64_t cancels; /* CANCEL frames */
	uint64_t connections_refused; /* no free entry */
	uint64_t doorbells; /* wake-ups asked of a sleeping egress */
	uint64_t stale_segments; /* bytes for a connection that is gone */
	uint64_t insert_failures; /* the socket map refused a connection */
	uint64_t timer_looks; /* of the timer, most of which wake nobody */
	uint64_t early_looks; /* for a result that was not there yet */
	uint64_t pad1[6];
};

/* [egress] */
struct page_egress {
	uint64_t free_slot_tail;
	uint64_t free_connection_tail;
	uint64_t completion_head;
	uint64_t attention_head;
	uint64_t cancel_count; /* rises with each word in cancel_close[] */
	/* 0 while egress is awake, else the number of this sleep */
	uint32_t sleep;
	uint32_t draining; /* no new connections; leaves when all is answered */
	uint32_t hand; /* the next slot to look at, see deadlines.h */
	uint32_t frame_ticks;
	uint32_t watch_head; /* of watch[] */
	uint32_t watch_tail;
	/* counters */
	uint64_t replies; /* requests answered, error replies included */
	uint64_t bytes_sent;
	uint64_t connections_accepted;
	uint64_t connections_closed;
	uint64_t finals; /* final notices taken from completion[] */
	uint64_t steps; /* of the loop */
	uint64_t timer_wakes;
	uint64_t doorbell_wakes;
	uint64_t sends; /* SEND or SENDMSG SQEs; writev or send calls */
	uint64_t submissions; /* SQEs of every kind; 0 for native servers */
	uint64_t stale_results; /* final notices that nobody waited for */
	uint64_t accept_failures; /* out of files or memory */
	uint64_t timeouts; /* requests answered with STATUS_TIMEOUT */
	uint64_t frames_late; /* connections closed inside a frame */
	uint64_t discarded; /* replies that stood when their peer was gone */
	uint64_t pad1[1];
};

/* [executor] */
struct page_executor {
	uint64_t submit_head;
	uint64_t completion_tail;
	uint32_t state; /* enum executor_state */
	uint32_t error; /* why it failed: an errno or a CUDA error */
	uint64_t heartbeat; /* rises while it runs */
	uint64_t pad0[4];
	/* counters */
	uint64_t steps; /* of the scheduler that had work */
	uint64_t launches; /* graphs or batches started */
	uint64_t batched; /* requests in them */
	uint64_t completed; /* final notices posted */
	uint64_t dropped; /* of these: cancelled before they had run */
	uint64_t tokens;
	uint64_t pad1[2];
};

/*
 * [executor] 0, or: nobody computes. A request's result falls due so long after
 * it was admitted, and egress makes it, on executor's behalf and in executor's
 * words, when it looks for results: see due.h.
 */
struct page_due {
	uint64_t service_ns;
	uint64_t pad[7];
};

/* [ingress] When to look for results, under the adaptive policy: see wake.h. */
struct page_wake {
	uint64_t next_ns; /* the planned look, 0: none */
	uint64_t looked_ns; /* the last planned one */
	uint64_t awaited; /* ticket and slot it is for, 0: nobody's */
	uint64_t missed; /* planned looks for it so far, all too soon */
	uint64_t pad[4];
	uint32_t expected_ns[KIND_COUNT]; /* from admission to result */
};

/*
 * A reply that a connection is owed, in arrival order. [ingress]
 * An error reply stands here as it goes on the wire. For a request that was
 * admitted, length is ORDER_IS_SLOT and request_id holds the slot's ticket
 * and index; its header is made from the slot.
 */
struct order_entry {
	uint64_t request_id;
	uint32_t length;
	uint16_t status;
	uint16_t flags;
};

/* [ingress] One segment at a time: the socket lock is held. */
struct connection_ingress {
	uint32_t generation; /* never 0 once the entry was used */
	uint32_t order_tail;
	uint32_t attention_posted; /* see attention[] */
	uint32_t closing; /* enum ingress_closing: bytes are dropped */
	/* the frame being assembled */
	uint32_t header_have; /* bytes in header[] */
	uint32_t slot; /* SLOT_NONE while none is held */
	uint32_t payload_have;
	uint32_t discard; /* bytes left of a payload that nobody wants */
	uint8_t header[24]; /* struct request_header */
	/* begun so far, by all that used the entry; frames << 1 is not 0 */
	uint32_t frames;
	/*
	 * frames << 1 | its header is whole, of the frame that the last segment
	 * ended in, or INSIDE_NOTHING. Egress puts INSIDE_LATE here, and then
	 * ingress nothing any more: by compare-and-swap on both sides, so that
	 * a frame is either late or admitted.
	 */
	uint32_t inside;
};

/* [egress] */
struct connection_egress {
	uint32_t order_head;
	uint32_t attention_seen;
	uint32_t tokens_sent; /* of the stream at order_head */
	uint32_t watched; /* stands in watch[] */
	uint32_t late; /* enum frame_late */
	uint32_t inside_past; /* ingress.inside that an earlier one left */
	uint32_t pad[10];
};

struct connection_entry {
	struct connection_ingress ingress;
	struct connection_egress egress;
	struct order_entry order[ORDER_DEPTH]; /* [ingress] */
};

/* [ingress] */
struct slot_ingress {
	uint64_t ticket; /* submission number plus 1; names this use of the slot
			  */
	uint64_t request_id;
	uint32_t connection;
	uint32_t generation; /* of the connection */
	uint32_t kind;
	uint32_t length; /* bytes in request[] */
	/* CLOCK_MONOTONIC; where results fall due, or wake-ups adapt */
	uint64_t admitted_ns;
	uint64_t pad[3];
};

/* [executor] done is stored last, with release order. */
struct slot_executor {
	uint64_t done; /* the ticket, once the result stands */
	uint64_t tokens; /* published so far; only grows within one use */
	uint64_t tokens_ticket; /* the use that tokens belongs to */
	uint32_t length; /* bytes in result[], 0 for streams */
	uint16_t status; /* enum reply_status */
	uint16_t finish; /* enum finish_reason; FINISH_NONE: no stream */
	uint64_t pad[4];
};

/*
 * [egress] A frame of a stream is built from byte 0 on; the header of a single
 * reply fills the last 16 bytes, so that header and result[] are one buffer.
 */
struct slot_egress {
	uint8_t frame[48];
	struct reply_header header;
};

struct request_slot {
	struct slot_ingress ingress;
	uint8_t request[REQUEST_MAX]; /* [ingress] */
	struct slot_executor executor;
	struct slot_egress egress;
	uint8_t result[RESULT_MAX]; /* [executor] bytes, or uint32_t tokens */
};

/* [egress] What it found when it last looked at a slot. */
struct slot_look {
	uint64_t ticket;
	uint32_t tokens;
	uint32_t same; /* looks since then that found nothing new */
};

/* [egress] A connection inside a frame. */
struct frame_watch {
	uint16_t connection;
	uint16_t since; /* of egress.frame_ticks, its low bits */
	uint32_t frame; /* its number, from connection_ingress.inside */
};

struct shared_page {
	struct page_identity identity;
	struct page_supervisor supervisor;
	struct page_ingress ingress;
	struct page_egress egress;
	struct page_executor executor;
	struct page_due due;
	struct page_wake wake;
	/* [ingress] ticket << 16 | slot; ticket = position + 1 when published
	 */
	uint64_t submit[SLOT_COUNT];
	/* [executor] (position + 1) << 16 | COMPLETION_FINAL or 0 | slot */
	uint64_t completion[COMPLETION_DEPTH];
	/*
	 * [ingress] (position + 1) << 16 | connection: egress has something to
	 * do for it that no completion announces. A connection stands here at
	 * most once: only while attention_posted equals attention_seen may it
	 * be posted.
	 */
	uint64_t attention[CONNECTION_COUNT];
	uint32_t free_slot[SLOT_COUNT]; /* [egress] */
	uint32_t free_connection[CONNECTION_COUNT]; /* [egress] */
	/* [ingress] the ticket whose client sent CANCEL */
	uint64_t cancel_client[SLOT_COUNT];
	/* [egress] the ticket whose connection is gone, until its final notice
	 */
	uint64_t cancel_close[SLOT_COUNT];
	/*
	 * [egress] the ticket whose final notice was taken. Only then is it
	 * answered and its slot free again, so that no slot has two final
	 * notices in completion[], which is never full.
	 */
	uint64_t final_taken[SLOT_COUNT];
	struct slot_look look[SLOT_COUNT]; /* [egress] */
	/* [egress] each connection at most once, in order of their deadlines */
	struct frame_watch watch[CONNECTION_COUNT];
	struct connection_entry connection[CONNECTION_COUNT];
	struct request_slot slot[SLOT_COUNT];
	/*
	 * [creator] Nothing is stored here. Ingress copies at most REQUEST_MAX
	 * bytes to any place in request[]; the verifier sees only the map's
	 * end.
	 */
	uint8_t tail_guard[REQUEST_MAX];
};

#endif
