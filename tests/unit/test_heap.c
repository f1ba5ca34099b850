/* SPDX-License-Identifier: MIT */
/* test_heap.c: heaps in a signal handler that interrupted an operation of its thread:
 * nothing hangs or is lost. And many empty and full runs of pages, which the checks of assertion
 * level 2 look at. */
#include "../support.h"

#include "hakmem/heap.h"
#include "heap/heap.h"

static size_t objects_in_use(hak_heap *heap)
{
    struct hak_heap_stats stats;
    hak_heap_stats_read(heap, &stats, sizeof stats);
    return stats.objects_in_use_count;
}

/* As a handler finds the thread that it interrupted inside the gate. */
TEST(inside_an_operation)
{
    enum { OBJECTS = 3000 };
    static void *objects[OBJECTS];
    hak_heap *heap = hak_heap_create(NULL), *unused = hak_heap_create(NULL);
    void *block = hak_heap_malloc(heap, 100000), *huge = hak_heap_malloc(heap, MIB);
    void *strange = hak_heap_malloc(unused, 100);
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = hak_heap_malloc(heap, 200);
        assert_non_null(objects[i]);
    }
    struct heap_slot *slot = heap_slot(unused);
    hak__inside = INSIDE_GATE;
    errno = 0;
    assert_null(hak_heap_malloc(heap, 100001)); /* needs the lock */
    assert_int_equal(errno, ENOMEM);
    assert_null(hak_heap_create(NULL));
    hak_heap_free(heap, block);
    hak_heap_free(heap, huge);
    slot->id = 0; /* a thread without a cache for the heap */
    hak_heap_free(unused, strange);
    for (size_t i = 0; i < OBJECTS; i++) {
        hak_heap_free(heap, objects[i]); /* beyond the limit of the bin */
    }
    hak_heap_trim(heap);
    hak_heap_destroy(heap); /* not now */
    assert_false(hak_heap_owns(heap, objects[0]));
    assert_false(hak_heap_move_helps(heap, objects[0]));
    hak__inside = 0;
    hak_heap_trim(heap);
    hak_heap_trim(unused);
    assert_int_equal(objects_in_use(heap), 0);
    assert_int_equal(objects_in_use(unused), 0);
    assert_null(hak__heap_chunk_next(heap, NULL));
    hak_heap_destroy(heap);
    hak_heap_destroy(unused);
}

TESTS(NULL)
