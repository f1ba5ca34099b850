/* SPDX-License-Identifier: MIT */
/* test_filters.c: sandboxes. Filters of system calls (seccomp) that end the process at each call
 * that a program with the C library's malloc would not make, set by the parent before exec or by
 * the program itself after it has used memory; that refuse what an allocator may ask the kernel,
 * each call alone and all at once; and one under which madvise answers 0 and does nothing, as
 * qemu-user before 7.1 and some sandboxes do. A place without /proc and /sys. All kinds of blocks
 * are served as ever, calloc's are zero, and errno is nobody's business.
 *
 * ctest: no-qemu timeout=900
 */
#include "override.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>

enum { FILTER_MAX = 128, MIB = 1 << 20, STEPS = 20000 };

/* --- what the program does --- */

static void *get_zeroed(size_t size)
{
    unsigned char *block = opaque_pointer(calloc(opaque_size(1), size));
    CHECK(block != NULL && block[0] == 0 && memcmp(block, block + 1, size - 1) == 0);
    return block;
}

static void use_small(uint64_t seed, int steps)
{
    static __thread void *kept[3000];
    for (int i = 0; i < steps; i++) {
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
    static const size_t sizes[] = {5000, 70000, 300000, 2000000, 3 * MIB, 12 * MIB};
    for (size_t i = 0; i < 2 * COUNT_OF(sizes); i++) {
        size_t size = sizes[i / 2];
        void *blocks[3];
        for (size_t j = 0; j < 3; j++) {
            blocks[j] = j % 2 == 0 ? get_memory(size) : memalign(2 * MIB, size);
            CHECK(blocks[j] != NULL);
            memset(blocks[j], 0xff, size);
        }
        for (size_t j = 0; j < 3; j++) {
            give_back(blocks[j]);
        }
        if (i % 2 == 1) {
            malloc_trim(0);
        }
        give_back(get_zeroed(size));
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
    enum { COUNT = 6000, SIZE = 500 };
    static void *blocks[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            if (i % 64 != 0 || round == 0) {
                blocks[i] = round == 0 ? get_memory(SIZE) : get_zeroed(SIZE);
                CHECK(blocks[i] != NULL);
                memset(blocks[i], 1, SIZE);
            }
        }
        for (int i = 0; i < COUNT; i++) {
            if (i % 64 != 0 || round == 1) {
                give_back(blocks[i]);
            }
        }
        malloc_trim(0);
    }
}

static void use_everything(void)
{
    errno = 7777;
    use_small(5, STEPS);
    use_large();
    use_heap();
    CHECK_EQUAL(errno, 7777);
}

static void *use_in_thread(void *argument)
{
    use_small(6, STEPS);
    use_large();
    return argument;
}

/* Under a filter: finding out who serves would take other calls. */
static void use_as(const char *how)
{
    pthread_t thread;
    if (strcmp(how, "alone") == 0) {
        use_small(5, STEPS / 10);
        use_large();
        return;
    }
    use_everything();
    IN_CHILD("child") {
        use_everything();
    }
    if (strcmp(how, "with a thread") == 0) {
        CHECK(pthread_create(&thread, NULL, use_in_thread, NULL) == 0);
        use_everything();
        CHECK(pthread_join(thread, NULL) == 0);
    }
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

static void filter_calls(const int *calls, size_t count, unsigned result)
{
    for (size_t i = 0; i < count; i++) {
        filter_add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter_add(BPF_RET | BPF_K, result, 0, 0);
    }
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

/* `otherwise`: for all other calls. */
static bool filter_set(enum way way, unsigned otherwise)
{
    filter_add(BPF_RET | BPF_K, otherwise, 0, 0);
    struct sock_fprog program = {filter_length, filter};
    int forbidden = way == WITHOUT_PRCTL
                        ? (int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L)
                        : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (forbidden != 0 || way == BY_PRCTL) {
        return forbidden == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    }
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* A list of what is allowed, as of a server. A filter that is not set by the C library's prctl is
 * found by asking, which must be allowed. */
static bool set_own_filter(enum way way)
{
    static const int allowed[] = {SYS_brk,      SYS_mmap,       SYS_munmap,        SYS_mremap,
                                  SYS_mprotect, SYS_futex,      SYS_write,         SYS_rt_sigreturn,
                                  SYS_exit,     SYS_exit_group, SYS_clock_gettime, SYS_prctl};
    filter_begin();
    filter_calls(allowed, COUNT_OF(allowed) - (way != WITHOUT_PRCTL), SECCOMP_RET_ALLOW);
    filter_advice();
    return filter_set(way, SECCOMP_RET_KILL_PROCESS);
}

/* Everything but what the start of a program never does. The loader's own calls are allowed. */
static bool set_killing_filter(int unused)
{
    static const int killing[] = {
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
    filter_calls(killing, COUNT_OF(killing), SECCOMP_RET_KILL_PROCESS);
    filter_advice();
    return filter_set(BY_SECCOMP, SECCOMP_RET_ALLOW);
}

static const int denied[] = {SYS_getrandom, SYS_membarrier,        SYS_rseq,
                             SYS_prctl,     SYS_sched_getaffinity, SYS_sysinfo,
                             SYS_mincore,   SYS_madvise,           SYS_getrusage};

/* All calls of the list, or the one of that number, are refused. */
static bool set_denying_filter(int number)
{
    unsigned error = number % 2 == 0 ? ENOSYS : EPERM;
    bool all = number / 2 == COUNT_OF(denied);
    filter_begin();
    filter_calls(all ? denied : &denied[number / 2], all ? COUNT_OF(denied) : 1,
                 SECCOMP_RET_ERRNO | error);
    return filter_set(BY_SECCOMP, SECCOMP_RET_ALLOW);
}

/* As a kernel without filters would: hakmem asks it for all that it can. */
static bool set_lying_filter(int guarded)
{
    static const int lies[] = {SYS_madvise};
    CHECK(setenv("HAKMEM_IGNORE_FILTER", "1", 1) == 0);
    CHECK(guarded == 0 || setenv("HAKMEM_GUARD", "20", 1) == 0);
    filter_begin();
    filter_calls(lies, 1, SECCOMP_RET_ERRNO);
    return filter_set(BY_SECCOMP, SECCOMP_RET_ALLOW);
}

/* An empty directory where /proc and /sys were. */
static bool hide_files(int unused)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc", "tmpfs", 0, NULL) == 0 &&
           mount("none", "/sys", "tmpfs", 0, NULL) == 0 && access("/proc/self", F_OK) != 0;
}

/* --- children --- */

static pthread_barrier_t barrier;

static void *use_beside(void *argument)
{
    use_small(7, STEPS);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* now there is a filter */
    use_in_thread(NULL);
    pthread_barrier_wait(&barrier);
    for (;;) {
        pthread_barrier_wait(&barrier); /* a thread's end takes more calls */
    }
    return argument;
}

static bool filter_later(int way)
{
    pthread_t thread;
    use_everything();
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, use_beside, NULL) == 0);
    pthread_barrier_wait(&barrier);
    if (!set_own_filter((enum way)way)) {
        return false;
    }
    pthread_barrier_wait(&barrier);
    use_everything();
    pthread_barrier_wait(&barrier);
    _exit(0);
}

/* This program uses memory where `set_up` was called. False: the machine lets nobody do that. */
static bool run(bool (*set_up)(int), int argument, const char *how)
{
    char self[TEST_PATH_SIZE];
    own_path(self);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (set_up(argument)) {
            execl(self, self, how, (char *)NULL);
        }
        _exit(TEST_SKIPPED);
    }
    int status = status_of(child);
    bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED;
    if (status != 0 && !skipped) {
        dprintf(2, "%s, %d: status %d\n", how, argument, status);
        _exit(1);
    }
    return !skipped;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        use_as(argv[1]);
        return 0; /* not _exit: the library's end is under the filter, too */
    }
    prove_served();
    if (!run(set_killing_filter, 0, "killed")) {
        dprintf(2, "skipped: no seccomp here\n");
        return TEST_SKIPPED;
    }
    for (int way = 0; way < WAYS; way++) {
        CHECK(run(filter_later, way, "killed later"));
    }
    for (int i = 0; i < 2 * (int)COUNT_OF(denied); i++) {
        CHECK(run(set_denying_filter, i, "alone"));
    }
    for (int i = 0; i < 2; i++) {
        CHECK(run(set_denying_filter, 2 * (int)COUNT_OF(denied) + i, "with a thread"));
        CHECK(run(set_lying_filter, i, "with a thread"));
    }
    if (!run(hide_files, 0, "with a thread")) {
        dprintf(2, "not run without /proc: no right to mount\n");
    }
    return 0;
}
