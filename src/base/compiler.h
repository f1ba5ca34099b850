/* SPDX-License-Identifier: MIT */
/* compiler.h: names for compiler attributes and builtins, and the assertion level. No state. */
#ifndef HAK_BASE_COMPILER_H
#define HAK_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HAK_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* Loads the cache line at `address` for a write that will follow. Any address is allowed. */
#define HAK_PREFETCH(address) __builtin_prefetch(address, 1)
#define HAK_COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_HIDDEN __attribute__((visibility("hidden")))
/* A fast path. It starts at a cache line, so that the number of lines it covers does not depend on
 * what is linked before it. */
#define HAK_FAST_PATH __attribute__((hot, aligned(64)))

/* A variable of zeros, of 64 bytes or more, that most processes do not write to. It lies behind the
 * others, which then share one OS page: a process has a copy of each page that it writes to
 * (docs/decisions/0119). */
#define HAK_SELDOM __attribute__((section(".bss.large")))

/* Initial-exec: access takes two instructions and never a call. dlopen must find room for such
 * variables in the loader's small reserve, so the library has only a few words of them. */
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

/* For report functions that read other threads' plain counters while those change. The result is
 * only approximately of one moment, so ThreadSanitizer should not complain. */
#define HAK_RACY_READER __attribute__((noinline, no_sanitize("thread")))

/* For functions that read words of the stack that may belong to no variable. */
#define HAK_STACK_READER __attribute__((noinline, no_sanitize("address"), no_sanitize("thread")))

/* The assertion level. 0: release; 1: cheap assertions; 2: also walks over whole structures, and
 * tiny limits (core/limits.h). Each level makes the library slower. */
#ifndef HAK_LEVEL
#define HAK_LEVEL 0
#endif

/* 1: the secure form of the library (region/secure.h, docs/security.md). */
#ifndef HAK_SECURE
#define HAK_SECURE 0
#endif

#if defined(__cplusplus)
#define HAK_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define HAK_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#endif
