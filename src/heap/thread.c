/* thread.c: what this thread works with: birth, end, and borrowing after the end. See heap.h. */
#include "core/knobs.h"
#include "heap/heap.h"
#include "os/os.h"
#include "region/huge.h"
#include "region/superslab.h"

/* Constants, but the pointer to a thread's struct is to one that can be written. */
const struct thread hak__thread_none = {.cache = {.key = CACHE_KEY_NONE}};
const struct thread hak__thread_ended = {.cache = {.key = CACHE_KEY_NONE}};
HAK_TLS struct thread *hak__thread = (struct thread *)(uintptr_t)&hak__thread_none;

static struct thread *shared_thread_first; /* pushed under HEAPS, read by anyone */
static struct thread *thread_parked;       /* stack, under HEAPS */

struct thread *hak__thread_first(void)
{
    /* acquire: pairs with the release in thread_make */
    return atomic_load_acquire(&shared_thread_first);
}

static void thread_push_parked(struct thread *thread)
{
    atomic_store_relaxed(&thread->heap, NULL);
    thread->next_parked = thread_parked;
    thread_parked = thread;
}

static struct thread *thread_pop_parked(void)
{
    lock_acquire(&hak__heaps_lock);
    struct thread *thread = thread_parked;
    if (thread != NULL) {
        thread_parked = thread->next_parked;
    }
    lock_release(&hak__heaps_lock);
    return thread;
}

static struct thread *thread_make(void)
{
    struct thread *thread = hak__metadata_allocate(sizeof *thread);
    if (thread != NULL) {
        lock_acquire(&hak__heaps_lock);
        thread->next = shared_thread_first;
        /* release: pairs with the acquire in hak__thread_first */
        atomic_store_release(&shared_thread_first, thread);
        lock_release(&hak__heaps_lock);
    }
    return thread;
}

static void thread_draw_from(struct thread *thread, struct heap *heap)
{
    lock_acquire(&hak__heaps_lock);
    hak__cache_start(&thread->cache, &heap->slabs);
    atomic_store_relaxed(&thread->heap, heap); /* read by reports */
    lock_release(&hak__heaps_lock);
}

struct thread *hak__thread_adopt(void)
{
    /* the heap first: what a small process touches of the two then lies in one page */
    struct heap *heap = hak__heap_join(hak__knobs.heaps_max);
    if (heap == NULL) {
        return NULL;
    }
    struct thread *thread = thread_pop_parked();
    if (thread == NULL) {
        thread = thread_make();
    }
    if (thread == NULL) {
        hak__heap_part(heap);
        return NULL;
    }
    thread_draw_from(thread, heap);
    thread->trimmed_ms = hak__os_clock_ms();
    return thread;
}

void hak__thread_flush(struct thread *thread)
{
    lock_acquire(&thread->heap->lock);
    hak__cache_flush(&thread->cache);
    lock_release(&thread->heap->lock);
    hak__remote_flush(&thread->cache); /* after the bins: they may have kept others' objects */
    /* an owner that the last batches found lagging: nobody may come by after them */
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        hak__heap_help(thread);
    }
}

void hak__thread_park(struct thread *thread)
{
    struct heap *heap = thread->heap;
    hak__thread_flush(thread);
    lock_acquire(&hak__heaps_lock);
    thread_push_parked(thread);
    lock_release(&hak__heaps_lock);
    hak__heap_part(heap);
}

/* A thread that keeps finding its heap's lock taken draws from another from now on, if there is one
 * to spare. What it has in use stays where it is. No lock held. */
static void thread_move_if_crowded(struct thread *thread)
{
    struct heap *heap = thread->heap;
    uint32_t now = hak__os_clock_ms();
    bool crowded = now - thread->waits_ms <= CROWDED_MS;
    thread->waits = 0;
    thread->waits_ms = now;
    if (!crowded || atomic_load_relaxed(&heap->threads_count) == 1 || !hak__heap_is_to_spare()) {
        return;
    }
    struct heap *other = hak__heap_join(hak__knobs.heaps_crowded_max);
    if (other != NULL) {
        hak__thread_flush(thread);
        thread_draw_from(thread, other);
        hak__heap_part(heap);
    }
}

