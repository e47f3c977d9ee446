// SPDX-License-Identifier: MIT
// The shared page as native programs use it: both halves of a transport, in one thread.
#pragma once

#include <cstdint>
#include <cstring>

// What ingress.h asks of its includer; in user space it cannot fail.
static inline int copy_bytes(const void *source, uint32_t offset, uint8_t *to, uint32_t length) {
    std::memcpy(to, static_cast<const char *>(source) + offset, length);
    return 0;
}

#include "shared_page/attach.h"
#include "shared_page/egress.h"
#include "shared_page/ingress.h"
