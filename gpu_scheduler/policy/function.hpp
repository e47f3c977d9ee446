// SPDX-License-Identifier: MIT
// What the policy asks of its compilers: g++ for the CPU executor, NVRTC or nvcc for the GPU one.
// In this folder nothing allocates, throws or uses the standard library.
#pragma once

#include "shared_page/executor.h"

#if defined(__CUDACC__)
#define POLICY_FUNCTION static __device__
#else
#define POLICY_FUNCTION [[maybe_unused]] static inline
#endif
