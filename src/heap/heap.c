/* heap.c: all heaps, and which of them a thread joins. See heap.h. */
#include "heap/heap.h"

#include "core/knobs.h"
#include "os/os.h"

struct lock hak__heaps_lock = LOCK_INITIAL(LOCK_RANK_HEAPS);
static struct heap *shared_heap_first; /* pushed under HEAPS, read by anyone */
/* Under HEAPS. */
static uint32_t heap_next_id = 1;      /* id 0 is nobody */
static uint32_t heap_without_threads;  /* how many */
static uint32_t heap_joined_count;     /* threads that draw from any */
static struct heap *heap_next_to_join; /* NULL: the first of the list */

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
    atomic_store_relaxed(&heap->threads_count, count);
}

static void heap_add_thread(struct heap *heap)
{
    heap_without_threads -= heap->threads_count == 0;
    heap_joined_count++;
    heap_set_threads(heap, heap->threads_count + 1);
}

bool hak__heap_is_to_spare(void)
{
    lock_acquire(&hak__heaps_lock);
    bool spare = heap_without_threads != 0 || heap_next_id - 1 < hak__knobs.heaps_crowded_max;
    lock_release(&hak__heaps_lock);
    return spare;
}

/* The next in turn with no more threads than the others have on average: there is always one, and
 * it is found by a step or two. When heaps without threads are left, one of those. NULL: a new one
 * is due, as there are fewer than `heaps_max`. Under HEAPS. */
static struct heap *heap_choose(uint32_t heaps_max)
{
    if (heap_without_threads == 0 && heap_next_id - 1 < heaps_max) {
        return NULL;
    }
    uint32_t most = heap_without_threads != 0 ? 0 : heap_joined_count / (heap_next_id - 1);
    for (;;) {
        struct heap *heap = heap_next_to_join != NULL ? heap_next_to_join : shared_heap_first;
        heap_next_to_join = heap->next;
        if (heap->threads_count <= most) {
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

/* Of the first heap, beside what each process touches: a small one has no page more for them. */
static struct slab_totals heap_first_totals[CLASS_COUNT];

/* Under HEAPS. */
static void heap_list(struct heap *heap, struct slab_totals *totals)
{
    heap->slabs.totals = totals;
    heap->id = heap_next_id++;
    heap->slabs.key = heap->id << OWNER_CODE_BITS;
    heap->lock = (struct lock){0, LOCK_RANK_HEAP};
    heap->next = shared_heap_first;
    heap_without_threads++;
    heap_add_thread(heap);
    heap_next_to_join = heap->next; /* not the one that was just made */
    /* release: pairs with the acquire in hak__heap_first */
    atomic_store_release(&shared_heap_first, heap);
}

struct heap *hak__heap_join(uint32_t heaps_max)
{
    struct heap *heap = heap_join_existing(heaps_max);
    if (heap != NULL) {
        return heap;
    }
    bool first = hak__heap_first() == NULL;
    struct heap *made = hak__metadata_allocate(sizeof *made);
    struct slab_totals *totals =
        first ? heap_first_totals : hak__metadata_allocate(sizeof heap_first_totals);
    if (made == NULL || totals == NULL) {
        return heap_join_existing(1); /* any, if there is one */
    }
    lock_acquire(&hak__heaps_lock);
    /* again: others were here at the same moment, and faster */
    heap = heap_choose(heaps_max);
    if (heap != NULL) {
        heap_add_thread(heap); /* what was made is lost: once a process, 3 KiB a thread */
    } else if (heap_next_id <= HEAP_ID_MAX && first == (shared_heap_first == NULL)) {
        heap = made;
        heap_list(heap, totals);
    }
    lock_release(&hak__heaps_lock);
    return heap != NULL || !first ? heap : hak__heap_join(heaps_max);
}

void hak__heap_part(struct heap *heap)
{
    lock_acquire(&hak__heaps_lock);
    uint32_t left = heap->threads_count - 1;
    heap_joined_count--;
    heap_set_threads(heap, left);
    if (left == 0) {
        heap_without_threads++;
        heap_next_to_join = heap; /* its slabs are the warmest */
    }
    lock_release(&hak__heaps_lock);
    if (left == 0) {
        hak__heap_collect(heap, true);
    }
}

void hak__heap_part_all_but(const struct heap *own)
{
    heap_joined_count = 0;
    heap_without_threads = 0;
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        heap_set_threads(heap, 0);
        heap_without_threads++;
        if (heap == own) {
            heap_add_thread(heap);
        }
    }
}
