/* SPDX-License-Identifier: MIT */
/* test_glibc_sizes.c: zero sizes, sizes that cannot be, alignments up to 1 GiB and errno, as the
 * glibc manual and malloc(3), posix_memalign(3) document them. */
#include "override.h"

#include <malloc.h>

#define ERRNO_UNTOUCHED 7777
#define GIB ((size_t)1 << 30)

static const size_t sizes[] = {1,      8,       16,      17,      100,     1024,
                               1025,   4096,    20000,   65536,   65665,   300000,
                               800000, 2097152, 2097153, 5000000, 33554432};
#define SIZES_COUNT (sizeof sizes / sizeof sizes[0])

/* These sizes never succeed: the manual promises NULL and ENOMEM above PTRDIFF_MAX. */
static const size_t impossible[] = {(size_t)PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1,
                                    SIZE_MAX - 4096,     SIZE_MAX - 15,
                                    SIZE_MAX - 1,        SIZE_MAX};
#define IMPOSSIBLE_COUNT (sizeof impossible / sizeof impossible[0])

static bool is_aligned(const void *pointer, size_t alignment)
{
    return ((uintptr_t)pointer & (alignment - 1)) == 0;
}

/* The call must have failed with `error`. */
static void check_refused(void *result, int error)
{
    CHECK(result == NULL);
    CHECK_EQUAL(errno, error);
    errno = 0;
}

static void test_zero_sizes(void)
{
    enum { COUNT = 10 };
    void *blocks[COUNT];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    blocks[0] = get_memory(0);
    blocks[1] = get_memory(0);
    blocks[2] = calloc(opaque_size(0), opaque_size(8));
    blocks[3] = calloc(opaque_size(8), opaque_size(0));
    blocks[4] = realloc(opaque_pointer(NULL), opaque_size(0));
    blocks[5] = memalign(opaque_size(64), opaque_size(0));
    blocks[6] = aligned_alloc(opaque_size(64), opaque_size(0));
    blocks[7] = valloc(opaque_size(0));
    blocks[8] = pvalloc(opaque_size(0));
    CHECK_EQUAL(posix_memalign(&blocks[9], opaque_size(64), opaque_size(0)), 0);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(blocks[i] != NULL);
        for (size_t j = 0; j < i; j++) {
            CHECK(blocks[i] != blocks[j]);
        }
    }
    CHECK(is_aligned(blocks[5], 64) && is_aligned(blocks[6], 64) && is_aligned(blocks[9], 64));
    CHECK(is_aligned(blocks[7], page) && is_aligned(blocks[8], page));
    for (size_t i = 0; i < COUNT; i++) {
        give_back(blocks[i]);
    }
    give_back(NULL);
    CHECK_EQUAL(malloc_usable_size(NULL), 0);
}

static void test_realloc_to_zero_frees(void)
{
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        void *block = get_memory(sizes[i]);
        errno = ERRNO_UNTOUCHED;
        CHECK(realloc(opaque_pointer(block), opaque_size(0)) == NULL);
        CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
        block = get_memory(sizes[i]);
        CHECK(reallocarray(opaque_pointer(block), opaque_size(0), opaque_size(5)) == NULL);
        CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
    }
    /* It really frees: 10,000 times 1 MB would not fit otherwise. */
    size_t before = resident_bytes();
    for (int i = 0; i < 10000; i++) {
        char *block = (char *)get_memory(1000000);
        CHECK(block != NULL);
        block[0] = block[500000] = 1;
        CHECK(realloc(opaque_pointer(block), opaque_size(0)) == NULL);
    }
    CHECK(resident_bytes() < before + 64 * 1024 * 1024);
}

