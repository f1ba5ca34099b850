/* SPDX-License-Identifier: MIT */
/* test_collect.c: arena/collect: what others do for an arena, what ticks do and when they come. */
#include "../threads/threads.h"
#include "arenas.h"

#include "large/huge.h"

/* A thread and its arena that no thread of the process uses, with one object in use and alone in
 * its slab. */
struct owner {
    struct thread *thread;
    struct arena *arena;
    void *object;
    struct slab *slab;
};

static struct owner owner_create_of(uint32_t class_index)
{
    struct thread *thread = adopt();
    struct owner owner = {.thread = thread, .arena = thread->arena};
    REQUIRE(lock_acquire_soon(&owner.arena->lock));
    struct object_list list = unit_slab_refill(&owner.arena->slabs, class_index, UINT32_MAX);
    struct object_list others = {list.head->next, list.count - 1};
    owner.object = list.head;
    owner.slab = unit_slab_of(owner.object);
    unit_return_list(others);
    lock_release(&owner.arena->lock);
    return owner;
}

static struct owner owner_create(void)
{
    return owner_create_of(1);
}

static bool owner_has_slab(const struct owner *owner)
{
    return window_owner(slab_slice(owner->slab)) >> OWNER_CODE_BITS == owner->arena->id;
}

static bool owner_uses_slab(const struct owner *owner)
{
    return owner_has_slab(owner) && !owner->slab->kept;
}

static void owner_free_remotely(struct owner *owner)
{
    unit_return_remote(&owner->object, 1);
    REQUIRE(owner_has_slab(owner));
}

TEST(collect)
{
    struct owner owner = owner_create();
    struct span_cache *spans = &owner.arena->spans;
    keep_a_span(owner.thread);
    hak__arena_collect(owner.arena, false);
    assert_true(owner_has_slab(&owner)); /* in use */
    assert_int_equal(spans->slices, MIB / SLICE_SIZE);
    owner_free_remotely(&owner);
    hak__arena_collect(owner.arena, false);
    assert_false(owner_uses_slab(&owner));
    hak__arena_collect(owner.arena, false);
    assert_int_equal(spans->slices, 0); /* the third look at it */
    keep_a_span(owner.thread);
    assert_true(owner_has_slab(&owner)); /* for the arena's threads */
    hak__arena_collect(owner.arena, true);
    assert_false(owner_has_slab(&owner));
    assert_int_equal(spans->slices, 0);
    hak__thread_park(owner.thread);
}

TEST(help)
{
    struct owner owner = owner_create();
    struct thread *helper = adopt();
    owner_free_remotely(&owner);
    helper->cache.lagging = &owner.arena->slabs;
    REQUIRE(lock_acquire_soon(&owner.arena->lock)); /* somebody is at it: not waited for */
    hak__arena_help(helper);
    assert_null(helper->cache.lagging);
    assert_true(owner_has_slab(&owner));
    lock_release(&owner.arena->lock);
    helper->cache.lagging = &owner.arena->slabs;
    count_operation(helper); /* what a thread does after a slow operation */
    assert_null(helper->cache.lagging);
    assert_false(owner_uses_slab(&owner));
    assert_int_equal(owner.arena->lock.shared_state, 0);
    hak__thread_park(owner.thread);
    hak__thread_park(helper);
}

/* An object of another's that stays in the bin of the thread that frees it. */
static struct owner owner_create_kept(struct thread *thread)
{
    uint32_t class_index = size_class_of(5000);
    struct owner owner = owner_create_of(class_index);
    thread_free(thread, class_index, thread_allocate(thread, class_index)); /* sets a limit */
    struct object *object = thread_allocate(thread, class_index);           /* makes room */
    unit_return_list((struct object_list){object, 1});
    REQUIRE(hak__remote_keep(&thread->cache, class_index, owner.object));
    return owner;
}

/* Whatever empties the bins also sends what they kept: nobody may come after it. */
TEST_WITH_KNOBS(kept_objects_go_back)
{
    struct thread *thread = adopt();
    struct owner owner = owner_create_kept(thread);
    owner.arena->slabs.shared_patience = 1;
    hak__thread_park(thread);
    assert_false(owner_uses_slab(&owner));
    hak__thread_park(owner.thread);

    thread = adopt();
    owner = owner_create_kept(thread);
    hak__knobs.purge_delay_ms = 0; /* always due */
    hak__arena_tick(thread);
    assert_true(owner_has_slab(&owner));
    hak__arena_tick(thread); /* the class was idle */
    assert_false(owner_uses_slab(&owner));
    hak__thread_park(thread);
    hak__thread_park(owner.thread);
}

