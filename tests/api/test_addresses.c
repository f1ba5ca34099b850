/* SPDX-License-Identifier: MIT */
/* test_addresses.c: what is freed and not used again is unmapped, in holes between what lives. The
 * holes are bounded, may hold somebody else's memory, and are filled again, also by a fork's child.
 *
 * ctest: not-again no-qemu
 */
#include "../child.h"

#include "hakmem/control.h"

enum { SIZE = 1000, LIVE_EVERY = SUPPORT_SLOW ? 16000 : 12000, PAIRS_MAX = 20000 };
#define TOTAL ((size_t)(SUPPORT_SLOW ? 64 : 256) * MIB)
#define COUNT (TOTAL / SIZE)

static char *blocks[COUNT];

static void fill_blocks(size_t seed)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (blocks[i] == NULL) {
            blocks[i] = hak_malloc(SIZE);
            REQUIRE(blocks[i] != NULL);
            pattern_fill(blocks[i], SIZE, i + seed);
        }
    }
}

/* Frees all but one in LIVE_EVERY: one in 12 or 16 MB. Those that stay are as `seed` has filled
 * them. */
static void free_blocks(size_t seed)
{
    for (size_t i = 0; i < COUNT; i++) {
        REQUIRE(i % 16 != 0 || pattern_mismatch(blocks[i], SIZE, i + seed) == SIZE_MAX);
        if (i % LIVE_EVERY != 0) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
}

/* Goes on with pairs of malloc and free until so many addresses are left. */
static void wait_for_addresses(size_t most)
{
    for (size_t pairs = 0; address_space_bytes() > most; pairs++) {
        REQUIRE_SIZE(pairs, <, PAIRS_MAX);
        hak_free(hak_malloc(64));
        usleep(5000);
    }
}

/* Fills and frees; most of it is unmapped by ticks, then by a trim. */
static void burst(bool trim, size_t most)
{
    size_t seed = trim ? COUNT : 0, mappings = mappings_count();
    for (size_t i = 0; i < COUNT; i += LIVE_EVERY) {
        hak_free(blocks[i]);
        blocks[i] = NULL;
    }
    fill_blocks(seed);
    REQUIRE_SIZE(address_space_bytes(), >=, TOTAL);
    free_blocks(seed);
    if (trim) {
        hak_trim(0);
    }
    wait_for_addresses(most);
    REQUIRE_SIZE(mappings_count(), <=, mappings + 2 * COUNT / LIVE_EVERY + 48); /* others, too */
}

static void *stranger_in_hole(void)
{
    uintptr_t place = (uintptr_t)blocks[LIVE_EVERY] & ~(uintptr_t)(2 * MIB - 1);
    for (size_t step = 1; step < 64; step++) {
        char *mapping = mmap((void *)(place + step * 2 * MIB), MIB, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (mapping != MAP_FAILED) {
            REQUIRE(!hak_owns(mapping));
            pattern_fill(mapping, MIB, 1);
            return mapping;
        }
    }
    support_fail("no hole\n");
}

TEST(addresses_follow_what_lives)
{
    SKIP_IF(SUPPORT_SANITIZED);
    hak_free(hak_malloc(64));
    REQUIRE(hak_option_set("purge_delay_ms", "100") == 0);
    size_t most = address_space_bytes() + TOTAL / 4 + 16 * MIB;
    burst(false, most);
    burst(true, most);
    char *stranger = stranger_in_hole();
    burst(false, most);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        burst(true, most);
        burst(false, most);
        _exit(pattern_mismatch(stranger, MIB, 1) == SIZE_MAX ? 0 : 1);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    burst(true, most);
    assert_true(pattern_mismatch(stranger, MIB, 1) == SIZE_MAX);
    munmap(stranger, MIB);
}

TESTS(NULL)
