/* SPDX-License-Identifier: MIT */
/* watched.c: see watched.h. */
#include "core/watched.h"

#include "os/os.h"

uint32_t hak__watched_state = WATCHED_UNKNOWN;

bool hak__watched_look(void)
{
    if (atomic_load_relaxed(&hak__watched_state) == WATCHED_UNKNOWN) {
        enum watched_state state = hak__os_has_userfaultfd() ? WATCHED_YES : WATCHED_NO;
        atomic_store_relaxed(&hak__watched_state, (uint32_t)state);
    }
    return atomic_load_relaxed(&hak__watched_state) == WATCHED_YES;
}