TEST_WITH_KNOBS(a_tick_that_is_due)
{
    struct owner idle = owner_create(), busy = owner_create();
    struct thread *thread = adopt();
    hak__knobs.purge_delay_ms = 0; /* always due */
    owner_free_remotely(&idle);
    hak__remote_free(&thread->cache, window_slice_of(busy.object), busy.object);
    uint64_t ticks = thread->cache.counters.values[COUNTER_TICKS];
    REQUIRE(lock_acquire_soon(&thread->arena->lock));
    unit_cache_free(&thread->cache, 2, unit_cache_allocate(&thread->cache, 2));
    lock_release(&thread->arena->lock);
    hak__arena_tick(thread);
    assert_false(owner_uses_slab(&idle)); /* one that sleeps */
    assert_false(owner_uses_slab(&busy)); /* the buffer was sent first */
    assert_true(hak__cache_objects(&thread->cache, 2) != 0);
    hak__arena_tick(thread);
    assert_int_equal(hak__cache_objects(&thread->cache, 2), 0); /* idle between two ticks */
    hak__arena_tick(thread);
    hak__arena_tick(thread);
    assert_false(owner_has_slab(&idle) || owner_has_slab(&busy)); /* not needed between two */
    hak__arena_tick(thread);
    assert_int_equal(hak__superslab_bytes_dirty(), 0); /* all that was freed above */
    assert_true(thread->cache.counters.values[COUNTER_TICKS] == ticks + 5);
    hak__thread_park(thread);
    hak__thread_park(busy.thread);
    hak__thread_park(idle.thread);
}

/* Ticks of a thread, `apart` milliseconds from one to the next, until `superslabs` free superslabs
 * that are due have gone back. */
static uint32_t ticks_until_back(struct thread *thread, size_t superslabs, uint32_t apart)
{
    uint32_t ticks = 0;
    unit_free_superslabs(superslabs);
    hak__superslab_purge_part(true, false, SIZE_MAX); /* sees them */
    hak__superslab_purge_part(true, false, 1);        /* the first of a pass that is under way */
    for (; hak__superslab_bytes_dirty() != 0; ticks++) {
        size_t dirty = hak__superslab_bytes_dirty();
        uint32_t start = hak__os_clock_ms();
        thread->ticked_ms = start - apart;
        hak__arena_tick(thread);
        size_t purged = dirty - hak__superslab_bytes_dirty();
        bool as_meant = hak__os_clock_ms() == start; /* else it came later still */
        assert_true(purged != 0);
        assert_true(apart != 0 || !as_meant || purged <= PURGE_BYTES_AT_ONCE + SUPERSLAB_SIZE);
    }
    hak__superslab_purge_part(false, false, SIZE_MAX);
    return ticks;
}

/* The later a tick comes, the longer it purges. */
TEST_WITH_KNOBS(late_ticks_give_more_back)
{
    struct thread *thread = adopt();
    hak__knobs.purge_delay_ms = 0;
    hak__arena_tick(thread);
    hak__knobs.purge_delay_ms = UINT32_MAX - 1; /* no other pass is due */
    hak__superslab_purge();
    /* 260 MiB, a tick a second; 1 GiB, a tick each 100 ms; a fast thread. Each part counts for a
     * tick of the last; a busy machine takes some of the others' time. */
    size_t redis = 65 * PURGE_BYTES_AT_ONCE / SUPERSLAB_SIZE;
    size_t light = 256 * PURGE_BYTES_AT_ONCE / SUPERSLAB_SIZE;
    assert_true(ticks_until_back(thread, redis, 1000) <= 65 / 4);
    assert_true(ticks_until_back(thread, light, 100) <= 256 / 4);
    assert_true(ticks_until_back(thread, redis, 0) >= 65 / 4);
    hak__thread_park(thread);
}

/* A fast thread's tick that begins a pass comes 50 ms after the last one, and is short. On a busy
 * machine so much time may pass that it settles after a sleep: then once more. */
