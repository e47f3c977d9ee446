// SPDX-License-Identifier: MIT
// Two processes on one page, as fast as they can: several ingress threads and egress in one, the
// executor in the other. Every byte of a request and of its reply follows from the request's id,
// so that a request that is lost, doubled, torn, or out of order is found.
//
//     page-stress REQUESTS [PRODUCERS [thread]]
//
// Connections open and close all the time, some with requests unanswered and half a frame sent.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Behind the standard headers: <atomic> has members named like a macro of memory_order.h.
#include "tests/page/stress_executor.hpp"

#include "shared_page/egress.h"

static int copy_bytes(void *source, uint32_t offset, void *to, uint32_t length) {
    memcpy(to, static_cast<const char *>(source) + offset, length);
    return 0;
}

#include "shared_page/ingress.h"

using Clock = std::chrono::steady_clock;

namespace {

constexpr uint32_t connections_each = 12; // three producers: a few more requests than slots
constexpr auto patience = std::chrono::seconds(60);

// What egress knows of a connection besides the page: set by its producer before the first byte.
struct Book {
    std::atomic<uint64_t> serial{0};
    uint64_t sequence = 0; // of the next reply
    uint32_t tokens = 0;   // seen of its stream
};

struct Shared {
    shared_page *page;
    uint64_t requests;
    std::vector<Book> book{CONNECTION_COUNT};
    std::atomic<uint64_t> serials{1};
    std::atomic<uint32_t> producing{0};
    std::mutex mutex;
    std::vector<uint32_t> closed; // quiet for good; egress may release them
};

// One connection as its client sees it.
struct Client {
    uint32_t index;
    uint64_t serial;
    uint64_t sequence = 0;
    uint64_t life; // requests until it closes
    std::vector<uint8_t> pending;
};

void feed(Shared &shared, Client &client, size_t length) {
    if (frames_admit(shared.page, client.index, client.pending.data(),
                     static_cast<uint32_t>(length)) &
        ADMITTED_REPLY)
        attention_post(shared.page, client.index);
    client.pending.erase(client.pending.begin(), client.pending.begin() + length);
}

void client_open(Shared &shared, Client &client, Random &random) {
    while (!connection_open(shared.page, &client.index))
        sched_yield();
    client.serial = shared.serials++;
    client.sequence = 0;
    client.life = 1 + random.below(4000);
    client.pending.clear();
    shared.book[client.index].serial.store(client.serial);
}

void client_close(Shared &shared, const Client &client) {
    std::lock_guard lock(shared.mutex);
    shared.closed.push_back(client.index);
}

uint32_t client_owed(Shared &shared, const Client &client) {
    connection_entry &entry = shared.page->connection[client.index];

    return entry.ingress.order_tail - load_acquire(&entry.egress.order_head);
}

// Sends a few frames, cut anywhere: what is left of them goes first the next time.
bool client_step(Shared &shared, Client &client, Random &random) {
    uint32_t room = PIPELINE_MAX - client_owed(shared, client);

    if (!client.pending.empty())
        feed(shared, client, client.pending.size());
    else if (room) {
        uint64_t count = 1 + random.below(std::min(room, 8U));

        for (uint64_t i = 0; i < count && client.life; i++, client.life--) {
            uint64_t id = client.serial << sequence_bits | client.sequence++;
            Shape shape(id);

            frame_append(client.pending, shape.tokens ? KIND_TOYLM : KIND_ECHO, id,
                         shape.request_words);
            if (shape.cancellable)
                frame_append(client.pending, KIND_CANCEL, id, 0);
        }
        feed(shared, client, random.below(client.pending.size() + 1));
    } else
        return false;
    if (!client.life && (random.below(2) || client.pending.empty())) {
        client_close(shared, client); // mostly with replies owed, at times inside a frame
        client_open(shared, client, random);
    }
    return true;
}

void produce(Shared &shared, uint64_t seed) {
    Random random{seed << 32};
    std::vector<Client> clients(connections_each);

    for (Client &client : clients)
        client_open(shared, client, random);
    while (load_acquire(&shared.page->ingress.submit_tail) < shared.requests) {
        bool worked = false;

        for (Client &client : clients)
            worked |= client_step(shared, client, random);
        if (!worked)
            sched_yield();
    }
    for (Client &client : clients) {
        feed(shared, client, client.pending.size());
        while (client_owed(shared, client))
            sched_yield();
        client_close(shared, client);
    }
    shared.producing--;
}

// What egress counts.
struct Account {
    uint64_t answered = 0, cancelled = 0, busy = 0, discarded = 0, discarded_busy = 0;
};

// Compares a reply frame with what its connection's next id determines.
void reply_check(Book &book, const uint8_t *bytes, const reply_view &view, Account &account) {
    uint64_t id = book.serial.load() << sequence_bits | book.sequence;
    Shape shape(id);
    reply_header header;

    memcpy(&header, bytes, sizeof(header));
    if (header.request_id != id)
        fail("replies out of order, lost or doubled", id, header.request_id, id);
    if (header.length + sizeof(header) != view.length)
        fail("length of a reply", id, header.length, view.length);
    for (uint32_t i = 0; i < view.tokens; i++) {
        uint32_t token;

        memcpy(&token, bytes + sizeof(header) + i * 4, 4);
        if (token != token_of(id, book.tokens))
            fail("token", id, token, token_of(id, book.tokens));
        book.tokens++;
    }
    if (!view.last)
        return;
    bool whole = header.status == STATUS_OK;
    if (header.status == STATUS_BUSY)
        account.busy++;
    else if (header.status == STATUS_CANCELLED && shape.cancellable)
        account.cancelled++;
    else if (whole)
        account.answered++;
    else
        fail("status", id, header.status, STATUS_OK);
    if (whole && shape.tokens != book.tokens)
        fail("tokens in all", id, book.tokens, shape.tokens);
    if (whole && !shape.tokens && header.length != shape.result_words * 8)
        fail("length of a result", id, header.length, shape.result_words * 8);
    for (uint32_t i = 0; whole && !shape.tokens && i < shape.result_words; i++) {
        uint64_t word;

        memcpy(&word, bytes + sizeof(header) + i * 8, 8);
        if (word != result_word(id, i))
            fail("torn result", id, word, result_word(id, i));
    }
    book.sequence++;
    book.tokens = 0;
}

// Answers what can be answered, in batches as a server does.
void connection_serve(Shared &shared, uint32_t index, Account &account) {
    reply_view view[8];
    uint32_t count;

    do {
        for (count = 0; count < 8 && reply_ready(shared.page, index, count, &view[count]);)
            if (!view[count++].last)
                break;
        for (uint32_t i = 0; i < count; i++)
            reply_check(shared.book[index],
                        reinterpret_cast<uint8_t *>(shared.page) + view[i].offset, view[i],
                        account);
        for (uint32_t i = 0; i < count; i++)
            reply_sent(shared.page, index, view[i].slot, view[i].tokens, view[i].last);
    } while (count);
}

void connections_release(Shared &shared, Account &account) {
    std::vector<uint32_t> closed;
    {
        std::lock_guard lock(shared.mutex);
        closed.swap(shared.closed);
    }
    for (uint32_t index : closed) {
        connection_entry &entry = shared.page->connection[index];

        for (uint32_t at = entry.egress.order_head; at != entry.ingress.order_tail; at++) {
            bool admitted = entry.order[at % ORDER_DEPTH].length == ORDER_IS_SLOT;
            (admitted ? account.discarded : account.discarded_busy)++;
        }
        shared.book[index].sequence = shared.book[index].tokens = 0;
        connection_release(shared.page, index);
    }
}

Account egress(Shared &shared) {
    shared_page *page = shared.page;
    auto moved = Clock::now();
    Account account;
    uint32_t index;

    while (shared.producing || requests_in_flight(page) ||
           page->egress.free_connection_tail - load_acquire(&page->ingress.free_connection_head) !=
               CONNECTION_COUNT) {
        bool worked = false;

        for (int i = 0; i < 256 && completion_take(page, &index); i++, worked = true)
            connection_serve(shared, index, account);
        for (int i = 0; i < 256 && attention_take(page, &index); i++, worked = true)
            connection_serve(shared, index, account);
        connections_release(shared, account);
        if (worked)
            moved = Clock::now();
        else if (Clock::now() - moved > patience)
            fail("nothing moves; requests in flight", 0, requests_in_flight(page), 0);
        else
            sched_yield();
    }
    return account;
}

void expect(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "page-stress: at the end: %s\n", what);
    exit(1);
}

