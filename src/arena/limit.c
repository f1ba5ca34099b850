/* SPDX-License-Identifier: MIT */
/* limit.c: the soft limit on mapped memory (HAKMEM_LIMIT), its state and its callback. The hard
 * limit is checked in os/os_map.c: a mapping that would exceed it fails as if the kernel had
 * refused it. */
#include "arena/arena.h"
#include "base/probe.h"
#include "core/knobs.h"
#include "core/seal.h"
#include "os/os.h"

static struct limit_call limit_call; /* of hak_limit_set; under ARENAS */

/* 1: the last look found more mapped than the soft limit. */
static uint32_t shared_limit_exceeded;

bool hak__limit_set(const uint64_t *soft, const uint64_t *hard, const struct limit_call *call)
{
    if (!hak__gate_enter(GATE_PATIENTLY)) {
        return false;
    }
    lock_acquire(&hak__arenas_lock);
    bool opened = seal_open();
    if (opened && call != NULL) {
        limit_call = *call;
    }
    if (opened && soft != NULL) {
        atomic_store_relaxed(&hak__knobs.limit, *soft);
        atomic_store_relaxed(&shared_limit_exceeded, 0u);
    }
    if (opened && hard != NULL) {
        atomic_store_relaxed(&hak__knobs.limit_hard, *hard);
        hak__os_set_limit(*hard);
    }
    if (opened) {
        seal_close();
    }
    lock_release(&hak__arenas_lock);
    hak__gate_leave();
    return opened;
}

/* Calls the callback, without a lock. */
static HAK_COLD void limit_tell(uint64_t mapped)
{
    if (!hak__gate_enter(GATE_BRIEFLY)) {
        atomic_store_relaxed(&shared_limit_exceeded, 0u); /* the next look tells */
        return;
    }
    lock_acquire(&hak__arenas_lock);
    struct limit_call call = limit_call;
    lock_release(&hak__arenas_lock);
    hak__gate_leave();
    probe_hakmem_limit_exceeded(mapped, atomic_load_relaxed(&hak__knobs.limit));
    if (call.function != NULL) {
        call.function((size_t)mapped, call.argument);
    }
}

bool hak__limit_is_exceeded(void)
{
    uint64_t limit = atomic_load_relaxed(&hak__knobs.limit);
    return limit != UINT64_MAX && hak__os_mapped_bytes() > limit; /* without one: one cache line */
}

void hak__limit_notice(void)
{
    uint64_t limit = atomic_load_relaxed(&hak__knobs.limit);
    if (HAK_LIKELY(limit == UINT64_MAX)) { /* the usual case reads one cache line */
        return;
    }
    uint64_t mapped = hak__os_mapped_bytes();
    uint32_t exceeded = mapped > limit;
    uint32_t before = !exceeded;
    /* the swap: only one of several threads that see the change tells */
    if (HAK_UNLIKELY(atomic_load_relaxed(&shared_limit_exceeded) == before) &&
        atomic_cas_acquire(&shared_limit_exceeded, &before, exceeded) && exceeded) {
        limit_tell(mapped);
    }
}
