/* SPDX-License-Identifier: MIT */
/* malloc_slow.c: the slow path of malloc.
 *
 *   malloc_slow  up to 65,664 B  -> malloc_class: refills the bin from the arena's slabs: free
 *                                   list, remote frees, carving, a new slab. Above 1,040 B: if a
 *                                   new slab would set a peak, other arenas' free objects come
 *                                   first.
 *                up to 2 MiB     -> malloc_span: the arena's span cache, or a superslab
 *                above           -> malloc_huge: the huge cache, or a new mapping
 *
 *   sampled (arena/sampling.c)   -> observe/samples.h
 *   guarded (arena/sampling.c)   -> observe/guard.h
 *   refused (core/gate.h)        -> the block gets a mapping of its own (large/emergency.h)
 *   no memory                    -> reclaims free memory, tries once more, then NULL with ENOMEM */
#include "arena/arena.h"
#include "base/probe.h"
#include "control/life.h"
#include "front/fast.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "large/emergency.h"
#include "large/empty.h"
#include "observe/guard.h"
#include "observe/samples.h"
#include "os/os.h"
#include "region/mappings.h"

#include <errno.h>
#include <string.h>

/* malloc refers to life.c, so that a program linked with the archive gets that file, too. */
__attribute__((used)) static const bool *const malloc_life = &hak__life_linked;

/* True if a refill of the class raises the peak, although the arena's freed spans have gone back.
 * The caller holds the arena's lock. */
static bool malloc_refill_grows(struct arena *arena, uint32_t class_index)
{
    bool grows = slab_refill_grows(&arena->slabs, class_index);
    if (grows && arena->spans.slices != 0) {
        hak__span_cache_trim(&arena->spans, true);
        grows = slab_refill_grows(&arena->slabs, class_index);
    }
    return grows;
}

/* Finds objects for the empty bin of the class. The caller holds the arena's lock; this function
 * releases it. The caller then links carved objects, which touches new pages, and no other thread
 * should wait for that. */
static struct refill malloc_refill(struct thread *thread, uint32_t class_index)
{
    struct cache *cache = &thread->cache;
    struct arena *arena = thread->arena;
    if (malloc_refill_grows(arena, class_index)) {
        lock_release(&arena->lock); /* borrowing takes a lock of the same rank */
        uint32_t most = hak__cache_refill_most(cache, class_index);
        struct object_list list = hak__arena_borrow(arena, class_index, most);
        if (list.count != 0 || !hak__gate_acquire(&arena->lock)) {
            gate_end();
            if (list.count != 0) {
                counter_add(&cache->counters, COUNTER_REFILL_BORROWED, 1);
                hak__cache_take_over(cache, list);
            }
            return (struct refill){list, 0, false};
        }
    }
    struct refill refill = hak__cache_refill(cache, class_index);
    thread_unlock(thread);
    return refill;
}

static void *malloc_hand_out(void *object, uint32_t class_index, size_t size)
{
    return object_hand_out(object, size_class_bytes(class_index), size, SECURE_MALLOC, false);
}

void *hak__malloc_mid(size_t size, malloc_door *slow, enum secure_state state)
{
    void *object = malloc_try(size, state);
    return HAK_LIKELY(object != NULL) ? object : slow(size);
}

/* Takes the first object of the bin, which is not empty. */
static struct object *malloc_pop_slow(struct thread *thread, uint32_t class_index)
{
    struct bin *bin = &thread->cache.bins[class_index];
    if (HAK_LEVEL >= 2) {
        hak__malloc_check(thread, bin->head, class_index); /* as the fast path does */
    }
    return hak__bin_pop(&thread->cache, class_index);
}

/* Secure form: looks at blocks that nobody frees, often at first, as a mistake of a program's start
 * is told soon then, and later once in 4,096 refills, which is some 1 % of what they cost. */
static void malloc_look_around(const struct thread *thread)
{
    if (HAK_SECURE) {
        uint64_t count = atomic_load_relaxed(&thread->cache.counters.values[COUNTER_MALLOC_SLOW]);
        if (count % 4096 == 0 || bits_is_power_of_two(count)) {
            hak__secure_look_around();
        }
    }
}

