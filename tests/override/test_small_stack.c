/* SPDX-License-Identifier: MIT */
/* test_small_stack.c: what works on a small stack still works with samples, guarded blocks and the
 * learner: a coroutine of 4 KiB allocates and frees. A thread with the smallest stack that pthreads
 * have ends the process by exit, _exit or a signal, and the report is whole.
 * ctest: no-qemu */
#include "override.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Level 2 checks invariants in functions that are not optimised. */
enum { PAGE = 4096, STACK = HAK_LEVEL >= 2 ? 2 * PAGE : PAGE, BLOCKS = 64 };

static ucontext_t main_context, small_context;
static void *blocks[BLOCKS];

/* Of all kinds: small, spans, mappings of their own. */
static void work(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)1 << (i % 22);
        blocks[i] = i % 3 == 0 ? get_memory(size) : opaque_pointer(calloc(1, size));
        CHECK(blocks[i] != NULL);
        blocks[i] = realloc(blocks[i], size + 3000 * (i % 5));
        CHECK(blocks[i] != NULL);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        give_back(blocks[i]);
        CHECK(posix_memalign(&blocks[i], 64, 1 + i * 100) == 0);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        give_back(blocks[i]);
    }
}

/* Long enough for ticks, also while pages are purged. */
static void work_often(void)
{
    for (size_t i = 0; i < 30; i++) {
        work();
    }
}

static void run_coroutine(void)
{
    char *map = mmap(NULL, STACK + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED && mprotect(map + PAGE, STACK, PROT_READ | PROT_WRITE) == 0);
    work(); /* the loader binds functions at their first call, on the caller's stack */
    CHECK(getcontext(&small_context) == 0);
    small_context.uc_stack.ss_sp = map + PAGE;
    small_context.uc_stack.ss_size = STACK;
    small_context.uc_link = &main_context;
    makecontext(&small_context, work_often, 0);
    CHECK(swapcontext(&main_context, &small_context) == 0);
}

static const char *how_to_end;

static void *end(void *argument)
{
    work();
    if (strcmp(how_to_end, "exit") == 0) {
        exit(0);
    } else if (strcmp(how_to_end, "_exit") == 0) {
        _exit(0);
    }
    raise(SIGTERM);
    return argument;
}

static void run_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
    CHECK(pthread_create(&thread, &attributes, end, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Runs this program again; how it ended. */
static int run_self(const char *what, const char *const *variables)
{
    int status;
    struct again program = start_again(what, 0, variables);
    CHECK(waitpid(program.process, &status, 0) == program.process);
    return status;
}

static void run_all(void)
{
    static const char *settings[][5] = {
        {NULL},
        {"HAKMEM_SAMPLE_BYTES", "1", NULL},
        {"HAKMEM_GUARD", "1", NULL},
        {"HAKMEM_GUARD", "2", "HAKMEM_SAMPLE_BYTES", "1000", NULL},
        {"HAKMEM_LEARN", "/tmp/hakmem-small-stack-learned", NULL},
    };
    static const char *ends[] = {"exit", "_exit", "signal"};
    char path[] = "/tmp/small_stack_XXXXXX";
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        int status = run_self("coroutine", settings[i]);
        if (status != 0) {
            dprintf(2, "%s: status %d\n", settings[i][0] != NULL ? settings[i][0] : "-", status);
            FAIL("the small stack was not enough");
        }
    }
    unlink("/tmp/hakmem-small-stack-learned");
    int file = mkstemp(path);
    CHECK(file >= 0 && close(file) == 0);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        static char report[100000];
        const char *const variables[] = {
            "HAKMEM_STATS", "json", "HAKMEM_STATS_SIGNAL", "1", "HAKMEM_STATS_FILE", path, NULL};
        int status = run_self(ends[i], variables);
        file = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0);
        size_t length = read_to_end(file, report, sizeof report);
        CHECK(unlink(path) == 0);
        if (status != (strcmp(ends[i], "signal") == 0 ? SIGTERM : 0) || length == 0 ||
            report[length - 1] != '\n') {
            dprintf(2, "%s: status %d, %zu bytes\n", ends[i], status, length);
            FAIL("the thread's end was not as it should be");
        }
    }
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc == 1) {
        run_all();
    } else if (strcmp(argv[1], "coroutine") == 0) {
        run_coroutine();
    } else {
        how_to_end = argv[1];
        run_thread();
    }
    return 0;
}
