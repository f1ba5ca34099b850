/* SPDX-License-Identifier: MIT */
/* test_sites.c: the tests of this folder reach every call by which the library enters the kernel,
 * and each function of os.h keeps its promise when its call fails. */
#define FAULT_HIDES_VDSO true /* so that the clock is a system call */
#include "../unit/unit.h"
#include "fault.h"

static char page_of_mine[4096] __attribute__((aligned(4096)));
static uint32_t word;

static int do_map(void)
{
    void *place = NULL;
    int result = hak__os_map(MIB, 4096, &place);
    if (result == 0) {
        hak__os_unmap(place, MIB);
    }
    return result;
}

static int do_map_at(void)
{
    void *place = NULL;
    REQUIRE(hak__os_map(MIB, 4096, &place) == 0 && hak__os_unmap(place, MIB) == 0);
    int result = hak__os_map_at(place, MIB);
    if (result == 0) {
        hak__os_unmap(place, MIB);
    }
    return result == -EEXIST && fault_plan.error == FAULT_ELSEWHERE ? -FAULT_ELSEWHERE : result;
}

static int do_unmap(void)
{
    void *place = NULL;
    REQUIRE(hak__os_map(MIB, 4096, &place) == 0);
    int result = hak__os_unmap(place, MIB);
    REQUIRE(unit_is_mapped((uintptr_t)place) == (result != 0));
    return result;
}

static int do_remap(void)
{
    void *place = NULL, *moved = page_of_mine;
    REQUIRE(hak__os_map(MIB, 4096, &place) == 0);
    int result = hak__os_remap(0, place, MIB, 2 * MIB, 4096, &moved);
    REQUIRE((result != 0) == (moved == page_of_mine));
    return result == -ENOMEM && fault_plan.error < 0 ? -fault_plan.error : result;
}

#define DO(name, answer)                                                                           \
    static int do_##name(void)                                                                     \
    {                                                                                              \
        return (answer);                                                                           \
    }

DO(purge, hak__os_purge(page_of_mine, 4096))
DO(huge, hak__os_huge_pages(page_of_mine, 4096))
DO(small, hak__os_small(page_of_mine, 4096))
DO(populate, hak__os_populate(page_of_mine, 4096))
DO(ram_size, hak__os_ram_size() < 64 * MIB)
DO(processors, hak__os_processors() == 0)
DO(process_id, hak__os_process_id() != (uint32_t)getpid())
DO(sleep, (hak__os_sleep_ms(1), 0))
DO(name, (hak__os_name_thread("named"), 0))
DO(clock, (hak__os_clock_ms(), 0))
DO(wait, (hak__os_wait_ms(&word, word + 1, 1), 0))
DO(wake, (hak__os_wake(&word), 0))
DO(write_error, (hak__os_write_error("", 0), 0))

/* Those that cannot fail say something harmless. */
static int do_resident(void)
{
    page_of_mine[0] = 1;
    size_t resident = hak__os_resident(page_of_mine, 4096);
    REQUIRE(resident == (fault_plan.calls == FAULT_SET(FAULT_MINCORE) ? SIZE_MAX : 4096));
    return 0;
}

static int do_open_and_close(void)
{
    int file = hak__os_open_append("/dev/null");
    if (file >= 0) {
        hak__os_close(file);
        REQUIRE(fcntl(file, F_GETFD) == -1); /* it is closed, whatever close said */
        errno = ERRNO_UNTOUCHED;
        return 0;
    }
    return file;
}

/* Without a number of its own the file is not kept, and none stays open. */
static int do_keep(void)
{
    struct os_kept kept = hak__os_keep_append("/dev/null");
    int saved = errno;
    bool keeps = kept.descriptor >= 0;
    REQUIRE(keeps != (fault_plan.calls == FAULT_SET(FAULT_FCNTL)));
    REQUIRE(hak__os_is_kept(&kept) == keeps);
    REQUIRE((fcntl(OS_KEPT_MIN, F_GETFD) == FD_CLOEXEC) == keeps);
    __real_close(kept.descriptor);
    errno = saved;
    return 0;
}

