/* SPDX-License-Identifier: MIT */
/* test_heap_misuse.c: mistakes with heaps (hakmem/heap.h) end the process with a
 * message that names them. */
#include "../child.h"

#include <hakmem/heap.h>

static void destroyed(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL);
    void *object = hak_heap_malloc(heap, 100);
    hak_heap_destroy(heap);
    switch (*(int *)argument) {
    case 0:
        (void)!hak_heap_malloc(heap, 100);
        break;
    case 1:
        (void)!hak_heap_malloc(heap, 100000);
        break;
    case 2:
        hak_heap_free(heap, object);
        break;
    case 3:
        hak_heap_free_sized(heap, object, 1, 100);
        break;
    case 4:
        hak_heap_trim(heap);
        break;
    case 5:
        hak_heap_destroy(heap);
        break;
    default:
        (void)hak_heap_usable_size(heap, object);
    }
}

TEST(use_of_a_destroyed_heap)
{
    for (int i = 0; i < 7; i++) {
        REQUIRE_DEATH(destroyed, &i,
                      "^hakmem: fatal: use of a destroyed heap: pointer 0x[0-9a-f]+");
    }
}

static void free_twice(void *argument)
{
    size_t size = *(size_t *)argument;
    hak_heap *heap = hak_heap_create(NULL);
    void *object = hak_heap_malloc(heap, size);
    hak_heap_free(heap, object);
    hak_heap_free(heap, hide(object));
}

static void free_twice_apart(void *argument)
{
    size_t size = *(size_t *)argument;
    hak_heap *heap = hak_heap_create(NULL);
    void *objects[40];
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = hide(hak_heap_malloc(heap, size));
    }
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        hak_heap_free(heap, objects[i]);
    }
    hak_heap_free(heap, hide(objects[20]));
    hak_heap_trim(heap);
    for (size_t i = 0; i < 10 * COUNT_OF(objects); i++) {
        (void)!hak_heap_malloc(heap, size);
    }
}

TEST(double_free)
{
    static size_t sizes[] = {1, 16, 100, 1024, 5000, 65536, 100000, MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (sizes[i] < 100000) {
            REQUIRE_DEATH(free_twice, &sizes[i], "^hakmem: fatal: .*double free");
        }
    }
    for (size_t i = 0; i < 4; i++) {
        REQUIRE_DEATH(free_twice_apart, &sizes[i], "^hakmem: fatal: .*");
    }
}

static void free_block_twice(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL);
    void *keep = hak_heap_malloc(heap, 10); /* else the chunk goes back, and with it its memory */
    void *block = hak_heap_malloc(heap, 100000);
    hak_heap_free(heap, block);
    hak_heap_free(heap, hide(block));
    hak_heap_free(heap, keep);
}

static void wrong_heap(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL), *other = hak_heap_create(NULL);
    void *object = hak_heap_malloc(heap, 100);
    (void)!hak_heap_malloc(other, 100);
    hak_heap_free(other, object);
}

static void inside(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL);
    char *block = hak_heap_malloc(heap, 100000);
    hak_free(hide(block + 4096)); /* by the plain function, too */
}

/* Debug builds check at the free, the ordinary one when the bin is returned. */
static void inside_object(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL);
    char *first = hak_heap_malloc(heap, 100), *second = hak_heap_malloc(heap, 100);
    int way = *(int *)argument;
    if (way != 1) {
        hak_heap_free(heap, hide(first + 64));
    }
    memset(second, 0, 100);
    hak_heap_free(heap, first);
    if (way != 2) {
        hak_heap_free(heap, hide(second + 16));
    }
    hak_heap_trim(heap);
}

TEST(invalid_pointers)
{
    const char *said = "^hakmem: fatal: invalid pointer \\(no object of this heap starts here\\)";
    REQUIRE_DEATH(free_block_twice, NULL, said);
    REQUIRE_DEATH(wrong_heap, NULL, said);
    REQUIRE_DEATH(inside, NULL, said);
    for (int way = 0; way < 3; way++) {
        REQUIRE_DEATH(inside_object, &way, "^hakmem: fatal: ");
    }
}

/* The sizes are of other classes: release builds notice when the bin is returned. */
static void free_with_other_size(void *argument)
{
    hak_heap *heap = hak_heap_create(NULL);
    void *object = hak_heap_malloc(heap, 100);
    (void)!hak_heap_malloc(heap, 100); /* keeps the slab */
    hak_heap_free_sized(heap, object, 1, *(size_t *)argument);
    hak_heap_trim(heap);
}

TEST(wrong_sizes)
{
    static size_t sizes[] = {1, 200, 5000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_DEATH(free_with_other_size, &sizes[i],
                      "^hakmem: fatal: (sized free with a size|corrupted free list)");
    }
}

static void *map_unaligned(void *argument, size_t alignment, size_t size)
{
    return (char *)hak_aligned_alloc(alignment, size + alignment) + 4096;
}

static void unaligned(void *argument)
{
    struct hak_heap_pages pages = {map_unaligned, NULL, NULL, NULL};
    struct hak_heap_options options = {.size = sizeof options, .pages = &pages};
    (void)!hak_heap_malloc(hak_heap_create(&options), 10);
}

TEST(provider_that_does_not_align)
{
    REQUIRE_DEATH(unaligned, NULL,
                  "^hakmem: fatal: a heap's page provider returned memory that is not aligned");
}

static bool visit(void *object, size_t size, void *argument)
{
    return true;
}

/* A walk follows the links of free objects, which the program has overwritten. */
enum { INTO_A_LIVE_OBJECT, IN_A_CIRCLE, OUT_OF_THE_HEAP, PLACES };

static void walk_over(void *argument)
{
    static char outside[64] __attribute__((aligned(16)));
    hak_heap *heap = hak_heap_create(NULL);
    char *objects[40];
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = hide(hak_heap_malloc(heap, 64));
        REQUIRE(objects[i] != NULL);
    }
    for (size_t i = 1; i < COUNT_OF(objects); i++) {
        hak_heap_free(heap, objects[i]);
    }
    hak_heap_trim(heap); /* from the bin to the slab */
    char *targets[PLACES] = {objects[0] + 8, objects[COUNT_OF(objects) / 2], outside};
    char *target = targets[*(int *)argument];
    for (size_t i = 1; i < COUNT_OF(objects); i++) {
        *(char **)hide(objects[i]) = target;
    }
    alarm(240);
    hak_heap_walk(heap, visit, NULL);
}

TEST(walk_over_a_corrupted_list)
{
    for (int i = 0; i < PLACES; i++) {
        REQUIRE_DEATH(walk_over, &i, "^hakmem: fatal: (corrupted free list|assertion)");
    }
}

TESTS(NULL)
