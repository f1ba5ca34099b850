/* SPDX-License-Identifier: MIT */
/* background.c: see background.h. */
#include "control/background.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "os/os.h"

static uint32_t shared_background_count; /* hakmem's threads; relaxed adds from any thread */

static int background_create(const pthread_attr_t *attributes, background_function *function)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, attributes, function, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

static int background_create_small(background_function *function)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        /* Bytes of a stack. The C library puts the thread-local variables of all libraries on it,
         * too; if they do not fit, the default size is used. Doubled: more address space, no more
         * resident memory. Halved: more programs fall back to the default. */
        pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
        error = background_create(&attributes, function);
        pthread_attr_destroy(&attributes);
    }
    return error;
}

int hak__background_start(background_function *function)
{
    atomic_add_relaxed(&shared_background_count, 1u); /* pairs with nothing: a counter */
    int error = background_create_small(function);
    if (error == EINVAL) {
        error = background_create(NULL, function);
    }
    if (error != 0) {
        hak__background_end();
    }
    return error;
}

uint32_t hak__background_wait(uint32_t *word, uint32_t value, bool patiently)
{
    uint32_t now, began_ms = hak__os_clock_ms();
    while ((now = atomic_load_acquire(word)) == value &&
           (patiently || hak__os_clock_ms() - began_ms < BACKGROUND_WAIT_MS)) {
        hak__os_wait_ms(word, value, BACKGROUND_WAIT_MS);
    }
    return now;
}

void hak__background_end(void)
{
    atomic_sub_relaxed(&shared_background_count, 1u); /* pairs with nothing: a counter */
}

bool hak__background_is_left_alone(void)
{
    uint32_t count = atomic_load_relaxed(&shared_background_count);
    return hak__os_is_last_thread(count != 0 ? count - 1 : 0);
}

void hak__background_fork_child(void)
{
    atomic_store_relaxed(&shared_background_count, 0u);
}
