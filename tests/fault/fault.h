/* SPDX-License-Identifier: MIT */
/* fault.h: system calls that fail on purpose.
 *
 * The programs of this folder are linked with --wrap for every function by which the library enters
 * the kernel (cmake/hakmem_tests.cmake lists them; tools/check_library.sh knows all that there
 * are). What is here stands in between: it counts each call, keeps a ledger of the bytes that are
 * mapped, and lets the plan's calls fail. The calls of the tests themselves come here too, so none
 * is made while calls are counted but by __real_ names.
 *
 * A plan: these calls (a set), the n-th of them counted from fault_arm, that errno, that one or all
 * from it on until fault_disarm.
 */
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include "../child.h"

#include <linux/futex.h>
#include <sys/auxv.h>

#ifndef MADV_POPULATE_WRITE /* of Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define FAULT_GUARD_INSTALL 102 /* MADV_GUARD_INSTALL and the other, of Linux 6.13 */
#define FAULT_GUARD_REMOVE 103
#define FAULT_DONTUNMAP 4 /* MREMAP_DONTUNMAP, of Linux 5.7 */

/* No errnos, but other bad news: the mapping is elsewhere (a kernel before 4.17); half is written;
 * mremap fails after it has unmapped its target (a kernel before 6.17), and another thread takes
 * the addresses at once. */
enum { FAULT_ELSEWHERE = -1, FAULT_HALF = -2, FAULT_GONE = -3, FAULT_TAKEN = -4 };

/* The calls, with their errors, of which the first is the likeliest. What a seccomp filter answers
 * (EPERM, ENOSYS) is included. A caller of mmap is told apart by what it wants: an address or any.
 * ONCE: no kernel refuses it for ever with these. A wake fails only where all futexes do
 * (fault_plans_futex of test_threads.c), yields and getpid cannot. GUARD closes and opens the pages
 * of guarded blocks, in one way or the other, LEAVE is close_range. */
#define FAULT_KINDS(EVER, ONCE)                                                                    \
    EVER(MMAP, ENOMEM, EAGAIN, EPERM)                                                              \
    EVER(MMAP_AT, ENOMEM, EEXIST, EAGAIN, EPERM, FAULT_ELSEWHERE)                                  \
    EVER(MUNMAP, ENOMEM, EPERM)                                                                    \
    EVER(MREMAP, ENOMEM, EAGAIN, EFAULT, ENOSYS, FAULT_GONE, FAULT_TAKEN)                          \
    EVER(PURGE, EINVAL, EAGAIN, ENOMEM, EPERM)                                                     \
    EVER(HUGE_PAGES, EINVAL, ENOMEM, EAGAIN)                                                       \
    EVER(SMALL, EINVAL, ENOMEM, EAGAIN)                                                            \
    EVER(POPULATE, EINVAL, ENOMEM, EFAULT, EPERM)                                                  \
    EVER(MINCORE, EAGAIN, ENOMEM, ENOSYS)                                                          \
    EVER(OPEN, EACCES, ENOENT, EMFILE, ENOSPC, EROFS, EINTR)                                       \
    EVER(CLOSE, EIO, EINTR)                                                                        \
    EVER(WRITE, EIO, ENOSPC, EAGAIN, EPIPE, EBADF, FAULT_HALF)                                     \
    EVER(SYSINFO, EFAULT, EPERM, ENOSYS)                                                           \
    EVER(GETAFFINITY, EINVAL, EPERM, ENOSYS)                                                       \
    EVER(CLOCK, EINVAL, EPERM, ENOSYS)                                                             \
    ONCE(WAIT, EINTR, EAGAIN, EPERM, ENOSYS)                                                       \
    ONCE(WAKE, 0)                                                                                  \
    ONCE(YIELD, 0)                                                                                 \
    ONCE(GETPID, 0)                                                                                \
    EVER(OPENAT, ENOENT, EACCES, EMFILE, ENFILE, EPERM, ENOSYS)                                    \
    EVER(READ, EIO, EINTR, EISDIR, EPERM)                                                          \
    EVER(READLINK, ENOENT, EACCES, EPERM, ENOSYS)                                                  \
    EVER(STAT, ENOENT, EACCES, EPERM, ENOSYS)                                                      \
    EVER(NAME, EINVAL, EPERM, ENOSYS)                                                              \
    EVER(FCNTL, EMFILE, EINVAL, EPERM, ENOSYS)                                                     \
    EVER(FSTAT, EBADF, EIO, EPERM, ENOSYS)                                                         \
    EVER(SIGMASK, EINVAL, EPERM, ENOSYS)                                                           \
    EVER(RESERVE, ENOSPC, EFBIG, EOPNOTSUPP, EPERM, ENOSYS)                                        \
    EVER(UNLINK, EPERM, ENOENT, EACCES)                                                            \
    EVER(GUARD, ENOMEM, EINVAL, EACCES, EPERM)                                                     \
    EVER(LEAVE, ENOSYS, EINVAL, EPERM, ENOMEM, EMFILE)