void account_check(const shared_page *page, const Account &account) {
    uint64_t admitted = page->ingress.submit_tail;

    expect(account.answered + account.cancelled + account.discarded == admitted,
           "answered, cancelled and discarded are not what was admitted");
    expect(page->executor.completed == admitted && page->egress.finals == admitted,
           "the executor's final notices are not what was admitted");
    expect(account.busy + account.discarded_busy == page->ingress.frames_busy,
           "BUSY replies are missing");
    expect(page->egress.free_slot_tail - page->ingress.free_slot_head == SLOT_COUNT,
           "slots are missing or doubled");
    std::vector<uint32_t> free(page->free_slot, page->free_slot + SLOT_COUNT);
    std::sort(free.begin(), free.end());
    for (uint32_t i = 0; i < SLOT_COUNT; i++)
        expect(free[i] == i, "a slot is free twice");
    expect(page->egress.stale_results <= account.discarded, "too many stale results");
    expect(page->ingress.frames_bad == 0 && page->ingress.connections_refused == 0,
           "frames or connections were refused");
}

void report(const shared_page *page, const Account &account, double seconds) {
    auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };

    printf("{\"requests\": %llu, \"answered\": %llu, \"cancelled\": %llu, \"discarded\": %llu, "
           "\"stale\": %llu, \"busy\": %llu, \"connections\": %llu, \"tokens\": %llu, "
           "\"seconds\": %.2f}\n",
           number(page->ingress.submit_tail), number(account.answered), number(account.cancelled),
           number(account.discarded), number(page->egress.stale_results),
           number(page->ingress.frames_busy), number(page->egress.connections_closed),
           number(page->executor.tokens), seconds);
}

} // namespace

