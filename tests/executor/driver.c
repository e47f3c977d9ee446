#include <stdint.h>
#include <string.h>
#include <time.h>

static int copy_bytes(void *source, uint32_t offset, uint8_t *to, uint32_t length) {
    memcpy(to, (const uint8_t *)source + offset, length);
    return 0;
}

#include "shared_page/egress.h"
#include "shared_page/ingress.h"

#include "driver.h"

int transport_open(struct shared_page *page, uint32_t *connection) {
    return connection_open(page, connection);
}

void transport_admit(struct shared_page *page, uint32_t connection, const uint8_t *bytes,
                     uint32_t length) {
    frames_admit(page, connection, (void *)bytes, length);
}

int transport_notice(struct shared_page *page, uint32_t *connection) {
    return completion_take(page, connection);
}

int transport_reply(struct shared_page *page, uint32_t connection, struct transport_frame *frame) {
    struct reply_view view;

    if (!reply_ready(page, connection, 0, &view))
        return 0;
    memcpy(frame->bytes, (uint8_t *)page + view.offset, view.length);
    frame->length = view.length;
    frame->last = view.last;
    reply_sent(page, connection, view.slot, view.tokens, view.last);
    return 1;
}

void transport_close(struct shared_page *page, uint32_t connection) {
    connection_release(page, connection);
}

static double seconds(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void request_send(struct shared_page *page, uint32_t connection,
                         const struct transport_load *load, const uint8_t *payload) {
    struct request_header header = {PROTOCOL_MAGIC, PROTOCOL_VERSION, load->kind, 0, 0,
                                    load->length};

    transport_admit(page, connection, (const uint8_t *)&header, sizeof(header));
    transport_admit(page, connection, payload, load->length);
}

/* Answers the connection's ready replies. Returns how many, streams counted once. */
static uint32_t replies_drop(struct shared_page *page, uint32_t connection) {
    struct reply_view view;
    uint32_t answered = 0;

    while (reply_ready(page, connection, 0, &view)) {
        reply_sent(page, connection, view.slot, view.tokens, view.last);
        answered += view.last;
    }
    return answered;
}

double transport_load(struct shared_page *page, const struct transport_load *load,
                      const uint8_t *payload) {
    uint64_t sent = 0, answered = 0;
    double start = seconds();

    for (uint32_t i = 0; i < load->connections; i++) {
        uint32_t connection;
        if (!transport_open(page, &connection))
            return -1;
        for (uint32_t j = 0; j < load->depth && sent < load->requests; j++, sent++)
            request_send(page, connection, load, payload);
    }
    for (uint32_t polls = 0; answered < load->requests; polls++) {
        uint32_t connection;
        if (polls % 65536 == 65535 && seconds() - start > 60)
            return -1;
        if (!completion_take(page, &connection)) {
            __builtin_ia32_pause();
            continue;
        }
        uint32_t now = replies_drop(page, connection);
        answered += now;
        for (; now && sent < load->requests; now--, sent++)
            request_send(page, connection, load, payload);
    }
    return seconds() - start;
}
