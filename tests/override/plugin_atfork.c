/* SPDX-License-Identifier: MIT */
/* plugin_atfork.c: a library that has fork handlers of its own, as many have: they take its lock,
 * and they allocate. Its constructor registers them before it ever calls the allocator; test_atfork
 * preloads it before and after hakmem. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void plugin_atfork_work(size_t size);
EXPORT int plugin_atfork_forks(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *from_prepare;
static void *from_parent;
static int forks_count;

static void *opaque_pointer(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

static void *get_memory(size_t size)
{
    void *block = opaque_pointer(malloc(size));
    if (block == NULL) {
        abort();
    }
    memset(block, 1, size);
    return block;
}

static void prepare(void)
{
    pthread_mutex_lock(&lock);
    from_prepare = get_memory(1000);
    free(opaque_pointer(get_memory(200000)));
}

static void after(void)
{
    forks_count++;
    free(opaque_pointer(from_prepare));
    free(opaque_pointer(from_parent));
    from_parent = get_memory(3000);
    free(opaque_pointer(get_memory(5000000)));
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void plugin_start(void)
{
    if (pthread_atfork(prepare, after, after) != 0) {
        abort();
    }
}

/* Holds the lock that the prepare handler wants while it allocates: whoever takes the allocator's
 * locks before this library's handler ran deadlocks. */
EXPORT void plugin_atfork_work(size_t size)
{
    pthread_mutex_lock(&lock);
    void *first = get_memory(size);
    void *second = get_memory(size * 3);
    free(opaque_pointer(first));
    free(opaque_pointer(second));
    pthread_mutex_unlock(&lock);
}

EXPORT int plugin_atfork_forks(void)
{
    return forks_count;
}
