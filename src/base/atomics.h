/* SPDX-License-Identifier: MIT */
/* atomics.h: the few atomic operations that hakmem uses, each with its memory order in its name.
 *
 * Why not <stdatomic.h>: the fast-path headers are also compiled as C++, and a name with the order
 * in it forces the author to choose one. Each use that is not relaxed has a comment that names the
 * operation it pairs with. Variables that several threads access this way start with `shared_`. */
#ifndef HAK_BASE_ATOMICS_H
#define HAK_BASE_ATOMICS_H

#include "base/compiler.h"

#define atomic_load_relaxed(address) __atomic_load_n((address), __ATOMIC_RELAXED)
#define atomic_load_acquire(address) __atomic_load_n((address), __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(address, value) __atomic_store_n((address), (value), __ATOMIC_RELAXED)
#define atomic_store_release(address, value) __atomic_store_n((address), (value), __ATOMIC_RELEASE)
#define atomic_exchange_relaxed(address, value)                                                    \
    __atomic_exchange_n((address), (value), __ATOMIC_RELAXED)
#define atomic_exchange_acquire(address, value)                                                    \
    __atomic_exchange_n((address), (value), __ATOMIC_ACQUIRE)
#define atomic_exchange_release(address, value)                                                    \
    __atomic_exchange_n((address), (value), __ATOMIC_RELEASE)
#define atomic_add_relaxed(address, value) __atomic_fetch_add((address), (value), __ATOMIC_RELAXED)
#define atomic_add_release(address, value) __atomic_fetch_add((address), (value), __ATOMIC_RELEASE)
#define atomic_add_acq_rel(address, value) __atomic_fetch_add((address), (value), __ATOMIC_ACQ_REL)
#define atomic_sub_relaxed(address, value) __atomic_fetch_sub((address), (value), __ATOMIC_RELAXED)
#define atomic_sub_release(address, value) __atomic_fetch_sub((address), (value), __ATOMIC_RELEASE)
#define atomic_and_acq_rel(address, value) __atomic_fetch_and((address), (value), __ATOMIC_ACQ_REL)
#define atomic_and_relaxed(address, value) __atomic_fetch_and((address), (value), __ATOMIC_RELAXED)
#define atomic_or_relaxed(address, value) __atomic_fetch_or((address), (value), __ATOMIC_RELAXED)
/* Stops the compiler from reordering, for a signal handler of the same thread. No instruction. */
#define atomic_fence_signal() __atomic_signal_fence(__ATOMIC_SEQ_CST)
/* True: *address was *expected and is now `value`. False: *expected is what was found instead. The
 * weak forms may also fail without a reason, so they stand in loops. */
#define atomic_cas_weak_acquire(address, expected, value)                                          \
    __atomic_compare_exchange_n((address), (expected), (value), true, __ATOMIC_ACQUIRE,            \
                                __ATOMIC_RELAXED)
#define atomic_cas_weak_release(address, expected, value)                                          \
    __atomic_compare_exchange_n((address), (expected), (value), true, __ATOMIC_RELEASE,            \
                                __ATOMIC_RELAXED)
#define atomic_cas_acquire(address, expected, value)                                               \
    __atomic_compare_exchange_n((address), (expected), (value), false, __ATOMIC_ACQUIRE,           \
                                __ATOMIC_RELAXED)

#define atomic_cas_release(address, expected, value)                                               \
    __atomic_compare_exchange_n((address), (expected), (value), false, __ATOMIC_RELEASE,           \
                                __ATOMIC_RELAXED)

#endif