void hak__thread_abandon_others(const struct thread *own)
{
    thread_parked = NULL; /* anew: a thread of the parent may just have taken one off */
    for (struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        if (thread != own) {
            hak__cache_abandon(&thread->cache);
            thread_push_parked(thread);
        }
    }
}

/* The first slow operation of a thread. NULL: no memory, or the thread must borrow. */
static HAK_COLD struct thread *thread_birth(void)
{
    if (!hak__start() || !hak__start_has_key()) {
        return NULL;
    }
    struct thread *thread = hak__thread_adopt();
    if (thread == NULL) {
        return NULL;
    }
    /* Before the C library is told: setting a late key allocates, and finds this one then. */
    hak__thread = thread;
    if (!hak__start_watch_thread(thread)) {
        hak__thread_end(thread); /* nobody would park it at the thread's end: borrow from now on */
        return NULL;
    }
    return thread;
}

struct thread *hak__thread_current(void)
{
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread != &hak__thread_none && thread != &hak__thread_ended)) {
        return thread;
    }
    return thread == &hak__thread_none ? thread_birth() : NULL;
}

struct thread *hak__thread_enter(void)
{
    struct thread *thread = hak__thread_current();
    if (HAK_UNLIKELY(thread == NULL)) {
        if (!hak__start() || (thread = hak__thread_adopt()) == NULL) {
            return NULL;
        }
    }
    lock_acquire(&thread->heap->lock);
    return thread;
}

static HAK_NOINLINE void thread_tick(struct thread *thread, uint32_t tick)
{
    if (HAK_UNLIKELY(tick % CLOCK_OPERATIONS == 0) &&
        (tick % TICK_OPERATIONS == 0 || hak__heap_tick_is_late(thread))) {
        /* A thread that does other things frees less remotely: what it has gathered is not to keep
         * others' slabs from getting empty. */
        hak__remote_flush(&thread->cache);
        hak__heap_tick(thread);
        if (HAK_UNLIKELY(thread->waits >= CROWDED_WAITS)) {
            thread_move_if_crowded(thread);
        }
    } else if (HAK_UNLIKELY(tick % PURGE_OPERATIONS == 0) && hak__superslab_purge_is_under_way()) {
        hak__superslab_purge_part(false, PURGE_BYTES_AT_ONCE);
    }
}

void hak__thread_count_operation(struct thread *thread)
{
    hak__limit_notice(); /* at every slow operation: one may map any amount */
    uint32_t tick = ++thread->cache.tick;
    if (HAK_UNLIKELY(tick % CLOCK_OPERATIONS == 0 || hak__superslab_purge_is_under_way())) {
        thread_tick(thread, tick);
    }
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        hak__heap_help(thread);
    }
    if (HAK_UNLIKELY(huge_is_watched())) {
        hak__huge_look();
    }
}

void hak__thread_count_batch(struct thread *thread)
{
    if (HAK_UNLIKELY(++thread->batches % TICK_OPERATIONS == 0)) {
        hak__heap_tick(thread);
    }
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        hak__heap_help(thread);
    }
}

void hak__thread_leave(struct thread *thread)
{
    lock_release(&thread->heap->lock);
    hak__thread_left(thread);
}

void hak__thread_left(struct thread *thread)
{
    if (HAK_UNLIKELY(thread != hak__thread)) {
        hak__huge_forget(false);  /* this thread does not look again */
        hak__thread_park(thread); /* it was borrowed */
        return;
    }
    hak__thread_count_operation(thread);
}

void hak__thread_end(void *value)
{
    /* Another C library in the process (dlmopen) may have put its own value in the key's place. */
    (void)value;
    struct thread *thread = hak__thread;
    if (thread == &hak__thread_none || thread == &hak__thread_ended) {
        return;
    }
    /* Destructors that run after this one, and the C library's own clean-up, still allocate and
     * free: they borrow. */
    hak__thread = (struct thread *)(uintptr_t)&hak__thread_ended;
    hak__huge_forget(false);
    hak__thread_park(thread);
}