static int do_write(void)
{
    char text[16];
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    hak__os_write(ends[1], "abcdef", 6);
    bool nothing = fault_plan.calls == FAULT_SET(FAULT_WRITE) && fault_plan.error > 0 &&
                   fault_plan.error != EINTR;
    if (!nothing) { /* what was interrupted, or done by half, is gone on with */
        REQUIRE(read(ends[0], text, sizeof text) == 6 && memcmp(text, "abcdef", 6) == 0);
    }
    __real_close(ends[0]);
    __real_close(ends[1]);
    return 0;
}

static int do_read_file(void)
{
    char text[64] = {0};
    long result = hak__os_read_file("/proc/self/cgroup", text, sizeof text - 1);
    REQUIRE(result < 0 || strchr(text, ':') != NULL);
    return result < 0 ? (int)result : 0;
}

/* Without a program file in /proc the scavenger ends; without a /proc, it reads the main thread's
 * memory, which qemu-user cannot. */
static int do_last_thread(void)
{
    bool ends = (fault_plan.calls & FAULT_SET(FAULT_READLINK)) != 0 ||
                (SUPPORT_EMULATED && (fault_plan.calls & FAULT_SET(FAULT_STAT)) != 0);
    REQUIRE(hak__os_is_last_thread(0) == ends);
    return 0;
}

static void *leave_descriptors(void *argument)
{
    bool leaves = hak__os_leave_descriptors();
    REQUIRE(fault_plan.calls == 0 || !leaves); /* kernels before 5.9 refuse it by themselves */
    REQUIRE((fcntl(STDERR_FILENO, F_GETFD) >= 0) != leaves);
    return argument;
}

/* Of the thread alone. */
static int do_leave_descriptors(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, leave_descriptors, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(fcntl(STDERR_FILENO, F_GETFD) >= 0);
    return 0;
}

