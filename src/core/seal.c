/* SPDX-License-Identifier: MIT */
/* seal.c: see seal.h. Only in the secure form. */
#include "core/seal.h"

#include "core/lock.h"
#include "core/options.h"
#include "os/os.h"

static struct lock seal_lock = LOCK_INITIAL(LOCK_RANK_SEAL);
static uint64_t seal_signals; /* of the thread that holds the lock. Under SEAL */
static bool seal_begun;       /* the pages are read-only while nobody writes. Under SEAL */
static uint32_t seal_closed;  /* bit i: part i of the options' pages is read-only. Under SEAL */

/* True: all pages are open. */
static bool seal_open_parts(void)
{
    for (uint32_t i = 0; seal_closed >> i != 0; i++) {
        struct seal_pages part = hak__options_pages(i);
        if ((seal_closed >> i & 1) != 0) {
            if (!hak__os_write_protect(part.address, part.size, false, false)) {
                return false;
            }
            seal_closed &= ~(1u << i);
        }
    }
    return true;
}

static void seal_close_parts(void)
{
    struct seal_pages part;
    for (uint32_t i = 0; (part = hak__options_pages(i)).size != 0; i++) {
        if (hak__os_write_protect(part.address, part.size, true, false)) {
            seal_closed |= 1u << i;
        }
    }
}

bool hak__seal_open(void)
{
    uint64_t signals = hak__os_block_signals();
    lock_acquire(&seal_lock);
    seal_signals = signals;
    bool opened = seal_open_parts();
    if (!opened) {
        hak__seal_close();
    }
    return opened;
}

void hak__seal_close(void)
{
    uint64_t signals = seal_signals;
    if (seal_begun) {
        seal_close_parts();
    }
    lock_release(&seal_lock);
    hak__os_restore_signals(signals);
}

void hak__seal_begin(void)
{
    seal_begun = true;
}

void hak__seal_fork_child(void)
{
    /* This thread does not hold it: it would not have forked. The holder opened the pages after it
     * took the lock, and closed them before it gave the lock back. */
    if (atomic_load_relaxed(&seal_lock.shared_state) != 0) {
        if (seal_begun) {
            seal_close_parts();
        }
        atomic_store_relaxed(&seal_lock.shared_state, 0u);
    }
}
