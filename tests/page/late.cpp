// SPDX-License-Identifier: MIT
// A frame ends on one CPU while another declares it late: it is one of the two, never both and
// never neither.
//
//     page-late ROUNDS SECONDS
//
// It ends after so many rounds, or so long: on a busy machine the two seldom have a CPU each.
//
// In each round a frame has begun and its time is over. One thread brings the rest of it, the other
// takes the connection's turn, which it does a little later whenever it was first, and sooner
// whenever it was second: so that they meet, however fast the machine is.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

// Behind the standard headers: <atomic> has members named like a macro of memory_order.h.
#include "shared_page/attach.h"
#include "shared_page/egress.h"
#include "shared_page/executor.h"

static int copy_bytes(void *source, uint32_t offset, void *to, uint32_t length) {
    memcpy(to, static_cast<const char *>(source) + offset, length);
    return 0;
}

#include "shared_page/ingress.h"

namespace {

constexpr uint32_t payload_size = 8;

struct Frame {
    request_header header;
    uint8_t payload[payload_size];
};

struct Round {
    uint32_t index; // of the connection
    Frame frame;    // each round has an id of its own
    uint32_t have;  // bytes of it that came before
};

constexpr uint32_t spread = 16; // of the pauses before each acts

struct Race {
    std::unique_ptr<shared_page> page{new shared_page{}};
    Round round{};
    std::atomic<uint64_t> begun{0}, ended{0};
    bool over = false;
};

[[noreturn]] void fail(const char *what, uint64_t round) {
    fprintf(stderr, "page-late: round %llu: %s\n", static_cast<unsigned long long>(round), what);
    _exit(1);
}

void wait_for(const std::atomic<uint64_t> &counter, uint64_t value) {
    for (uint32_t turns = 0; counter.load() < value; turns++)
        if (turns > 1000)
            std::this_thread::yield();
}

void pause(uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        __builtin_ia32_pause();
}

void deliver(Race &race, uint32_t from, uint32_t length) {
    Round &round = race.round;

    frames_admit(race.page.get(), round.index, reinterpret_cast<char *>(&round.frame) + from,
                 length);
}

// The other thread: brings the rest of each round's frame.
void bring_rest(Race &race) {
    for (uint64_t n = 1;; n++) {
        wait_for(race.begun, n);
        if (race.over)
            return;
        pause(n * 7 % spread);
        deliver(race, race.round.have, sizeof(Frame) - race.round.have);
        race.ended.store(n);
    }
}

void begin(Race &race, uint64_t n) {
    Round &round = race.round;

    if (!connection_open(race.page.get(), &round.index))
        fail("no connection is free", n);
    round.frame.header = {PROTOCOL_MAGIC, PROTOCOL_VERSION, KIND_ECHO, n, 0, payload_size};
    round.have = n % 4 ? sizeof(request_header) + n % payload_size : 1 + n % 23;
    deliver(race, 0, round.have);
    frame_watch(race.page.get(), round.index);
    race.page->egress.frame_ticks += FRAME_TICKS;
}

// The executor and egress answer what was admitted.
void answer(Race &race, uint64_t n) {
    shared_page *page = race.page.get();
    uint32_t index = race.round.index, slot;
    reply_view view;

    if (!request_take(page, &slot))
        fail("what was admitted was not submitted", n);
    result_publish(page, slot, 0, STATUS_OK, FINISH_NONE);
    if (!completion_take(page, &index) || !reply_ready(page, index, 0, &view))
        fail("a result is no reply", n);
    reply_sent(page, index, view.slot, view.tokens, view.last);
}

// Returns whether the frame was late.
bool check(Race &race, uint64_t n) {
    shared_page *page = race.page.get();
    uint32_t index = race.round.index;
    connection_entry &entry = page->connection[index];
    bool admitted = entry.ingress.order_tail != entry.egress.order_head;
    bool late = entry.egress.late != FRAME_IN_TIME;
    reply_view view;

    if (admitted && late)
        fail("a late frame was admitted", n);
    if (!admitted && !late)
        fail("a frame is neither late nor admitted", n);
    if (admitted)
        answer(race, n);
    if (entry.egress.late == FRAME_LATE_OWED) {
        if (!reply_ready(page, index, 0, &view))
            fail("a late frame is not answered", n);
        auto *header =
            reinterpret_cast<reply_header *>(reinterpret_cast<char *>(page) + view.offset);
        if (header->request_id != n || header->status != STATUS_TIMEOUT)
            fail("a late frame's answer is another's", n);
        reply_sent(page, index, view.slot, view.tokens, view.last);
    }
    if (!replies_settled(page, index))
        fail("something is still owed", n);
    return late;
}

// Takes what a frame in time leaves in watch[], and all the slots back.
void clear(Race &race) {
    shared_page *page = race.page.get();
    uint32_t index;

    connection_release(page, race.round.index);
    page->egress.frame_ticks += FRAME_TICKS;
    while (frame_turn(page, &index))
        ;
}

} // namespace

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], nullptr, 10) : 100'000;
    std::chrono::seconds patience(argc > 2 ? atoi(argv[2]) : 60);
    auto started = std::chrono::steady_clock::now();
    uint64_t late = 0, balance = 0, n = 1;
    Race race;
    uint32_t index;

    page_initialise(race.page.get(), CONNECTION_COUNT, SLOT_COUNT);
    std::thread other(bring_rest, std::ref(race));
    for (; n <= rounds && std::chrono::steady_clock::now() - started < patience; n++) {
        begin(race, n);
        race.begun.store(n);
        pause(balance + n % spread);
        frame_turn(race.page.get(), &index);
        wait_for(race.ended, n);
        bool was_late = check(race, n);
        late += was_late;
        balance = was_late ? balance + 1 : balance - (balance > 0);
        clear(race);
    }
    race.over = true;
    race.begun.store(n--);
    other.join();
    const shared_page &page = *race.page;
    if (page.egress.free_slot_tail - page.ingress.free_slot_head != SLOT_COUNT)
        fail("slots were lost", n);
    printf("{\"late\": %llu, \"in_time\": %llu}\n", static_cast<unsigned long long>(late),
           static_cast<unsigned long long>(n - late));
    return 0;
}