TEST_WITH_KNOBS(a_pass_begins_with_one_part)
{
    struct thread *thread = adopt();
    size_t purged = 0;
    for (uint32_t ticked = 0, tries = 0; tries == 0 || hak__os_clock_ms() - ticked >= TICK_MS;) {
        SKIP_IF(++tries > 100);
        hak__knobs.purge_delay_ms = 0; /* each tick is due */
        ticked = hak__os_clock_ms();
        hak__arena_tick(thread); /* the pass before */
        hak__superslab_purge();
        hak__superslab_purge_part(false, false, SIZE_MAX);
        unit_free_superslabs(8 * PURGE_BYTES_AT_ONCE / SUPERSLAB_SIZE);
        hak__superslab_purge_part(true, false, SIZE_MAX); /* sees them */
        hak__arena_pages_part(true, SIZE_MAX);            /* none is under way */
        size_t dirty = hak__superslab_bytes_dirty();
        thread->ticked_ms = hak__os_clock_ms() - TICK_MS;
        hak__arena_tick(thread);
        purged = dirty - hak__superslab_bytes_dirty();
        hak__superslab_purge_part(false, false, SIZE_MAX);
    }
    assert_true(purged != 0 && purged <= PURGE_BYTES_AT_ONCE + SUPERSLAB_SIZE);
    hak__thread_park(thread);
}

/* One tick after a pause of the process purges what no pass has seen before. */
TEST_WITH_KNOBS(a_tick_after_a_sleep_settles)
{
    struct thread *thread = adopt();
    hak__superslab_purge();
    hak__knobs.purge_delay_ms = 0; /* due */
    hak__arena_tick(thread);
    hak__superslab_purge_part(false, false, SIZE_MAX);
    unit_free_superslabs(PURGE_BYTES_AT_ONCE / SUPERSLAB_SIZE);
    hak__knobs.purge_delay_ms = 200;
    hak__os_sleep_ms(300);
    hak__arena_tick(thread);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    hak__thread_park(thread);
}

/* An operation's tick keeps the note whether the operation was refused: an allocation that takes
 * emergency memory for that would fail instead. */
TEST_WITH_KNOBS(a_tick_keeps_the_note)
{
    struct thread *thread = adopt();
    for (uint32_t i = 0; i < 4; i++) {
        bool noted = i % 2 != 0, closed = i >= 2;
        if (closed) {
            hak__gate_close(); /* so the tick is refused */
        }
        hak__own.refused = noted;
        thread->trimmed_ms = hak__os_clock_ms() - 4000;
        thread->ticked_ms = hak__os_clock_ms() - 60;
        thread->cache.countdown = -1;
        hak__thread_countdown_ended(thread, 100);
        assert_true(hak__own.refused == noted);
        if (closed) {
            hak__gate_open();
        }
    }
    hak__thread_park(thread);
}

/* Early looks become rare, whatever the size, but not so rare that a program that goes on with
 * small mallocs looks too late. */
TEST_WITH_KNOBS(early_looks_become_rare)
{
    struct thread *thread = adopt();
    static const uint32_t sizes[] = {16, 1000, 20000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t least = LOOK_MALLOCS_LEAST * sizes[i];
        uint32_t most = least > LOOK_BYTES ? least : LOOK_BYTES;
        bool rare = false;
        thread->interval = 0;
        for (uint32_t n = 0; n < 10000 && !rare; n++) { /* a busy machine makes some of them late */
            thread->ticked_ms = thread->trimmed_ms = hak__os_clock_ms();
            hak__thread_countdown_ended(thread, sizes[i]);
            assert_in_range(thread->interval, 0, most);
            rare = thread->interval >= least;
        }
        assert_true(rare);
    }
    hak__thread_park(thread);
}

/* Outside of the gate nothing more is given back: the fork's child could find a lock taken. */
TEST_WITH_KNOBS(a_fork_ends_giving_back)
{
    unit_free_superslabs(12);
    hak__superslab_turn_use(true);
    hak__knobs.purge_delay_ms = 1000;
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__gate_close(); /* does not wait for itself */
    hak__arena_give_back();
    assert_int_equal(hak__inside & INSIDE_GATE, 0);
    assert_in_range(hak__superslab_bytes_dirty(), hak__superslab_expected() + 1, SIZE_MAX);
    hak__gate_open();
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__arena_give_back();
    hak__gate_leave();
    assert_in_range(hak__superslab_bytes_dirty(), 0, hak__superslab_expected());
}

/* What happens in the middle of the next call of the library's, which makes it by name. */
static void (*on_unmap)(void);
static const char *fork_at; /* a fork comes in the middle of this byte's purge */
static uint32_t purged_outside;

int munmap(void *address, size_t size)
{
    void (*happens)(void) = on_unmap;
    on_unmap = NULL;
    if (happens != NULL) {
        happens();
    }
    return (int)syscall(SYS_munmap, address, size);
}

