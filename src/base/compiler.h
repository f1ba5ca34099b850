/* compiler.h: what the compiler must be told, under one name each. No state. */
#ifndef HAK_BASE_COMPILER_H
#define HAK_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HAK_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* The line at `address`, which may be any, is about to be written. */
#define HAK_PREFETCH(address) __builtin_prefetch(address, 1)
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_HIDDEN __attribute__((visibility("hidden")))
/* A fast path: at a cache line, so that it lies in one or two of them whatever is linked before. */
#define HAK_FAST_PATH __attribute__((hot, aligned(64)))
#define HAK_CACHE_ALIGNED __attribute__((aligned(64)))

/* Initial-exec: two instructions to reach, never a call; the library's whole static TLS is one
 * pointer, so that dlopen finds room for it in the loader's surplus. */
#define HAK_TLS __thread __attribute__((tls_model("initial-exec")))

#if defined(__SANITIZE_THREAD__)
#define HAK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_TSAN 1
#endif
#endif
#ifndef HAK_TSAN
#define HAK_TSAN 0
#endif

/* For reports that read another thread's plain numbers while it works: a picture of a moment, by
 * intent. */
#define HAK_RACY_READER __attribute__((noinline, no_sanitize("thread")))

/* The assertion level is the one build setting of correctness: 0 release, 1 cheap assertions, 2
 * invariant walkers and tiny limits (core/limits.h). */
#ifndef HAK_LEVEL
#define HAK_LEVEL 0
#endif

#if defined(__cplusplus)
#define HAK_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define HAK_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#endif
