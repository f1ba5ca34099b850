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
static void *volatile kept[2];
static int forks_count;

static void replace(void *volatile *block, size_t size)
{
    free(*block);
    *block = malloc(size);
    if (*block == NULL) {
        abort();
    }
    memset(*block, 1, size);
}

static void prepare(void)
{
    pthread_mutex_lock(&lock);
    replace(&kept[0], 1000);
    replace(&kept[1], 200000);
}

static void after(void)
{
    forks_count++;
    replace(&kept[0], 3000);
    replace(&kept[1], 5000000);
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
    replace(&kept[0], size);
    replace(&kept[1], size * 3);
    pthread_mutex_unlock(&lock);
}

EXPORT int plugin_atfork_forks(void)
{
    return forks_count;
}