int madvise(void *address, size_t size, int advice)
{
    purged_outside += advice == MADV_DONTNEED && hak__inside == 0;
    if (fork_at != NULL && (size_t)(fork_at - (char *)address) < size) {
        fork_at = NULL;
        hak__gate_close(); /* does not wait for itself */
    }
    return (int)syscall(SYS_madvise, address, size, advice);
}

/* A fork's handlers, and those of signals, find no lock taken by a thread that was turned away. */
TEST(a_fork_ends_a_trim)
{
    enum { COUNT = 64 }; /* the pages of those that are free would go last */
    struct thread *thread = adopt();
    uint32_t class_index = size_class_of(1024);
    void *objects[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = thread_allocate(thread, class_index);
    }
    for (size_t i = 1; i < COUNT; i++) {
        thread_free(thread, class_index, objects[i]);
    }
    hak__thread_flush(thread);
    size_t slice = hak__superslab_take(0, 3, 1, FOR_SLAB).slice;
    hak__superslab_give(slice + 2, 1);
    hak__superslab_purge();
    hak__superslab_give(slice, 1);
    fork_at = window_slice_address(slice);
    purged_outside = 0;
    hak__arena_reclaim(false);
    assert_null(fork_at);
    assert_int_equal(purged_outside, 0);
    assert_int_equal(hak__inside, 0);
    hak__gate_open();
    hak__superslab_give(slice + 1, 1);
    thread_free(thread, class_index, objects[0]);
    hak__thread_park(thread);
}

static struct thread *other_thread;

/* A later tick of another thread begins a pass, and then memory becomes free. */
static void another_ticks(void)
{
    hak__os_sleep_ms(20); /* more than the coarse clock's step */
    hak__knobs.purge_delay_ms = 0;
    hak__arena_tick(other_thread);
    hak__superslab_purge_part(false, false, SIZE_MAX);
    hak__arena_pages_part(false, SIZE_MAX);
    hak__superslab_purge();
    unit_free_superslabs(4);
}

/* A thread that has looked at the clock before another one begins a pass does not take that for a
 * sleep of 49 days. */
TEST_WITH_KNOBS(ticks_that_overtake)
{
    SKIP_IF(HAK_SECURE); /* caches no huge block */
    struct thread *thread = adopt();
    other_thread = adopt();
    hak__knobs.purge_delay_ms = 1000000000;
    hak__superslab_purge(); /* what is dirty would count as kept, and a fall let it go */
    hak__huge_cache_trim(0);
    void *block = hak_malloc(3 * MIB);
    memset(block, 'x', 3 * MIB); /* a sparse one does not count */
    hak_free(block);
    REQUIRE_SIZE(hak__huge_totals().cached_bytes, >=, 3 * MIB);
    hak__knobs.huge_cache_bytes = 0; /* so that the tick unmaps it */
    on_unmap = another_ticks;
    hak__arena_tick(thread);
    assert_null(on_unmap);
    assert_int_equal(hak__superslab_bytes_dirty(), 4 * SUPERSLAB_SIZE);
    hak__thread_park(thread);
    hak__thread_park(other_thread);
}

/* What many threads free would hold one of them up for long: it does a part, and the next operation
 * goes on. */
TEST_WITH_KNOBS(giving_back_is_bounded)
{
    enum { COUNT = (9 * BURST_BYTES + 2 * RESERVE_BYTES) / SUPERSLAB_SIZE };
    static size_t slices[COUNT];
    hak__knobs.huge_threshold = UINT64_MAX;
    hak__knobs.purge_delay_ms = UINT32_MAX - 1;
    hak__superslab_purge();
    for (size_t i = 0; i < COUNT; i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    hak__superslab_turn_use(true);
    for (size_t i = 0; i < COUNT; i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
    uint32_t freed_much = superslab_freed_much();
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    for (int i = 0; i < 2; i++) {
        size_t dirty = hak__superslab_bytes_dirty();
        hak__arena_give_back();
        size_t given = dirty - hak__superslab_bytes_dirty();
        assert_true(i == 0 ? given == 8 * BURST_BYTES : given != 0);
        assert_int_equal(superslab_freed_much(), freed_much + 1);
    }
    hak__gate_leave();
    assert_in_range(hak__superslab_bytes_dirty(), 0, hak__superslab_expected());
}

TESTS(start_with_many_arenas)
