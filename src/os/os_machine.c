/* SPDX-License-Identifier: MIT */
/* os_machine.c: what the machine and the process's start say, a part of os.h on Linux. errno is
 * saved around each call.
 *
 * Programs are run with libraries that put their own functions before the C library's. Those that
 * follow mappings (registration caches of network cards, profilers) must see hakmem's. So memory is
 * mapped, unmapped and purged by the names of mmap's family. Those that change the clock or the
 * process's id (libfaketime) allocate in their functions, and would call the allocator inside the
 * allocator. So the clock is the vDSO's, and all other calls go by syscall(), which is also no
 * cancellation point.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/charge.h"
#include "os/vdso.h"

static size_t os_page = 4096;
os_getcpu_function *hak__os_getcpu;

/* Where the kernel writes on which processor a thread runs, and from Linux 6.3 on, on which memory
 * node: <sys/rseq.h> of glibc 2.35. Other C libraries have none. */
extern const ptrdiff_t __rseq_offset __attribute__((weak, visibility("default")));
extern const unsigned __rseq_size __attribute__((weak, visibility("default"))); /* 0: it does not */
enum { RSEQ_PROCESSOR = 1, RSEQ_NODE = 5 }; /* in words of 4 bytes */

static long os_getcpu_rseq(unsigned *processor, unsigned *node, void *unused)
{
    (void)unused;
    const char *own = (const char *)__builtin_thread_pointer() + __rseq_offset;
    const volatile uint32_t *words = (const volatile uint32_t *)(const void *)own;
    *processor = words[RSEQ_PROCESSOR];
    *node = words[RSEQ_NODE];
    return 0;
}

/* The vDSO of aarch64 has no such function. */
static void os_init_node(void)
{
    hak__os_getcpu = (os_getcpu_function *)(uintptr_t)hak__vdso_find("__vdso_getcpu");
    if (hak__os_getcpu == NULL && &__rseq_size != NULL && __rseq_size != 0 &&
        getauxval(27 /* AT_RSEQ_FEATURE_SIZE */) >= (RSEQ_NODE + 1) * sizeof(uint32_t)) {
        hak__os_getcpu = os_getcpu_rseq;
    }
}

void hak__os_init(void)
{
    static bool done; /* never written twice, because other threads may be reading the values */
    if (done) {
        return;
    }
    done = true;
    unsigned long page = getauxval(AT_PAGESZ);
    os_page = page != 0 ? (size_t)page : 4096;
    os_init_node();
    hak__os_init_clock();
    hak__os_init_filter();
    hak__os_note_error_file();
}

size_t hak__os_page_size(void)
{
    return os_page;
}

uint32_t hak__os_node(void)
{
    unsigned processor, node = 0;
    if (hak__os_getcpu != NULL) {
        hak__os_getcpu(&processor, &node, NULL);
    }
    return node;
}

uint64_t hak__os_ram_size(void)
{
    static uint64_t shared_size; /* 0: never asked for; relaxed: a value */
    uint64_t size = atomic_load_relaxed(&shared_size);
    bool filtered = hak__os_is_filtered();
    if (filtered && size != 0) {
        return size;
    }
    HAK_KEEP_ERRNO;
    struct sysinfo info;
    size = filtered ? hak__os_ram_by_file() : UINT64_MAX;
    if (size == UINT64_MAX && syscall(SYS_sysinfo, &info) == 0) {
        size = (uint64_t)info.totalram * info.mem_unit;
    }
    size = size != UINT64_MAX ? size : UINT64_C(16) << 30; /* a plausible machine */
    atomic_store_relaxed(&shared_size, size);
    return size;
}

uint32_t hak__os_processors(void)
{
    uint32_t by_file = hak__os_is_filtered() ? hak__os_processors_by_file() : 0;
    if (by_file != 0) {
        return by_file;
    }
    HAK_KEEP_ERRNO;
    uint64_t set[128]; /* the largest machines have fewer processors */
    /* Returns the bytes written. It fails on a machine with more processors than the set holds. */
    long size = syscall(SYS_sched_getaffinity, 0, sizeof set, set);
    uint32_t count = size > 0 ? 0 : 8 * sizeof set;
    for (long i = 0; i < size / (long)sizeof *set; i++) {
        count += bits_count(set[i]);
    }
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

/* Weak: all of gcc's and clang's sanitizers have it. */
extern void os_sanitizer(const char *path) __asm__("__sanitizer_set_report_path")
    __attribute__((weak, visibility("default")));

bool hak__os_is_sanitized(void)
{
    return os_sanitizer != NULL;
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
     * address chosen from the result does not reveal the canary. */
    return bits_mix(words[0] ^ (words[1] << 1) ^ UINT64_C(0x9e3779b97f4a7c15));
}

uint32_t hak__os_process_id(void)
{
    return (uint32_t)syscall(SYS_getpid);
}

void hak__os_abort(void)
{
    abort();
}

void hak__os_exit(int status)
{
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}