#define FAULT_CALL(call, ...) FAULT_##call,
enum fault_call { FAULT_KINDS(FAULT_CALL, FAULT_CALL) FAULT_CALLS };

enum { FAULT_ERRORS_MAX = 6 };

#define FAULT_EVER(call, ...) {#call, {__VA_ARGS__}, false},
#define FAULT_ONCE(call, ...) {#call, {__VA_ARGS__}, true},
static const struct fault_kind {
    const char *name;
    int errors[FAULT_ERRORS_MAX]; /* 0 at the end */
    bool once_only;
} fault_kinds[FAULT_CALLS] = {FAULT_KINDS(FAULT_EVER, FAULT_ONCE)};

#define FAULT_SET(call) (1u << (call))
#define FAULT_ALL (UINT32_MAX >> (32 - FAULT_CALLS))
#define FAULT_MEMORY_SET                                                                           \
    (FAULT_SET(FAULT_MMAP) | FAULT_SET(FAULT_MMAP_AT) | FAULT_SET(FAULT_MUNMAP) |                  \
     FAULT_SET(FAULT_MREMAP) | FAULT_SET(FAULT_PURGE))

struct fault_plan {
    uint32_t calls; /* FAULT_SETs; 0: nothing fails */
    uint32_t nth;   /* of these calls, from 1 */
    int error;      /* 0: each call's own likeliest */
    bool on;        /* and all from then on */
    uint32_t odds;  /* not 0: instead one in so many fails, with any errno of its */
};

static struct fault_plan fault_plan;
static bool fault_counting;
static uint64_t fault_counts[FAULT_CALLS];
/* For each call its sites, and the number of the occurrence at which each came first. */
enum { FAULT_FIRSTS_MAX = 16 };
static struct {
    uintptr_t address;
    uint64_t nth;
} fault_firsts[FAULT_CALLS][FAULT_FIRSTS_MAX];
static uint64_t fault_planned_count; /* calls of the plan */
static uint64_t fault_fired_count;
static uint64_t fault_random;
static int64_t fault_ledger; /* bytes the library has mapped, since the process's start */
#ifndef FAULT_HIDES_VDSO
#define FAULT_HIDES_VDSO false
#endif
#ifndef FAULT_CLOCK_STANDS /* needs FAULT_HIDES_VDSO: the coarse clock is fault_clock_ms */
#define FAULT_CLOCK_STANDS false
#endif
#ifndef FAULT_CLOCK_FAILS /* the clock that stands may fail, too */
#define FAULT_CLOCK_FAILS false
#endif
static uint32_t fault_clock_ms = 1000;
static uint64_t fault_clock_us; /* the other clock, if it is not 0 */

/* The names that --wrap makes. */
void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
void *__real_mremap(void *, size_t, size_t, int, ...);
int __real_madvise(void *, size_t, int);
int __real_mincore(void *, size_t, unsigned char *);
int __real_open(const char *, int, ...);
int __real_close(int);
long __real_syscall(long, ...);
unsigned long __real_getauxval(unsigned long);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
int __wrap_munmap(void *, size_t);
void *__wrap_mremap(void *, size_t, size_t, int, ...);
int __wrap_madvise(void *, size_t, int);
int __wrap_mincore(void *, size_t, unsigned char *);
int __wrap_open(const char *, int, ...);
int __wrap_close(int);
long __wrap_syscall(long, ...);
unsigned long __wrap_getauxval(unsigned long);

