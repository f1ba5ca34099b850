/* SPDX-License-Identifier: MIT */
/* test_sparse_huge.c: of a large allocation only what is touched needs memory, also after others
 * that were filled: with huge pages for all of them 3 GiB of which each 64th page is touched were 2
 * GiB resident, and a table of 4 GiB would not have run at all on many a machine.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"

static bool kernel_gives_huge_pages_unasked(void)
{
    char text[64];
    support_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    return strstr(text, "[always]") != NULL;
}

/* Touches a page in 64 of what lies from `start` to `end`; returns bytes touched. */
static size_t touch_sparsely(char *block, size_t start, size_t end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), touched = 0;
    for (size_t at = start; at < end; at += 64 * page) {
        ((volatile char *)block)[at] = 1;
        touched += page;
    }
    return touched;
}

/* `spare`: what may be resident besides, and the tables of pages. */
static void require_resident(size_t before, size_t in_use, size_t spare)
{
    size_t resident = rss_bytes() - before;
    print_message("%zu KiB in use, %zu KiB resident\n", in_use / KIB, resident / KIB);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(resident, <=, in_use + spare + 4 * MIB);
    }
}

static char *allocate_filled(size_t size)
{
    char *block = hak_malloc(size);
    REQUIRE(block != NULL);
    memset(block, 1, size);
    return block;
}

static void free_all(char **blocks, size_t count)
{
    FREE_ALL(blocks, count);
    hak_trim(0);
}

static void fill_and_free(void)
{
    char *blocks[4];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = allocate_filled(16 * MIB);
    }
    free_all(blocks, COUNT_OF(blocks));
}

TEST(the_first_of_all)
{
    size_t before = rss_bytes();
    char *block = hak_malloc(1024 * MIB);
    assert_non_null(block);
    require_resident(before, touch_sparsely(block, 0, 1024 * MIB), 0);
    free_all(&block, 1);
}

/* In a program of its own: what was filled speaks for itself, not for what was beside it. */
TEST_ANEW(beside_a_filled_one)
{
    enum { BLOCKS = 60 };
    char *blocks[BLOCKS];
    size_t touched = 0;
    char *filled = allocate_filled(8 * MIB), *beside = hak_malloc(1024 * MIB);
    REQUIRE(beside != NULL);
    free_all(&filled, 1);
    size_t before = rss_bytes();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(16 * MIB);
        REQUIRE(blocks[i] != NULL);
        touched += touch_sparsely(blocks[i], 0, 16 * MIB);
    }
    require_resident(before, touched, 8 * MIB);
    free_all(blocks, BLOCKS);
}

static void sparse_after_filled(void *(*allocate)(size_t size))
{
    enum { BLOCKS = 100 };
    char *blocks[BLOCKS];
    size_t size = 30 * MIB, touched = 0;
    fill_and_free();
    size_t before = rss_bytes();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(size);
        assert_non_null(blocks[i]);
        touched += touch_sparsely(blocks[i], 0, size);
    }
    /* twice what had been in use together, and the huge threshold */
    require_resident(before, touched, 2 * 64 * MIB + 8 * MIB);
    free_all(blocks, BLOCKS);
}

static void *allocate_zeroed(size_t size)
{
    return hak_calloc(1, size);
}

TEST(after_filled_ones)
{
    sparse_after_filled(hak_malloc);
    sparse_after_filled(allocate_zeroed);
}

TEST(one_that_grows)
{
    fill_and_free();
    size_t before = rss_bytes();
    char *block = allocate_filled(16 * MIB);
    block = hak_realloc(block, 1024 * MIB);
    assert_non_null(block);
    require_resident(before, 16 * MIB + touch_sparsely(block, 16 * MIB, 1024 * MIB), 0);
    free_all(&block, 1);
}

/* Its second mapping has huge pages, and hands them on to what it grows by unless told otherwise.
 */
TEST(one_that_grows_twice)
{
    size_t before = rss_bytes();
    char *block = allocate_filled(8 * MIB);
    block = hak_realloc(block, 20 * MIB);
    assert_non_null(block);
    memset(block, 1, 12 * MIB);
    block = hak_realloc(block, 1024 * MIB);
    assert_non_null(block);
    require_resident(before, 12 * MIB + touch_sparsely(block, 20 * MIB, 1024 * MIB), 8 * MIB);
    free_all(&block, 1);
}

/* Sparse ones in turn with filled ones, kept and freed. */
TEST(both_in_turn)
{
    enum { BLOCKS = 8, TURNS = 64 };
    char *blocks[BLOCKS] = {NULL};
    size_t in_use = BLOCKS / 2 * 8 * MIB, most = 0;
    size_t before = rss_bytes();
    for (size_t turn = 0; turn < TURNS; turn++) {
        char **block = &blocks[turn % BLOCKS];
        hak_free(*block);
        if (turn % 2 == 0) {
            *block = allocate_filled(8 * MIB);
        } else {
            *block = hak_malloc(128 * MIB);
            assert_non_null(*block);
            touch_sparsely(*block, 0, 128 * MIB);
        }
        size_t resident = rss_bytes() - before;
        most = most < resident ? resident : most;
    }
    print_message("%zu MiB filled, %zu MiB resident at most\n", in_use / MIB, most / MIB);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(most, <=, 4 * in_use);
    }
    free_all(blocks, BLOCKS);
}

int main(int count, char **arguments)
{
    if (kernel_gives_huge_pages_unasked()) {
        print_message("skipped: transparent huge pages are always on here\n");
        return 77;
    }
    return tests_main(count, arguments, NULL, NULL);
}
