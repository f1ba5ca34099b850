/* SPDX-License-Identifier: MIT */
/* test_malloc_check.c: at level 2 the slow path of malloc looks at the first object of a bin and at
 * its link before it follows it, as the fast path does. */
#include "../child.h"
#include "unit.h"

#include "core/size_class.h"
#include "front/slow.h"

/* One byte of a link is overwritten, so that it leads to an address that is not mapped. */
static void break_one_byte(void *argument)
{
    uint32_t class_index = size_class_of(100);
    char *blocks[20];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hide(hak_malloc(100));
    }
    const struct bin *bin = &hak__thread->cache.bins[class_index];
    for (size_t i = 0; bin->head == NULL || object_next(bin->head) == NULL; i++) {
        REQUIRE(i < COUNT_OF(blocks));
        hak_free(blocks[i]);
    }
    struct object *first = bin->head;
    ((char *)hide(first))[4] ^= 0x55;
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = hide(hak__malloc_class(class_index, 100));
    }
}

TEST(broken_link)
{
    if (HAK_LEVEL >= 2) { /* other builds follow the link, and may end by SIGSEGV */
        REQUIRE_DEATH(break_one_byte, NULL, "^hakmem: fatal: .*corrupted.*pointer 0x[0-9a-f]+");
    }
}

TESTS(NULL)
