// SPDX-License-Identifier: MIT
// SIGTERM and SIGINT as something to poll.
#pragma once

#include "native/common/descriptor.hpp"

// Blocks both for this thread; the descriptor is readable once one came. Throws Failure.
Descriptor open_leave_signals();

// Takes one signal; false when there is none.
bool take_leave_signal(const Descriptor &signals);
