/* SPDX-License-Identifier: MIT */
/* heap.c: the list of heaps, and which heap a thread joins. See heap.h. */
#include "heap/heap.h"

#include "core/knobs.h"
#include "os/os.h"
#include "region/superslab.h"
#include "slab/slab_inherited.h"

struct lock HAK_LOCK_LINE hak__heaps_lock = LOCK_INITIAL(LOCK_RANK_HEAPS);
static struct heap *shared_heap_first; /* pushed under HEAPS, read by any thread */
/* The rest is under HEAPS. */
static uint32_t heap_next_id = 1; /* id 0 means no heap */
static struct heap *heap_apart;   /* for long-lived objects; NULL: not made yet */
/* These do not count that one, nor inherited ones. */
static uint32_t heap_count;            /* heaps */
static uint32_t heap_without_threads;  /* heaps that no thread draws from */
static uint32_t heap_joined_count;     /* threads that draw from a heap */
static struct heap *heap_next_to_join; /* where the search starts; NULL: the first of the list */

struct heap *hak__heap_first(void)
{
    /* acquire: pairs with the release in heap_list */
    return atomic_load_acquire(&shared_heap_first);
}

/* Under HEAPS. Other heaps' threads look at the patience, reports at the count. */
static void heap_set_threads(struct heap *heap, uint32_t count)
{
    uint32_t patience = count == 0 ? NOTIFIED_PENDING_MAX_PARKED : NOTIFIED_PENDING_MAX;
    atomic_store_relaxed(&heap->slabs.shared_patience, patience);
    atomic_store_relaxed(&heap->slabs.shared_threads, count);
    atomic_store_relaxed(&heap->threads_count, count);
}

static bool heap_is_counted(const struct heap *heap)
{
    return !heap->apart && !heap_is_inherited(heap);
}

static void heap_add_thread(struct heap *heap)
{
    if (heap_is_counted(heap)) {
        heap_without_threads -= heap->threads_count == 0;
        heap_joined_count++;
    }
    heap_set_threads(heap, heap->threads_count + 1);
}

bool hak__heap_is_to_spare(void)
{
    lock_acquire(&hak__heaps_lock);
    bool spare = heap_without_threads != 0 || heap_count < hak__knobs.heaps_crowded_max;
    lock_release(&hak__heaps_lock);
    return spare;
}

/* Chooses a heap for a thread that found its own stuck (HEAP_ESCAPE): the one of its memory node
 * with the fewest threads that is not stuck. The result is NULL, for a new heap, if that one has
 * threads and there may be more heaps; if all are stuck there may be one more than usual. Else it
 * is any. Under HEAPS. */
static struct heap *heap_choose_free(void)
{
    struct heap *best = NULL, *any = NULL;
    uint32_t most = hak__knobs.heaps_crowded_max;
    for (struct heap *heap = shared_heap_first; heap != NULL; heap = heap->next) {
        if (!heap_is_counted(heap)) {
            continue;
        }
        any = heap;
        bool near = heap->node == numa_node();
        if (near && !hak__lock_is_stuck(&heap->lock) &&
            (best == NULL || heap->threads_count < best->threads_count)) {
            best = heap;
        }
    }
    if (best != NULL) {
        return best->threads_count != 0 && heap_count < most ? NULL : best;
    }
    return heap_count <= most ? NULL : any;
}

/* As heap_choose, among the heaps of the calling thread's memory node. Heaps of other nodes that
 * have no threads do not count: their memory is there. Under HEAPS. */
static struct heap *heap_choose_near(uint32_t heaps_max)
{
    struct heap *best = NULL;
    for (struct heap *heap = shared_heap_first; heap != NULL; heap = heap->next) {
        bool near = heap_is_counted(heap) && heap->node == numa_node();
        if (near && (best == NULL || heap->threads_count < best->threads_count)) {
            best = heap;
        }
    }
    bool more = heap_count - heap_without_threads < heaps_max;
    return best != NULL && best->threads_count != 0 && more ? NULL : best;
}

/* Chooses a heap for one more thread. A heap without threads comes first. Else the result is NULL,
 * for a new heap, while there are fewer than `heaps_max`. Else it is the next heap in turn with no
 * more threads than the average: there is always one, usually after a step or two. Under HEAPS. */
static struct heap *heap_choose(uint32_t heaps_max)
{
    if (HAK_UNLIKELY(heaps_max == HEAP_ESCAPE)) {
        return heap_choose_free();
    }
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__numa_several)) && heaps_max > 1) {
        return heap_choose_near(heaps_max);
    }
    if (heap_without_threads == 0 && heap_count < heaps_max) {
        return NULL;
    }
    uint32_t most = heap_without_threads != 0 ? 0 : heap_joined_count / heap_count;
    for (;;) {
        struct heap *heap = heap_next_to_join != NULL ? heap_next_to_join : shared_heap_first;
        heap_next_to_join = heap->next;
        if (heap_is_counted(heap) && heap->threads_count <= most) {
            return heap;
        }
    }
}

