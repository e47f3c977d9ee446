// SPDX-License-Identifier: MIT
#include "native/load/cases.hpp"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "native/common/failure.hpp"
#include "native/load/random.hpp"

namespace load {
namespace {

static_assert(std::endian::native == std::endian::little, "file and wire are little endian");

struct CaseHeader {
    uint32_t kind;
    uint32_t request_length;
    uint32_t expected_length;
    uint32_t compare;
    float rtol;
    float atol;
    uint32_t status;
    uint32_t finish;
};
static_assert(sizeof(CaseHeader) == 32);

constexpr size_t most_cases = 1 << 16; // a record has 16 bits for the case

class Reader {
  public:
    explicit Reader(const std::string &path)
        : path_(path), file_(fopen(path.c_str(), "rb"), fclose) {
        if (!file_)
            throw Failure("reading the cases file " + path, errno,
                          "Give --cases a file written by gpu_scheduler.workloads.write_cases");
    }
    void read(void *into, size_t size) {
        if (size && fread(into, 1, size, file_.get()) != size)
            fail("the file ends in the middle");
        offset_ += size;
    }
    bool at_end() { return fgetc(file_.get()) == EOF; }
    void next_case() { ++case_; }
    [[noreturn]] void fail(const std::string &said) const {
        std::string place = case_ < 0 ? "the file's header" : "case " + std::to_string(case_);
        throw Failure("reading " + place + " of the cases file " + path_ + " at byte " +
                          std::to_string(offset_),
                      said, "Write the file again; nothing was sent");
    }
    void require(bool condition, const std::string &said) const {
        if (!condition)
            fail(said);
    }

  private:
    std::string path_;
    std::unique_ptr<FILE, int (*)(FILE *)> file_;
    size_t offset_ = 0;
    int64_t case_ = -1;
};

std::vector<uint8_t> empty_frame(uint32_t kind, uint32_t length) {
    request_header header = {};
    static_assert(sizeof(header) == REQUEST_HEADER_SIZE);
    header.magic = PROTOCOL_MAGIC;
    header.version = PROTOCOL_VERSION;
    header.kind = static_cast<uint16_t>(kind);
    header.length = length;
    std::vector<uint8_t> frame(REQUEST_HEADER_SIZE + length);
    memcpy(frame.data(), &header, sizeof(header));
    return frame;
}

void check(const Reader &reader, const CaseHeader &header) {
    auto within = [&](const char *name, uint32_t value, uint32_t lowest, uint32_t highest) {
        reader.require(value >= lowest && value <= highest,
                       std::string(name) + " " + std::to_string(value) + " is not between " +
                           std::to_string(lowest) + " and " + std::to_string(highest));
    };
    // A CANCEL (kind 0) has no reply of its own, so there is nothing to verify.
    within("kind", header.kind, 1, UINT16_MAX);
    within("request length", header.request_length, 0, REQUEST_MAX);
    within("expected length", header.expected_length, 0, RESULT_MAX);
    within("compare", header.compare, 0, static_cast<uint32_t>(Compare::token_count));
    within("status", header.status, 0, STATUS_TIMEOUT);
    within("finish", header.finish, 0, FINISH_ABORT);
    reader.require(header.compare == 0 || header.expected_length % sizeof(uint32_t) == 0,
                   "expected length " + std::to_string(header.expected_length) +
                       " is not a whole number of 4-byte elements");
    reader.require(header.rtol >= 0 && header.atol >= 0, "a tolerance is negative or not a number");
}

Case read_case(Reader &reader, uint32_t number) {
    CaseHeader header;
    reader.read(&header, sizeof(header));
    check(reader, header);
    Case result = {
        .frame = empty_frame(header.kind, header.request_length),
        .expected = std::vector<uint8_t>(header.expected_length),
        .compare = static_cast<Compare>(header.compare),
        .rtol = header.rtol,
        .atol = header.atol,
        .status = header.status,
        .finish = header.finish,
        .expected_hash = 0,
    };
    reader.read(result.frame.data() + REQUEST_HEADER_SIZE, header.request_length);
    reader.read(result.expected.data(), header.expected_length);
    result.expected_hash = hash_bytes(number, result.expected);
    return result;
}

} // namespace

Cases read_cases(const std::string &path) {
    Reader reader(path);
    char magic[4];
    uint32_t count;
    reader.read(magic, sizeof(magic));
    reader.require(memcmp(magic, "BGC1", sizeof(magic)) == 0, "it does not begin with BGC1");
    reader.read(&count, sizeof(count));
    reader.require(count >= 1 && count <= most_cases, "it announces " + std::to_string(count) +
                                                          " cases, not 1 to " +
                                                          std::to_string(most_cases));
    Cases cases;
    for (uint32_t i = 0; i < count; ++i) {
        reader.next_case();
        cases.push_back(read_case(reader, i));
    }
    reader.require(reader.at_end(), "there are bytes after the last case");
    return cases;
}

Cases echo_cases(const Options &options) {
    std::vector<uint8_t> expected(options.echo_reply - REPLY_HEADER_SIZE);
    Case echo = {
        .frame = empty_frame(KIND_ECHO, options.echo_request - REQUEST_HEADER_SIZE),
        .expected = expected,
        .compare = Compare::exact,
        .rtol = 0,
        .atol = 0,
        .status = STATUS_OK,
        .finish = FINISH_NONE,
        .expected_hash = hash_bytes(0, expected),
    };
    return {echo};
}

} // namespace load
