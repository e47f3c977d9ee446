/* SPDX-License-Identifier: MIT */
/*
 * What the executor's process and its kernels tell each other. Plain C, read
 * by NVRTC and (through cffi) by Python. Addresses are the GPU's.
 */
#ifndef GPU_SCHEDULER_CUDA_CONTROL_H
#define GPU_SCHEDULER_CUDA_CONTROL_H

#include "shared_page/protocol.h"

enum executor_limits {
    /* Workloads at a time, so that the scheduler fits in shared memory. */
    EXECUTOR_LANES = 5,
    /* One lane of a warp watches one instance. */
    INSTANCES_MAX = 32,
    /* Fire-and-forget launches of one execution: CUDA allows 120. */
    LAUNCHES_MAX = 120,
    /* In result_bytes: a result is as long as its request. */
    RESULT_AS_REQUEST = 0xffffffff,
};

enum executor_ending {
    EXECUTOR_RUNS = 0,
    ENDED_STOPPED = 1, /* all that was submitted is answered */
    ENDED_MISSING = 2, /* places of the ring were claimed, never filled */
    ENDED_REFUSED = 3, /* a graph could not be launched */
};

/* Where a request has got to, when one at a time is in flight. */
enum timeline_mark {
    MARK_SEEN,      /* its entry of the ring was read */
    MARK_POSTED,    /* the launching warp is asked for its graph */
    MARK_FETCHED,   /* it is in the copy of the page */
    MARK_NOTICED,   /* the policy's warp has found it there */
    MARK_LAUNCHED,  /* its graph is launched */
    MARK_FINISHED,  /* the graph's flag was seen */
    MARK_PUBLISHED, /* result and notice are on their way to the page */
    MARK_ANSWERED,  /* the policy has taken and answered it */
    MARKS = 8,
};

/* In the host's memory, mapped for the GPU. */
struct executor_control {
    uint32_t stop; /* [host] finish what was submitted, then leave */
    uint32_t pad0[15];
    /* [gpu] */
    uint32_t ending;     /* enum executor_ending */
    uint32_t error;      /* cudaError_t of the refused launch */
    uint64_t missing;    /* requests claimed, but not submitted */
    uint64_t executions; /* of the scheduler's kernel: it relaunches itself */
    uint64_t retries;    /* launches of an instance that had not quite ended */
    uint64_t polls;      /* of the submission ring */
    /* with -DTIMELINE: clock cycles from the first mark to each, over `timed` requests */
    uint64_t timed;
    uint64_t cycles[MARKS];
    uint64_t pad1;
};

/* One executable graph, launched when no other launch of it is in flight. */
struct graph_instance {
    uint64_t exec;  /* cudaGraphExec_t, instantiated for device launch */
    uint64_t input; /* batch_max requests, input_stride bytes apart */
    uint64_t output;
};

/* The last kernel of an instance's graph counts here. In GPU memory. */
struct graph_flags {
    uint64_t finished; /* executions */
    uint64_t pad;
};

struct graph_lane {
    uint32_t kind; /* the first six: struct LaneLimits */
    uint32_t streams;
    uint32_t request_min;
    uint32_t request_max;
    uint32_t batch_max;
    uint32_t in_flight_max;
    uint32_t first_instance;
    uint32_t instances;
    uint32_t input_stride;  /* bytes; 0: requests are not copied */
    uint32_t output_stride; /* bytes; 0: results are empty */
    uint32_t result_bytes;
    uint32_t vocab;    /* of a stream */
    uint64_t delay_ns; /* from launch to result, at least */
};

struct executor_config {
    uint64_t page;
    uint64_t control;
    uint64_t flags;           /* struct graph_flags[INSTANCES_MAX] */
    uint64_t completion_head; /* of egress, read before the page is copied */
    uint32_t lanes;
    uint32_t instances;
    struct graph_lane lane[EXECUTOR_LANES];
    struct graph_instance instance[INSTANCES_MAX];
};

#endif
