/* SPDX-License-Identifier: MIT */
/* support.h: what the tests of the hak_ API share. Header only, so that one test is one file and
 * one program.
 *
 * Nothing here takes memory from the allocator under test: tables come from mmap. cmocka's
 * assertions leave a test by longjmp and so are for the main thread; threads and child processes
 * use REQUIRE, which ends the process. A test reads HAK_LEVEL (a compile definition) to know what
 * the library under test detects.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"

#include "hakmem/hakmem.h"
#include "hakmem/stats.h"

#ifndef HAK_LEVEL
#define HAK_LEVEL 0
#endif

/* Sanitizers multiply memory and address space: tests of RSS, limits and mapping counts skip
 * themselves. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SUPPORT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SUPPORT_SANITIZED 1
#endif
#endif
#ifndef SUPPORT_SANITIZED
#define SUPPORT_SANITIZED 0
#endif

#ifndef SUPPORT_EMULATED /* the form is for another processor, which qemu-user imitates */
#define SUPPORT_EMULATED 0
#endif

/* True when the library walks its structures or the test is instrumented or emulated: repeat less.
 */
#define SUPPORT_SLOW (HAK_LEVEL >= 2 || SUPPORT_SANITIZED || SUPPORT_EMULATED)

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How a failure ends the process; fuzzers want a signal. */
#ifndef SUPPORT_END
#define SUPPORT_END _exit(1)
#endif

/* An errno no call sets, to see that errno is left alone. */
#define ERRNO_UNTOUCHED 7777

__attribute__((noreturn, format(printf, 1, 2))) static inline void support_fail(const char *format,
                                                                                ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(NULL);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(NULL);
    SUPPORT_END;
}

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            support_fail("%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
        }                                                                                          \
    } while (0)

#define SKIP_IF(condition)                                                                         \
    do {                                                                                           \
        if (condition) {                                                                           \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* Blocks of `size` bytes each. */
#define ALLOCATE_ALL(blocks, count, size)                                                          \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++) {                                          \
            (blocks)[i_] = hak_malloc(size);                                                       \
            REQUIRE((blocks)[i_] != NULL);                                                         \
        }                                                                                          \
    } while (0)

/* The same, and all of them is written. */
#define ALLOCATE_WRITTEN(blocks, count, size)                                                      \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++) {                                          \
            (blocks)[i_] = hak_malloc(size);                                                       \
            REQUIRE((blocks)[i_] != NULL);                                                         \
            memset((blocks)[i_], 1, (size));                                                       \
        }                                                                                          \
    } while (0)

#define FREE_ALL(blocks, count)                                                                    \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++) {                                          \
            hak_free((blocks)[i_]);                                                                \
        }                                                                                          \
    } while (0)

