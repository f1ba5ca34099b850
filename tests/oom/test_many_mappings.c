/* SPDX-License-Identifier: MIT */
/* test_many_mappings.c: very many large blocks leave a tenth of the mappings that the kernel allows
 * to the program, whichever are freed first: threads start, memory goes back, and blocks of any
 * size can be had.
 *
 * ctest: no-qemu lock=memory
 */
#include "../child.h"

#include <pthread.h>
#include <sys/mman.h>

/* More blocks than hakmem has mappings for: assertion level 2 allows itself 256. */
enum { ALLOWED = HAK_LEVEL >= 2 ? 256 : 58977, BLOCKS = ALLOWED + ALLOWED / 4, OTHERS = 300 };

static void *use_a_little(void *argument)
{
    void *block = hak_malloc(100);
    REQUIRE(block != NULL);
    hak_free(block);
    return argument;
}

/* Blocks of all kinds can be had, and a thread starts. */
static void check_all_goes_on(void)
{
    static const size_t sizes[] = {100, 40000, 700000, 2 * MIB, 2200000, 5 * MIB, 33 * MIB};
    pthread_t thread;
    REQUIRE_SIZE(mappings_count(), <=, ALLOWED + OTHERS);
    REQUIRE(pthread_create(&thread, NULL, use_a_little, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *blocks[20];
        for (size_t k = 0; k < COUNT_OF(blocks); k++) {
            blocks[k] = k % 2 == 0 ? hak_malloc(sizes[i]) : hak_calloc(1, sizes[i]);
            REQUIRE(blocks[k] != NULL);
            pattern_fill(blocks[k], 64, k);
        }
        for (size_t k = 0; k < COUNT_OF(blocks); k++) {
            size_t size = k % 3 == 0 ? sizes[i] / 2 : sizes[i] + sizes[i] / 3;
            blocks[k] = hak_realloc(blocks[k], size);
            REQUIRE(blocks[k] != NULL && pattern_mismatch(blocks[k], 32, k) == SIZE_MAX);
        }
        FREE_ALL(blocks, COUNT_OF(blocks));
    }
    REQUIRE_SIZE(mappings_count(), <=, ALLOWED + OTHERS);
}

static void hold_many_blocks(void *argument)
{
    size_t size = *(size_t *)argument;
    char **blocks = support_map(BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
        blocks[i][size / 2] = (char)i;
    }
    check_all_goes_on();
    for (size_t i = 0; i < BLOCKS; i += 2) {
        hak_free(blocks[i]);
    }
    check_all_goes_on();
    hak_trim(0);
    check_all_goes_on();
    for (size_t i = 1; i < BLOCKS; i += 2) {
        REQUIRE(blocks[i][size / 2] == (char)i);
        hak_free(blocks[i]);
    }
    hak_trim(0);
    REQUIRE_SIZE(mappings_count(), <=, OTHERS + ALLOWED / 8);
    check_all_goes_on();
}

static void run(size_t size)
{
    SKIP_IF(SUPPORT_SANITIZED); /* their own mappings come from the same limit */
    REQUIRE_LIFE(hold_many_blocks, &size, NULL);
}

/* The kernel joins them, and each hole between two is a mapping more. */
TEST(blocks_side_by_side)
{
    run(2200000);
}

/* They begin at huge pages' boundaries, so each is a mapping of its own. */
TEST(blocks_apart)
{
    run(5 * MIB);
}

TESTS(NULL)
