/* SPDX-License-Identifier: MIT */
/* thread_bytes.c: how much a thread has allocated and freed (hak_thread_bytes_read).
 *
 * The fast paths of malloc and free do not count for it. Two sums are known at each moment:
 *
 *   asked   what malloc's countdown of bytes has taken since the last reading, and the blocks that
 *           did not come from a bin
 *   net     what refills have brought, less what flushes and remote batches took away, less what
 *           bins and remote buffer hold: the blocks that the thread got, less those that it freed
 *
 * Between two readings the thread has allocated at least `asked`, and at least as much as `net` has
 * grown. The larger of the two is counted, and freed is the rest to `net`. So both grow only, and
 * their difference is exact.
 *
 * State: struct cache_bytes of the calling thread's structs, which the thread alone writes. */
#include "arena/arena.h"
#include "hakmem/stats.h"

#include <string.h>

/* What the countdown has taken and the sampler has not seen. */
static int64_t bytes_of_countdown(const struct thread *thread)
{
    return (int64_t)thread->sampler.countdown_from - thread->cache.countdown;
}

static int64_t bytes_held(const struct thread *thread)
{
    return (int64_t)(hak__cache_bytes(&thread->cache) + hak__remote_bytes(&thread->cache));
}

static void bytes_take(struct thread *thread)
{
    struct cache_bytes *bytes = &thread->cache.bytes;
    int64_t asked = bytes->asked + bytes_of_countdown(thread);
    int64_t grown = bytes->given - bytes_held(thread) - bytes->net;
    bytes->asked -= asked;
    bytes->net += grown;
    bytes->allocated += (uint64_t)(asked > grown ? asked : grown);
}

void hak__thread_bytes_begin(struct thread *thread)
{
    thread->cache.bytes =
        (struct cache_bytes){.asked = -bytes_of_countdown(thread), .given = bytes_held(thread)};
}

void hak__thread_bytes_hand_on(struct thread *from, struct thread *to)
{
    bytes_take(from);
    to->cache.bytes.given = to->cache.bytes.net = from->cache.bytes.net;
    to->cache.bytes.allocated = from->cache.bytes.allocated;
}

void hak_thread_bytes_read(struct hak_thread_bytes *bytes, size_t size)
{
    struct hak_thread_bytes filled = {.version = HAK_STATS_VERSION};
    struct thread *thread = hak__thread;
    for (uint32_t i = 0; i < 2 && thread != NULL && thread->arena != NULL; i++) {
        bytes_take(thread);
        filled.allocated += thread->cache.bytes.allocated;
        filled.freed += thread->cache.bytes.allocated - (uint64_t)thread->cache.bytes.net;
        thread = thread->twin;
    }
    filled.size = (uint32_t)(size < sizeof filled ? size : sizeof filled);
    memcpy(bytes, &filled, filled.size);
}
