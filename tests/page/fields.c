/* SPDX-License-Identifier: MIT */
/* What a compiler makes of the layout, in sections that a test reads. */
#include "shared_page/layout_fields.h"

#define IN_SECTION(name) __attribute__((section(name), used))

static const uint32_t page_fields[] IN_SECTION(".page_fields") = {PAGE_FIELDS(FIELD_END)};
static const uint32_t wire_fields[] IN_SECTION(".wire_fields") = {WIRE_FIELDS(FIELD_END)};
static const uint32_t page_size[] IN_SECTION(".page_size") = {sizeof(struct shared_page)};
