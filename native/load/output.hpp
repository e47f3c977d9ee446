// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace load {

// Opened before the run, so that a path that cannot be written is said before anything is sent.
class OutputFile {
  public:
    // option names it in messages; path - is standard output. Throws Failure.
    OutputFile(const char *option, const std::string &path);

    void write(const void *bytes, size_t size) { fwrite(bytes, 1, size, file_.get()); }

    // Throws Failure when anything of it could not be written.
    void finish();

  private:
    struct Closer {
        void operator()(FILE *file) const {
            if (file != stdout)
                fclose(file);
        }
    };
    std::string tried_;
    std::unique_ptr<FILE, Closer> file_;
};

} // namespace load
