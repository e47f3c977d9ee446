// SPDX-License-Identifier: MIT
// Command-line options as rows of a table, from which parsing and help both come.
#pragma once

#include <span>
#include <string>

struct Option {
    const char *name;  // without the dashes
    const char *value; // what the help calls its value
    const char *help;
    long *target; // holds the default; one of target and text is set
    long minimum;
    long maximum;
    std::string *text = nullptr;
    bool required = false;
};

// Fills the targets from "--name value" and "--name=value". Returns false after it has printed the
// help that was asked for. Throws Failure for anything that is not in the table or out of range.
bool parse_options(std::span<const Option> table, const char *summary, int argc, char **argv);
