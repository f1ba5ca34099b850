/* SPDX-License-Identifier: MIT */
/* arena.c: the list of arenas, and which arena a thread joins. See arena.h. */
#include "arena/arena.h"

#include "core/knobs.h"
#include "os/os.h"
#include "region/superslab.h"

struct lock HAK_LOCK_LINE hak__arenas_lock = LOCK_INITIAL(LOCK_RANK_ARENAS);
static struct arena *shared_arena_first; /* pushed under ARENAS, read by any thread */
/* The rest is under ARENAS. */
static uint32_t arena_next_id = ARENA_ID_SAMPLES + 1;
static struct arena *arena_apart;      /* for long-lived objects; NULL: not made yet */
static struct arena *arena_of_samples; /* the same */
/* These do not count those two. */
static uint32_t arena_count;             /* arenas */
static uint32_t arena_without_threads;   /* arenas that no thread draws from */
static uint32_t arena_joined_count;      /* threads that draw from an arena */
static struct arena *arena_next_to_join; /* where the search starts; NULL: the first of the list */

struct arena *hak__arena_first(void)
{
    /* acquire: pairs with the release in arena_list */
    return atomic_load_acquire(&shared_arena_first);
}

/* Under ARENAS. Other arenas' threads look at the patience, reports at the count. */
static void arena_set_threads(struct arena *arena, uint32_t count)
{
    uint32_t patience = count == 0 ? NOTIFIED_PENDING_MAX / 2 : NOTIFIED_PENDING_MAX;
    atomic_store_relaxed(&arena->slabs.shared_patience, patience);
    atomic_store_relaxed(&arena->slabs.shared_threads, count);
    atomic_store_relaxed(&arena->threads_count, count);
}

void hak__arena_add_thread(struct arena *arena)
{
    if (!arena->apart) {
        arena_without_threads -= arena->threads_count == 0;
        arena_joined_count++;
    }
    arena_set_threads(arena, arena->threads_count + 1);
}

bool hak__arena_is_to_spare(void)
{
    lock_acquire(&hak__arenas_lock);
    bool spare = arena_without_threads != 0 || arena_count < hak__knobs.arenas_crowded_max;
    lock_release(&hak__arenas_lock);
    return spare;
}

/* Chooses an arena for a thread that found its own stuck (ARENA_ESCAPE): the one of its memory node
 * with the fewest threads that is not stuck. The result is NULL, for a new arena, if that one has
 * threads and there may be more arenas; if all are stuck there may be one more than usual. Else it
 * is any. Under ARENAS. */
static struct arena *arena_choose_free(void)
{
    struct arena *best = NULL, *any = NULL;
    uint32_t most = hak__knobs.arenas_crowded_max;
    for (struct arena *arena = shared_arena_first; arena != NULL; arena = arena->next) {
        if (arena->apart) {
            continue;
        }
        any = arena;
        bool near = arena->node == numa_node();
        if (near && !hak__lock_is_stuck(&arena->lock) &&
            (best == NULL || arena->threads_count < best->threads_count)) {
            best = arena;
        }
    }
    if (best != NULL) {
        return best->threads_count != 0 && arena_count < most ? NULL : best;
    }
    return arena_count <= most ? NULL : any;
}

/* As arena_choose, among the arenas of the calling thread's memory node. Arenas of other nodes that
 * have no threads do not count: their memory is there. Under ARENAS. */
static struct arena *arena_choose_near(uint32_t arenas_max)
{
    struct arena *best = NULL;
    for (struct arena *arena = shared_arena_first; arena != NULL; arena = arena->next) {
        bool near = !arena->apart && arena->node == numa_node();
        if (near && (best == NULL || arena->threads_count < best->threads_count)) {
            best = arena;
        }
    }
    bool more = arena_count - arena_without_threads < arenas_max;
    return best != NULL && best->threads_count != 0 && more ? NULL : best;
}

/* Chooses an arena for one more thread. An arena without threads comes first. Else the result is
 * NULL, for a new arena, while there are fewer than `arenas_max`. Else it is the next arena in turn
 * with no more threads than the average: there is always one, usually after a step or two. Under
 * ARENAS. */
static struct arena *arena_choose(uint32_t arenas_max)
{
    if (HAK_UNLIKELY(arenas_max == ARENA_ESCAPE)) {
        return arena_choose_free();
    }
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__numa_several)) && arenas_max > 1) {
        return arena_choose_near(arenas_max);
    }
    if (arena_without_threads == 0 && arena_count < arenas_max) {
        return NULL;
    }
    uint32_t most = arena_without_threads != 0 ? 0 : arena_joined_count / arena_count;
    for (;;) {
        struct arena *arena = arena_next_to_join != NULL ? arena_next_to_join : shared_arena_first;
        arena_next_to_join = arena->next;
        if (!arena->apart && arena->threads_count <= most) {
            return arena;
        }
    }
}