/* Compares two sizes and shows both. */
#define REQUIRE_SIZE(a, relation, b)                                                               \
    do {                                                                                           \
        size_t left_ = (a), right_ = (b);                                                          \
        if (!(left_ relation right_)) {                                                            \
            support_fail("%s:%d: failed: %s (%zu) %s %s (%zu)\n", __FILE__, __LINE__, #a, left_,   \
                         #relation, #b, right_);                                                   \
        }                                                                                          \
    } while (0)

/* The compiler may not know where the value comes from: no warnings about impossible sizes, no
 * folding of comparisons of pointers it believes distinct or dead. */
static inline size_t hide_size(size_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}

static inline void *hide(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

static inline bool is_aligned(const void *pointer, size_t alignment)
{
    return ((uintptr_t)pointer & (alignment - 1)) == 0;
}

/* Zeroed memory that the allocator under test knows nothing of. */
static inline void *support_map(size_t size)
{
    void *result = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(result != MAP_FAILED);
    return result;
}

/* splitmix64 (Steele, Lea, Flood 2014): any state is good, so states may be derived from each
 * other. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 .. bound - 1; the modulo's bias does not matter here. */
static inline size_t random_below(uint64_t *state, size_t bound)
{
    return (size_t)(random_next(state) % bound);
}

/* Log-uniform in 0 .. 2^bits - 1: each number of bits equally often. */
static inline size_t random_size(uint64_t *state, unsigned bits)
{
    unsigned width = (unsigned)random_below(state, bits + 1);
    return width == 0 ? 0
                      : ((size_t)1 << (width - 1)) + random_below(state, (size_t)1 << (width - 1));
}

/* The pattern: word i of a block is seed + i * constant, so that a shifted, swapped or overwritten
 * part shows. */
#define PATTERN_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline void pattern_fill(void *block, size_t size, uint64_t seed)
{
    char *bytes = block;
    size_t words = size / 8;
    uint64_t word = seed;
    for (size_t i = 0; i < words; i++, word += PATTERN_STEP) {
        memcpy(bytes + i * 8, &word, 8);
    }
    memcpy(bytes + words * 8, &word, size % 8);
}

/* The first word's offset that differs from the pattern, SIZE_MAX when none does. */
static inline size_t pattern_mismatch(const void *block, size_t size, uint64_t seed)
{
    const char *bytes = block;
    size_t words = size / 8;
    uint64_t word = seed;
    for (size_t i = 0; i < words; i++, word += PATTERN_STEP) {
        if (memcmp(bytes + i * 8, &word, 8) != 0) {
            return i * 8;
        }
    }
    return memcmp(bytes + words * 8, &word, size % 8) == 0 ? SIZE_MAX : words * 8;
}

/* The first byte that is not zero, SIZE_MAX when all are. */
static inline size_t nonzero_offset(const void *block, size_t size)
{
    const unsigned char *bytes = block;
    size_t i = 0;
    for (uint64_t word; i + 8 <= size; i += 8) {
        memcpy(&word, bytes + i, 8);
        if (word != 0) {
            break;
        }
    }
    for (; i < size; i++) {
        if (bytes[i] != 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* Reads a /proc file into `buffer`, zero-terminated; the number of bytes read. */
static inline size_t support_read_file(const char *path, char *buffer, size_t size)
{
    size_t length = 0;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        ssize_t got;
        while (length + 1 < size &&
               (got = read(descriptor, buffer + length, size - 1 - length)) > 0) {
            length += (size_t)got;
        }
        close(descriptor);
    }
    buffer[length] = '\0';
    return length;
}

/* The number after `key` in a /proc file of "Key:  number kB" lines, bytes; 0 when it is not there.
 */
static inline size_t support_proc_bytes(const char *path, const char *key)
{
    char buffer[8192];
    support_read_file(path, buffer, sizeof buffer);
    const char *line = strstr(buffer, key);
    return line == NULL ? 0 : (size_t)strtoull(line + strlen(key), NULL, 10) * KIB;
}

/* smaps_rollup counts exactly; statm and status are off by a batch of OS pages per processor. */
static inline size_t rss_bytes(void)
{
    size_t exact = support_proc_bytes("/proc/self/smaps_rollup", "\nRss:");
    return exact != 0 ? exact : support_proc_bytes("/proc/self/status", "\nVmRSS:");
}

static inline size_t address_space_bytes(void)
{
    return support_proc_bytes("/proc/self/status", "\nVmSize:");
}

static inline size_t mappings_count(void)
{
    char buffer[4096];
    size_t lines = 0;
    int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    REQUIRE(descriptor >= 0);
    for (ssize_t got; (got = read(descriptor, buffer, sizeof buffer)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            lines += buffer[i] == '\n';
        }
    }
    close(descriptor);
    return lines;
}

static inline uint64_t now_ms(clockid_t clock)
{
    struct timespec now;
    REQUIRE(clock_gettime(clock, &now) == 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Small pages for this process from now on, whatever the machine prefers: for tests that count
 * them. What asks for huge ones gets small ones. Emulators do not know it, and prefer nothing. */
static inline void support_small_pages(void)
{
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

#ifndef MADV_COLLAPSE /* of Linux 6.1; the value is part of the kernel's ABI */
#define MADV_COLLAPSE 25
#endif

/* Has the kernel join the small pages of [address, address + size), multiples of 2 MiB, where they
 * may be joined: what khugepaged does in the background wherever one of them is resident. Kernels
 * before 6.1 do nothing. */
static inline void support_collapse(void *address, size_t size)
{
    madvise(address, size, MADV_COLLAPSE);
}

static inline struct hak_stats stats_now(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats);
    return stats;
}

static inline void require_same_use(struct hak_stats before, struct hak_stats after)
{
    assert_int_equal(after.objects_in_use_count, before.objects_in_use_count);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

/* What hak_good_size promises of a block got for `size` bytes: exact for classes; a reused span or
 * huge block may be longer. */
static inline bool usable_is_good(const void *block, size_t size)
{
    size_t usable = hak_usable_size(block);
    size_t good = hak_good_size(size);
    return size <= 64 * KIB ? usable == good : usable >= good;
}

/* The number after argument `name`, or `otherwise`. */
static inline uint64_t argument_number(int count, char **arguments, const char *name,
                                       uint64_t otherwise)
{
    for (int i = 1; i + 1 < count; i++) {
        if (strcmp(arguments[i], name) == 0) {
            return strtoull(arguments[i + 1], NULL, 0);
        }
    }
    return otherwise;
}

/* One size or more of every tier and of the borders between them. */
static const size_t tier_sizes[] = {
    0,          1,      16,      17,          100,         1024,    1025,
    4096,       10000,  32768,   65536,       65664,       65665,   131072,
    300 * 1024, 819200, 2 * MIB, 2 * MIB + 1, 3 * MIB + 5, 8 * MIB, 20 * MIB,
};

#endif
