/* SPDX-License-Identifier: MIT */
/* free_slow.c: the slow paths of free.
 *
 *   free_other     another arena's object -> this thread's bin, if the class has own lines and the
 *                                           bin has room
 *                                        -> else the remote buffer, later the slab's remote word
 *                  span                  -> the arena's span cache, or its superslab
 *                  anything else         -> free_slow
 *   free_slow      object                -> as above
 *                                        -> this thread's bin, if the thread has just joined the
 *                                           object's arena
 *                                        -> the slab's remote word, if the thread has no struct
 *                  span                  -> as above
 *                  sampled object        -> the slab's remote word (observe/samples.h)
 *                  guarded block         -> observe/guard.h
 *                  block of size 0       -> large/empty.h
 *                  huge block            -> the huge cache, or unmapped
 *                  heap's object         -> heap/heap.h (hakmem/heap.h)
 *                  NULL                  -> nothing
 *                  foreign pointer       -> the process's own free, or reported
 *                  no allocation there   -> fatal report
 *   free_overflow  full bin              -> the limit grows, or the objects freed last go to their
 *                                           slabs (cache/cache.h)
 *   if refused     span or huge block    -> a table of blocks to free later (large/emergency.h) */
#include "arena/arena.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "core/watched.h"
#include "front/fast.h"
#include "front/slow.h"
#include "heap/heap.h"
#include "large/emergency.h"
#include "large/empty.h"
#include "observe/guard.h"
#include "observe/loaded.h"
#include "observe/samples.h"
#include "region/superslab.h"

#include <errno.h>

void hak__free_overflow(struct thread *thread, uint32_t class_index)
{
    int saved = errno;
    if (thread_lock_arena(thread)) { /* if refused, the next free tries again */
        hak__cache_overflow(&thread->cache, class_index);
        hak__thread_leave(thread);
    }
    errno = saved;
}

void hak__free_long(void *pointer, enum secure_state state)
{
    size_t slice = window_slice_of(pointer);
    uint32_t owner = slice < window_limit_seen() ? window_owner(slice) : OWNER_NOBODY;
    uint32_t class_index = owner_class(owner);
    struct thread *thread = hak__thread;
    if (class_index - 1 < CLASS_COUNT - 1) {
        unsigned char byte = secure_check_state(pointer, class_index, state);
        size_t bytes = size_class_bytes(class_index);
        pointer = secure_take_back(pointer, class_index, bytes, byte);
        if (thread->cache.key != CACHE_KEY_NONE && owner >= OWNER_DRAWN_FIRST) {
            pointer = cache_quarantine(&thread->cache, pointer, bytes);
        }
        if (pointer == NULL) {
            return;
        }
        secure_leave_quarantine(pointer);
    }
    free_from_quarantine(pointer);
}

static void object_check(const struct thread *thread, const struct object *object,
                         uint32_t class_index)
{
    if (!cache_may_hold(&thread->cache, class_index, object) ||
        !slab_is_object(slab_of_slice(window_slice_of(object)), object)) {
        hak__diagnose_fatal("corrupted free list (written after free?)", object,
                            size_class_usable(class_index), thread->arena->id);
    }
}

void hak__malloc_check(const struct thread *thread, const struct object *object,
                       uint32_t class_index)
{
    object_check(thread, object, class_index);
    if (object_next(object) != NULL) {
        object_check(thread, object_next(object), class_index);
    }
}

/* The list should have `count` objects. A longer one may have no end. */
static HAK_COLD bool list_contains(const struct thread *thread, struct object_list list,
                                   const void *pointer, uint32_t class_index)
{
    for (const struct object *object = list.head; object != NULL; object = object_next(object)) {
        object_check(thread, object, class_index);
        if (list.count-- == 0) {
            hak__object_is_wrong(object);
        }
        if (object == pointer) {
            return true;
        }
    }
    return false;
}

static HAK_COLD bool bin_contains(const struct thread *thread, const void *pointer,
                                  uint32_t class_index)
{
    const struct bin *bin = &thread->cache.bins[class_index];
    struct object_list list = {bin->head, bin_count(bin)};
    return list_contains(thread, list, pointer, class_index);
}

void hak__free_check(struct thread *thread, const void *pointer, uint32_t class_index)
{
    const struct slab *slab = slab_of_slice(window_slice_of(pointer));
    slab_check_object(slab, pointer);
    if (HAK_LEVEL < 2) {
        return;
    }
    if (!gate_lock(&thread->arena->lock)) { /* it guards the slab's free list */
        return;
    }
    struct object_list list = {slab->free_list, slab->free_count};
    bool found = bin_contains(thread, pointer, class_index) ||
                 list_contains(thread, list, pointer, class_index);
    thread_unlock(thread);
    if (found) {
        hak__diagnose_fatal("double free", pointer, size_class_usable(class_index),
                            thread->arena->id);
    }
}