static void *malloc_class_once(uint32_t class_index, size_t size)
{
    struct thread *thread = thread_enter();
    if (HAK_UNLIKELY(thread == NULL)) {
        return NULL;
    }
    counter_add(&thread->cache.counters, COUNTER_MALLOC_SLOW, 1);
    struct bin *bin = &thread->cache.bins[class_index];
    /* The bin may have objects. valloc comes here without a look at it. And the first slow
     * operation of a thread calls pthread_setspecific, which may allocate and so fill the bin. */
    if (bin->head != NULL) {
        struct object *object = malloc_pop_slow(thread, class_index);
        thread->cache.bytes.asked += size_class_bytes(class_index);
        hak__thread_leave(thread);
        return malloc_hand_out(object, class_index, size);
    }
    struct refill refill = malloc_refill(thread, class_index);
    void *object = hak__cache_fill(&thread->cache, class_index, refill);
    hak__thread_left(thread);
    malloc_look_around(thread);
    return malloc_hand_out(object, class_index, size);
}

static HAK_COLD void *malloc_failed(size_t size, size_t alignment)
{
    probe_hakmem_allocation_failed(size, alignment);
    struct thread *thread = hak__thread_enter();
    if (thread != NULL) {
        counter_add(&thread->cache.counters, COUNTER_ALLOCATION_FAILED, 1);
        hak__thread_leave(thread);
    }
    errno = ENOMEM;
    return NULL;
}

/* Counts a block that is in no slab of an arena. */
static void malloc_note_block(size_t bytes)
{
    struct thread *thread = hak__thread;
    if (thread->arena != NULL) {
        cache_count_block(&thread->cache, bytes);
    }
}

/* The last resort: emergency memory if this thread was refused, else NULL with ENOMEM. */
static HAK_COLD void *malloc_beside(size_t size, size_t alignment)
{
    size = size == 0 ? 1 : size;
    void *pointer = hak__own.refused ? hak__emergency_allocate(size, alignment) : NULL;
    if (pointer == NULL) {
        return malloc_failed(size, alignment);
    }
    malloc_note_block(hak__emergency_mapped(size));
    return pointer;
}

/* The second attempt, after a reclaim. A refused thread cannot reclaim. */
static HAK_COLD void *malloc_class_again(uint32_t class_index, size_t size)
{
    void *object = NULL;
    if (!hak__own.refused) {
        hak__arena_reclaim(true);
        object = malloc_class_once(class_index, size);
    }
    size_t bytes = size_class_bytes(class_index);
    return object != NULL ? object : malloc_beside(size, bytes & (~bytes + 1));
}

/* Counts a request that the fast path did not count. Returns the period of the sample, or 0. */
static HAK_COLD uint64_t malloc_count_sample(size_t size)
{
    struct thread *thread = hak__thread_current();
    return thread != NULL ? hak__sampling_count(thread, size) : 0;
}

HAK_COLD void hak__malloc_sample_block(void *pointer, size_t size)
{
    uint64_t period = pointer != NULL ? malloc_count_sample(size) : 0;
    if (period != 0) {
        hak__sample_block(pointer, size, hak_usable_size(pointer), period);
    }
}

/* The request may get a block of its own pages. `period`: of its sample, or 0. NULL: not guarded.
 */
static HAK_COLD void *malloc_guarded(uint32_t class_index, size_t size, uint64_t period,
                                     const void *caller)
{
    size_t bytes = size_class_bytes(class_index);
    void *block = hak__sampling_guards(hak__thread, size)
                      ? hak__guard_allocate(size, bytes & (~bytes + 1), caller)
                      : NULL;
    if (block == NULL) {
        return NULL;
    }
    struct thread *thread = hak__thread_enter();
    if (thread != NULL) {
        counter_add(&thread->cache.counters, COUNTER_GUARDED, 1);
        hak__thread_leave(thread);
    }
    if (period != 0) {
        hak__sample_block(block, size, size, period);
    }
    return block;
}

