/* SPDX-License-Identifier: MIT */
/* test_whale_join.c: large/whale_join: a whale of the pages of several.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "whales.h"

#include "large/whale_cache.h"

enum { COUNT = 3 };

/* Three freed whales of 6 MiB, none of which is half of what is asked for then; the first word of
 * each page is its number. */
static void free_three(void)
{
    uint64_t *whales[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        whales[i] = (uint64_t *)(void *)allocate(6 * MIB);
    }
    for (size_t i = 0, number = 1; i < COUNT; i++) {
        for (size_t at = 0; at < 6 * MIB; at += page) {
            whales[i][at / 8] = number++;
        }
        REQUIRE(hak__whale_free(whales[i]));
    }
}

/* Pages of [start, start + size) that had numbers, each of them once. */
static size_t pages_from_before(const char *start, size_t size)
{
    static bool seen[COUNT * 6 * MIB / 4096 + 1];
    size_t count = 0;
    memset(seen, 0, sizeof seen);
    for (size_t at = 0; at < size; at += page) {
        uint64_t number = *(const uint64_t *)(const void *)(start + at);
        REQUIRE(number < COUNT_OF(seen) && (number == 0 || !seen[number]));
        seen[number] = true;
        count += number != 0;
    }
    return count;
}

WHALE_TEST(joined_of_several)
{
    free_three();
    size_t size = 14 * MIB + 300 * KIB;
    struct whale_result result = hak__whale_allocate(size, page, false);
    char *whale = result.pointer;
    assert_true(whale != NULL && is_aligned(whale, HUGE_PAGE_SIZE));
    assert_false(result.zeroed);
    assert_int_equal(hak__whale_bytes(whale), size);
    size_t parts = HAK_TINY_LIMITS ? 3 : 4; /* at level 2 the end has no part of its own */
    size_t old = pages_from_before(whale, size);
    assert_true(old == size / page || (parts == 3 && old >= 14 * MIB / page));
    assert_true(hak__whale_joined_bytes == size);
    memset(whale, 'x', size); /* all of it can be written */
    assert_true(hak__whale_free(whale));
    hak__whale_cache_trim(0);
    assert_int_equal(hak__whale_joined_bytes, 0);
}

/* What the cache has not is new and zero. */
WHALE_TEST(joined_with_new_pages)
{
    free_three();
    size_t size = 40 * MIB;
    char *whale = hak__whale_allocate(size, page, false).pointer;
    assert_non_null(whale);
    assert_int_equal(pages_from_before(whale, size), 18 * MIB / page);
    assert_int_equal(nonzero_offset(whale + 18 * MIB, size - 18 * MIB), SIZE_MAX);
    assert_int_equal(hak__whale_totals().cached_bytes, 0);
    assert_true(hak__whale_free(whale));
}

/* A joined whale is divided and joined anew like any other. */
WHALE_TEST(joined_again)
{
    free_three();
    char *whale = allocate(17 * MIB);
    assert_true(hak__whale_free(whale));
    for (size_t round = 0; round < 20; round++) {
        char *small = allocate(5 * MIB), *large = allocate(11 * MIB + round * page);
        assert_true(pages_from_before(small, 5 * MIB) != 0);
        assert_true(pages_from_before(large, 11 * MIB) >= 9 * MIB / page);
        assert_true(hak__whale_free(small));
        assert_true(hak__whale_free(large));
    }
    hak__whale_cache_trim(0);
    assert_int_equal(hak__whale_joined_bytes, 0);
}

WHALE_TEST(joined_whales_are_resized)
{
    free_three();
    size_t size = 14 * MIB + page;
    char *whale = allocate(size);
    pattern_fill(whale, size, 9);
    hak__whale_cache_trim(0);
    void *neighbour = unit_block((uintptr_t)whale + size); /* so that it moves */
    char *larger = hak__whale_resize(whale, 20 * MIB);
    assert_non_null(larger);
    assert_ptr_not_equal(larger, whale);
    assert_int_equal(hak__whale_bytes(larger), 20 * MIB);
    assert_int_equal(hak__whale_joined_bytes, 20 * MIB);
    assert_int_equal(pattern_mismatch(larger, size, 9), SIZE_MAX);
    assert_int_equal(nonzero_offset(larger + size, 20 * MIB - size), SIZE_MAX);
    assert_false(unit_is_mapped((uintptr_t)whale));
    whale = larger;
    unit_unblock(neighbour);
    errno = ERRNO_UNTOUCHED;
    assert_ptr_equal(hak__whale_resize(whale, 5 * MIB), whale);
    assert_int_equal(pattern_mismatch(whale, 5 * MIB, 9), SIZE_MAX);
    assert_ptr_equal(hak__whale_resize(whale, 5 * MIB + 16 * page), whale); /* or its slack */
    assert_true(hak__whale_free(whale));
    hak__whale_cache_trim(0);
    assert_int_equal(hak__whale_joined_bytes, 0);
}

/* Slots of 5 to 12 MiB, replaced at random by four threads, each with its number at each page. */
static void *replace_whales(void *argument)
{
    enum { SLOTS = 4 };
    struct slot {
        char *block;
        size_t size;
    } slots[SLOTS] = {{NULL, 0}};
    uint64_t random = (uintptr_t)argument;
    for (size_t round = 0; round < (SUPPORT_SLOW ? 40 : 200); round++) {
        struct slot *slot = &slots[random_below(&random, SLOTS)];
        for (size_t at = 0; at < slot->size; at += 64 * KIB) {
            REQUIRE(slot->block[at] == (char)(uintptr_t)slot);
        }
        REQUIRE(slot->block == NULL || hak__whale_free(slot->block));
        slot->size = 5 * MIB + random_below(&random, 7 * MIB);
        slot->block = hak__whale_allocate(slot->size, 4096, false).pointer;
        REQUIRE(slot->block != NULL);
        for (size_t at = 0; at < slot->size; at += 64 * KIB) {
            slot->block[at] = (char)(uintptr_t)slot;
        }
    }
    for (size_t i = 0; i < SLOTS; i++) {
        REQUIRE(slots[i].block == NULL || hak__whale_free(slots[i].block));
    }
    return NULL;
}

WHALE_TEST(threads)
{
    pthread_t threads[4];
    hak__knobs.whale_cache_bytes = UINT64_MAX;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(replace_whales, (void *)(uintptr_t)(i + 1));
    }
    JOIN_ALL(threads, COUNT_OF(threads));
    hak__whale_cache_trim(0);
    assert_int_equal(hak__whale_joined_bytes, 0);
}

WHALE_TEST(zeroes)
{
    free_three();
    char *block = hak_calloc(1, 15 * MIB);
    assert_non_null(block);
    assert_int_equal(nonzero_offset(block, 15 * MIB), SIZE_MAX);
    hak_free(block);
}

TESTS(unit_start)