static void test_impossible_sizes(void)
{
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        size_t size = opaque_size(impossible[i]);
        errno = 0;
        check_refused(malloc(size), ENOMEM);
        check_refused(calloc(1, size), ENOMEM);
        check_refused(calloc(size, 1), ENOMEM);
        check_refused(calloc(size, opaque_size(2)), ENOMEM);
        check_refused(realloc(opaque_pointer(NULL), size), ENOMEM);
        check_refused(reallocarray(opaque_pointer(NULL), size, opaque_size(2)), ENOMEM);
        check_refused(memalign(opaque_size(16), size), ENOMEM);
        check_refused(memalign(opaque_size(4096), size), ENOMEM);
        check_refused(aligned_alloc(opaque_size(GIB), size), ENOMEM);
        check_refused(valloc(size), ENOMEM);
        check_refused(pvalloc(size), ENOMEM);
        void *result = &result;
        CHECK_EQUAL(posix_memalign(&result, opaque_size(64), size), ENOMEM);
        CHECK(result == (void *)&result);
    }
    /* Products that wrap to something small. */
    size_t half = opaque_size(SIZE_MAX / 2 + 1);
    check_refused(calloc(half, 2), ENOMEM);
    check_refused(calloc(half + 8, 2), ENOMEM);
    check_refused(calloc(opaque_size((size_t)1 << 32), (size_t)1 << 32), ENOMEM);
    check_refused(reallocarray(opaque_pointer(NULL), half, 2), ENOMEM);
    check_refused(reallocarray(opaque_pointer(NULL), half + 8, 2), ENOMEM);
}

static void test_refused_realloc_keeps_block(void)
{
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        unsigned char *block = (unsigned char *)get_memory(sizes[i]);
        CHECK(block != NULL);
        memset(block, 0x5a, sizes[i]);
        for (size_t j = 0; j < IMPOSSIBLE_COUNT; j++) {
            errno = 0;
            check_refused(realloc(opaque_pointer(block), opaque_size(impossible[j])), ENOMEM);
        }
        check_refused(reallocarray(opaque_pointer(block), opaque_size(SIZE_MAX / 2 + 9), 2),
                      ENOMEM);
        for (size_t j = 0; j < sizes[i]; j++) {
            CHECK_EQUAL(block[j], 0x5a);
        }
        give_back(block);
    }
}

static void test_free_keeps_errno(void)
{
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        char *block = (char *)get_memory(sizes[i]);
        CHECK(block != NULL);
        block[0] = 1;
        void *aligned = memalign(opaque_size(1 << 21), opaque_size(sizes[i]));
        CHECK(aligned != NULL);
        errno = ERRNO_UNTOUCHED;
        give_back(block);
        CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
        give_back(aligned);
        CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
    }
    give_back(NULL);
    CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
}

static void check_aligned_block(void *block, size_t alignment, size_t size)
{
    if (block == NULL || !is_aligned(block, alignment) || malloc_usable_size(block) < size) {
        dprintf(2, "alignment %zu size %zu: %p errno %d\n", alignment, size, block, errno);
    }
    CHECK(block != NULL);
    CHECK(is_aligned(block, alignment));
    CHECK(malloc_usable_size(block) >= size);
    if (size > 0) {
        ((char *)block)[0] = 1;
        ((char *)block)[size - 1] = 2;
        CHECK(((char *)block)[0] >= 1);
    }
}

static void test_alignments(void)
{
    const size_t offsets[] = {0, 1, 2, 100};
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        for (size_t i = 0; i < 8; i++) {
            size_t size = i < 4 ? offsets[i] : alignment + offsets[i - 4];
            void *first = memalign(opaque_size(alignment), opaque_size(size));
            check_aligned_block(first, alignment, size);
            void *second = aligned_alloc(opaque_size(alignment), opaque_size(size));
            check_aligned_block(second, alignment, size);
            CHECK(first != second);
            give_back(first);
            void *third = NULL;
            if (alignment >= sizeof(void *)) {
                errno = ERRNO_UNTOUCHED;
                CHECK_EQUAL(posix_memalign(&third, opaque_size(alignment), opaque_size(size)), 0);
                check_aligned_block(third, alignment, size);
            }
            give_back(second);
            give_back(third);
        }
    }
}

