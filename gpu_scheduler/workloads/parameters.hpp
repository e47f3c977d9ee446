// SPDX-License-Identifier: MIT
// "name:key=value,key=value" as numbers; spec.py reads the same text with the same messages.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// Says what was tried, what is wrong with it, and what to do.
class SpecError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Parameters {
  public:
    explicit Parameters(const std::string &spec); // throws SpecError

    const std::string &name() const { return name_; }
    // The value of a key, or what it is when it is not given. Throws SpecError.
    uint32_t number(const std::string &key, uint32_t missing, uint32_t least, uint32_t most);
    // Throws SpecError when bytes, which formula says how to compute, are more than most.
    void limit(const std::string &what, const std::string &formula, uint64_t bytes, uint64_t most,
               const std::string &remedy);
    // Throws SpecError when a key was given that nobody asked for.
    void finish();
    [[noreturn]] void fail(const std::string &said, const std::string &remedy) const;

  private:
    std::string spec_;
    std::string name_;
    std::map<std::string, std::string> given_;
    std::vector<std::string> known_;
};
