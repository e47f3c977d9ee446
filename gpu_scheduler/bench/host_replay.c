/* SPDX-License-Identifier: MIT */
/*
 * The reference that device launches are compared with: a host thread that
 * launches a graph for each request and waits for the flag that its last kernel
 * sets in the host's memory. Loaded by bench.py, which passes cuGraphLaunch.
 */
#include <stdint.h>
#include <time.h>

typedef int (*launch_function)(void *exec, void *stream);

static uint64_t now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/*
 * Launches count times, one after another, and fills in the nanoseconds from
 * launch to flag. The graph copies launched to *finished. Returns 0, or the
 * CUresult of a launch, or -1 when the flag did not come within a second.
 */
int host_replay(launch_function launch, void *exec, void *stream, volatile uint64_t *launched,
                volatile uint64_t *finished, uint32_t count, uint32_t *latency_ns) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t began = now();
        uint64_t turn = *launched + 1;
        int error;

        __atomic_store_n(launched, turn, __ATOMIC_RELEASE);
        error = launch(exec, stream);
        if (error)
            return error;
        while (__atomic_load_n(finished, __ATOMIC_ACQUIRE) != turn)
            if (now() - began > 1000000000)
                return -1;
        latency_ns[i] = (uint32_t)(now() - began);
    }
    return 0;
}