/* The most foreign pointers that are reported. A program that frees one usually frees many. */
#define FOREIGN_REPORTS_MAX 10u
static uint32_t shared_foreign_count;

/* The main thread's, of the loader; other C libraries have none. */
extern void *__libc_stack_end __attribute__((weak, visibility("default")));
/* True: no allocator has a block there. The address is odd, nothing is mapped there, or it lies in
 * what this thread's stack holds now, or in a loaded program or library. The C library puts a
 * thread's variables behind its stack. */
static HAK_COLD bool foreign_is_no_block(const void *pointer)
{
    unsigned char page; /* the odd ones have the alignment of no type's pointer */
    size_t inside = (uintptr_t)pointer % hak__os_page_size();
    if ((uintptr_t)pointer % sizeof(void *) != 0 ||
        hak__os_look((const char *)pointer - inside, 1, &page) == -ENOMEM) {
        return true;
    }
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), end = (uintptr_t)&hak__own;
    if (end < here && &__libc_stack_end != NULL) {
        end = (uintptr_t)__libc_stack_end;
    }
    /* Beyond 128 MiB, `here` may lie on a stack of the program's own, such as a coroutine's. */
    struct loader_answer answer;
    return (end - here < (uintptr_t)128 << 20 && (uintptr_t)pointer - here < end - here) ||
           hak__loaded_ask((uintptr_t)pointer, &answer);
}

void hak__free_foreign(void *pointer)
{
    if (hak__family_free != NULL && hak__family_free(pointer)) {
        return;
    }
    if (atomic_load_relaxed(&shared_foreign_count) == 0) {
        (void)hak__loaded_start();
    }
    if (atomic_load_relaxed(&hak__knobs.abort_on_foreign) || foreign_is_no_block(pointer)) {
        hak__diagnose_foreign("free of a foreign pointer (not allocated by hakmem)", pointer);
    }
    uint32_t count = 1 + atomic_add_relaxed(&shared_foreign_count, 1u); /* relaxed: a counter */
    if (count <= FOREIGN_REPORTS_MAX) {
        hak__diagnose_warn(count < FOREIGN_REPORTS_MAX
                               ? "foreign pointer (not allocated by hakmem) not freed"
                               : "foreign pointer (not allocated by hakmem) not freed, nor are "
                                 "further ones named",
                           pointer);
    }
}

/* Tells objects and spans by the owner word. Any pointer. */
static struct location locate(const void *pointer)
{
    size_t slice = window_slice_of(pointer);
    uint32_t owner = window_contains_slice(slice) ? window_owner(slice) : OWNER_NOBODY;
    uint32_t class_index = owner_class(owner);
    if (owner_is_slab(owner)) {
        return (struct location){PLACE_SLAB, class_index, object_usable(pointer, class_index)};
    }
    if (owner == OWNER_SPAN && hak__span_pointer(slice) == pointer) {
        return (struct location){PLACE_SPAN, 0, hak__span_bytes(slice)};
    }
    return (struct location){PLACE_OUTSIDE, 0, 0};
}

static HAK_COLD __attribute__((noreturn)) void locate_failed(const void *pointer, size_t slice)
{
    size_t bytes = window_owner(slice) == OWNER_SPAN ? hak__span_bytes(slice) : 0;
    hak__diagnose_fatal("invalid pointer (no allocation starts here: double free, or inside one)",
                        pointer, bytes, 0);
}

/* True: a pass has unmapped the addresses after their last use, and nothing else is there. */
static HAK_COLD bool locate_was_unmapped(const void *pointer, size_t slice)
{
    unsigned char page;
    size_t inside = (uintptr_t)pointer % hak__os_page_size();
    return window_contains_slice(slice) &&
           atomic_load_relaxed(&superslab_at(slice / SUPERSLAB_SLICES)->state) ==
               SUPERSLAB_RELEASED &&
           hak__os_look((const char *)pointer - inside, 1, &page) == -ENOMEM;
}

/* Looks more closely. Addresses of the window that hakmem has skipped, unmapped or lost may hold a
 * huge block or a foreign mapping. */
