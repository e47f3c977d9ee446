/* The transport's side of a page for tests of executors. Read by the compiler and by cffi. */

/* A reply frame that was taken from the page, as it would go on the wire. */
struct transport_frame {
    uint32_t length;
    uint32_t last; /* the request is answered, its slot given back */
    uint8_t bytes[16 + 4096];
};

/* Opens a connection. Returns 0 when there is none left. */
int transport_open(struct shared_page *page, uint32_t *connection);
void transport_admit(struct shared_page *page, uint32_t connection, const uint8_t *bytes,
                     uint32_t length);
/* Takes the next notice of the completion ring; fills in whose it is. */
int transport_notice(struct shared_page *page, uint32_t *connection);
/* Takes the next frame that can be sent to the connection. Needs no notice. */
int transport_reply(struct shared_page *page, uint32_t connection, struct transport_frame *frame);
/* The connection is gone: what it is owed is cancelled. */
void transport_close(struct shared_page *page, uint32_t connection);

struct transport_load {
    uint32_t kind;
    uint32_t length; /* of each payload */
    uint32_t connections;
    uint32_t depth; /* requests outstanding on each */
    uint64_t requests;
};

/* Seconds until all requests were answered, or a negative number after 60 seconds. */
double transport_load(struct shared_page *page, const struct transport_load *load,
                      const uint8_t *payload);