static inline void fault_arm(struct fault_plan plan, uint64_t seed)
{
    memset(fault_counts, 0, sizeof fault_counts);
    memset(fault_firsts, 0, sizeof fault_firsts);
    fault_planned_count = fault_fired_count = 0;
    fault_random = seed;
    fault_plan = plan;
    __atomic_store_n(&fault_counting, true, __ATOMIC_SEQ_CST);
}

static inline void fault_disarm(void)
{
    __atomic_store_n(&fault_counting, false, __ATOMIC_SEQ_CST);
}

static inline int fault_random_error(enum fault_call call)
{
    const int *errors = fault_kinds[call].errors;
    size_t count = 0;
    while (count < FAULT_ERRORS_MAX && errors[count] != 0) {
        count++;
    }
    uint64_t state = __atomic_add_fetch(&fault_random, PATTERN_STEP, __ATOMIC_RELAXED);
    if (count == 0 || random_below(&state, fault_plan.odds) != 0) {
        return 0;
    }
    return errors[random_below(&state, count)];
}

/* Threads may come at once: a site may then be noted twice. */
static inline void fault_note_first(enum fault_call call, uintptr_t address, uint64_t nth)
{
    for (size_t i = 0; i < FAULT_FIRSTS_MAX; i++) {
        if (fault_firsts[call][i].address == 0) {
            fault_firsts[call][i].nth = nth;
            fault_firsts[call][i].address = address;
        }
        if (fault_firsts[call][i].address == address) {
            return;
        }
    }
}

/* 0: let it through; else how it fails. */
static inline int fault_strikes(enum fault_call call, void *site)
{
    if (!__atomic_load_n(&fault_counting, __ATOMIC_SEQ_CST)) {
        return 0;
    }
    uint64_t occurrence = __atomic_add_fetch(&fault_counts[call], 1, __ATOMIC_RELAXED);
    if (fault_plan.calls == 0) {
        fault_note_first(call, (uintptr_t)site, occurrence);
    }
    if ((fault_plan.calls & FAULT_SET(call)) == 0) {
        return 0;
    }
    uint64_t nth = __atomic_add_fetch(&fault_planned_count, 1, __ATOMIC_RELAXED);
    int error = fault_plan.error != 0 ? fault_plan.error : fault_kinds[call].errors[0];
    if (fault_plan.odds != 0) {
        error = fault_random_error(call);
    } else if (nth < fault_plan.nth || (nth > fault_plan.nth && !fault_plan.on)) {
        error = 0;
    }
    if (error != 0) {
        __atomic_fetch_add(&fault_fired_count, 1, __ATOMIC_RELAXED);
    }
    return error;
}

#define FAULT_SITE __builtin_return_address(0)

/* Fails with `failed` where the plan says so. */
#define FAULT_POINT(call, failed)                                                                  \
    do {                                                                                           \
        int error_ = fault_strikes((call), FAULT_SITE);                                            \
        if (error_ != 0) {                                                                         \
            errno = error_;                                                                        \
            return (failed);                                                                       \
        }                                                                                          \
    } while (0)

static inline void fault_book(int64_t bytes)
{
    __atomic_fetch_add(&fault_ledger, bytes, __ATOMIC_RELAXED);
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    int error = fault_strikes(address == NULL ? FAULT_MMAP : FAULT_MMAP_AT, FAULT_SITE);
    if (error > 0) {
        errno = error;
        return MAP_FAILED;
    }
    void *result = __real_mmap(address, size, protection, flags, file, offset);
    if (error == FAULT_ELSEWHERE && result != MAP_FAILED) {
        void *at = result;
        result = __real_mmap(NULL, size, protection, flags & ~MAP_FIXED_NOREPLACE, file, offset);
        __real_munmap(at, size);
    }
    if (result != MAP_FAILED) {
        fault_book((int64_t)size);
    }
    return result;
}

int __wrap_munmap(void *address, size_t size)
{
    FAULT_POINT(FAULT_MUNMAP, -1);
    int result = __real_munmap(address, size);
    if (result == 0) {
        fault_book(-(int64_t)size);
    }
    return result;
}

