/* SPDX-License-Identifier: MIT */
/* thread.c: a thread's struct: how it begins, how it ends, and how a thread that has ended borrows
 * one. See arena.h. */
#include "arena/arena.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "large/emergency.h"
#include "os/os.h"
#include "region/superslab.h"

/* Both are constant. hak__thread has no const in its type, because every other struct it may point
 * to is written. */
#define FAR_AT(member)                                                                             \
    (uint32_t)(offsetof(struct thread_constants, remote) -                                         \
               offsetof(struct thread_constants, member.cache))
const struct thread_constants hak__thread_constants = {
    .none = {.cache = {.key = CACHE_KEY_NONE, .far_at = FAR_AT(none)}},
    .ended = {.cache = {.key = CACHE_KEY_NONE, .far_at = FAR_AT(ended)}}};
#undef FAR_AT
HAK_STATIC_ASSERT(offsetof(struct cache_far, remote) == 0, "constants have no other part");
HAK_TLS struct thread *hak__thread = (struct thread *)(uintptr_t)&hak__thread_none;

static struct thread *shared_thread_first; /* pushed under ARENAS, read by any thread */
static struct thread *thread_parked;       /* stack, under ARENAS */

/* Number of forks from the first process to this one. Structs with an older epoch belong to threads
 * that are gone. Each is emptied only when a thread takes it, so that fork's child does not touch
 * them all. */
static uint32_t shared_thread_epoch;
static struct thread *shared_thread_gone; /* from here on some may be such; under ARENAS */

const struct thread_listener *hak__thread_listener;

uint32_t hak__thread_epoch(void)
{
    return atomic_load_relaxed(&shared_thread_epoch);
}

struct thread *hak__thread_first(void)
{
    /* acquire: pairs with the release in thread_make */
    return atomic_load_acquire(&shared_thread_first);
}

/* Under ARENAS. */
static void thread_push_parked(struct thread *thread)
{
    atomic_store_relaxed(&thread->arena, NULL);
    thread->next_parked = thread_parked;
    thread_parked = thread;
}

bool hak__thread_is_used(const struct thread *thread)
{
    return atomic_load_relaxed(&thread->arena) != NULL &&
           atomic_load_relaxed(&thread->epoch) == atomic_load_relaxed(&shared_thread_epoch);
}

/* A struct of a thread that is gone; the caller parks it. NULL: none is left. */
static struct thread *thread_take_gone(void)
{
    if (atomic_load_relaxed(&shared_thread_gone) == NULL) {
        return NULL;
    }
    lock_acquire(&hak__arenas_lock);
    struct thread *thread = shared_thread_gone;
    while (thread != NULL && (thread->arena == NULL || hak__thread_is_used(thread))) {
        thread = thread->next;
    }
    atomic_store_relaxed(&shared_thread_gone, thread != NULL ? thread->next : NULL);
    lock_release(&hak__arenas_lock);
    return thread;
}

/* Returns the free objects of a list, without a lock. If its thread is gone it has stopped between
 * two instructions, so the list ends at the first object that is not a free one of it. */
static void thread_return_list(struct object *object, uint32_t count, uint32_t class_index,
                               uintptr_t mark)
{
    for (struct object *next; count != 0; count--, object = next) {
        size_t slice = window_slice_of(object);
        uint32_t word = window_contains_slice(slice) ? window_owner(slice) : OWNER_NOBODY;
        if (owner_class(word) != class_index || !slab_is_object(slab_of_slice(slice), object) ||
            !object_is_marked(object, mark)) {
            break;
        }
        next = object_next(object);
        slab_return_one(slab_of_slice(slice), object);
    }
}

/* Returns what is in the bins. What is in the remote buffer of a thread that is gone stays unused:
 * the thread may have been sending it, and then it is in the slab's remote word, too. */
static void thread_return_bins(struct cache *cache)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct bin *bin = &cache->bins[class_index]; /* its count may lag by 1 */
        thread_return_list(bin->head, bin_count(bin) + 1, class_index, cache->mark);
    }
    struct object *object;
    while (HAK_SECURE && (object = hak__quarantine_take(cache)) != NULL) {
        if (secure_state_of(object) == SECURE_QUARANTINED) {
            secure_leave_quarantine(object);
            object_set_free(object, NULL, 0);
            thread_return_list(object, 1, owner_class(window_owner(window_slice_of(object))), 0);
        }
    }
    hak__cache_abandon(cache);
}

