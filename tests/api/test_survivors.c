/* SPDX-License-Identifier: MIT */
/* test_survivors.c: memory that was used densely goes back when few of its objects stay, huge pages
 * or not: huge pages and what is kept of them made absurd resident sizes (facebook/jemalloc #46).
 * One survivor keeps its two OS pages, not 2 MiB, nor its slab except in the secure form, and what
 * went back stays away: the kernel's khugepaged made it resident again (golang #8832).
 * While a program grows with other sizes, what is left between survivors makes room for them.
 *
 * ctest: lock=memory no-qemu
 */
#include "../report.h"

TEST(one_in_256_kib_stays)
{
    enum { BLOCK = 1000, EVERY = 256 };
    size_t count = (SUPPORT_SLOW ? 32 : 256) * KIB;
    size_t survivors = count / EVERY;
    size_t asked_min = HAK_LEVEL < 2 && sysconf(_SC_PAGESIZE) == 4096;
#ifdef HAK_SECURE
    size_t kept = 32 * KIB;
#else
    size_t kept = sysconf(_SC_PAGESIZE) == 4096 ? 8 * KIB : 32 * KIB;
#endif
    char **blocks = support_map(count * sizeof *blocks);
    memset(blocks, 1, count * sizeof *blocks);
    hak_free(hak_malloc(BLOCK));
    size_t before = rss_bytes();
    ALLOCATE_WRITTEN(blocks, count, BLOCK);
    size_t full = rss_bytes() - before;
    for (size_t i = 0; i < count; i++) {
        if (i % EVERY != 0) {
            hak_free(blocks[i]);
        }
    }
    hak_trim(0);
    size_t left = rss_bytes() - before;
    for (size_t i = 0; i < count; i += EVERY) {
        support_collapse((void *)((uintptr_t)blocks[i] & ~(uintptr_t)(2 * MIB - 1)), 2 * MIB);
    }
    size_t later = rss_bytes() - before;
    print_message(
        "%zu MiB full, %zu KiB with %zu survivors, %zu KiB later; huge pages asked for %zu "
        "times\n",
        full / MIB, left / KIB, survivors, later / KIB, report_number("madvise_hugepage"));
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(full, >=, count * BLOCK);
        REQUIRE_SIZE(left, <=, survivors * kept + 2 * MIB);
        REQUIRE_SIZE(later, <=, left + MIB);
        REQUIRE_SIZE(report_number("madvise_hugepage"), >=, asked_min);
    }
    for (size_t i = 0; i < count; i += EVERY) {
        assert_int_equal(blocks[i][BLOCK - 1], 1);
        hak_free(blocks[i]);
    }
    munmap(blocks, count * sizeof *blocks);
}

/* Without it, all but the last phase's free pages stay: 98 % of the bytes of all phases. */
TEST(sizes_that_change)
{
#ifndef HAK_SECURE
    enum { PHASES = 8, SURVIVES = 50 };
    size_t phase_bytes = 16 * MIB, most = phase_bytes / 96, count = 0;
    SKIP_IF(SUPPORT_SANITIZED || sysconf(_SC_PAGESIZE) != 4096);
    char **blocks = support_map(most * sizeof *blocks), *stay = NULL;
    memset(blocks, 1, most * sizeof *blocks);
    size_t before = rss_bytes();
    for (size_t size = 96, phase = 0; phase < PHASES; phase++, size += size / 2) {
        count = phase_bytes / size;
        ALLOCATE_WRITTEN(blocks, count, size);
        for (size_t i = 0; i < count; i++) {
            if (i % SURVIVES == 7) {
                memcpy(blocks[i], &stay, sizeof stay);
                stay = blocks[i];
            } else {
                hak_free(blocks[i]);
            }
        }
    }
    size_t left = rss_bytes() - before;
    print_message("%zu MiB after %d phases of %zu MiB\n", left / MIB, PHASES, phase_bytes / MIB);
    REQUIRE_SIZE(left, <=, PHASES * phase_bytes * 5 / 8);
    while (stay != NULL) {
        char *next = NULL;
        memcpy(&next, stay, sizeof next);
        hak_free(stay);
        stay = next;
    }
    munmap(blocks, most * sizeof *blocks);
#endif
}

/* Each of these sizes lies just above a class or a slice, and once took 1.2 to 1.4 of its bytes.
 * The last superslab of slabs and that of spans may be resident before they are used. */
TEST(blocks_of_one_size)
{
    static const size_t sizes[] = {2330, 9000, 10400, 17000, 21000, 33000, 84000, 131088};
    enum { BYTES = SUPPORT_SLOW ? 8 * MIB : 64 * MIB, MOST = BYTES / 2330 + 1 };
    SKIP_IF(SUPPORT_SANITIZED || HAK_LEVEL >= 2 || sysconf(_SC_PAGESIZE) != 4096);
    char **blocks = support_map(MOST * sizeof *blocks);
    memset(blocks, 1, MOST * sizeof *blocks);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t count = BYTES / sizes[i], before = rss_bytes();
        ALLOCATE_WRITTEN(blocks, count, sizes[i]);
        size_t taken = rss_bytes() - before;
        print_message("%zu bytes: %.3f\n", sizes[i], (double)taken / (double)(count * sizes[i]));
#ifndef HAK_SECURE
        REQUIRE_SIZE(taken, <=, count * sizes[i] / 20 * 23 + 2 * MIB);
#endif
        FREE_ALL(blocks, count);
        hak_trim(0);
    }
    munmap(blocks, MOST * sizeof *blocks);
}

TESTS(NULL)
