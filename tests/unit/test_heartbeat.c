/* SPDX-License-Identifier: MIT */
/* test_heartbeat.c: heap/heartbeat: countdown, looks, ticks. What the clock decides is compared
 * with the clock: a busy machine may be late at any moment. */
#include "../threads/threads.h"
#include "heaps.h"

enum { SIZE = 100 };

/* A look at a request for SIZE bytes that comes `late_ms` after the last tick. Returns for how long
 * after that tick it can have come. */
static uint32_t look(struct thread *thread, uint32_t late_ms)
{
    uint32_t ticked_ms = thread->ticked_ms = hak__os_clock_ms() - late_ms;
    thread->cache.countdown = -1;
    hak__thread_countdown_ended(thread, SIZE);
    return hak__os_clock_ms() - ticked_ms;
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
        hak__gate_note_refusal(noted);
        thread->trimmed_ms = hak__os_clock_ms() - 4000;
        look(thread, 60);
        assert_true(hak__gate_was_refused() == noted);
        if (closed) {
            hak__gate_open();
        }
    }
    hak__thread_park(thread);
}

/* malloc's fast path counts down, and the look takes nothing but the object it was asked for. */
static void *count_down(void *argument)
{
    hak_free(hak_malloc(SIZE));
    struct thread *thread = hak__thread_current();
    struct bin *bin = &thread->cache.bins[size_class_of(SIZE)];
    uint64_t slow = thread->cache.counters.values[COUNTER_MALLOC_SLOW];
    REQUIRE(bin_count(bin) != 0);
    uint32_t held = bin_count(bin), operations = thread->operations;
    thread->cache.countdown = SIZE;
    void *first = hak_malloc(SIZE);
    REQUIRE(thread->cache.countdown == 0 && bin_count(bin) == held - 1);
    hak_free(first);
    thread->ticked_ms = thread->trimmed_ms = hak__os_clock_ms();
    thread->interval = 0;
    void *second = hak_malloc(SIZE);
    REQUIRE(second == first && thread->cache.countdown >= 0);
    REQUIRE(thread->operations == operations || thread->operations == 0); /* late, and ticked */
    REQUIRE(thread->cache.counters.values[COUNTER_MALLOC_SLOW] == slow);
    hak_free(second);
    thread->cache.countdown = 0;
    thread->eager_looks = 0;
    thread->ticked_ms = thread->trimmed_ms = hak__os_clock_ms();
    void *aligned = hak_aligned_alloc(64, SIZE); /* the same door */
    REQUIRE(aligned != NULL && thread->cache.countdown >= 0);
    hak_free(aligned);
    return NULL;
}

TEST_WITH_KNOBS(malloc_counts_down)
{
    hak__knobs.purge_delay_ms = UINT32_MAX; /* no tick empties the bin */
    thread_join(thread_start(count_down, NULL));
}

/* Early looks become rare, whatever the size, but not so rare that a program that goes on with
 * small mallocs looks too late. */
TEST_WITH_KNOBS(early_looks_become_rare)
{
    struct thread *thread = adopt();
    static const uint32_t sizes[] = {16, 1000, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
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

TESTS(start_with_many_heaps)