/* Empties and parks a struct of a thread that is gone. False: there is none left. */
static bool thread_settle_one(void)
{
    struct thread *thread = thread_take_gone();
    if (thread != NULL) {
        struct arena *arena = thread->arena;
        thread_return_bins(&thread->cache);
        lock_acquire(&hak__arenas_lock);
        thread_push_parked(thread);
        lock_release(&hak__arenas_lock);
        if (atomic_load_relaxed(&arena->threads_count) == 0) {
            hak__arena_collect(arena, true);
        }
    }
    return thread != NULL;
}

void hak__thread_settle_gone(void)
{
    while (thread_settle_one()) {
    }
}

static struct thread *thread_pop_parked(void)
{
    lock_acquire(&hak__arenas_lock);
    struct thread *thread = thread_parked;
    if (thread != NULL) {
        thread_parked = thread->next_parked;
    }
    lock_release(&hak__arenas_lock);
    return thread;
}

/* A new struct, listed and never freed. NULL: no memory. */
static struct thread *thread_make(void)
{
    void *far;
    struct thread *thread =
        hak__metadata_allocate_far(sizeof *thread, sizeof(struct cache_far), &far);
    if (thread != NULL) {
        thread->cache.far_at = (uint32_t)((uintptr_t)far - (uintptr_t)&thread->cache);
        lock_acquire(&hak__arenas_lock);
        thread->next = shared_thread_first;
        /* release: pairs with the acquire in hak__thread_first */
        atomic_store_release(&shared_thread_first, thread);
        lock_release(&hak__arenas_lock);
    }
    return thread;
}

static void thread_draw_from(struct thread *thread, struct arena *arena)
{
    lock_acquire(&hak__arenas_lock);
    hak__cache_start(&thread->cache, &arena->slabs);
    thread->away_ms = 0;
    atomic_store_relaxed(&thread->epoch, shared_thread_epoch); /* reports read this and arena */
    atomic_store_relaxed(&thread->arena, arena);
    lock_release(&hak__arenas_lock);
}

/* A struct that no thread uses, or a new one. NULL: no memory. */
static struct thread *thread_find(void)
{
    struct thread *thread = thread_pop_parked();
    /* Not in the secure form, whose slabs from before a fork serve nobody: to return objects to
     * them would copy their pages. */
    while (!HAK_SECURE && thread == NULL &&
           thread_settle_one()) { /* another thread may take what this one parks */
        thread = thread_pop_parked();
    }
    return thread != NULL ? thread : thread_make();
}

/* Lets the struct draw from the arena, which the caller has joined. If one of them is NULL, the
 * other one is given up. */
static struct thread *thread_begin(struct thread *thread, struct arena *arena)
{
    if (arena == NULL) {
        if (thread != NULL) {
            lock_acquire(&hak__arenas_lock);
            thread_push_parked(thread);
            lock_release(&hak__arenas_lock);
        }
        return NULL;
    }
    if (thread == NULL) {
        hak__arena_part(arena);
        return NULL;
    }
    thread->twin = NULL;                                /* a parked struct still has its last one */
    atomic_store_relaxed(&thread->apart, arena->apart); /* reports read it */
    thread_draw_from(thread, arena);
    hak__thread_bytes_begin(thread);
    thread->trimmed_ms = thread->ticked_ms = hak__os_clock_ms();
    return thread;
}

static struct thread *thread_adopt_from(struct arena *arena)
{
    return arena != NULL ? thread_begin(thread_find(), arena) : NULL;
}

/* The struct comes first: in a small process, it then shares its page with the arena, of which only
 * the start is touched. */
struct thread *hak__thread_adopt(void)
{
    struct thread *thread = thread_find();
    return thread_begin(thread, thread != NULL ? hak__arena_join(hak__knobs.arenas_max) : NULL);
}