/* The last foreign mapping that FAULT_TAKEN left, which is as the library's own are but for what is
 * in it. */
static void *fault_foreign;

static inline void fault_lose_place(int error, void *place, size_t size)
{
    REQUIRE(__real_munmap(place, size) == 0);
    fault_book(-(int64_t)size);
    if (error == FAULT_TAKEN) {
        fault_foreign = __real_mmap(place, size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        REQUIRE(fault_foreign == place);
    }
}

void *__wrap_mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *place = va_arg(arguments, void *);
    va_end(arguments);
    int error = fault_strikes(FAULT_MREMAP, FAULT_SITE);
    if (error < 0 && (flags & MREMAP_FIXED) != 0) {
        fault_lose_place(error, place, new_size);
    }
    if (error != 0) {
        errno = error < 0 ? ENOMEM : error;
        return MAP_FAILED;
    }
    void *result = __real_mremap(address, old_size, new_size, flags, place);
    if (result != MAP_FAILED) { /* what was mapped at the place is gone */
        int64_t replaced = flags & MREMAP_FIXED ? (int64_t)new_size : 0;
        int64_t left = flags & FAULT_DONTUNMAP ? (int64_t)old_size : 0;
        fault_book((int64_t)new_size - (int64_t)old_size - replaced + left);
    }
    return result;
}

int __wrap_madvise(void *address, size_t size, int advice)
{
    REQUIRE(advice == MADV_DONTNEED); /* the others go by syscall */
    FAULT_POINT(FAULT_PURGE, -1);
    return __real_madvise(address, size, advice);
}

int __wrap_mincore(void *address, size_t size, unsigned char *pages)
{
    FAULT_POINT(FAULT_MINCORE, -1);
    return __real_mincore(address, size, pages);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
    va_end(more);
    FAULT_POINT(FAULT_OPEN, -1);
    return __real_open(path, flags, mode);
}

int __wrap_close(int file)
{
    int error = fault_strikes(FAULT_CLOSE, FAULT_SITE);
    int result = __real_close(file); /* Linux closes it even when it complains */
    if (error != 0) {
        errno = error;
        return -1;
    }
    return result;
}

static const struct {
    long number;
    enum fault_call call;
} fault_numbers[] = {
    /* whether a pipe can be written to */
    {SYS_ppoll, FAULT_WRITE},
    {SYS_write, FAULT_WRITE},
    {SYS_ioctl, FAULT_SYSINFO}, /* this and the next ask, too */
    {SYS_prlimit64, FAULT_SYSINFO},
    {SYS_sysinfo, FAULT_SYSINFO},
    {SYS_sched_getaffinity, FAULT_GETAFFINITY},
    {SYS_clock_gettime, FAULT_CLOCK},
    {SYS_futex, FAULT_WAKE},
    {SYS_sched_yield, FAULT_YIELD},
    {SYS_getpid, FAULT_GETPID},
    {SYS_geteuid, FAULT_GETPID},
    {SYS_gettid, FAULT_GETPID},
    {SYS_tgkill, FAULT_GETPID},
    {SYS_openat, FAULT_OPENAT},
    {SYS_lseek, FAULT_READ}, /* before a read, of memory that may be gone */
    {SYS_read, FAULT_READ},
    {SYS_close, FAULT_CLOSE},
    {SYS_readlinkat, FAULT_READLINK},
    {SYS_newfstatat, FAULT_STAT},
    {SYS_process_vm_readv, FAULT_STAT}, /* asked where there is no /proc */
    {SYS_prctl, FAULT_NAME},
    {SYS_fstat, FAULT_FSTAT},
    {SYS_rt_sigprocmask, FAULT_SIGMASK},
    {SYS_sched_setattr, FAULT_SIGMASK}, /* os_go_back.c, in no program of tests/fault */
    {SYS_rt_sigpending,
     FAULT_SIGMASK}, /* of a write that failed: it ends the process at the worst */
    {SYS_rt_sigtimedwait, FAULT_SIGMASK},
    {SYS_close_range, FAULT_LEAVE},
    {SYS_fcntl, FAULT_FCNTL},
    {SYS_fallocate, FAULT_RESERVE},
    {SYS_linkat, FAULT_UNLINK},
    {SYS_renameat, FAULT_UNLINK},
    {SYS_unlinkat, FAULT_UNLINK},
    {SYS_mprotect, FAULT_GUARD},
    {SYS_madvise, FAULT_SMALL}, /* see below */
    {SYS_ftruncate, FAULT_SMALL},
};