static struct location locate_outside(const void *pointer, const char *freed)
{
    size_t slice = window_slice_of(pointer);
    bool in_superslab = window_contains_slice(slice) && superslab_has_slice(slice);
    size_t bytes = in_superslab ? 0 : hak__huge_bytes(pointer);
    if (bytes != 0) {
        return (struct location){PLACE_HUGE, 0, bytes};
    }
    struct hak_heap *heap = hak__heap_of(pointer); /* one of its chunks may be a span or huge */
    if (heap != NULL) {
        return (struct location){PLACE_HEAP, 0, hak_heap_usable_size(heap, pointer)};
    }
    if (in_superslab || locate_was_unmapped(pointer, slice)) {
        locate_failed(pointer, slice);
    }
    if (hak__huge_containing(pointer).address != 0) {
        hak__diagnose_fatal("invalid pointer (inside an allocation)", pointer,
                            hak__huge_containing(pointer).size, 0);
    }
    if (hak__huge_was_freed(pointer)) {
        hak__diagnose_fatal(freed, pointer, 0, 0);
    }
    return (struct location){PLACE_FOREIGN, 0, 0};
}

struct location hak__locate_allocation(const void *pointer, const char *freed)
{
    struct location location = locate(pointer);
    if (location.place != PLACE_OUTSIDE) {
        return location;
    }
    if (guard_contains(pointer)) {
        return (struct location){PLACE_CLOSED, 0, hak__guard_bytes(pointer)};
    }
    if (empty_contains(pointer)) {
        hak__empty_check(pointer);
        return (struct location){PLACE_CLOSED, 0, 0};
    }
    return locate_outside(pointer, freed);
}

/* Counts a block that does not go through this thread's bins. */
static void free_note(size_t bytes)
{
    struct thread *thread = hak__thread;
    if (thread->arena != NULL) {
        thread->cache.bytes.given -= (int64_t)bytes;
    }
}

/* Frees another arena's object through the remote buffer. A thread without a struct of its own has
 * no buffer and takes free_slow. */
static HAK_NOINLINE void free_remotely(struct thread *thread, size_t slice, void *pointer)
{
    if (HAK_UNLIKELY(thread->cache.key == CACHE_KEY_NONE)) {
        hak__free_slow(pointer);
        return;
    }
    if (hak__remote_free(&thread->cache, slice, pointer)) {
        int saved = errno;
        hak__thread_count_batch(thread);
        errno = saved;
    }
}

/* An object of the arena of samples. It goes straight to its slab, so that no bin gets it. */
static HAK_COLD void free_sampled(void *pointer, struct slab *slab)
{
    if (!hak__sample_forget(pointer)) {
        hak__diagnose_fatal("double free", pointer, size_class_usable(slab->class_index), 0);
    }
    free_note(size_class_bytes(slab->class_index));
    slab_return_one(slab, pointer);
}

static void free_object(void *pointer, struct location location)
{
    size_t slice = window_slice_of(pointer);
    struct slab *slab = slab_of_slice(slice);
    slab_check_object(slab, pointer);
    if (window_owner(slice) < OWNER_DRAWN_FIRST) {
        free_sampled(pointer, slab);
        return;
    }
    struct thread *thread = hak__thread_current();
    /* This thread has ended, or cannot have a struct now: the object goes straight to its slab. */
    if (HAK_UNLIKELY(thread == NULL)) {
        slab_return_one(slab, pointer);
        return;
    }
    if (HAK_UNLIKELY(thread->cache.bins[location.class_index].head == pointer)) {
        hak__diagnose_fatal("double free", pointer, location.bytes, slab_arena_id(slab));
    }
    /* hak__thread_current may have let this thread join the object's arena. */
    if (HAK_UNLIKELY(slab->owner == thread->cache.slabs)) {
        free_from_quarantine(pointer);
        return;
    }
    uint32_t class_index = location.class_index;
    if (HAK_LEVEL >= 2 && bin_contains(thread, pointer, class_index)) {
        hak__diagnose_fatal("double free", pointer, location.bytes, slab_arena_id(slab));
    }
    if (!hak__remote_keep(&thread->cache, class_index, pointer)) {
        free_remotely(thread, slice, pointer);
    }
}

static HAK_NOINLINE void free_span(size_t slice)
{
    int saved = errno;     /* free must keep errno (POSIX 2024) */
    hak__span_take(slice); /* before the thread may be refused: the span has one owner at a time */
    if (!HAK_SECURE && watched()) {
        hak__span_renew(slice);
    }
    sample_forget_block(hak__span_pointer(slice));
    struct thread *thread = thread_enter();
    if (HAK_LIKELY(thread != NULL)) {
        thread->cache.bytes.given -= (int64_t)hak__span_bytes(slice);
        hak__span_free_taken(&thread->arena->spans, &thread->cache.counters, slice);
        thread_unlock(thread);
        hak__thread_left(thread);
    } else if (hak__gate_enter(GATE_BRIEFLY)) {
        hak__span_free_taken(NULL, NULL, slice);
        hak__gate_leave();
    } else {
        (void)hak__emergency_free(hak__span_pointer(slice), true);
    }
    errno = saved;
}

