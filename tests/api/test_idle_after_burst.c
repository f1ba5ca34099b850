/* SPDX-License-Identifier: MIT */
/* test_idle_after_burst.c: a program that freed much and then does next to nothing still gives it
 * back: idle servers kept all of it, as their few blocks come from bins and no slow path runs.
 *
 * ctest: not-again no-qemu
 */
#include "../report.h"

/* Sanitizers keep what is freed: there the pairs are only watched for mistakes. */
enum { PAIRS_A_SECOND = 100, PAIRS_MAX = (SUPPORT_SANITIZED ? 1 : 120) * PAIRS_A_SECOND };

/* Pairs of malloc and free, one block at a time, until no more than `most` is resident and no more
 * than `addresses` mapped: how many it took. It ends by that, or never: the bound is for a test
 * that fails. */
static size_t pairs_until(size_t most, size_t addresses)
{
    size_t pairs = 0;
    for (; (rss_bytes() > most || address_space_bytes() > addresses) && pairs < PAIRS_MAX;
         pairs++) {
        hak_free(hak_malloc(64));
        usleep(1000000 / PAIRS_A_SECOND);
    }
    return pairs;
}

/* Allocates much and frees it; returns what was resident between. */
static size_t burst(size_t size)
{
    size_t count = (SUPPORT_SLOW ? 16 : 100) * MIB / size;
    char **blocks = support_map(count * sizeof *blocks);
    ALLOCATE_WRITTEN(blocks, count, size);
    size_t full = rss_bytes();
    FREE_ALL(blocks, count);
    munmap(blocks, count * sizeof *blocks);
    return full;
}

TEST(a_few_pairs_give_a_burst_back)
{
    static const size_t sizes[] = {100, 2000, 100000};
    hak_free(hak_malloc(64));
    size_t before = rss_bytes(); /* before all bursts: each may leave 8 MiB to the next */
    size_t addresses = address_space_bytes() + 16 * MIB;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t full = burst(sizes[i]) - before, pairs = pairs_until(before + 8 * MIB, addresses);
        print_message("%zu B: %zu MiB freed, back after %zu pairs\n", sizes[i], full / MIB, pairs);
        if (!SUPPORT_SANITIZED) {
            REQUIRE_SIZE(full, >=, (SUPPORT_SLOW ? 12 : 90) * MIB);
            REQUIRE_SIZE(pairs, <, PAIRS_MAX);
        }
    }
}

TESTS(NULL)