static struct arena *arena_join_existing(uint32_t arenas_max)
{
    lock_acquire(&hak__arenas_lock);
    struct arena *arena = arena_choose(arenas_max);
    if (arena != NULL) {
        hak__arena_add_thread(arena);
    }
    lock_release(&hak__arenas_lock);
    return arena;
}

/* Adds an arena to the list. Under ARENAS. */
static void arena_list(struct arena *arena, uint32_t id)
{
    arena->id = id;
    arena->node = numa_node();
    arena->slabs.key = arena->id << OWNER_CODE_BITS;
    arena->slabs.part =
        arena->apart ? hak__superslab_part_near(arena->node) : hak__superslab_part_for(arena->node);
    if (arena->slabs.part != 0) { /* else it would touch a page for nothing */
        arena->spans.part = arena->slabs.part;
    }
    arena->lock = (struct lock)LOCK_INITIAL(LOCK_RANK_ARENA);
    arena->slabs.lock = &arena->lock;
    arena->next = shared_arena_first;
    if (!arena->apart) {
        arena_count++;
        arena_without_threads++;
    }
    arena_set_threads(arena, 0);
    arena_next_to_join = arena->next; /* the next thread joins another one */
    /* release: pairs with the acquire in hak__arena_first */
    atomic_store_release(&shared_arena_first, arena);
}

struct arena *hak__arena_join(uint32_t arenas_max)
{
    (void)hak__numa_look();
    struct arena *arena = arena_join_existing(arenas_max);
    if (arena != NULL) {
        return arena;
    }
    bool first = hak__arena_first() == NULL;
    struct arena *made = hak__metadata_allocate(sizeof *made);
    if (made == NULL) {
        return arena_join_existing(1); /* any that exists */
    }
    lock_acquire(&hak__arenas_lock);
    /* Other threads may have joined or added arenas meanwhile, so the choice is made again. */
    arena = arena_choose(arenas_max);
    if (arena != NULL) {
        /* The memory for the new arena, about 3 KiB, is lost. Only threads that race for the last
         * new arena lose it. */
        hak__arena_add_thread(arena);
    } else if (arena_next_id <= ARENA_ID_MAX && first == (shared_arena_first == NULL)) {
        arena = made;
        arena_list(arena, arena_next_id++);
        hak__arena_add_thread(arena);
    }
    lock_release(&hak__arenas_lock);
    if (arena != NULL) {
        return arena;
    }
    /* Not first: no id is left. */
    return first ? hak__arena_join(arenas_max) : arena_join_existing(1);
}

/* The arena at `place`, which no thread joins by itself. Makes it at the first call. NULL: no
 * memory. No lock of a higher rank held. */
static struct arena *arena_apart_at(struct arena **place)
{
    struct arena *arena = atomic_load_acquire(place); /* pairs with the release below */
    if (arena != NULL) {
        return arena;
    }
    struct arena *made = hak__metadata_allocate(sizeof *made); /* lost if threads race, once */
    lock_acquire(&hak__arenas_lock);
    if (*place == NULL && made != NULL && arena_next_id <= ARENA_ID_MAX) {
        made->apart = true;
        arena_list(made, place == &arena_of_samples ? ARENA_ID_SAMPLES : arena_next_id++);
        atomic_store_release(place, made);
    }
    arena = *place;
    lock_release(&hak__arenas_lock);
    return arena;
}

struct arena *hak__arena_join_apart(void)
{
    struct arena *arena = arena_apart_at(&arena_apart);
    if (arena != NULL) {
        lock_acquire(&hak__arenas_lock);
        hak__arena_add_thread(arena);
        lock_release(&hak__arenas_lock);
    }
    return arena;
}

void *hak__arena_take_sample(uint32_t class_index)
{
    struct arena *arena = arena_apart_at(&arena_of_samples);
    if (arena == NULL || !lock_acquire_soon(&arena->lock)) {
        return NULL;
    }
    struct refill refill = hak__slab_refill(&arena->slabs, class_index, 1);
    lock_release(&arena->lock);
    if (refill.list.count == 0) {
        return NULL;
    }
    uintptr_t mark = object_mark_of(arena->slabs.key);
    refill = (struct refill){refill_link(refill, mark), 0, false};
    return refill_pop(&refill, class_index, mark);
}

void hak__arena_part(struct arena *arena)
{
    lock_acquire(&hak__arenas_lock);
    uint32_t left = arena->threads_count - 1;
    arena_joined_count -= arena->apart ? 0 : 1;
    arena_set_threads(arena, left);
    if (left == 0 && !arena->apart) {
        arena_without_threads++;
        arena_next_to_join = arena; /* its memory was used last, so it is warm */
    }
    lock_release(&hak__arenas_lock);
    if (left == 0) {
        hak__arena_rest(arena);
    }
}

void hak__arena_fork_child(void)
{
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        arena_set_threads(arena, 0);
        arena->apart = HAK_SECURE || arena->apart; /* secure form: nobody draws from it any more */
    }
    if (HAK_SECURE) {
        arena_count = 0;
        arena_apart = NULL;
    }
    arena_without_threads = arena_count;
    arena_joined_count = 0;
    hak__superslab_inherit();
}
