// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "native/common/failure.hpp"
#include "native/common/options.hpp"

static void print_help(std::span<const Option> table, const char *summary, const char *program) {
    std::printf("usage: %s [OPTIONS]\n%s\n\n", program, summary);
    for (const Option &option : table) {
        std::string left = std::string("--") + option.name + " " + option.value;
        std::printf("  %-24s %s", left.c_str(), option.help);
        if (option.required)
            std::printf(" (required)\n");
        else if (option.text)
            std::printf(" (default %s)\n", option.text->c_str());
        else
            std::printf(" (default %ld)\n", *option.target);
    }
}

static void assign(const Option &option, const std::string &value) {
    if (option.text) {
        *option.text = value;
        return;
    }
    char *end = nullptr;
    errno = 0;
    long number = std::strtol(value.c_str(), &end, 10);
    if (errno || end == value.c_str() || *end || number < option.minimum || number > option.maximum)
        throw Failure(std::string("reading --") + option.name, "'" + value + "' is not usable",
                      "Give a whole number from " + std::to_string(option.minimum) + " to " +
                          std::to_string(option.maximum));
    *option.target = number;
}

static size_t find_option(std::span<const Option> table, std::string_view name) {
    for (size_t i = 0; i < table.size(); i++)
        if (name == table[i].name)
            return i;
    throw Failure("reading the command line", "'--" + std::string(name) + "' is no option",
                  "See --help for those there are");
}

bool parse_options(std::span<const Option> table, const char *summary, int argc, char **argv) {
    std::vector<bool> given(table.size());
    for (int i = 1; i < argc; i++) {
        std::string_view word = argv[i];
        if (word == "--help" || word == "-h") {
            print_help(table, summary, argv[0]);
            return false;
        }
        if (!word.starts_with("--"))
            throw Failure("reading the command line", "'" + std::string(word) + "' is no option",
                          "See --help for those there are");
        size_t equals = word.find('=');
        size_t which = find_option(table, word.substr(2, equals - 2));
        if (equals == word.npos && ++i == argc)
            throw Failure("reading " + std::string(word), "the value is missing",
                          std::string("Give it a ") + table[which].value);
        assign(table[which], equals == word.npos ? argv[i] : std::string(word.substr(equals + 1)));
        given[which] = true;
    }
    for (size_t i = 0; i < table.size(); i++)
        if (table[i].required && !given[i])
            throw Failure("reading the command line",
                          std::string("--") + table[i].name + " is missing",
                          "See --help for what it is");
    return true;
}