/* The contents survive a realloc of an aligned block to each tier and back. */
static void test_aligned_blocks_can_grow(void)
{
    for (size_t alignment = 16; alignment <= 1 << 22; alignment *= 4) {
        unsigned char *block = (unsigned char *)memalign(opaque_size(alignment), opaque_size(1000));
        check_aligned_block(block, alignment, 1000);
        memset(block, 0x3c, 1000);
        for (size_t i = 0; i < SIZES_COUNT; i++) {
            size_t size = sizes[(i * 7) % SIZES_COUNT] + 1000;
            block = (unsigned char *)realloc(opaque_pointer(block), opaque_size(size));
            CHECK(block != NULL);
            for (size_t j = 0; j < 1000; j++) {
                CHECK_EQUAL(block[j], 0x3c);
            }
            block[size - 1] = 1;
        }
        give_back(block);
    }
}

static void test_bad_alignments(enum served served)
{
    const size_t bad[] = {0, 1, 2, 4, 3, 24, 40, 100, 4097, SIZE_MAX, SIZE_MAX / 2 + 2};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        void *result = &result;
        errno = ERRNO_UNTOUCHED;
        CHECK_EQUAL(posix_memalign(&result, opaque_size(bad[i]), opaque_size(100)), EINVAL);
        CHECK(result == (void *)&result);
        CHECK_EQUAL(errno, ERRNO_UNTOUCHED);
        /* As documented since glibc 2.38; older ones rounded the alignment up. */
        if ((bad[i] & (bad[i] - 1)) != 0 && served != SERVED_BY_OTHER) {
            check_refused(aligned_alloc(opaque_size(bad[i]), opaque_size(100)), EINVAL);
        }
    }
    /* memalign rounds up to a power of two; none is above SIZE_MAX / 2 + 1. */
    const size_t rounded[][2] = {{0, 16},    {3, 4},       {24, 32},
                                 {100, 128}, {4097, 8192}, {70000, 131072}};
    for (size_t i = 0; i < sizeof rounded / sizeof rounded[0]; i++) {
        void *block = memalign(opaque_size(rounded[i][0]), opaque_size(100));
        check_aligned_block(block, rounded[i][1], 100);
        give_back(block);
    }
    check_refused(memalign(opaque_size(SIZE_MAX / 2 + 2), opaque_size(100)), EINVAL);
    /* A power of two, but there is no such address. */
    CHECK(memalign(opaque_size(SIZE_MAX / 2 + 1), opaque_size(100)) == NULL);
    CHECK_EQUAL(errno, ENOMEM);
}

static void test_page_functions(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        void *block = valloc(opaque_size(sizes[i]));
        check_aligned_block(block, page, sizes[i]);
        give_back(block);
        block = pvalloc(opaque_size(sizes[i]));
        check_aligned_block(block, page, (sizes[i] + page - 1) / page * page);
        give_back(block);
    }
}

static void test_natural_alignment(void)
{
    for (size_t size = 0; size < 5000; size++) {
        void *blocks[] = {get_memory(size), calloc(1, opaque_size(size)),
                          realloc(opaque_pointer(NULL), opaque_size(size))};
        for (size_t i = 0; i < 3; i++) {
            CHECK(blocks[i] != NULL);
            CHECK(is_aligned(blocks[i], _Alignof(max_align_t)));
            give_back(blocks[i]);
        }
    }
}

static void test_calloc_clears(void)
{
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES_COUNT; i++) {
            unsigned char *block = (unsigned char *)calloc(opaque_size(sizes[i]), opaque_size(1));
            CHECK(block != NULL);
            size_t usable = malloc_usable_size(block);
            for (size_t j = 0; j < sizes[i]; j++) {
                CHECK_EQUAL(block[j], 0);
            }
            memset(opaque_pointer(block), 0xff, usable);
            give_back(block);
        }
    }
}

int main(void)
{
    enum served served = prove_served();
    test_zero_sizes();
    test_realloc_to_zero_frees();
    test_impossible_sizes();
    test_refused_realloc_keeps_block();
    test_free_keeps_errno();
    test_alignments();
    test_aligned_blocks_can_grow();
    test_bad_alignments(served);
    test_page_functions();
    test_natural_alignment();
    test_calloc_clears();
    return 0;
}