static const struct {
    long advice;
    enum fault_call call;
} fault_advices[] = {
    {MADV_HUGEPAGE, FAULT_HUGE_PAGES},
    {MADV_NOHUGEPAGE, FAULT_SMALL},
    {MADV_POPULATE_WRITE, FAULT_POPULATE},
    {FAULT_GUARD_INSTALL, FAULT_GUARD},
    {FAULT_GUARD_REMOVE, FAULT_GUARD},
    {MADV_DONTFORK,
     FAULT_SMALL}, /* of the observer's file: its children inherit it, at the worst */
};

static inline enum fault_call fault_call_of(long number, const long *words)
{
    for (size_t i = 0; number == SYS_madvise && i < COUNT_OF(fault_advices); i++) {
        if (fault_advices[i].advice == words[2]) {
            return fault_advices[i].call;
        }
    }
    for (size_t i = 0; i < COUNT_OF(fault_numbers); i++) {
        if (fault_numbers[i].number == number) {
            bool waits = number == SYS_futex && (words[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
            return waits ? FAULT_WAIT : fault_numbers[i].call;
        }
    }
    support_fail("system call %ld: none that the tests know\n", number);
}

long __wrap_syscall(long number, ...)
{
    long words[6];
    va_list more;
    va_start(more, number);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        words[i] = va_arg(more, long); /* as the C library's own does */
    }
    va_end(more);
    /* A thread inside a function that follows mappings makes these calls directly (os/bound.h). */
    switch (number) {
    case SYS_mmap:
        return (long)__wrap_mmap((void *)words[0], (size_t)words[1], (int)words[2], (int)words[3],
                                 (int)words[4], words[5]);
    case SYS_munmap:
        return __wrap_munmap((void *)words[0], (size_t)words[1]);
    case SYS_mremap:
        return (long)__wrap_mremap((void *)words[0], (size_t)words[1], (size_t)words[2],
                                   (int)words[3], (void *)words[4]);
    default:
        break;
    }
    if (number == SYS_madvise && words[2] == MADV_DONTNEED) {
        return __wrap_madvise((void *)words[0], (size_t)words[1], MADV_DONTNEED);
    }
    if (FAULT_CLOCK_STANDS && number == SYS_clock_gettime && words[0] == CLOCK_MONOTONIC_COARSE) {
        if (FAULT_CLOCK_FAILS) {
            FAULT_POINT(FAULT_CLOCK, -1);
        }
        uint32_t ms = fault_clock_ms;
        *(struct timespec *)words[1] = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
        return 0;
    }
    if (fault_clock_us != 0 && number == SYS_clock_gettime && words[0] == CLOCK_MONOTONIC) {
        *(struct timespec *)words[1] = (struct timespec){(time_t)(fault_clock_us / 1000000),
                                                         (long)(fault_clock_us % 1000000) * 1000};
        return 0;
    }
    enum fault_call call = fault_call_of(number, words);
    /* a wait of no duration is a question, which a kernel that knows waits answers */
    const struct timespec *duration = call == FAULT_WAIT ? (const struct timespec *)words[3] : NULL;
    bool question = duration != NULL && duration->tv_sec == 0 && duration->tv_nsec == 0;
    int error = question ? 0 : fault_strikes(call, FAULT_SITE);
    if (error == FAULT_HALF) {
        words[2] = (words[2] + 1) / 2;
    } else if (error != 0) {
        if (call == FAULT_CLOSE) { /* Linux closes it even when it complains */
            __real_syscall(number, words[0]);
        }
        errno = error;
        return -1;
    }
    return __real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/* No system call; without a vDSO the clock is one. */
unsigned long __wrap_getauxval(unsigned long type)
{
    return FAULT_HIDES_VDSO && type == AT_SYSINFO_EHDR ? 0 : __real_getauxval(type);
}

#endif
