/* os_linux.c: os.h on Linux. errno is saved around each call.
 *
 * Some libraries put functions of their own in front of the C library's. Those that follow mappings
 * (registration caches of network cards, profilers) must see hakmem's mappings. So hakmem maps
 * memory by the names of mmap's family. Others change the clock or the process id (libfaketime),
 * and their functions allocate: they would call the allocator while it runs. So hakmem reads the
 * vDSO's clock, and this file makes all other calls by syscall(), which also is no cancellation
 * point. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/bits.h"
#include "base/check.h"
#include "os/charge.h"
#include "os/vdso.h"

/* Headers older than the kernel they run on lack these; the values are part of the kernel's ABI. */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2u
#endif

uint64_t hak__os_calls[OS_CALL_COUNT];
const char *const hak__os_call_names[OS_CALL_COUNT] = {"mmap",
                                                       "munmap",
                                                       "mremap",
                                                       "madvise_dontneed",
                                                       "madvise_hugepage",
                                                       "madvise_nohugepage",
                                                       "madvise_populate",
                                                       "mincore",
                                                       "futex"};

/* Of a process's directory of threads: its own two, besides one for each thread. */
#define OS_TASKS_LINKS 2u

/* Of a set; the largest machines have fewer. */
#define OS_PROCESSORS_MAX 8192u

static size_t os_page = 4096;
/* The kernel's name for it; NULL: there is none, ask by a system call. */
#if defined(__x86_64__)
#define OS_VDSO_CLOCK "__vdso_clock_gettime"
#else
#define OS_VDSO_CLOCK "__kernel_clock_gettime"
#endif
typedef int os_clock_function(clockid_t clock, struct timespec *now);
static os_clock_function *os_clock;

void hak__os_init(void)
{
    static bool done; /* never written twice, because other threads may be reading the values */
    if (done) {
        return;
    }
    done = true;
    unsigned long page = getauxval(AT_PAGESZ);
    os_page = page != 0 ? (size_t)page : 4096;
    os_clock = (os_clock_function *)(uintptr_t)hak__vdso_find(OS_VDSO_CLOCK);
    hak__os_note_error_file();
}

size_t hak__os_page_size(void)
{
    return os_page;
}

uint64_t hak__os_ram_size(void)
{
    int saved = errno;
    struct sysinfo info;
    uint64_t size = UINT64_C(16) << 30; /* a plausible machine, if the kernel does not say */
    if (syscall(SYS_sysinfo, &info) == 0) {
        size = (uint64_t)info.totalram * info.mem_unit;
    }
    errno = saved;
    return size;
}

uint32_t hak__os_processors(void)
{
    int saved = errno;
    uint64_t set[OS_PROCESSORS_MAX / 64];
    /* Returns the bytes written. It fails on a machine with more processors than the set holds. */
    long size = syscall(SYS_sched_getaffinity, 0, sizeof set, set);
    uint32_t count = size > 0 ? 0 : OS_PROCESSORS_MAX;
    for (long i = 0; i < size / (long)sizeof *set; i++) {
        count += bits_count(set[i]);
    }
    errno = saved;
    return count == 0 ? 1 : count;
}

char **hak__os_environment(char **handed)
{
#ifdef __GLIBC__
    return environ != NULL ? environ : handed;
#else
    (void)handed; /* musl passes no argument: the register may hold anything */
    return environ;
#endif
}

const char *hak__os_program(void)
{
    return (const char *)getauxval(AT_EXECFN);
}

bool hak__os_is_secure(void)
{
    return getauxval(AT_SECURE) != 0;
}

