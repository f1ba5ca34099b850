/* SPDX-License-Identifier: MIT */
/* lock.h: the recorder's lock. It runs inside malloc, so it calls the kernel alone.
 *
 * The word holds the kernel's number of the thread that has the lock; 0: nobody. So a signal
 * handler sees that it has interrupted the holder, and does not wait for itself. */
#ifndef TRACE_LOCK_H
#define TRACE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Yields, then sleeps. A holder may write to a slow disk for seconds. One that does not come back
 * was killed inside the lock: with twice the sleeps, a thread stands still for 20 s instead of 10.
 */
#define LOCK_YIELDS 100u
#define LOCK_SLEEPS 10000u
#define LOCK_SLEEP_NS                                                                              \
    1000000 /* twice that: a thread wakes up later, and is woken half as often                     \
             */

/* False: this thread has the lock already, or the holder does not come back. */
static inline bool lock_take(_Atomic uint32_t *word)
{
    const struct timespec sleep = {.tv_nsec = LOCK_SLEEP_NS};
    uint32_t self = (uint32_t)syscall(SYS_gettid), holder;
    for (unsigned i = 0; i < LOCK_YIELDS + LOCK_SLEEPS; i++) {
        holder = 0;
        if (atomic_compare_exchange_strong_explicit(word, &holder, self, memory_order_acquire,
                                                    memory_order_relaxed)) {
            return true;
        }
        if (holder == self) {
            break;
        }
        if (i < LOCK_YIELDS) {
            syscall(SYS_sched_yield);
        } else {
            syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &sleep, NULL);
        }
    }
    return false;
}

static inline void lock_give(_Atomic uint32_t *word)
{
    atomic_store_explicit(word, 0, memory_order_release);
}

#endif