/* An arena that no stopped thread holds. NULL: there is none. */
static struct arena *thread_free_arena(void)
{
    struct arena *arena = hak__arena_join(ARENA_ESCAPE);
    if (arena != NULL && hak__lock_is_stuck(&arena->lock)) {
        hak__arena_part(arena);
        return NULL;
    }
    return arena;
}

bool hak__thread_flush(struct thread *thread)
{
    if (!lock_acquire_soon(&thread->arena->lock)) {
        return false;
    }
    hak__cache_flush(&thread->cache);
    lock_release(&thread->arena->lock);
    hak__remote_flush(&thread->cache); /* after the bins, which may put objects into it */
    /* These batches may have found a lagging owner. Drain it now: nobody may come by later. */
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        hak__arena_help(thread);
    }
    return true;
}

void hak__thread_park(struct thread *thread)
{
    struct arena *arena = thread->arena;
    if (!hak__thread_flush(thread)) { /* a stopped thread has the lock */
        /* unsigned wrapping, relaxed: as in cache/flush.c */
        atomic_add_relaxed(&hak__cache_charged.word, 0 - thread->cache.charged_told);
        hak__remote_flush(&thread->cache);
        thread_return_bins(&thread->cache);
    }
    lock_acquire(&hak__arenas_lock);
    thread_push_parked(thread);
    lock_release(&hak__arenas_lock);
    hak__arena_part(arena);
}

bool hak__thread_settle_waits(void)
{
    return hak__emergency_waits() || hak__superslab_waits();
}

bool hak__thread_settle(void)
{
    hak__superslab_settle();
    return hak__emergency_settle();
}

void hak__thread_move(struct thread *thread)
{
    struct arena *arena = thread->arena, *other = hak__arena_join(hak__knobs.arenas_crowded_max);
    if (other == NULL) {
        return;
    }
    if (hak__thread_flush(thread)) {
        thread_draw_from(thread, other);
        other = arena;
    }
    hak__arena_part(other);
}

void hak__thread_fork_child(void)
{
    struct thread *own = hak__thread;
    shared_thread_gone = hak__thread_first();
    atomic_store_relaxed(&shared_thread_epoch, shared_thread_epoch + 1);
    uint64_t charged = 0;
    hak__arena_fork_child();
    if (HAK_SECURE && own != &hak__thread_ended) {
        hak__thread = (struct thread *)(uintptr_t)&hak__thread_none; /* its struct is a gone one */
        own = NULL;
    }
    for (uint32_t i = 0; i < 2 && own != NULL && own->arena != NULL; i++) {
        own->epoch = shared_thread_epoch;
        hak__thread_bytes_begin(own);
        hak__arena_add_thread(own->arena);
        charged += own->cache.charged_told;
        own = own->twin;
    }
    atomic_store_relaxed(&hak__cache_charged.word, charged);
}

void hak__thread_give_up(void)
{
    hak__thread = (struct thread *)(uintptr_t)&hak__thread_ended;
}

/* Gives a thread its struct, at its first slow operation. NULL: no memory, refused, or the thread
 * must borrow. */
