/* limit.c: what happens when the process has more mapped than it should (HAKMEM_LIMIT). The hard
 * limit is os/os_linux.c's: a mapping that would exceed it fails like any that the kernel refuses.
 */
#include "core/knobs.h"
#include "heap/heap.h"
#include "os/os.h"

/* Under HEAPS. */
static hak_limit_function *limit_callback;
static void *limit_argument;

/* 1 from the look that found it so to the one that did not. */
static uint32_t shared_limit_exceeded;

void hak__limit_set(uint64_t soft, uint64_t hard, hak_limit_function *callback, void *argument)
{
    if (!hak__gate_enter_patiently()) {
        return;
    }
    lock_acquire(&hak__heaps_lock);
    limit_callback = callback;
    limit_argument = argument;
    atomic_store_relaxed(&hak__knobs.limit, soft);
    atomic_store_relaxed(&hak__knobs.limit_hard, hard);
    atomic_store_relaxed(&shared_limit_exceeded, 0u);
    lock_release(&hak__heaps_lock);
    hak__gate_leave();
    hak__os_set_limit(hard);
}

static HAK_COLD void limit_tell(uint64_t mapped)
{
    if (!hak__gate_enter()) {
        atomic_store_relaxed(&shared_limit_exceeded, 0u); /* the next one that sees it tells */
        return;
    }
    lock_acquire(&hak__heaps_lock);
    hak_limit_function *callback = limit_callback;
    void *argument = limit_argument;
    lock_release(&hak__heaps_lock);
    hak__gate_leave();
    if (callback != NULL) {
        callback((size_t)mapped, argument);
    }
}

bool hak__limit_is_exceeded(void)
{
    return hak__os_mapped_bytes() > atomic_load_relaxed(&hak__knobs.limit);
}

void hak__limit_notice(void)
{
    uint64_t limit = atomic_load_relaxed(&hak__knobs.limit);
    if (HAK_LIKELY(limit == UINT64_MAX)) { /* one line touched, not three */
        return;
    }
    uint64_t mapped = hak__os_mapped_bytes();
    uint32_t exceeded = mapped > limit;
    uint32_t before = !exceeded;
    /* the swap: of many threads that see it one tells */
    if (HAK_UNLIKELY(atomic_load_relaxed(&shared_limit_exceeded) == before) &&
        atomic_cas_acquire(&shared_limit_exceeded, &before, exceeded) && exceeded) {
        limit_tell(mapped);
    }
}