uint64_t hak__os_random_seed(void)
{
    uint64_t words[2] = {0, 0};
    const void *bytes =
        (const void *)getauxval(AT_RANDOM); /* 16 bytes, which the C library uses, too */
    if (bytes != NULL) {
        memcpy(words, bytes, sizeof words);
    }
    /* The C library makes the stack protector's canary of these bytes. They are mixed, so that an
     * address chosen from the result does not reveal the canary (the finaliser of splitmix64,
     * Steele et al. 2014). */
    uint64_t z = words[0] ^ (words[1] << 1) ^ UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t shared_mapped_bytes;
static uint64_t shared_mapped_limit = UINT64_MAX;

uint64_t hak__os_mapped_bytes(void)
{
    return atomic_load_relaxed(&shared_mapped_bytes);
}

void hak__os_set_limit(uint64_t bytes)
{
    atomic_store_relaxed(&shared_mapped_limit, bytes);
}

void hak__os_uncharge(size_t size)
{
    atomic_sub_relaxed(&shared_mapped_bytes, (uint64_t)size);
}

/* Before the system call, so that two threads cannot exceed the limit together. */
bool hak__os_charge(size_t size)
{
    uint64_t before = atomic_add_relaxed(&shared_mapped_bytes, (uint64_t)size);
    bool fits = before + size <= atomic_load_relaxed(&shared_mapped_limit);
    if (!fits) {
        hak__os_uncharge(size);
    }
    return fits;
}

/* mmap that keeps errno. Returns the address, or NULL, and sets *error to 0 or -errno. */
static void *os_mmap(void *address, size_t size, int extra_flags, int *error)
{
    int saved = errno;
    if (!hak__os_charge(size)) {
        *error = -ENOMEM;
        return NULL;
    }
    os_count(OS_CALL_MAP);
    void *result = mmap(address, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    *error = result == MAP_FAILED ? -errno : 0;
    if (*error != 0) {
        hak__os_uncharge(size);
    }
    errno = saved;
    return result == MAP_FAILED ? NULL : result;
}

int hak__os_map_at(void *address, size_t size)
{
    int error;
    /* NORESERVE: neighbours become one mapping. With the kernel's default rule for overcommit, a
     * process with a reserved mapping larger than the machine's memory could not fork. */
    void *result = os_mmap(address, size, MAP_FIXED_NOREPLACE | MAP_NORESERVE, &error);
    if (error == 0 && result != address) { /* a kernel before 4.17 takes the address for a hint */
        hak__os_discard(result, size);
        return -EEXIST;
    }
    return error;
}

int hak__os_map(size_t size, size_t alignment, void **address)
{
    int error;
    void *result = os_mmap(NULL, size, 0, &error);
    if (error != 0) {
        return error;
    }
    if (((uintptr_t)result & (alignment - 1)) == 0) {
        *address = result;
        return 0;
    }
    hak__os_discard(result, size);
    size_t padded;
    if (__builtin_add_overflow(size, alignment - os_page, &padded)) {
        return -ENOMEM;
    }
    result = os_mmap(NULL, padded, 0, &error);
    if (error != 0) {
        return error;
    }
    uintptr_t start = bits_align_up((uintptr_t)result, alignment);
    size_t before = start - (uintptr_t)result;
    size_t after = padded - before - size;
    if (before != 0) {
        hak__os_discard(result, before);
    }
    if (after != 0) {
        hak__os_discard((char *)result + before + size, after);
    }
    *address = (char *)result + before;
    return 0;
}

int hak__os_unmap(void *address, size_t size)
{
    int saved = errno;
    os_count(OS_CALL_UNMAP);
    int error = munmap(address, size) == 0 ? 0 : -errno;
    if (error == 0) {
        hak__os_uncharge(size);
    }
    errno = saved;
    return error;
}

static struct timespec os_clock_read(clockid_t clock)
{
    struct timespec now = {0, 0}; /* if reading it fails, only decay stops */
    if (os_clock != NULL) {
        os_clock(clock, &now); /* makes no system call, and does not change errno */
    } else {
        int saved = errno;
        syscall(SYS_clock_gettime, clock, &now);
        errno = saved;
    }
    return now;
}

uint32_t hak__os_clock_ms(void)
{
    struct timespec now = os_clock_read(CLOCK_MONOTONIC_COARSE);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

uint64_t hak__os_clock_us(void)
{
    struct timespec now = os_clock_read(CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int hak__os_write(int descriptor, const char *text, size_t size)
{
    int saved = errno;
    int error = 0;
    while (size != 0) {
        ssize_t written = syscall(SYS_write, descriptor, text, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            error = written < 0 ? -errno : -EIO;
            break;
        }
        text += written;
        size -= (size_t)written;
    }
    errno = saved;
    return error;
}

long hak__os_read_file(const char *path, char *buffer, size_t size)
{
    int saved = errno;
    long result = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (result < 0) {
        result = -errno;
    } else {
        long descriptor = result;
        result = syscall(SYS_read, descriptor, buffer, size);
        result = result < 0 ? -errno : result;
        syscall(SYS_close, descriptor);
    }
    errno = saved;
    return result;
}

bool hak__os_is_last_thread(void)
{
    int saved = errno;
    char path[1];
    struct stat tasks;
    /* It opens no file: an open file would change the descriptor that an open in another thread
     * returns. If the main thread has ended, the link to the program's file is gone. */
    bool last = syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &tasks, 0) != 0 ||
                (tasks.st_nlink <= OS_TASKS_LINKS + 2 &&
                 syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path) < 0);
    errno = saved;
    return last;
}

bool hak__os_leave_descriptors(void)
{
    int saved = errno;
    bool left = syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
    errno = saved;
    return left;
}

void hak__os_name_thread(const char *name)
{
    int saved = errno;
    syscall(SYS_prctl, PR_SET_NAME, name);
    errno = saved;
}

uint32_t hak__os_process_id(void)
{
    return (uint32_t)syscall(SYS_getpid);
}

void hak__os_abort(void)
{
    abort();
}
