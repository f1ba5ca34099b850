/* SPDX-License-Identifier: MIT */
/* test_os_calls.c: how often the kernel is asked. The library counts its calls, so the cliffs that
 * others fell from are counted here, not timed: churn of large blocks, clearing what is zero,
 * growth by copying, storms of purges, huge pages nobody wants, the start of a short process.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"

static size_t page_faults(void)
{
    struct rusage usage;
    REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
    return (size_t)usage.ru_minflt;
}

extern const char __executable_start[], _end[]; /* the linker's */

/* Without pages of files, which come in clusters, and without this program's own variables, among
 * which the linker puts hakmem's: in one page or in two, as it happens. */
static size_t anonymous_bytes(void)
{
    static char text[200 * KIB];
    size_t sum = 0;
    bool own = false;
    REQUIRE(support_read_file("/proc/self/smaps", text, sizeof text) < sizeof text - 1);
    for (char *line = text; *line != 0; line = strchr(line, '\n') + 1) {
        unsigned long start, end, kib;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            own = start < (uintptr_t)_end && end > (uintptr_t)__executable_start;
        } else if (sscanf(line, "Anonymous: %lu", &kib) == 1 && !own) {
            sum += kib * KIB;
        }
    }
    return sum;
}

/* The cost of very short processes (fd PR #2057): two pairs of tables, one superslab; a page of
 * each table, one of an arena and a thread, the block's own, and what counting them takes. */
CHILD(short)
{
    size_t before = anonymous_bytes();
    void *block = hak_malloc(100);
    REQUIRE(block != NULL);
    *(volatile char *)block = 1;
    hak_free(block);
    size_t grown = anonymous_bytes() - before;
    REQUIRE_SIZE(report_os_calls(), <=, 3);
    REQUIRE_SIZE(report_number("mmap"), <=, 3);
    REQUIRE_SIZE(grown, <=, 4 * (size_t)sysconf(_SC_PAGESIZE));
    fprintf(stderr, "%zu KiB\n", grown / KIB);
}

TEST(short_process)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    child_exec("short", NULL, NULL, &end);
    REQUIRE_EXIT(&end, "^[0-9]+ KiB$");
    print_message("%s", end.text);
}

/* Freed buffers of which little was touched are not joined: each part is a move. Before the
 * tests whose peak makes room for all of them. */
TEST(sparse_buffers_are_not_moved)
{
    enum { SLOTS = 20, ROUNDS = 1000 };
    void *blocks[SLOTS] = {NULL};
    uint64_t seed = 1;
    SKIP_IF(SUPPORT_SANITIZED);
    size_t remaps = report_number("mremap");
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t slot = random_below(&seed, SLOTS);
        hak_free(blocks[slot]);
        blocks[slot] = hak_malloc(5 * MIB + random_below(&seed, 20 * MIB));
        assert_non_null(blocks[slot]);
        *(volatile char *)blocks[slot] = 1;
    }
    remaps = report_number("mremap") - remaps;
    print_message("%zu moves in %d rounds\n", remaps, ROUNDS);
    REQUIRE_SIZE(remaps, <=, ROUNDS);
    FREE_ALL(blocks, SLOTS);
}

/* A buffer of 800 kB again and again (snmalloc #811); then buffers around it, several at a time. */
TEST(churn_of_large_blocks)
{
    enum { ROUNDS = 10000, TOGETHER = 3 };
    SKIP_IF(SUPPORT_SLOW); /* level 2 purges every other millisecond on purpose */
    for (size_t variety = 1; variety <= TOGETHER; variety += TOGETHER - 1) {
        void *blocks[TOGETHER] = {NULL};
        size_t calls = 0;
        for (size_t round = 0; round < ROUNDS + 100; round++) {
            if (round == 100) {
                calls = report_os_calls();
            }
            size_t slot = round % variety;
            hak_free(blocks[slot]);
            blocks[slot] = hak_malloc(800000 - slot * 100000);
            assert_non_null(blocks[slot]);
            memset(blocks[slot], 1, 100);
        }
        calls = report_os_calls() - calls;
        print_message("%zu sizes: %zu calls in %d rounds\n", variety, calls, ROUNDS);
        REQUIRE_SIZE(calls, <=, ROUNDS / 100);
        FREE_ALL(blocks, TOGETHER);
    }
}

/* Spans and huge blocks in turn, at random. What fits nowhere is missed, and kept from then on. */
CHILD(random)
{
    enum { LIVE = 100, PAIRS = 20000 };
    void *blocks[LIVE] = {NULL};
    uint64_t seed = 1;
    size_t calls = 0;
    for (size_t pair = 0; pair < 2 * PAIRS; pair++) {
        if (pair == PAIRS) {
            calls = report_os_calls();
        }
        size_t slot = random_below(&seed, LIVE);
        hak_free(blocks[slot]);
        blocks[slot] = hak_malloc(1 + random_below(&seed, 4 * MIB));
        REQUIRE(blocks[slot] != NULL);
        *(volatile char *)blocks[slot] = 1;
    }
    calls = report_os_calls() - calls;
    REQUIRE_SIZE(calls, <=, PAIRS / 20);
    fprintf(stderr, "%zu calls in %d pairs\n", calls, PAIRS);
}

