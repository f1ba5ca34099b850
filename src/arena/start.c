/* SPDX-License-Identifier: MIT */
/* start.c: the first use of hakmem. The first slow operation of the process starts it, once. That
 * may be long before any constructor, because the loader allocates, or inside the C library's own
 * start. */
#include <pthread.h>
#include <unistd.h>

#include "arena/arena.h"
#include "core/options.h"
#include "core/seal.h"
#include "os/os.h"
#include "region/secure.h"
#include "region/window.h"

static struct lock start_lock = LOCK_INITIAL(LOCK_RANK_START);
static bool shared_started;
static bool start_has_key;
static pthread_key_t start_key; /* 0 is a valid key, so start_has_key says whether there is one */

static HAK_COLD bool start_first(void)
{
    lock_acquire(&start_lock);
    bool started = atomic_load_relaxed(&shared_started);
    if (!started) {
        hak__os_init();
        if (hak__start_refuse != NULL) {
            hak__start_refuse();
        }
        (void)seal_open(); /* nothing is closed yet */
        /* environ may be NULL so early in a preloaded process. The constructor then reads it. */
        hak__options_read(environ);
        hak__options_settle();
        started = hak__window_start() == 0;
        seal_close();
        if (started && !start_has_key) {
            start_has_key = pthread_key_create(&start_key, hak__thread_end) == 0;
        }
        /* release: pairs with the acquire in hak__start */
        atomic_store_release(&shared_started, started);
    }
    lock_release(&start_lock);
    return started;
}

bool hak__start(void)
{
    /* acquire: pairs with the release in start_first */
    return HAK_LIKELY(atomic_load_acquire(&shared_started)) || start_first();
}

void hak__start_read_options(char *const *environment)
{
    uint64_t signals = hak__lock_block_signals();
    lock_acquire(&start_lock);
    hak__os_init();
    if (seal_open()) {
        hak__options_read(environment);
        if (atomic_load_relaxed(&shared_started)) {
            hak__options_settle();
        }
        seal_close();
    }
    lock_release(&start_lock);
    hak__os_restore_signals(signals);
}

bool hak__start_has_key(void)
{
    return start_has_key;
}

bool hak__start_watch_thread(struct thread *thread)
{
    return pthread_setspecific(start_key, thread) == 0;
}
