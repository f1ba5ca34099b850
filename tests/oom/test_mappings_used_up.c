/* SPDX-License-Identifier: MIT */
/* test_mappings_used_up.c: a process with all the mappings that the kernel allows still gets blocks
 * of all sizes, past a step of the tables, too: superslabs lie side by side, and are one mapping.
 *
 * ctest: no-qemu
 */
#include "../child.h"

#include <sys/mman.h>

enum { BLOCKS = 100 };

/* Protects every other page of a mapping, which is one mapping more each time, until the kernel
 * refuses. `over`: then maps on, as long as it does that. False: the limit is too high to reach. */
static bool use_up_mappings(bool over)
{
    enum { PAGES = 150000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *area = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(area != MAP_FAILED);
    size_t at = 0;
    while (at < PAGES && mprotect(area + at * page, page, PROT_READ) == 0) {
        at += 2;
    }
    for (int kind = PROT_READ; over; kind = kind == PROT_READ ? PROT_NONE : PROT_READ) {
        if (mmap(NULL, page, kind, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
            break;
        }
    }
    return at < PAGES;
}

static size_t block_size(size_t i)
{
    return (3 + i % 18) * MIB + i;
}

/* Of each block a few pages are written: its start and its end. */
enum { EDGE = 64 * KIB };

static void block_fill(char *block, size_t size, size_t seed)
{
    pattern_fill(block, EDGE, seed);
    block[size - 1] = (char)seed;
}

static void block_check(const char *block, size_t size, size_t seed)
{
    REQUIRE(pattern_mismatch(block, EDGE, seed) == SIZE_MAX);
    REQUIRE(size == 0 || block[size - 1] == (char)seed);
}

static void use_blocks(size_t blocks_count)
{
    char *blocks[BLOCKS];
    for (size_t i = 0; i < blocks_count; i++) {
        size_t size = block_size(i);
        blocks[i] = i % 3 == 0 ? hak_calloc(1, size) : hak_malloc(size);
        REQUIRE(blocks[i] != NULL && hak_owns(blocks[i]) && hak_owns(blocks[i] + size - 1));
        REQUIRE_SIZE(hak_usable_size(blocks[i]), >=, size);
        REQUIRE(i % 3 != 0 || nonzero_offset(blocks[i], size) == SIZE_MAX);
        block_fill(blocks[i], size, i);
    }
    size_t in_use = stats_now().bytes_in_use;
    for (size_t i = 0; i < blocks_count; i++) {
        block_check(blocks[i], block_size(i), i);
        in_use = i % 4 == 0 ? in_use - hak_usable_size(blocks[i]) : in_use;
        if (i % 4 == 0) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    REQUIRE_SIZE(stats_now().bytes_in_use, ==, in_use);
    for (size_t i = 0; i < blocks_count; i++) { /* the freed ones' superslabs serve again */
        if (blocks[i] == NULL) {
            blocks[i] = hak_malloc(block_size(i));
            REQUIRE(blocks[i] != NULL);
            block_fill(blocks[i], block_size(i), i);
        }
    }
    for (size_t i = 0; i < blocks_count; i++) {
        size_t size = block_size(i);
        size_t next = i % 2 == 0 ? size + MIB : i % 3 == 0 ? size / 3 : size - MIB / 2;
        blocks[i] = hak_realloc(blocks[i], next);
        REQUIRE(blocks[i] != NULL);
        block_check(blocks[i], next < size ? 0 : size, i);
    }
    FREE_ALL(blocks, blocks_count);
}

/* 300 MiB: the tables' first step is 128. */
static void use_small_blocks(size_t size)
{
    struct node {
        struct node *next;
    } *head = NULL;
    for (size_t bytes = 0; bytes < 300 * MIB; bytes += size) {
        struct node *node = hak_malloc(size);
        REQUIRE(node != NULL);
        node->next = head;
        head = node;
    }
    while (head != NULL) {
        struct node *next = head->next;
        hak_free(head);
        head = next;
    }
}

static void work_without_mappings(void *argument)
{
    bool *over = argument;
    hak_free(hak_malloc(100)); /* the library has begun */
    if (!use_up_mappings(*over)) {
        return;
    }
    use_small_blocks(12000);
    use_small_blocks(300000);
    use_blocks(BLOCKS);
    use_blocks(BLOCKS);
}

TEST(exactly)
{
    bool over = false;
    SKIP_IF(SUPPORT_SANITIZED); /* their own mappings come from the same limit */
    REQUIRE_LIFE(work_without_mappings, &over, NULL);
}

/* mmap allows one more than mprotect does. */
TEST(one_over)
{
    bool over = true;
    SKIP_IF(SUPPORT_SANITIZED); /* their own mappings come from the same limit */
    REQUIRE_LIFE(work_without_mappings, &over, NULL);
}

TESTS(NULL)