static bool thread_has_struct(void)
{
    return hak__thread != &hak__thread_none && hak__thread != &hak__thread_ended;
}

/* `stays`: mapped until a later operation. */
static HAK_COLD void free_huge_later(void *pointer, bool stays)
{
    if (!hak__emergency_free(pointer, stays)) {
        hak__diagnose_fatal("double free", pointer, 0, 0);
    }
}

static void free_huge(void *pointer, size_t bytes)
{
    sample_forget_block(pointer);
    /* When a thread ends, glibc frees the thread's table of pthread keys before it clears its
     * pointer to the table. In a child forked between the two steps, glibc still writes to the
     * table, so the table must stay mapped. If it is a huge block, it came from large/emergency.h,
     * as do all huge blocks no larger than a span. So a thread that has ended only lists such a
     * huge block, and so does one that has no struct: its end cannot be told. */
    bool stays = bytes <= SPAN_SIZE_MAX && !thread_has_struct();
    /* settle makes it a huge block if it is new emergency memory */
    if (stays || !hak__gate_enter(GATE_BRIEFLY) || !hak__emergency_settle()) {
        free_huge_later(pointer, stays);
        return;
    }
    bool freed = hak__huge_free(pointer);
    hak__gate_leave();
    /* Another thread has freed the block since this one located it. */
    if (!freed && hak__huge_bytes(pointer) == 0) {
        hak__diagnose_fatal("double free", pointer, 0, 0);
    }
    if (!freed) { /* new emergency memory, and no memory to register it */
        free_huge_later(pointer, false);
        return;
    }
    struct thread *thread = hak__thread_enter();
    if (thread != NULL) {
        counter_add(&thread->cache.counters, COUNTER_HUGE_FREED, 1);
        thread->cache.bytes.given -= (int64_t)bytes;
        hak__thread_leave(thread);
    }
}

/* Also in a signal handler that has interrupted an operation: it takes no lock. */
static HAK_COLD void free_guarded(void *pointer, const void *caller)
{
    sample_forget_block(pointer);
    free_note(hak__guard_owns(pointer) ? hak__guard_bytes(pointer) : 0);
    hak__guard_free(pointer, caller);
}

/* Frees what is neither an object of a slab nor a span. */
static HAK_NOINLINE void free_outside(void *pointer, const void *caller)
{
    if (guard_contains(pointer)) {
        free_guarded(pointer, caller);
        return;
    }
    if (empty_contains(pointer)) {
        hak__empty_free(pointer);
        return;
    }
    if (HAK_UNLIKELY((hak__inside & INSIDE_OPERATION) != 0) &&
        !window_contains_slice(window_slice_of(pointer))) {
        /* A signal handler has interrupted an operation of this thread, which may hold any lock.
         * The pointer waits until a later operation finds out what it is. */
        (void)hak__emergency_free(pointer, true);
        return;
    }
    struct location location = locate_outside(pointer, "double free");
    if (location.place == PLACE_HUGE) {
        free_huge(pointer, location.bytes);
    } else if (location.place == PLACE_HEAP) {
        hak_heap_free(hak__heap_of(pointer), pointer);
    } else {
        hak__free_foreign(pointer);
    }
}

static HAK_NOINLINE void free_slow(void *pointer)
{
    int saved = errno; /* free must keep errno (POSIX 2024) */
    struct location location = locate(pointer);
    if (location.place == PLACE_SLAB) {
        free_object(pointer, location);
    } else if (location.place == PLACE_SPAN) {
        free_span(window_slice_of(pointer));
    } else {
        free_outside(pointer, __builtin_return_address(0));
    }
    errno = saved;
}

void hak__free_slow(void *pointer)
{
    if (pointer != NULL) {
        free_slow(pointer);
    }
}

/* The usual slow frees: a thread frees objects that another thread has allocated, or a program
 * frees a span. */
void hak__free_other(void *pointer, size_t slice, struct thread *thread, uint32_t word)
{
    /* From assertion level 1 on, every free goes to free_slow, which checks the pointer. */
    uint32_t owner = HAK_LEVEL == 0 ? word ^ (uint32_t)thread->cache.key : OWNER_NOBODY;
    if (HAK_UNLIKELY(owner < OWNER_DRAWN_FIRST)) {
        if (owner == OWNER_SPAN && hak__span_pointer(slice) == pointer) {
            free_span(slice);
        } else {
            hak__free_slow(pointer);
        }
        return;
    }
    /* hak__thread_none and hak__thread_ended have room in no bin and no buffer, so both calls fail.
     */
    if (!hak__remote_keep(&thread->cache, owner_class(owner), pointer) &&
        HAK_UNLIKELY(!remote_push(&thread->cache, slice, pointer))) {
        free_remotely(thread, slice, pointer);
    }
}
