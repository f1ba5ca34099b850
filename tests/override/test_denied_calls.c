/* SPDX-License-Identifier: MIT */
/* test_denied_calls.c: sandboxes that refuse what an allocator may ask the kernel: getrandom,
 * membarrier, rseq, prctl, sched_getaffinity, sysinfo, getrusage, mincore, madvise, each alone and
 * all at once, with ENOSYS and with EPERM, from the start of the program; and a place without /proc
 * and /sys. Memory is served as ever, errno is nobody's business.
 */
#include "override.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int denied[] = {SYS_getrandom, SYS_membarrier,        SYS_rseq,
                             SYS_prctl,     SYS_sched_getaffinity, SYS_sysinfo,
                             SYS_mincore,   SYS_madvise,           SYS_getrusage};
enum { DENIED_COUNT = sizeof denied / sizeof denied[0], NO_FILES = 1000 };

/* What the program does under the filter. */

static void check_zero(const unsigned char *block, size_t size)
{
    CHECK(block[0] == 0 && memcmp(block, block + 1, size - 1) == 0);
}

static void *use_memory(void *argument)
{
    static const size_t sizes[] = {1,     100,    1024,   5000,    40000,
                                   70000, 400000, 800000, 3000000, 5000000};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            unsigned char *blocks[3];
            for (size_t j = 0; j < 3; j++) {
                blocks[j] = j % 2 == 0 ? get_memory(sizes[i]) : memalign(4096, sizes[i]);
                CHECK(blocks[j] != NULL);
                memset(blocks[j], 0xff, malloc_usable_size(blocks[j]));
            }
            blocks[0] = realloc(opaque_pointer(blocks[0]), sizes[i] * 2);
            CHECK(blocks[0] != NULL && blocks[0][sizes[i] - 1] == 0xff);
            errno = 7777;
            for (size_t j = 0; j < 3; j++) {
                give_back(blocks[j]);
            }
            CHECK_EQUAL(errno, 7777);
            if (round != 0) {
                malloc_trim(0);
            }
            unsigned char *cleared = calloc(opaque_size(1), sizes[i]);
            CHECK(cleared != NULL);
            check_zero(cleared, sizes[i]);
            CHECK_EQUAL(errno, 7777);
            give_back(cleared);
        }
    }
    return argument;
}

static int use_everything(void)
{
    pthread_t threads[2];
    prove_served();
    use_memory(NULL);
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, use_memory, NULL) == 0);
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        use_memory(NULL);
        _exit(0);
    }
    wait_for_success(child, "child");
    return 0;
}

/* Who sets it up. */

/* From here on, also after exec: `first` to `last` - 1 of the table fail with `error`. */
static bool install_filter(int first, int last, int error)
{
    struct sock_filter filter[2 * DENIED_COUNT + 2];
    unsigned short length = 0;
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = first; i < last; i++) {
        filter[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)denied[i], 0, 1);
        filter[length++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* An empty directory where /proc and /sys were. */
static bool hide_files(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc", "tmpfs", 0, NULL) == 0 &&
           mount("none", "/sys", "tmpfs", 0, NULL) == 0 && access("/proc/self", F_OK) != 0;
}

/* False when this machine lets nobody do that. */
static bool run_self(const char *self, int first, int last, int error)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(240);
        bool done = first == NO_FILES ? hide_files() : install_filter(first, last, error);
        if (!done) {
            _exit(TEST_SKIPPED);
        }
        bool alone = last == first + 1;
        execl(self, self, alone ? "use-little" : "use", (char *)NULL);
        _exit(126);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED) {
        return false;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        dprintf(2, "calls %d to %d, error %d: status %d\n", first, last, error, status);
        _exit(1);
    }
    return true;
}

int main(int argc, char **argv)
{
    char self[TEST_PATH_SIZE];
    if (argc > 1 && strcmp(argv[1], "use") == 0) {
        return use_everything();
    }
    prove_served();
    if (argc > 1) { /* use-little */
        use_memory(NULL);
        return 0;
    }
    own_path(self);
    const int errors[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < 2; i++) {
        if (!run_self(self, 0, DENIED_COUNT, errors[i])) {
            dprintf(2, "skipped: no seccomp here\n");
            return TEST_SKIPPED;
        }
        for (int call = 0; call < DENIED_COUNT; call++) {
            CHECK(run_self(self, call, call + 1, errors[i]));
        }
    }
    if (!run_self(self, NO_FILES, 0, 0)) {
        dprintf(2, "not run without /proc: no right to mount\n");
    }
    return 0;
}
