/* SPDX-License-Identifier: MIT */
/* test_userfaultfd.c: a program watches some of its blocks by a userfaultfd. munmap, mremap and
 * madvise on such a block wait until the watching thread has read what happened. That thread may
 * allocate, free and trim before it reads: malloc must not need what the waiting thread holds. And
 * a signal must end the process while such a call waits. Nor may its own malloc purge, unmap or
 * hand out what others have freed: it would wait for itself.
 *
 * Needs userfaultfd with its events (root, or vm.unprivileged_userfaultfd); skipped without.
 * ctest: secure-too no-qemu
 */
#include "override.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
/* For a hang; the parent waits for longer than the watching thread. */
#define HANG_SECONDS 60
#define PAGE ((uintptr_t)4096)

static int watch = -1;
static uint32_t shared_steps;  /* of the watching thread: it is ready, then it has seen an event */
static uint32_t shared_rounds; /* of the watching thread, while nothing happens */
static bool signals_itself, works_meanwhile;

/* --- the watching thread --- */

/* All sizes, in new memory and in memory that this thread has used. */
static void allocate_all(void)
{
    static const size_t sizes[] = {40, 3000, 20000, 100 * KIB, MIB, 3 * MIB};
    static void *blocks[COUNT_OF(sizes) * 8];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            size_t size = sizes[i % COUNT_OF(sizes)];
            blocks[i] = i % 3 == 0 ? opaque_pointer(calloc(1, size)) : get_memory(size);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, size);
        }
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            if (i % 2 == 0) {
                blocks[i] = realloc(blocks[i], 2 * sizes[i % COUNT_OF(sizes)]);
                CHECK(blocks[i] != NULL);
            }
            give_back(blocks[i]);
        }
    }
}

/* The first event waits to be read, and so does the thread that caused it. */
static void on_first_event(const char *what)
{
    if (signals_itself) { /* this thread blocks all signals: the waiting one must take it */
        CHECK(kill(getpid(), SIGTERM) == 0);
        sleep(2 * HANG_SECONDS);
        FAIL("the process did not end by the signal");
    }
    allocate_all();
    if (strcmp(what, "pages") != 0) { /* there it could wait for the event itself */
        malloc_trim(0);
    }
}

static void *watch_blocks(void *what)
{
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    allocate_all(); /* it has an arena, and cached objects */
    __atomic_store_n(&shared_steps, 1u, __ATOMIC_RELEASE);
    for (bool first = true;; first = false) {
        struct pollfd ready = {.fd = watch, .events = POLLIN};
        struct uffd_msg event;
        while (poll(&ready, 1, works_meanwhile ? 1 : -1) == 0) {
            allocate_all();
            __atomic_add_fetch(&shared_rounds, 1u, __ATOMIC_RELAXED);
        }
        CHECK((ready.revents & POLLIN) != 0);
        if (first && !works_meanwhile) {
            __atomic_store_n(&shared_steps, 2u, __ATOMIC_RELEASE);
            on_first_event(what);
        }
        CHECK(read(watch, &event, sizeof event) == sizeof event);
        if (event.event == UFFD_EVENT_PAGEFAULT) { /* of a page that was purged */
            struct uffdio_zeropage zero = {
                .range = {event.arg.pagefault.address & ~(PAGE - 1), PAGE}};
            CHECK(ioctl(watch, UFFDIO_ZEROPAGE, &zero) == 0);
        }
    }
    return NULL;
}

/* Watches the whole pages of memory. */
static void watch_pages(char *block, size_t size)
{
    uintptr_t start = ((uintptr_t)block + PAGE - 1) & ~(PAGE - 1);
    struct uffdio_register range = {
        .range = {start, (((uintptr_t)block + size) & ~(PAGE - 1)) - start},
        .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(watch, UFFDIO_REGISTER, &range) == 0);
}

static char *watched_block(size_t size)
{
    char *block = get_memory(size);
    CHECK(block != NULL);
    memset(block, 1, size);
    watch_pages(block, size);
    return block;
}

/* --- calls that the watching thread holds up --- */

static void call_free(void)
{
    give_back(watched_block(8 * MIB));
}

static void call_trim(void)
{
    give_back(watched_block(8 * MIB));
    malloc_trim(0);
}

static void call_grow(void)
{
    give_back(realloc(watched_block(8 * MIB), 200 * MIB));
}

static void call_shrink(void)
{
    give_back(realloc(watched_block(16 * MIB), 4 * MIB));
}

