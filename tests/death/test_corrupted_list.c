/* SPDX-License-Identifier: MIT */
/* test_corrupted_list.c: a program that writes to memory it has freed is told so when that memory
 * is to be handed out again, and no address that a program has written there is ever handed out. */
#include "../child.h"
#include "../threads/threads.h"

#include <hakmem/heap.h>

struct corruption {
    size_t size;
    int byte;
    bool use_next; /* allocate afterwards; else give the lists back */
};

static void write_after_free(void *argument)
{
    const struct corruption *corruption = argument;
    char *blocks[12], *others[12]; /* these stay, and with them their slabs */
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hide(hak_malloc(corruption->size));
        others[i] = hide(hak_malloc(corruption->size));
        REQUIRE(blocks[i] != NULL && others[i] != NULL);
    }
    FREE_ALL(blocks, COUNT_OF(blocks));
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        memset(hide(blocks[i]), corruption->byte, 16);
    }
    if (corruption->use_next) {
        for (size_t i = 0; i < 2 * COUNT_OF(blocks); i++) {
            blocks[0] = hide(hak_malloc(corruption->size));
        }
    }
    hak_trim(0);
}

TEST(write_after_free)
{
    static struct corruption cases[] = {{16, 'A', true},    {16, 'A', false},  {100, 0xff, true},
                                        {100, 0xff, false}, {1000, 'x', true}, {5000, 'A', true},
                                        {5000, 1, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (HAK_LEVEL < 2 && !cases[i].use_next) {
            continue; /* only the checks of level 2 look at lists that nobody uses */
        }
        REQUIRE_DEATH(write_after_free, &cases[i],
                      "^hakmem: fatal: .*corrupted.*pointer 0x[0-9a-f]+");
    }
}

/* Links that lead in a circle, in malloc's lists or a heap's, also beyond what a flush looks at
 * together: no check follows them for ever. */
struct circle {
    size_t count;
    hak_heap *heap; /* NULL: malloc's */
};

static char *circle_allocate(const struct circle *circle)
{
    return hide(circle->heap != NULL ? hak_heap_malloc(circle->heap, 64) : hak_malloc(64));
}

static void circle_free(const struct circle *circle, void *block)
{
    if (circle->heap != NULL) {
        hak_heap_free(circle->heap, block);
    } else {
        hak_free(block);
    }
}

static void close_circle(void *argument)
{
    const struct circle *circle = argument;
    static char *blocks[300];
    char *last = circle_allocate(circle);
    for (size_t i = 0; i < circle->count; i++) {
        blocks[i] = circle_allocate(circle);
        REQUIRE(blocks[i] != NULL);
    }
    for (size_t i = 0; i < circle->count; i++) {
        circle_free(circle, blocks[i]);
    }
    *(char **)hide(blocks[0]) = blocks[circle->count - 1];
    alarm(240);
    circle_free(circle, last);
    for (size_t i = 0; i < 2 * circle->count; i++) {
        blocks[0] = circle_allocate(circle);
    }
}

TEST(circle)
{
    struct circle cases[] = {
        {12, NULL}, {300, NULL}, {12, hak_heap_create(NULL)}, {300, hak_heap_create(NULL)}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(close_circle, &cases[i],
                      "^hakmem: fatal: .*(corrupted|double free).*pointer 0x");
    }
}

/* One word of a freed object is overwritten: with a forged link, or with what an overflow of the
 * object before would put there. The program must end before malloc returns the forged address. */
struct one_word {
    size_t size;
    size_t word;
    bool other_thread; /* it frees the objects, so that they come back through the remote word */
};

static char *freed[64], *kept[64]; /* what is kept keeps the slabs: an empty one is given back */

static void *free_them(void *argument)
{
    FREE_ALL(freed, COUNT_OF(freed));
    return argument;
}

static void forge_one_word(void *argument)
{
    static char target[64] __attribute__((aligned(16)));
    const struct one_word *forged = argument;
    for (size_t i = 0; i < COUNT_OF(freed); i++) {
        freed[i] = hide(hak_malloc(forged->size));
        kept[i] = hide(hak_malloc(forged->size));
        REQUIRE(freed[i] != NULL && kept[i] != NULL);
    }
    if (forged->other_thread) {
        thread_join(thread_start(free_them, NULL));
    } else {
        free_them(NULL);
    }
    for (size_t i = 0; i < COUNT_OF(freed); i++) {
        ((char **)hide(freed[i]))[forged->word] = target;
    }
    for (size_t i = 0; i < 2 * COUNT_OF(freed); i++) {
        REQUIRE(hide(hak_malloc(forged->size)) != target);
    }
}

TEST(one_word)
{
    static struct one_word cases[] = {{16, 0, false},   {16, 1, false},  {100, 0, false},
                                      {100, 1, false},  {1000, 0, true}, {1000, 1, true},
                                      {5000, 0, false}, {5000, 1, true}, {30000, 0, true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(forge_one_word, &cases[i], "^hakmem: fatal: .*corrupted.*pointer 0x");
    }
}

TESTS(NULL)
