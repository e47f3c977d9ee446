// SPDX-License-Identifier: MIT
#include "native/load/output.hpp"

#include <cerrno>

#include "native/common/failure.hpp"

namespace load {

static const char *const remedy = "Give it a file that can be written, on a disk with room";

OutputFile::OutputFile(const char *option, const std::string &path)
    : tried_(std::string("writing ") + option + " to " + path),
      file_(path == "-" ? stdout : fopen(path.c_str(), "wb")) {
    if (!file_)
        throw Failure(tried_, errno, remedy);
}

void OutputFile::finish() {
    if (fflush(file_.get()) || ferror(file_.get()))
        throw Failure(tried_, errno, remedy);
}

} // namespace load
