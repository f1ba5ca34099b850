/* SPDX-License-Identifier: MIT */
/* test_huge.c: region/huge: what earns huge pages, and what says that they come slowly. The pauses
 * are in fault/test_huge_pauses.c, which sets the clock.
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "region/huge.h"

/* One look of hak__os_resident_percent sees all of such a block. */
enum { SIZE = HUGE_PAGE_SIZE };

static char *hole; /* never touched */

static char *block_map(uint32_t percent)
{
    void *address;
    REQUIRE(hak__os_map(SIZE, HUGE_PAGE_SIZE, &address) == 0);
    memset(address, 'x', (size_t)SIZE * percent / 100);
    return address;
}

static void block_unmap(char *block)
{
    REQUIRE(hak__os_unmap(block, SIZE) == 0);
}

static bool earned(enum huge_kind kind, size_t size, size_t live)
{
    return hak__huge_is_earned(kind, size, live, SIZE_MAX - 1);
}

/* Blocks of the kind that were filled are known to have so many bytes together. */
static void require_filled(enum huge_kind kind, size_t filled)
{
    assert_true(filled == 0 || earned(kind, filled, filled));
    assert_false(earned(kind, filled + 1, filled));
}

/* Two sparse blocks: all evidence of before is gone. */
static void forget(enum huge_kind kind)
{
    hak__huge_watch(kind, hole, SIZE, 0);
    hak__huge_watch(kind, hole, SIZE, 0);
    assert_false(earned(kind, 1, 0));
}

static int evidence_setup(void **state)
{
    unit_save_knobs(state);
    hak__knobs.huge_threshold = 0;
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        forget(kind);
    }
    return 0;
}

#define EVIDENCE_TEST(name) TEST_WITH(name, evidence_setup, unit_restore_knobs)

/* Must be the first: nothing has been watched yet. */
TEST_WITH_KNOBS(without_evidence)
{
    hak__knobs.huge_threshold = 0;
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        assert_false(earned(kind, 1, 0));
        hak__huge_note_growth(kind, GIB, GIB); /* it may be sparse, too */
        assert_false(earned(kind, 1, 0));
        char *only = block_map(0);
        hak__huge_watch(kind, only, SIZE, 0);
        assert_false(earned(kind, 1, 0));
        memset(only, 'x', SIZE);
        assert_true(earned(kind, 1, SIZE)); /* a look each time */
        assert_true(hak__huge_unwatch(only));
        block_unmap(only);
    }
}

/* Each filled block lets huge pages double, to twice what was live when it was new at most: what
 * came since may be sparse. */
EVIDENCE_TEST(doubling)
{
    char *block = block_map(100);
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        size_t filled = 0;
        hak__huge_watch(kind, block, SIZE, GIB * 64);
        for (uint32_t i = 0; i < 10; i++) {
            hak__huge_watch(kind, block, SIZE, GIB * 64);
            filled = 2 * filled + SIZE;
            require_filled(kind, filled); /* other looks at the same block are no more evidence */
        }
        hak__huge_watch(kind, block, SIZE, filled);
        hak__huge_watch(kind, block, SIZE, 0);
        earned(kind, 1, GIB * 64);
        require_filled(kind, filled + SIZE);
        hak__huge_watch(kind, block, SIZE, 0);
        earned(kind, 1, SIZE); /* what was filled once may be again */
        require_filled(kind, filled + SIZE);
    }
    block_unmap(block);
}

EVIDENCE_TEST(a_sparse_one_ends_it)
{
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        char *block = block_map(100);
        hak__huge_watch(kind, block, SIZE, 0);
        hak__huge_watch(kind, hole, SIZE, 0);
        require_filled(kind, SIZE);
        hak__huge_note_growth(kind, GIB, GIB);
        require_filled(kind, GIB);
        REQUIRE(hak__os_purge(block, SIZE) == 0); /* it is looked at each time */
        assert_false(earned(kind, 1, 0));
        memset(block, 'x', SIZE);
        require_filled(kind, SIZE); /* all begins anew */
        hak__huge_watch(kind, block, SIZE, 0);
        assert_false(earned(kind, 1, 0));
        hak__huge_watch(kind, block, SIZE, 0);
        require_filled(kind, SIZE);
        block_unmap(block);
    }
}

/* What was seen at the end counts, not what lies at that address later. */
EVIDENCE_TEST(freed_blocks_are_remembered)
{
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        for (uint32_t percent = 0; percent <= 100; percent += 100) {
            char *first = block_map(percent), *second = block_map(percent), *other = block_map(0);
            hak__huge_watch(kind, first, SIZE, SIZE);
            hak__huge_watch(kind, second, SIZE, 0);
            assert_false(hak__huge_unwatch(other));
            assert_true(hak__huge_unwatch(second));
            assert_true(hak__huge_unwatch(first));
            assert_false(hak__huge_unwatch(first));
            memset(first, 'x', SIZE);
            REQUIRE(percent == 0 || hak__os_purge(first, SIZE) == 0);
            require_filled(kind, percent == 0 ? 0 : 2 * SIZE);
            hak__huge_watch(kind, other, SIZE, 0); /* the second of them decides */
            require_filled(kind, percent == 0 ? 0 : 2 * SIZE);
            assert_true(hak__huge_unwatch(other));
            block_unmap(first);
            block_unmap(second);
            block_unmap(other);
        }
    }
}

EVIDENCE_TEST(growth)
{
    char *block = block_map(100);
    for (enum huge_kind kind = 0; kind < HUGE_KINDS; kind++) {
        hak__huge_note_growth(kind, SIZE, GIB); /* nothing says that it is filled */
        assert_false(earned(kind, 1, 0));
        hak__huge_watch(kind, block, SIZE, 0);
        hak__huge_watch(kind, block, SIZE, 0);
        require_filled(kind, SIZE);
        hak__huge_note_growth(kind, SIZE, GIB);
        require_filled(kind, 3 * SIZE);
        hak__huge_note_growth(kind, SIZE, 4 * SIZE);
        require_filled(kind, 4 * SIZE);
    }
    block_unmap(block);
}

int main(void)
{
    support_small_pages();
    hole = block_map(0);
    if (hak__os_page_size() != HUGE_OS_PAGE_SIZE || hak__os_huge(hole, SIZE) != 0) {
        print_message("skipped: a kernel without huge pages of 2 MiB\n");
        return 77;
    }
    return tests_run(unit_start, NULL);
}
