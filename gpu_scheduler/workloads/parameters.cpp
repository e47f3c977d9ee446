// SPDX-License-Identifier: MIT
#include <algorithm>
#include <sstream>

#include "gpu_scheduler/workloads/parameters.hpp"

void Parameters::fail(const std::string &said, const std::string &remedy) const {
    throw SpecError("reading workload '" + spec_ + "': " + said + ". " + remedy + ".");
}

Parameters::Parameters(const std::string &spec) : spec_(spec) {
    size_t colon = spec.find(':');
    name_ = spec.substr(0, colon);
    std::istringstream parts(colon == spec.npos ? "" : spec.substr(colon + 1));
    for (std::string part; std::getline(parts, part, ',');) {
        size_t equals = part.find('=');
        if (equals == part.npos)
            fail("'" + part + "' has no '='", "Write name:key=value,key=value");
        if (!given_.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
            fail(part.substr(0, equals) + " is there twice", "Give it once");
    }
}

uint32_t Parameters::number(const std::string &key, uint32_t missing, uint32_t least,
                            uint32_t most) {
    known_.push_back(key);
    auto found = given_.find(key);
    if (found == given_.end())
        return missing;
    const std::string &text = found->second;
    bool digits =
        !text.empty() && text.size() <= 10 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    uint64_t value = digits ? std::stoull(text) : 0;
    if (!digits || value < least || value > most)
        fail(key + " is '" + text + "'",
             "Give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<uint32_t>(value);
}

void Parameters::limit(const std::string &what, const std::string &formula, uint64_t bytes,
                       uint64_t most, const std::string &remedy) {
    if (bytes > most)
        fail(what + " has " + formula + " = " + std::to_string(bytes) + " bytes, " +
                 std::to_string(most) + " is the most",
             remedy);
}

void Parameters::finish() {
    std::string all;
    std::sort(known_.begin(), known_.end());
    for (const std::string &key : known_)
        all += (all.empty() ? "" : ", ") + key;
    for (const auto &[key, value] : given_)
        if (!std::binary_search(known_.begin(), known_.end(), key))
            fail(name_ + " has no parameter '" + key + "'", "Its parameters are " + all);
}