// The executor, in a process of its own, or in a thread, where a sanitizer can see both sides.
class Executor {
  public:
    Executor(shared_page *page, int fd, bool thread) {
        if (thread)
            thread_ = std::thread(execute, page);
        else if (child_ = fork(); child_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char error[300];
            shared_page *own = page_attach(fd, error, sizeof(error));
            if (!own)
                fputs(error, stderr);
            else
                execute(own);
            _exit(own ? 0 : 1);
        }
    }

    bool join() {
        int status = 0;

        if (thread_.joinable())
            thread_.join();
        return child_ < 0 || (waitpid(child_, &status, 0) == child_ && status == 0);
    }

  private:
    std::thread thread_;
    pid_t child_ = -1;
};

int main(int argc, char **argv) {
    uint64_t requests = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1'000'000;
    uint32_t producers = argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 3;
    int fd = memfd_create("page-stress", MFD_CLOEXEC);

    expect(fd >= 0 && !ftruncate(fd, sizeof(shared_page)), "no memory for the page");
    void *at = mmap(nullptr, sizeof(shared_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect(at != MAP_FAILED, "the page cannot be mapped");
    Shared shared;
    shared.page = static_cast<shared_page *>(at);
    shared.requests = requests;
    page_initialise(shared.page, CONNECTION_COUNT, SLOT_COUNT);
    Executor executor(shared.page, fd, argc > 3);
    auto start = Clock::now();
    std::vector<std::thread> threads;
    shared.producing = producers;
    for (uint32_t i = 0; i < producers; i++)
        threads.emplace_back(produce, std::ref(shared), i + 1);
    Account account = egress(shared);
    for (std::thread &thread : threads)
        thread.join();
    store_release(&shared.page->supervisor.stop, 1U);
    expect(executor.join(), "the executor failed");
    account_check(shared.page, account);
    report(shared.page, account, std::chrono::duration<double>(Clock::now() - start).count());
    return 0;
}
