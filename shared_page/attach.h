/* SPDX-License-Identifier: MIT */
/*
 * Making a page, and attaching to one that somebody else made: host code in C
 * and C++, CUDA's host side included. shared_page/page.py is the Python twin.
 */
#ifndef SHARED_PAGE_ATTACH_H
#define SHARED_PAGE_ATTACH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strerrorname_np() */
#endif
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "layout_fields.h"

#ifndef __USE_GNU
#error "include attach.h before any other header, or compile with -D_GNU_SOURCE"
#endif

static const uint32_t layout_field_end[] = {PAGE_FIELDS(FIELD_END)};
static const char *const layout_field_name[] = {PAGE_FIELDS(FIELD_NAME)};

enum {
	LAYOUT_FIELDS = sizeof(layout_field_end) / sizeof(layout_field_end[0]),
	PAGE_FRAME_BYTES = 4096, /* of x86-64, the only guest there is */
	PAGE_FRAMES = (sizeof(struct shared_page) + PAGE_FRAME_BYTES - 1) /
		      PAGE_FRAME_BYTES
};

/* FNV-1a, 64 bits, over the bytes of layout_field_end[], lowest first. */
static inline uint64_t layout_hash(void)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (uint32_t i = 0; i < LAYOUT_FIELDS * 4; i++) {
		hash ^= layout_field_end[i / 4] >> (i % 4 * 8) & 0xff;
		hash *= 0x100000001b3;
	}
	return hash;
}

/*
 * Fills a page whose bytes are all 0: everything free, nobody attached. The
 * magic comes last: who finds it may rely on the rest.
 */
static inline void page_initialise(struct shared_page *page,
				   uint32_t max_connections, uint32_t max_slots)
{
	struct page_identity *identity = &page->identity;

	identity->layout_version = PAGE_LAYOUT_VERSION;
	identity->size = sizeof(*page);
	identity->layout_hash = layout_hash();
	identity->layout_fields = LAYOUT_FIELDS;
	identity->max_connections = max_connections;
	identity->max_slots = max_slots;
	memcpy(identity->layout_field, layout_field_end,
	       sizeof(layout_field_end));
	for (uint32_t i = 0; i < max_slots; i++)
		page->free_slot[i] = i;
	page->egress.free_slot_tail = max_slots;
	for (uint32_t i = 0; i < max_connections; i++)
		page->free_connection[i] = i;
	page->egress.free_connection_tail = max_connections;
	__atomic_store_n(&identity->magic, (uint32_t)PAGE_MAGIC,
			 __ATOMIC_RELEASE);
}

/* Returns 1 when both are equal, and otherwise 0 with a message in error. */
static inline int field_matches(char *error, size_t error_size,
				const char *field, uint64_t there,
				uint64_t ours)
{
	if (there == ours)
		return 1;
	snprintf(error, error_size,
		 "attach to the page: %s is %#llx there and %#llx here; let a "
		 "part built from the same sources initialise the page",
		 field, (unsigned long long)there, (unsigned long long)ours);
	return 0;
}

/* Returns 1, or 0 with the first difference in error. */
static inline int page_matches(const struct shared_page *page, char *error,
			       size_t error_size)
{
	const struct page_identity *id = &page->identity;
	uint32_t magic = __atomic_load_n(&id->magic, __ATOMIC_ACQUIRE);
	int same =
		field_matches(error, error_size, "page_identity.magic", magic,
			      PAGE_MAGIC) &&
		field_matches(error, error_size, "page_identity.layout_version",
			      id->layout_version, PAGE_LAYOUT_VERSION);

	for (uint32_t i = 0; same && i < LAYOUT_FIELDS; i++)
		same = field_matches(error, error_size, layout_field_name[i],
				     id->layout_field[i], layout_field_end[i]);
	return same &&
	       field_matches(error, error_size, "page_identity.layout_fields",
			     id->layout_fields, LAYOUT_FIELDS) &&
	       field_matches(error, error_size, "page_identity.size", id->size,
			     sizeof(*page)) &&
	       field_matches(error, error_size, "page_identity.layout_hash",
			     id->layout_hash, layout_hash());
}

/* Writes that the kernel refused. Returns NULL, for page_attach(). */
static inline struct shared_page *page_refused(char *error, size_t error_size,
					       int fd, const char *said)
{
	snprintf(error, error_size,
		 "map the page (descriptor %d): %s; pass the descriptor of a "
		 "page, a memfd or a BPF map of at least %zu bytes",
		 fd, said, sizeof(struct shared_page));
	return NULL;
}

/* Returns the page at a mapping that is one; otherwise unmaps it. */
static inline struct shared_page *page_checked(void *at, char *error,
					       size_t error_size)
{
	if (page_matches((struct shared_page *)at, error, error_size))
		return (struct shared_page *)at;
	munmap(at, sizeof(struct shared_page));
	return NULL;
}

/*
 * Maps the page behind fd, which may be closed afterwards, and checks it.
 * Returns NULL, with the reason in error, when it cannot be used.
 */
static inline struct shared_page *page_attach(int fd, char *error,
					      size_t error_size)
{
	struct stat status;
	void *at;

	if (fstat(fd, &status))
		return page_refused(error, error_size, fd,
				    strerrorname_np(errno));
	/*
	 * Behind the end of a file a mapping raises SIGBUS. A BPF map is no
	 * file and says 0; there mmap() itself compares the sizes.
	 */
	if (S_ISREG(status.st_mode) &&
	    (uint64_t)status.st_size < sizeof(struct shared_page))
		return page_refused(error, error_size, fd, "it is too short");
	at = mmap(NULL, sizeof(struct shared_page), PROT_READ | PROT_WRITE,
		  MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return page_refused(error, error_size, fd,
				    strerrorname_np(errno));
	return page_checked(at, error, error_size);
}

/*
 * The same for a page of a virtual machine whose memory is the file fd: it
 * consists of frames of the file, which are mapped side by side in the order
 * of frame[].
 */
static inline struct shared_page *page_attach_frames(int fd,
						     const uint64_t *frame,
						     size_t count, char *error,
						     size_t error_size)
{
	const size_t size = (size_t)PAGE_FRAMES * PAGE_FRAME_BYTES;
	const char *said = NULL;
	struct stat status;
	char *at;

	if (count != PAGE_FRAMES)
		return page_refused(error, error_size, fd,
				    "the list of its frames is not whole");
	if (fstat(fd, &status))
		return page_refused(error, error_size, fd,
				    strerrorname_np(errno));
	at = (char *)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (at == MAP_FAILED)
		return page_refused(error, error_size, fd,
				    strerrorname_np(errno));
	for (size_t i = 0; i < count && !said; i++) {
		if (frame[i] >= (uint64_t)status.st_size / PAGE_FRAME_BYTES)
			said = "a frame lies behind its end";
		else if (mmap(at + i * PAGE_FRAME_BYTES, PAGE_FRAME_BYTES,
			      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			      fd,
			      (off_t)frame[i] * PAGE_FRAME_BYTES) == MAP_FAILED)
			said = strerrorname_np(errno);
	}
	if (!said)
		return page_checked(at, error, error_size);
	munmap(at, size);
	return page_refused(error, error_size, fd, said);
}

#endif
