/* atomics.h: the few atomic operations in use, each with its order in its name.
 *
 * Why not <stdatomic.h>: the fast-path headers are also compiled as C++, and a name that carries
 * its order makes a missing thought visible. At every use a comment names the operation it pairs
 * with. */
#ifndef HAK_BASE_ATOMICS_H
#define HAK_BASE_ATOMICS_H

#include "base/compiler.h"

#define atomic_load_relaxed(address) __atomic_load_n((address), __ATOMIC_RELAXED)
#define atomic_load_acquire(address) __atomic_load_n((address), __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(address, value) __atomic_store_n((address), (value), __ATOMIC_RELAXED)
#define atomic_store_release(address, value) __atomic_store_n((address), (value), __ATOMIC_RELEASE)
#define atomic_exchange_acquire(address, value)                                                    \
    __atomic_exchange_n((address), (value), __ATOMIC_ACQUIRE)
#define atomic_exchange_release(address, value)                                                    \
    __atomic_exchange_n((address), (value), __ATOMIC_RELEASE)
#define atomic_add_relaxed(address, value) __atomic_fetch_add((address), (value), __ATOMIC_RELAXED)
#define atomic_sub_relaxed(address, value) __atomic_fetch_sub((address), (value), __ATOMIC_RELAXED)
#define atomic_and_acq_rel(address, value) __atomic_fetch_and((address), (value), __ATOMIC_ACQ_REL)
#define atomic_or_relaxed(address, value) __atomic_fetch_or((address), (value), __ATOMIC_RELAXED)
/* For the compiler alone: against a signal handler of the same thread. */
#define atomic_fence_signal() __atomic_signal_fence(__ATOMIC_SEQ_CST)
/* `expected` is a pointer and receives the value found on failure. */
#define atomic_cas_weak_acquire(address, expected, value)                                          \
    __atomic_compare_exchange_n((address), (expected), (value), true, __ATOMIC_ACQUIRE,            \
                                __ATOMIC_RELAXED)
#define atomic_cas_weak_release(address, expected, value)                                          \
    __atomic_compare_exchange_n((address), (expected), (value), true, __ATOMIC_RELEASE,            \
                                __ATOMIC_RELAXED)
#define atomic_cas_acquire(address, expected, value)                                               \
    __atomic_compare_exchange_n((address), (expected), (value), false, __ATOMIC_ACQUIRE,           \
                                __ATOMIC_RELAXED)

#endif