static struct heap *heap_join_existing(uint32_t heaps_max)
{
    lock_acquire(&hak__heaps_lock);
    struct heap *heap = heap_choose(heaps_max);
    if (heap != NULL) {
        heap_add_thread(heap);
    }
    lock_release(&hak__heaps_lock);
    return heap;
}

/* The totals of the first heap. They lie beside data that every process touches, so a small process
 * touches no further page for them. */
static struct slab_totals heap_first_totals[CLASS_COUNT];

/* Adds a heap to the list, with its first thread. Under HEAPS. */
static void heap_list(struct heap *heap, struct slab_totals *totals)
{
    heap->slabs.totals = totals;
    heap->id = heap_next_id++;
    heap->node = numa_node();
    heap->slabs.key = heap->id << OWNER_CODE_BITS;
    heap->slabs.part =
        heap->apart ? hak__superslab_part_near(heap->node) : hak__superslab_part_for(heap->node);
    heap->spans.part = heap->slabs.part;
    heap->lock = (struct lock)LOCK_INITIAL(LOCK_RANK_HEAP);
    heap->slabs.lock = &heap->lock;
    heap->next = shared_heap_first;
    if (!heap->apart) {
        heap_count++;
        heap_without_threads++;
    }
    heap_add_thread(heap);
    heap_next_to_join = heap->next; /* the next thread joins another one */
    /* release: pairs with the acquire in hak__heap_first */
    atomic_store_release(&shared_heap_first, heap);
}

/* If there can be no further heap: any heap that exists, an inherited one if there is no other. */
static struct heap *heap_join_any(void)
{
    struct heap *heap = heap_join_existing(1);
    if (heap == NULL && window_inherits()) {
        lock_acquire(&hak__heaps_lock);
        heap = shared_heap_first;
        hak__slab_draw(&heap->slabs);
        heap_add_thread(heap);
        lock_release(&hak__heaps_lock);
    }
    return heap;
}

struct heap *hak__heap_join(uint32_t heaps_max)
{
    (void)hak__numa_look();
    struct heap *heap = heap_join_existing(heaps_max);
    if (heap != NULL) {
        return heap;
    }
    bool first = hak__heap_first() == NULL;
    struct heap *made = hak__metadata_allocate(sizeof *made);
    struct slab_totals *totals =
        first ? heap_first_totals : hak__metadata_allocate(sizeof heap_first_totals);
    if (made == NULL || totals == NULL) {
        return heap_join_any();
    }
    lock_acquire(&hak__heaps_lock);
    /* Other threads may have joined or added heaps meanwhile, so the choice is made again. */
    heap = heap_choose(heaps_max);
    if (heap != NULL) {
        /* The memory for the new heap, about 3 KiB, is lost. Only threads that race for the last
         * new heap lose it. */
        heap_add_thread(heap);
    } else if (heap_next_id <= HEAP_ID_MAX && first == (shared_heap_first == NULL)) {
        heap = made;
        heap_list(heap, totals);
    }
    lock_release(&hak__heaps_lock);
    if (heap != NULL) {
        return heap;
    }
    return first ? hak__heap_join(heaps_max) : heap_join_any(); /* not first: no id is left */
}

/* Memory for the heap of long-lived objects. */
struct heap_with_totals {
    struct heap heap;
    struct slab_totals totals[CLASS_COUNT];
};

struct heap *hak__heap_join_apart(void)
{
    struct heap_with_totals *made = NULL;
    lock_acquire(&hak__heaps_lock);
    bool may_make = heap_apart == NULL && heap_next_id <= HEAP_ID_MAX;
    lock_release(&hak__heaps_lock);
    if (may_make) {
        made = hak__metadata_allocate(sizeof *made); /* lost if threads race here, once */
    }
    lock_acquire(&hak__heaps_lock);
    if (heap_apart != NULL) {
        heap_add_thread(heap_apart);
    } else if (made != NULL && heap_next_id <= HEAP_ID_MAX) {
        heap_apart = &made->heap;
        heap_apart->apart = true;
        heap_list(heap_apart, made->totals);
    }
    struct heap *heap = heap_apart;
    lock_release(&hak__heaps_lock);
    return heap;
}

void hak__heap_part(struct heap *heap)
{
    lock_acquire(&hak__heaps_lock);
    uint32_t left = heap->threads_count - 1;
    bool counted = heap_is_counted(heap);
    heap_joined_count -= counted ? 1 : 0;
    heap_set_threads(heap, left);
    if (left == 0 && counted) {
        heap_without_threads++;
        heap_next_to_join = heap; /* its memory was used last, so it is warm */
    }
    lock_release(&hak__heaps_lock);
    if (left == 0) {
        hak__heap_collect(heap, true);
    }
}

void hak__heap_inherit_all(void)
{
    bool first = true;
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        heap_set_threads(heap, 0);
        heap->lock.rank = LOCK_RANK_INHERITED;
        hak__slab_inherit(&heap->slabs, first);
        first = false;
    }
    heap_apart = NULL;
    heap_count = 0;
    heap_without_threads = 0;
    heap_joined_count = 0;
    heap_next_to_join = NULL;
    hak__window.inherited = (heap_next_id - 1) << OWNER_CODE_BITS;
    hak__superslab_inherit();
}
