/* SPDX-License-Identifier: MIT */
/* test_atfork.c: fork handlers that allocate: many of the program's own, and those of a library
 * that was loaded before or after hakmem and takes a lock under which other threads allocate. glibc
 * allows all of it: it takes its malloc locks after every handler ran. hakmem registers handlers
 * once, however many arenas there are: one registration for each arena overflowed the C library's
 * table (Bun). In a program linked with
 * libhakmem.a the libraries' constructors come before ours: not promised there.
 *
 * ctest: preload-only no-qemu */
#include "override.h"

#include <stdatomic.h>

enum { HANDLERS_COUNT = 100, THREADS_COUNT = 4, FORKS_COUNT = 60 };

static void *kept;
static size_t kept_bytes;
static atomic_bool threads_stop;
static void (*plugin_work)(size_t size);
static int (*plugin_forks)(void);

/* The program's own, which pthread_atfork of all libraries calls. */
typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
register_function __register_atfork;
static int registered_count;

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *object)
{
    register_function *real = (register_function *)(uintptr_t)dlsym(RTLD_NEXT, "__register_atfork");
    CHECK(real != NULL);
    registered_count++;
    return real(prepare, parent, child, object);
}

/* One allocation by each handler in prepare, freed by parent and child after it. */
struct list {
    struct list *next;
};
static struct list *prepared;

static void handler_prepare(void)
{
    struct list *made = get_memory(sizeof *made + (kept_bytes += 97) % 5000);
    CHECK(made != NULL);
    made->next = prepared;
    prepared = made;
}

static void handler_after(void)
{
    struct list *made = prepared;
    CHECK(made != NULL);
    prepared = made->next;
    give_back(made);
    give_back(kept);
    kept = get_memory(300);
}

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    while (!threads_stop) {
        uint64_t number = random_next(&state);
        void *block = get_memory(number % 100000);
        plugin_work(number % 3000 + 1);
        give_back(block);
    }
    return NULL;
}

static void run_forks(void)
{
    plugin_work = (void (*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "plugin_atfork_work");
    plugin_forks = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "plugin_atfork_forks");
    CHECK(plugin_work != NULL && plugin_forks != NULL);
    /* glibc has room for 48 handlers, then it allocates while it holds its own lock. */
    for (int i = 0; i < HANDLERS_COUNT; i++) {
        CHECK(pthread_atfork(handler_prepare, handler_after, handler_after) == 0);
    }
    pthread_t threads[THREADS_COUNT];
    start_all(threads, THREADS_COUNT, run_thread, NULL);
    for (int i = 0; i < FORKS_COUNT; i++) {
        IN_CHILD("child of a fork with handlers") {
            alarm(240);
            CHECK(prepared == NULL);
            CHECK_EQUAL(plugin_forks(), i + 1);
            for (size_t j = 0; j < 100; j++) {
                plugin_work(j * 30 + 1);
            }
        }
    }
    CHECK_EQUAL(plugin_forks(), FORKS_COUNT);
    CHECK_EQUAL(registered_count, HANDLERS_COUNT + 2); /* hakmem's and the plugin's */
    threads_stop = true;
    join_all(threads, THREADS_COUNT);
    give_back(kept);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "fork") == 0) {
        alarm(280); /* the deadlock is in the parent as well */
        prove_served();
        run_forks();
        return 0;
    }
    run_self_beside_plugin("atfork", "fork");
    return 0;
}