void *hak__malloc_class(uint32_t class_index, size_t size)
{
    struct thread *thread = hak__thread;
    bool counted = thread->cache.countdown < 0; /* by the fast path, which found an object */
    uint64_t period = 0;
    if (counted) {
        period = hak__thread_countdown_ended(thread, size);
        arena_note_request(thread->arena, class_index, size);
        /* as the fast path counted it; the block is counted below */
        thread->cache.bytes.asked -= (int64_t)(size == 0 ? 1 : size);
    } else if (sampling_is_on() || guarding_is_on()) {
        period = malloc_count_sample(size);
    }
    if (guarding_is_on()) {
        void *guarded = malloc_guarded(class_index, size, period, __builtin_return_address(0));
        if (guarded != NULL) {
            malloc_note_block(size);
            return guarded;
        }
    }
    if (HAK_UNLIKELY(period != 0)) {
        void *sampled = hak__sample_object(class_index, size, period);
        if (sampled != NULL) {
            malloc_note_block(size_class_bytes(class_index));
            return malloc_hand_out(sampled, class_index, size);
        }
    }
    struct bin *bin = &thread->cache.bins[class_index];
    if (counted && bin->head != NULL) { /* NULL: a tick has emptied the bin */
        thread->cache.bytes.asked += size_class_bytes(class_index);
        return malloc_hand_out(malloc_pop_slow(thread, class_index), class_index, size);
    }
    hak__own.refused = false; /* forgets a refusal of an earlier operation */
    void *object = malloc_class_once(class_index, size);
    return HAK_LIKELY(object != NULL) ? object : malloc_class_again(class_index, size);
}

static void malloc_count_span(struct thread *thread, const void *pointer)
{
    if (pointer != NULL) {
        cache_count_block(&thread->cache, hak__span_bytes(window_slice_of(pointer)));
    }
}

static struct span malloc_span(size_t size, size_t alignment)
{
    struct span span = {NULL, false};
    struct thread *thread = thread_enter();
    if (HAK_LIKELY(thread != NULL)) {
        struct slab_set *slabs = &thread->arena->slabs;
        /* it needs adjacent slices, between which kept slabs may lie */
        if (slab_keeps(slabs) && !hak__span_is_cached(&thread->arena->spans, size, alignment)) {
            hak__slab_give_kept(slabs, UINT32_MAX);
        }
        span = hak__span_allocate(&thread->arena->spans, &thread->cache.counters, size, alignment);
        thread_unlock(thread);
        malloc_count_span(thread, span.pointer);
        hak__thread_left(thread);
    }
    return span;
}

static struct span malloc_huge(size_t size, size_t alignment, bool want_zero, bool may_map)
{
    struct huge_result block = {NULL, 0, false};
    if (hak__gate_enter(GATE_BRIEFLY)) {
        if (hak__start()) {
            block = hak__huge_allocate(size, alignment, want_zero, may_map);
        }
        hak__gate_leave();
    }
    if (block.pointer != NULL) {
        struct thread *thread = hak__thread_enter();
        if (thread != NULL) {
            counter_add(&thread->cache.counters, COUNTER_HUGE_ALLOCATED, 1);
            cache_count_block(&thread->cache, block.bytes);
            hak__thread_leave(thread);
        }
    }
    return (struct span){block.pointer, block.zeroed};
}

/* A huge block in whole superslabs, without a mapping of its own. */
static struct span malloc_long_span(size_t size, size_t alignment)
{
    struct span span = {NULL, false};
    struct thread *thread = thread_enter();
    if (thread != NULL) {
        hak__span_cache_trim(&thread->arena->spans, true); /* they may lie in these superslabs */
        span = hak__span_allocate_long(&thread->cache.counters, size, alignment);
        thread_unlock(thread);
        malloc_count_span(thread, span.pointer);
        hak__thread_left(thread);
    }
    return span;
}

/* One attempt; pointer NULL: refused, or no memory. If mappings are short (region/mappings.h), a
 * huge block gets cached ranges, else superslabs, else, because the kernel joins mappings side by
 * side, a mapping. */
HAK_INLINE struct span malloc_large_once(size_t size, size_t alignment, bool want_zero)
{
    if (hak__span_serves(size, alignment) && !hak__span_wastes(size, alignment)) {
        return malloc_span(size == 0 ? 1 : size, alignment);
    }
    /* in this order: huge_may_be_span asks the kernel */
    bool may_map = !hak__mappings_are_short() || !huge_may_be_span(size, alignment);
    struct span large = malloc_huge(size, alignment, want_zero, may_map);
    if (large.pointer == NULL && !may_map) {
        large = malloc_long_span(size, alignment);
    }
    return large.pointer != NULL || may_map ? large : malloc_huge(size, alignment, want_zero, true);
}