static void call_span(void)
{
    give_back(watched_block(MIB));
    malloc_trim(0);
}

/* Of 32 blocks in a slab, the first one stays. Only memory between blocks that follow each other is
 * watched: elsewhere the watching thread may have slabs of its own. */
static void call_pages(void)
{
    static char *blocks[512];
    const size_t group = 31;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = get_memory(1000);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        if (i % 32 != 0) {
            give_back(blocks[i]);
        }
    }
    for (size_t i = 0; i + group < COUNT_OF(blocks); i += group + 1) {
        size_t bytes = (size_t)(blocks[i + group] - blocks[i]);
        if (bytes / group < 1100) {
            watch_pages(blocks[i], bytes);
        }
    }
    malloc_trim(0);
}

/* The allocation fails, so memory that is free is unmapped first. */
static void call_fail(void)
{
    give_back(watched_block(2 * MIB));
    CHECK(get_memory((size_t)4 << 30) == NULL);
}

/* Purge passes are due in the watching thread, the only one that allocates. */
static void call_nothing(void)
{
    for (size_t size = 64 * KIB; size <= 16 * MIB; size *= 2) {
        give_back(watched_block(2 * size));
    }
    while (__atomic_load_n(&shared_rounds, __ATOMIC_RELAXED) < 10) {
        usleep(10000);
    }
    __atomic_store_n(&shared_steps, 2u, __ATOMIC_RELEASE);
}

static const struct call {
    const char *name;
    void (*run)(void);
    bool secure; /* that form has this call, too */
} calls[] = {{"free", call_free, true},  {"trim", call_trim, false},
             {"grow", call_grow, true},  {"shrink", call_shrink, true},
             {"span", call_span, false}, {"pages", call_pages, false},
             {"fail", call_fail, true},  {"nothing", call_nothing, false}};

/* --- the process --- */

static bool open_watch(void)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
                                         UFFD_FEATURE_EVENT_REMAP};
    watch = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    return watch >= 0 && ioctl(watch, UFFDIO_API, &api) == 0;
}

static int run(const char *name)
{
    const struct call *call = calls;
    pthread_t thread;
    signals_itself = getenv("TEST_SIGNAL") != NULL;
    works_meanwhile = strcmp(name, "nothing") == 0;
    while (strcmp(call->name, name) != 0) {
        call++;
    }
    CHECK(open_watch());
    CHECK(pthread_create(&thread, NULL, watch_blocks, (void *)(uintptr_t)name) == 0);
    while (__atomic_load_n(&shared_steps, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
    call->run();
    CHECK(__atomic_load_n(&shared_steps, __ATOMIC_ACQUIRE) == 2); /* it did wait */
    _exit(0);
}

/* Waits HANG_SECONDS for the process. Returns its status. */
static int await(pid_t process, const char *name)
{
    int status;
    for (int i = 0; waitpid(process, &status, WNOHANG) != process; i++) {
        if (i == HANG_SECONDS * 100) {
            kill(process, SIGKILL);
            dprintf(2, "%s: hangs\n", name);
            _exit(1);
        }
        usleep(10000);
    }
    return status;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        return run(argv[1]);
    }
    if (!open_watch()) {
        dprintf(2, "skipped: no userfaultfd with events (errno %d)\n", errno);
        return TEST_SKIPPED;
    }
    for (size_t i = 0; i < 2 * COUNT_OF(calls); i++) {
        const struct call *call = &calls[i / 2];
        bool cache = strcmp(call->name, "trim") == 0, passes = call->run == call_nothing;
        /* No cache: free and realloc unmap at once. No purge but those asked for. */
        const char *const variables[] = {"HAKMEM_PURGE_DELAY_MS",
                                         passes ? "10" : "never",
                                         "HAKMEM_LIMIT_HARD",
                                         "2g",
                                         "HAKMEM_HUGE_CACHE_BYTES",
                                         cache || passes ? "1g" : "0",
                                         i % 2 == 0 ? NULL : "TEST_SIGNAL",
                                         "1",
                                         NULL};
        if ((is_secure() && !call->secure) || (passes && i % 2 != 0)) {
            continue;
        }
        int status = await(start_again(call->name, 0, variables).process, call->name);
        int expected = i % 2 == 0 ? 0 : SIGTERM;
        if (status != expected) {
            dprintf(2, "%s: status %d, not %d\n", call->name, status, expected);
            return 1;
        }
    }
    return 0;
}