static HAK_COLD struct thread *thread_birth(void)
{
    if (!hak__gate_enter(GATE_BRIEFLY)) {
        return NULL;
    }
    bool may = hak__start() && hak__start_has_key();
    struct thread *thread = may ? hak__thread_adopt() : NULL;
    if (thread != NULL) {
        hak__thread = thread;
    }
    hak__gate_leave();
    /* Setting a key with a high number allocates. That allocation finds the struct already set. */
    if (thread != NULL && !hak__start_watch_thread(thread)) {
        /* Nobody would park the struct at the thread's end, so the thread borrows from now on. */
        hak__thread_end(thread);
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

/* Gives the thread its second struct. */
static void thread_pair(struct thread *thread)
{
    if (!hak__gate_enter(GATE_BRIEFLY)) {
        hak__own.refused = false; /* the next scope tries again */
        return;
    }
    /* A signal handler may have done it before the gate. */
    struct thread *twin = thread->twin == NULL ? thread_adopt_from(hak__arena_join_apart()) : NULL;
    if (twin != NULL) {
        twin->twin = thread;
        thread->twin = twin;
    }
    hak__gate_leave();
}

void hak__thread_turn(bool apart)
{
    if (hak__thread->apart == apart) {
        return; /* also where a thread that has not begun would turn back */
    }
    struct thread *thread = hak__thread_current();
    if (thread != NULL && thread->twin == NULL) {
        thread_pair(thread);
    }
    if (thread != NULL && thread->twin != NULL) {
        hak__thread = thread->twin; /* one store: signal handlers find one struct or the other */
    }
}

/* A struct for one operation, with its arena's lock held. NULL: no memory, or refused. */
static struct thread *thread_borrow(struct arena *arena)
{
    struct thread *thread = thread_adopt_from(arena);
    if (thread != NULL && !lock_acquire_soon(&arena->lock)) {
        lock_acquire(&hak__arenas_lock);
        thread_push_parked(thread); /* it has cached nothing */
        lock_release(&hak__arenas_lock);
        hak__arena_part(arena);
        (void)hak__gate_refuse();
        thread = NULL;
    }
    return thread;
}

struct thread *hak__thread_enter(void)
{
    struct thread *thread = hak__thread_current();
    if (HAK_LIKELY(thread != NULL)) {
        return gate_lock(&thread->arena->lock) ? thread : hak__thread_escape(thread);
    }
    /* The thread borrows a struct and stays inside until it has parked that again. */
    if (!hak__gate_enter(GATE_BRIEFLY)) {
        return NULL;
    }
    thread = hak__start() ? thread_borrow(hak__arena_join(hak__knobs.arenas_max)) : NULL;
    if (thread == NULL && hak__own.refused) {
        thread = thread_borrow(thread_free_arena());
        if (thread != NULL) {
            hak__own.refused = false;
        }
    }
    if (thread == NULL) {
        hak__gate_leave();
    }
    return thread;
}

/* Exchanges this thread's struct for one of an arena that no stopped thread holds. NULL: there is
 * none. Inside the gate. */
static struct thread *thread_exchange(struct thread *thread)
{
    struct thread *other = thread_adopt_from(thread_free_arena());
    if (other != NULL) {
        other->twin = thread->twin;
        if (other->twin != NULL) {
            other->twin->twin = other;
            thread->twin = NULL;
        }
        hak__thread_bytes_hand_on(thread, other);
        hak__thread = other;
        hak__thread_park(thread);
    }
    return other;
}

struct thread *hak__thread_escape(struct thread *thread)
{
    struct thread *other = NULL;
    if (hak__inside != 0 || thread->apart || thread != hak__thread ||
        !hak__lock_is_stuck(&thread->arena->lock)) {
        return NULL; /* refused beside a fork, or in a signal handler */
    }
    if (hak__gate_enter(GATE_BRIEFLY)) {
        other = thread_exchange(thread);
        hak__gate_leave();
    }
    if (other == NULL || !gate_lock(&other->arena->lock)) {
        return NULL;
    }
    hak__own.refused = false;
    return other;
}

void hak__thread_leave(struct thread *thread)
{
    thread_unlock(thread);
    hak__thread_left(thread);
}

void hak__thread_left(struct thread *thread)
{
    if (HAK_UNLIKELY(thread != hak__thread)) {
        hak__thread_park(thread); /* it was borrowed */
        hak__gate_leave();
        return;
    }
    hak__thread_count_operation();
}

void hak__thread_end(void *value)
{
    /* `value` may be foreign: another C library in the process (dlmopen) may use the same key. */
    (void)value;
    struct thread *thread = hak__thread;
    if (thread == &hak__thread_ended) {
        return;
    }
    const struct thread_listener *listener = atomic_load_relaxed(&hak__thread_listener);
    if (listener != NULL) {
        listener->ended();
    }
    if (thread == &hak__thread_none) { /* `value` is foreign */
        return;
    }
    /* Destructors that run later, and the C library's own clean-up, still allocate and free. They
     * borrow. */
    hak__thread = (struct thread *)(uintptr_t)&hak__thread_ended;
    /* Refused only if a signal handler inside an operation ends the thread: the struct is lost. */
    if (hak__gate_enter(GATE_PATIENTLY)) {
        struct thread *twin = thread->twin;
        hak__thread_park(thread);
        if (twin != NULL) {
            hak__thread_park(twin);
        }
        hak__arena_give_back();
        hak__gate_leave();
    }
}
