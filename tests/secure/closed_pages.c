/* SPDX-License-Identifier: MIT */
/* closed_pages.c: what was closed in either way, or was never mapped, is memory again when malloc
 * hands it out. For the secure form, preloaded. */

#include "child.h"

enum { ROUNDS = 200, SPAN = 200000, HUGE = 2 << 20 };

/* Mappings of so many bytes fail. Volatile: compilers believe that malloc calls nothing of this
 * file. */
static volatile size_t fails_from = SIZE_MAX;

/* Stands before the C library's; hakmem asks by this name. */
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    if (size >= fails_from && size < 4u * HUGE) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

static void *filled(size_t size)
{
    void *block = malloc(size);
    if (block != NULL) {
        memset(block, 1, size);
    }
    return block;
}

/* The kernel does not mark locked pages, so they are closed by their protection, and the others by
 * marks. Each is open when it comes back. */
static void close_both_ways(void)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        void *locked = filled(SPAN), *other = filled(SPAN);
        if (locked == NULL || other == NULL) {
            fprintf(stderr, "no memory in round %zu\n", i);
            exit(1);
        }
        if (mlock(locked, SPAN) != 0 && i == 0) {
            puts("memory may not be locked here: pages are closed in one way only");
        }
        free(locked);
        free(other);
    }
}

static void write_before(const void *block)
{
    char *start = (char *)hide((void *)(uintptr_t)block);
    start[-1]++;
    free(start);
}

/* Without mappings of their own, blocks of 2 MiB come from superslabs, or there is none. A write
 * before one is reported, whatever its alignment, up to that of a slice. */
static void huge_without_mappings(void)
{
    size_t had = 0;
    fails_from = 1; /* that mappings fail is noticed when not even a page can be mapped */
    for (size_t i = 0; i < 3; i++) {
        free(filled(HUGE));
    }
    fails_from = SPAN;
    for (size_t i = 0; i < 16; i++) {
        void *block = filled(HUGE - 65536 + i * 8192);
        had += block != NULL;
        free(block);
        void *aligned = aligned_alloc((size_t)16 << i % 11, HUGE + 65536);
        struct child child = run_child(write_before, aligned);
        if (strstr(child.text, "underflow: the bytes before the allocation") == NULL) {
            fprintf(stderr, "round %zu, a write before %p: %s\n", i, aligned, child.text);
            exit(1);
        }
        if ((uintptr_t)aligned % ((size_t)16 << i % 11) != 0) {
            fprintf(stderr, "round %zu: %p is not aligned\n", i, aligned);
            exit(1);
        }
        free(aligned);
    }
    fails_from = SIZE_MAX;
    if (had != 16) {
        fprintf(stderr, "%zu of 16 blocks without a mapping of their own\n", had);
        exit(1);
    }
}

int main(void)
{
    close_both_ways();
    huge_without_mappings();
    return 0;
}