TEST(churn_of_random_sizes)
{
    SKIP_IF(SUPPORT_SLOW || SUPPORT_SANITIZED);
    /* never: passes come by the clock */
    REQUIRE_CHILD("random", "HAKMEM_PURGE_DELAY_MS=never", "^[0-9]+ calls in [0-9]+ pairs$");
}

/* calloc and free of 1 GiB took 26 s against .009 s (mimalloc #1104): nothing is cleared that is
 * zero, nothing is touched to find out. */
TEST(calloc_of_a_gibibyte)
{
    enum { ROUNDS = 100 };
    SKIP_IF(SUPPORT_SANITIZED);
    report_os_calls(); /* its own pages are touched by now */
    size_t calls = report_os_calls(), faults = page_faults();
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *block = hide(hak_calloc(1, GIB));
        assert_non_null(block);
        hak_free(block);
    }
    faults = page_faults() - faults;
    calls = report_os_calls() - calls;
    print_message("%zu calls, %zu page faults in %d rounds\n", calls, faults, ROUNDS);
    REQUIRE_SIZE(calls, <=, ROUNDS * 8);
    REQUIRE_SIZE(faults, <=, ROUNDS * 2);
}

/* Growth of what is large moves page tables, not bytes (mimalloc #153, #693). */
TEST(growth_by_mremap)
{
    size_t limit = SUPPORT_SLOW ? 64 * MIB : GIB;
    size_t steps = 0;
    SKIP_IF(SUPPORT_SANITIZED);
    hak_trim(0); /* it would grow into what is kept */
    size_t size = 4 * MIB;
    char *block = hak_malloc(size);
    assert_non_null(block);
    memset(block, 'x', size);
    report_os_calls();
    size_t copied = report_number("realloc_copied"), remaps = report_number("mremap");
    size_t faults = page_faults();
    for (; size < limit; steps++) {
        size += size / 16;
        block = hak_realloc(block, size);
        assert_non_null(block);
    }
    faults = page_faults() - faults;
    REQUIRE_SIZE(report_number("realloc_copied"), ==, copied);
    /* one that fails where it lies, one to an aligned place; none when a huge page has room */
    REQUIRE_SIZE(report_number("mremap") - remaps, <=, 2 * steps);
    REQUIRE_SIZE(report_number("mremap") - remaps, >, steps / 2);
    /* not one a page of the 4 MiB at each step; a huge page that is tried may come as small ones */
    REQUIRE_SIZE(faults, <=, 2 * steps + 2 * MIB / 4096);
    assert_int_equal(block[4 * MIB - 1], 'x');
    hak_free(block);
}

/* A program that fills and empties 24 MiB all the time does not purge all the time (DONTNEED storms
 * and their interrupts: jemalloc #1422): a pass each half period, each slice at most once in it. */
TEST(phases_cause_no_storm)
{
    enum { BLOCKS = 3000, SIZE_MEAN = 8192, DELAY_MS = 1000, RUN_MS = 1800 };
    SKIP_IF(SUPPORT_SLOW);
    static void *blocks[BLOCKS];
    uint64_t random = 1, start = now_ms(CLOCK_MONOTONIC);
    size_t phases = 0, purges = report_number("madvise_dontneed");
    for (; now_ms(CLOCK_MONOTONIC) - start < RUN_MS; phases++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t size = 1 + random_below(&random, 2 * SIZE_MEAN);
            blocks[i] = hak_malloc(size);
            assert_non_null(blocks[i]);
            memset(blocks[i], 1, size < 64 ? size : 64);
        }
        FREE_ALL(blocks, BLOCKS);
    }
    purges = report_number("madvise_dontneed") - purges;
    uint64_t passes = (now_ms(CLOCK_MONOTONIC) - start) / (DELAY_MS / 2) + 2;
    print_message("%zu phases, %zu purges in at most %d passes\n", phases, purges, (int)passes);
    assert_true(phases > 10);
    REQUIRE_SIZE(purges, <=, passes * (32 * MIB / (2 * MIB)) * 4); /* superslabs, runs of each */
}

/* 64 MiB of small blocks and 96 MiB of large ones, every page touched. */
CHILD(use)
{
    static void *blocks[65536];
    ALLOCATE_WRITTEN(blocks, COUNT_OF(blocks), 1024);
    for (unsigned i = 0; i < 3; i++) {
        char *block = hak_malloc(32 * MIB);
        REQUIRE(block != NULL);
        memset(block, 1, 32 * MIB);
        hak_free(block);
    }
    fprintf(stderr, "asked %zu times\n", report_number("madvise_hugepage"));
}

/* Stalls of seconds while the kernel compacts (mimalloc #1323, #1373): who wants no huge pages asks
 * for none, and a program of less than 4 MiB never gets them. */
TEST(huge_pages_can_be_refused)
{
    SKIP_IF(SUPPORT_SANITIZED);
    REQUIRE_CHILD("use", "HAKMEM_HUGE_THRESHOLD=never", "^asked 0 times$");
    REQUIRE_CHILD("use", NULL,
                  HAK_LEVEL >= 2 ? "^asked" : "^asked [1-9]"); /* else it proves nothing */
}

TEST_ANEW(small_programs_get_no_huge_pages)
{
    for (size_t i = 0; i < 3 * KIB; i++) {
        char *block = hak_malloc(1000);
        REQUIRE(block != NULL);
        memset(block, 1, 1000);
    }
    REQUIRE_SIZE(report_number("madvise_hugepage"), ==, 0);
}

TESTS(NULL)