/* True: the kernel has refused a mapping, and not for want of memory. */
static bool malloc_lacks_mappings(void)
{
    bool lacks = false;
    if (!hak__mappings_are_short() && hak__gate_enter(GATE_BRIEFLY)) {
        lacks = hak__mappings_probe();
        hak__gate_leave();
    }
    return lacks;
}

/* The last resort of a large malloc that is not refused: gathers what is free, and tries once more.
 */
static HAK_COLD struct span malloc_large_again(size_t size, size_t alignment, bool want_zero)
{
    struct span large = {NULL, false};
    if (size >= WINDOW_SIZE_MAX || hak__own.refused) {
        return large; /* a reclaim does not help what is larger than any window */
    }
    /* Nothing is gathered where superslabs serve. Otherwise that comes first: a long span takes
     * more addresses than the huge block, and free superslabs that it leaves between others are of
     * no use to the next one. */
    bool may_be_span = huge_may_be_span(size, alignment);
    if (may_be_span && malloc_lacks_mappings()) {
        large = malloc_large_once(size, alignment, want_zero);
    }
    if (large.pointer == NULL) {
        hak__arena_reclaim(true);
        large = malloc_large_once(size, alignment, want_zero);
    }
    if (large.pointer == NULL && may_be_span) {
        large = malloc_long_span(size, alignment);
    } else if (large.pointer == NULL && hak__span_serves(size, alignment) &&
               hak__span_wastes(size, alignment)) {
        large = malloc_span(size == 0 ? 1 : size, alignment);
    }
    return large;
}

/* Inlined twice: for malloc alignment and want_zero are known. */
HAK_INLINE void *malloc_large(size_t size, size_t alignment, bool want_zero)
{
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    hak__own.refused = false;
    struct span large = malloc_large_once(size, alignment, want_zero);
    if (HAK_UNLIKELY(large.pointer == NULL)) {
        large = malloc_large_again(size, alignment, want_zero);
        if (large.pointer == NULL) {
            return malloc_beside(size, alignment); /* zeroed by the OS */
        }
    }
    if (sampling_is_on()) {
        hak__malloc_sample_block(large.pointer, size);
    }
    if (want_zero && !large.zeroed) {
        /* calloc clears a reused block of at least this size through hak__os_clear. That asks the
         * kernel which pages are resident, and leaves most of the others without memory. The system
         * call is cheap beside clearing so much memory (docs/decisions/0039). Doubled: blocks
         * between the old and the new value are written in full, so that all their pages become
         * resident. Halved: smaller blocks also cost a system call. */
        if (size < ((size_t)256 << 10)) {
            memset(large.pointer, 0, size);
        } else {
            hak__os_clear(large.pointer, size);
        }
    }
    return large.pointer;
}

void *hak__malloc_large(size_t size, size_t alignment, bool want_zero)
{
    return malloc_large(size, alignment, want_zero);
}

static HAK_NOINLINE void *malloc_slow(size_t size)
{
    return HAK_LIKELY(size <= MID_REQUEST_MAX) ? hak__malloc_class(size_class_of(size), size)
                                               : malloc_large(size, OBJECT_ALIGNMENT, false);
}

/* Secure form: a block of size 0. NULL: an object must serve. */
static HAK_COLD void *malloc_empty(void)
{
    void *block = hak__empty_allocate();
    if (block == NULL && hak__gate_enter(GATE_BRIEFLY)) {
        block = hak__start() && hak__empty_start() ? hak__empty_allocate() : NULL;
        hak__gate_leave();
    }
    return block;
}

/* The bin of class 0 is always empty, so that the fast path needs no test for size 0. Size 0 gets
 * an object of class 1, or in the secure form a block that is closed. */
void *hak__malloc_slow(size_t size)
{
    void *object = NULL;
    if (size == 0) {
        object = HAK_SECURE ? malloc_empty()
                            : malloc_pop(bin_offset(size_class_of(0)), 1, SECURE_MALLOC);
    }
    return object != NULL ? object : malloc_slow(size);
}
