/* SPDX-License-Identifier: MIT */
/* test_filter_kills.c: filters of system calls (seccomp) that end the process at each call that a
 * program with the C library's malloc would not make: set by the parent before exec, and by the
 * program itself after it has used memory. All kinds of blocks are served as ever.
 *
 * ctest: no-qemu timeout=900
 */
#include "override.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FILTER_MAX = 128, MIB = 1 << 20 };

/* --- what the program does --- */

static void check_zero(const unsigned char *block, size_t size)
{
    CHECK(block != NULL && block[0] == 0 && memcmp(block, block + 1, size - 1) == 0);
}

static void use_small(uint64_t seed)
{
    static __thread void *kept[3000];
    for (int i = 0; i < 20000; i++) {
        uint64_t number = random_next(&seed);
        void **place = &kept[number % 3000];
        give_back(*place);
        *place = get_memory(number / 3000 % 20000 + 8);
        CHECK(*place != NULL);
        memset(*place, 1, 8);
    }
    for (int i = 0; i < 3000; i++) {
        give_back(kept[i]);
        kept[i] = NULL;
    }
}

/* Blocks of these sizes are freed filled, and come back zero. */
static void use_large(void)
{
    static const size_t sizes[] = {70000, 300000, 1000000, 2000000, 3 * MIB, 20 * MIB, 40 * MIB};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *blocks[3];
            for (size_t j = 0; j < 3; j++) {
                blocks[j] = j % 2 == 0 ? get_memory(sizes[i]) : memalign(2 * MIB, sizes[i]);
                CHECK(blocks[j] != NULL);
                memset(blocks[j], 0xff, sizes[i]);
            }
            for (size_t j = 0; j < 3; j++) {
                give_back(blocks[j]);
            }
            if (round == 1) {
                malloc_trim(0);
            }
            void *zeroed = opaque_pointer(calloc(opaque_size(1), sizes[i]));
            check_zero(zeroed, sizes[i]);
            give_back(zeroed);
        }
    }
    char *grown = NULL;
    for (size_t size = 1000; size < 30 * MIB; size = size * 3 / 2) {
        grown = realloc(grown, size);
        CHECK(grown != NULL);
        memset(grown + size / 2, 2, size - size / 2);
    }
    grown = realloc(grown, 3 * MIB);
    CHECK(grown != NULL && grown[MIB] == 2);
    give_back(grown);
}

static void use_heap(void)
{
    enum { COUNT = 30000 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = get_memory(500);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 500);
    }
    for (int i = 0; i < COUNT; i++) {
        if (i % 64 != 0) {
            give_back(blocks[i]);
        }
    }
    malloc_trim(0);
    for (int i = 0; i < COUNT; i += 64) {
        give_back(blocks[i]);
    }
}

static void use_everything(void)
{
    errno = 7777;
    use_small(5);
    use_large();
    use_heap();
    CHECK_EQUAL(errno, 7777);
}

/* --- filters --- */

static struct sock_filter filter[FILTER_MAX];
static unsigned short filter_length;

static void filter_add(unsigned short code, unsigned value, unsigned char yes, unsigned char no)
{
    CHECK(filter_length < FILTER_MAX);
    filter[filter_length++] = (struct sock_filter){code, yes, no, value};
}

static void filter_begin(void)
{
    filter_length = 0;
    filter_add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static void filter_call(long number, unsigned result)
{
    filter_add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    filter_add(BPF_RET | BPF_K, result, 0, 0);
}

/* Of all advice only MADV_DONTNEED is allowed. */
static void filter_advice(void)
{
    filter_add(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4);
    filter_add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]), 0, 0);
    filter_add(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 1, 0);
    filter_add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    filter_add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/* How the program sets it. */
enum way { BY_PRCTL, BY_SECCOMP, WITHOUT_PRCTL, WAYS };

static bool filter_set(enum way way)
{
    struct sock_fprog program = {filter_length, filter};
    if (way == BY_PRCTL) {
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    }
    int forbidden = way == BY_SECCOMP
                        ? prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                        : (int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L);
    return forbidden == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* A list of what is allowed, as of a server. A filter that is not set by the C library's prctl is
 * found by asking, which must be allowed. */
static bool set_own_filter(enum way way)
{
    static const int allowed[] = {SYS_brk,      SYS_mmap,       SYS_munmap,       SYS_mremap,
                                  SYS_mprotect, SYS_futex,      SYS_write,        SYS_rt_sigreturn,
                                  SYS_exit,     SYS_exit_group, SYS_clock_gettime};
    filter_begin();
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        filter_call(allowed[i], SECCOMP_RET_ALLOW);
    }
    if (way == WITHOUT_PRCTL) {
        filter_call(SYS_prctl, SECCOMP_RET_ALLOW);
    }
    filter_advice();
    filter_add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    return filter_set(way);
}

/* Everything but what the start of a program never does. The loader's own calls are allowed. */
static bool set_filter_for_exec(void)
{
    static const int denied[] = {
        SYS_mincore,
        SYS_prctl,
        SYS_sysinfo,
        SYS_getpid,
        SYS_gettid,
        SYS_sched_getaffinity,
        SYS_membarrier,
        SYS_nanosleep,
        SYS_fcntl,
        SYS_getrusage,
        SYS_sched_yield,
        SYS_getcpu,
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34) && !__GLIBC_PREREQ(2, 39)
        SYS_fstat,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
#endif
    };
    filter_begin();
    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++) {
        filter_call(denied[i], SECCOMP_RET_KILL_PROCESS);
    }
    filter_advice();
    filter_add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    return filter_set(BY_SECCOMP);
}

/* --- children --- */

static pthread_barrier_t barrier;

static void *use_beside(void *argument)
{
    use_small(7);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* now there is a filter */
    use_small(8);
    use_large();
    pthread_barrier_wait(&barrier);
    for (;;) {
        pthread_barrier_wait(&barrier); /* a thread's end takes more calls */
    }
    return argument;
}

static void filter_later(enum way way)
{
    pthread_t thread;
    use_everything();
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, use_beside, NULL) == 0);
    pthread_barrier_wait(&barrier);
    if (!set_own_filter(way)) {
        _exit(TEST_SKIPPED);
    }
    pthread_barrier_wait(&barrier);
    use_everything();
    pthread_barrier_wait(&barrier);
    _exit(0);
}

int main(int argc, char **argv)
{
    char self[TEST_PATH_SIZE];
    if (argc > 1) { /* under a filter: finding out who serves would take other calls */
        use_everything();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            use_everything();
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        return 0; /* not _exit: the library's end is under the filter, too */
    }
    prove_served();
    own_path(self);
    for (int way = 0; way <= WAYS; way++) {
        int status = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (way < WAYS) {
                filter_later((enum way)way);
            }
            if (set_filter_for_exec()) {
                execl(self, argv[0], "use", (char *)NULL);
            }
            _exit(TEST_SKIPPED);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED) {
            dprintf(2, "skipped: no seccomp here\n");
            return TEST_SKIPPED;
        }
        if (status != 0) {
            dprintf(2, "way %d: status %d\n", way, status);
            return 1;
        }
    }
    return 0;
}
