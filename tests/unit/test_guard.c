/* SPDX-License-Identifier: MIT */
/* test_guard.c: observe/guard, and the choice of guarded requests in arena/sampling.c. Generators
 * start from fixed seeds, so each run guards the same requests.
 */
#include "../child.h"
#include "unit.h"

#include "observe/guard.h"
#include "observe/samples.h"

static void start_guarding(uint32_t rate)
{
    hak_free(hide(hak_malloc(1))); /* the thread has a struct from now on */
    hak__knobs.guard = rate;
    hak__thread->sampler.random = UINT64_C(0x9e3779b97f4a7c15);
    hak__thread->sampler.guard_drawn = false;
    hak__thread->sampler.guard_left = 0;
    hak__sampling_set_countdown(hak__thread, 0);
}

static bool is_open(const void *address)
{
    return hak__os_is_readable((uintptr_t)address & ~(uintptr_t)7);
}

TEST_WITH_KNOBS(what_is_not_guarded)
{
    start_guarding(1);
    static const size_t sizes[] = {GUARD_SIZE_MAX + 1, 70000, 3 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *block = hide(hak_malloc(sizes[i]));
        assert_non_null(block);
        assert_false(guard_contains(block));
        hak_free(block);
    }
    char *block = hide(hak_aligned_alloc(2 * hak__os_page_size(), 100));
    assert_non_null(block);
    assert_false(guard_contains(block));
    hak_free(block);
}

/* A full guard says so, and once only. */
static void fill_guard(void *argument)
{
    start_guarding(1);
    for (size_t i = 0; i < 4 * (size_t)GUARD_SLOTS; i++) {
        hide(hak_malloc(GUARD_SIZE_MAX));
    }
}

TEST_WITH_KNOBS(full)
{
    REQUIRE_LIFE(fill_guard, NULL, "^hakmem: warning: the guard is full[^\n]*\n$");
}

/* Without a free slot, or with too much open memory, requests are served as ever. */
TEST_WITH_KNOBS(bounds)
{
    static char *blocks[2 * GUARD_SLOTS];
    static const size_t sizes[] = {64, GUARD_SIZE_MAX};
    start_guarding(1);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t guarded = 0;
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            blocks[j] = hide(hak_malloc(sizes[i]));
            assert_non_null(blocks[j]);
            guarded += guard_contains(blocks[j]);
        }
        size_t open = bits_align_up(sizes[i], hak__os_page_size());
        size_t fit = GUARD_OPEN_BYTES_MAX / open;
        assert_int_equal(guarded, fit < GUARD_SLOTS ? fit : GUARD_SLOTS);
        assert_int_equal(hak__guard.open_bytes, guarded * open);
        FREE_ALL(blocks, COUNT_OF(blocks));
        assert_int_equal(hak__guard.open_bytes, 0);
    }
    assert_true(GUARD_OPEN_BYTES_MAX + GUARD_SLOTS * sizeof(struct guard_slot) < 4 * MIB);
}

/* At the hard limit no pages are opened, and the request is served as ever. */
TEST_WITH_KNOBS(limit)
{
    void *kept = hide(hak_malloc(64)); /* its bin has more */
    start_guarding(1);
    uint64_t freed = hak__guard.freed_number;
    hak__os_set_limit(hak__os_mapped_bytes());
    void *block = hide(hak_malloc(64));
    hak__os_set_limit(UINT64_MAX);
    assert_non_null(block);
    assert_false(guard_contains(block));
    assert_int_equal(hak__guard.open_bytes, 0);
    assert_int_equal(hak__guard.freed_number, freed);
    hak_free(block);
    hak_free(kept);
    block = hide(hak_malloc(64));
    assert_true(guard_contains(block));
    hak_free(block);
}

/* A signal handler that has interrupted an operation of its thread gets no guarded blocks, and may
 * free and resize them. */
TEST_WITH_KNOBS(inside_an_operation)
{
    start_guarding(1);
    char *first = hide(hak_malloc(64)), *second = hide(hak_malloc(64));
    memset(second, 3, 64);
    assert_true(guard_contains(first) && guard_contains(second));
    hak__inside = INSIDE_GATE;
    hak_free(first);
    char *third = hide(hak_realloc(second, 100));
    hak__inside = 0;
    assert_non_null(third);
    assert_false(guard_contains(third));
    assert_int_equal(third[63], 3);
    assert_int_equal(hak__guard.open_bytes, 0);
    assert_false(is_open((void *)bits_align_down((uintptr_t)first, 8)));
    hak_free(third);
}

/* One of `rate`, for every size: five standard deviations at most. */
TEST_WITH_KNOBS(rate)
{
    static const size_t sizes[] = {16, 48, 200, 1000, 4000, 16000};
    enum { RATE = 50 };
    const size_t count = SUPPORT_SLOW ? 20000 : 200000;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t guarded = 0;
        start_guarding(RATE);
        for (size_t j = 0; j < count; j++) {
            void *block = hide(hak_malloc(sizes[i]));
            guarded += guard_contains(block);
            hak_free(block);
        }
        double expected = (double)count / RATE, off = (double)guarded - expected;
        if (off * off > 25 * expected + 0.0004 * expected * expected) { /* 16 bytes: 1 % less */
            fail_msg("%zu bytes: %zu guarded instead of %.0f", sizes[i], guarded, expected);
        }
    }
}

TESTS(unit_start)