/* Whatever fails, the thread's signals are in the end what they were. */
static int do_block_signals(void)
{
    sigset_t before, during, after;
    REQUIRE(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    uint64_t blocked = hak__os_block_signals();
    REQUIRE(pthread_sigmask(SIG_SETMASK, NULL, &during) == 0);
    REQUIRE(fault_plan.calls != 0 || sigismember(&during, SIGUSR1));
    REQUIRE(!sigismember(&during, SIGSEGV));
    hak__os_restore_signals(blocked);
    REQUIRE(hak__os_signals_are_blocked() == (fault_plan.calls != 0)); /* cannot be: as if */
    REQUIRE(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    for (int number = 1; number < NSIG; number++) {
        REQUIRE(sigismember(&before, number) == sigismember(&after, number));
    }
    return 0;
}

#define SHARED_PATH "/dev/shm/hakmem-test-sites"

/* Whatever fails, neither a file nor a mapping is left. */
static int do_share(void)
{
    struct os_shared shared;
    int64_t mapped = fault_ledger;
    int result = hak__os_share(SHARED_PATH, 4096, &shared);
    if (result == 0) {
        REQUIRE(__real_syscall(SYS_faccessat, AT_FDCWD, SHARED_PATH, F_OK) == 0);
        hak__os_unshare(&shared);
        __real_syscall(SYS_unlinkat, AT_FDCWD, SHARED_PATH, 0);
    }
    REQUIRE(fault_ledger == mapped && shared.address == NULL);
    int saved = errno;
    REQUIRE(access(SHARED_PATH, F_OK) != 0);
    errno = saved;
    return result;
}

/* A file that cannot grow is as it was. */
static int do_share_resize(void)
{
    struct os_shared shared;
    uint32_t calls = fault_plan.calls;
    fault_plan.calls = 0;
    REQUIRE(hak__os_share(SHARED_PATH, 4096, &shared) == 0);
    strcpy(shared.address, "kept");
    fault_plan.calls = calls;
    int result = hak__os_share_resize(&shared, 65536);
    if (result == -ENOMEM && fault_plan.error < 0) {
        result = -fault_plan.error;
    }
    REQUIRE(shared.size == (result == 0 ? 65536 : 4096) && strcmp(shared.address, "kept") == 0);
    fault_plan.calls = 0;
    hak__os_unshare(&shared);
    hak__os_remove(SHARED_PATH);
    fault_plan.calls = calls;
    return result;
}

/* An old file of that name that stays makes it fail. */
static int do_share_again(void)
{
    struct os_shared shared;
    int file = __real_open(SHARED_PATH, O_CREAT | O_WRONLY, 0600);
    REQUIRE(file >= 0);
    __real_close(file);
    int result = hak__os_share(SHARED_PATH, 4096, &shared);
    hak__os_unshare(&shared);
    int saved = errno;
    __real_syscall(SYS_unlinkat, AT_FDCWD, SHARED_PATH, 0);
    errno = saved;
    REQUIRE((result == -EEXIST) == (fault_plan.calls != 0));
    return 0;
}

/* Linux 6.13 and later; not where an emulator refuses it, or accepts it and does nothing. */
static bool kernel_marks(void)
{
    int saved = errno;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    bool marks = __real_madvise(page, 4096, FAULT_GUARD_INSTALL) == 0 &&
                 !hak__os_is_readable((uintptr_t)page);
    munmap(page, 4096);
    errno = saved;
    return marks;
}

/* Where the kernel does not mark pages, their protection changes. A page that cannot be opened is
 * not used; one that cannot be closed is empty. */
static int do_guard(void)
{
    void *place = NULL;
    uint64_t mapped = hak__os_mapped_bytes();
    int result = hak__os_guard_reserve(MIB, &place);
    if (result != 0 && (HAK_LEVEL >= 2 || !kernel_marks())) { /* it has the one way alone */
        REQUIRE(place == NULL && hak__os_mapped_bytes() == mapped);
        return 0;
    }
    REQUIRE(result == 0);
    char *page = (char *)place + 4096;
    REQUIRE(!hak__os_is_readable((uintptr_t)page));
    REQUIRE(hak__os_guard_open(page, 4096) && hak__os_mapped_bytes() == mapped + 4096);
    *page = 1;
    REQUIRE(!hak__os_is_readable((uintptr_t)page - 8));
    REQUIRE(!hak__os_is_readable((uintptr_t)page + 4096));
    hak__os_guard_close(page, 4096);
    REQUIRE(!hak__os_is_readable((uintptr_t)page) && hak__os_mapped_bytes() == mapped);
    REQUIRE(munmap(place, MIB) == 0);
    return 0;
}

static const struct site {
    enum fault_call call;
    int (*function)(void);
    bool tells; /* its result is the errno */
} sites[] = {{FAULT_MMAP, do_map, true},
             {FAULT_MMAP_AT, do_map_at, true},
             {FAULT_MUNMAP, do_unmap, true},
             {FAULT_MREMAP, do_remap, true},
             {FAULT_PURGE, do_purge, true},
             {FAULT_HUGE_PAGES, do_huge, true},
             {FAULT_SMALL, do_small, true},
             {FAULT_POPULATE, do_populate, true},
             {FAULT_MINCORE, do_resident, false},
             {FAULT_OPEN, do_open_and_close, true},
             {FAULT_CLOSE, do_open_and_close, false},
             {FAULT_FCNTL, do_keep, false},
             {FAULT_WRITE, do_write, false},
             {FAULT_SYSINFO, do_ram_size, false},
             {FAULT_GETAFFINITY, do_processors, false},
             {FAULT_OPENAT, do_read_file, true},
             {FAULT_READ, do_read_file, true},
             {FAULT_READLINK, do_last_thread, false},
             {FAULT_STAT, do_last_thread, false},
             {FAULT_WAIT, do_sleep, false},
             {FAULT_NAME, do_name, false},
             {FAULT_LEAVE, do_leave_descriptors, false},
             {FAULT_CLOCK, do_clock, false},
             {FAULT_WAIT, do_wait, false},
             {FAULT_WAKE, do_wake, false},
             {FAULT_GETPID, do_process_id, false},
             {FAULT_FSTAT, do_write_error, false},
             {FAULT_SIGMASK, do_block_signals, false},
             {FAULT_RESERVE, do_share, true},
             {FAULT_OPENAT, do_share, true},
             {FAULT_MMAP, do_share, true},
             {FAULT_RESERVE, do_share_resize, true},
             {FAULT_MREMAP, do_share_resize, true},
             {FAULT_UNLINK, do_share_again, false},
             {FAULT_GUARD, do_guard, false}};

static int start(void **state)
{
    hak__os_init();
    return 0;
}

TEST(every_call_is_reached)
{
    uint32_t reached = FAULT_SET(FAULT_YIELD); /* test_wait_yields */
    for (size_t i = 0; i < COUNT_OF(sites); i++) {
        fault_arm((struct fault_plan){0}, 0);
        sites[i].function();
        fault_disarm();
        assert_true(fault_counts[sites[i].call] >= 1);
        reached |= FAULT_SET(sites[i].call);
    }
    assert_int_equal(reached, FAULT_ALL);
}

static void site_fails(void *argument)
{
    const struct site *site = argument;
    const int more[] = {EINTR, 0};
    const int *lists[] = {fault_kinds[site->call].errors, more};
    for (size_t list = 0; list < (site->call == FAULT_WRITE ? 2 : 1); list++) {
        for (size_t i = 0; i < FAULT_ERRORS_MAX && lists[list][i] != 0; i++) {
            int error = lists[list][i];
            fault_arm((struct fault_plan){FAULT_SET(site->call), 1, error, false, 0}, 0);
            errno = ERRNO_UNTOUCHED;
            int result = site->function();
            fault_disarm();
            REQUIRE(errno == ERRNO_UNTOUCHED);
            REQUIRE_SIZE((size_t)fault_fired_count, ==, 1);
            if (result != (site->tells ? -error : 0)) {
                support_fail("%s: errno %d became %d\n", fault_kinds[site->call].name, error,
                             result);
            }
        }
    }
}

TEST(every_call_fails)
{
    for (size_t i = 0; i < COUNT_OF(sites); i++) {
        REQUIRE_LIFE(site_fails, (void *)(uintptr_t)&sites[i], NULL);
    }
}

/* A waiter that may not sleep lets others run, so that who holds the lock gets on; one that was
 * only woken does not. */
TEST(wait_yields)
{
    static const struct {
        int error;
        uint64_t yields;
    } answers[] = {{ENOSYS, 1}, {EPERM, 1}, {EAGAIN, 0}, {EINTR, 0}};
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        fault_arm((struct fault_plan){FAULT_SET(FAULT_WAIT), 1, answers[i].error, false, 0}, 0);
        do_wait();
        fault_disarm();
        assert_int_equal(fault_counts[FAULT_YIELD], answers[i].yields);
    }
}

static void guard_without_room(void *argument)
{
    void *place = NULL;
    uint64_t mapped = hak__os_mapped_bytes();
    int64_t ledger = fault_ledger;
    fault_arm((struct fault_plan){FAULT_SET(FAULT_GUARD), 1, ENOMEM, true, 0}, 0);
    REQUIRE(hak__os_guard_reserve(MIB, &place) == -ENOMEM && place == NULL);
    fault_disarm();
    REQUIRE(fault_ledger == ledger && hak__os_guard_reserve(MIB, &place) == 0);
    fault_arm((struct fault_plan){FAULT_SET(FAULT_GUARD), 1, ENOMEM, true, 0}, 0);
    REQUIRE(!hak__os_guard_open(place, 4096) && hak__os_mapped_bytes() == mapped);
    fault_disarm();
    REQUIRE(hak__os_guard_open(place, 4096));
    *(char *)place = 1;
    fault_arm((struct fault_plan){FAULT_SET(FAULT_GUARD), 1, ENOMEM, true, 0}, 0);
    hak__os_guard_close(place, 4096);
    fault_disarm();
    REQUIRE(*(char *)place == 0 && hak__os_mapped_bytes() == mapped);
}

/* All attempts fail. */
TEST(guard_without_room)
{
    REQUIRE_LIFE(guard_without_room, NULL, NULL);
}

TESTS(start)
