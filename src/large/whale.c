/* SPDX-License-Identifier: MIT */
/* whale.c: see whale.h.
 *
 *   allocate   a range of the cache (take, and grow if it is too small), else joined parts, else a
 *              new mapping; then an entry in the registry
 *   free       out of the registry, into the cache, and trim the cache to its bound
 *   resize     out of the registry, grow or cut, back into the registry */
#include "large/whale.h"

#include <errno.h>

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "large/emergency.h"
#include "large/whale_cache.h"
#include "large/whale_ranges.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/huge.h"
#include "region/mappings.h"
#include "region/superslab.h"

/* realloc keeps the whale as it is if the new size fits and leaves at most an eighth unused. Twice
 * the divisor: less unused memory, and more system calls. Half: the reverse. */
#define WHALE_SLACK_DIVISOR 8u
/* A freed whale is sparse if it is larger than this and at most this much of it is resident. The
 * cache counts a sparse whale as its resident bytes (docs/decisions/0039), but at least as a
 * sixteenth of its size, so that address space is limited, too. Half of WHALE_SPARSE_MIN: calls of
 * mincore for whales from 16 MiB on. Twice the divisor: the cache may hold twice the addresses. */
#define WHALE_SPARSE_MIN ((size_t)32 << 20)
#define WHALE_SPARSE_DIVISOR 16u
/* From 4 MiB on, a size is rounded up to whole huge pages if that adds at most a sixteenth. Ranges
 * are then cut without rests: a benchmark has 229,000 page faults and 404 MiB with rounding, and
 * 295,000 and 399 MiB without (docs/decisions/0070). Twice the divisor: half the waste at most, and
 * fewer sizes are rounded. */
#define WHALE_EXCESS_DIVISOR 16u
/* The end of a whale must have at least this much of a huge page to get one. Twice: more whales end
 * in small pages. Half: a whale may waste more of its last huge page. */
#define WHALE_END_MIN ((size_t)64 << 10)

struct lock HAK_LOCK_LINE hak__whale_lock = LOCK_INITIAL(LOCK_RANK_WHALES);
/* Where the last freed whales started, to tell a double free from a foreign pointer. Twice as many:
 * more double frees get the right message. Under the lock. */
#define WHALE_GRAVES 64u
static uintptr_t whale_graves[WHALE_GRAVES];
static uint32_t whale_next_grave;
/* How often a thread that may hold the lock itself tries to look, a millisecond apart. Twice: a
 * signal handler that interrupted its own thread under the lock waits 200 ms in vain. Half: it
 * gives up sooner although another thread holds the lock. */
#define WHALE_LOOKS_MAX 100u

uint64_t hak__whale_new_origin(void)
{
    static uint64_t shared_origins;
    return whale_origin_here(atomic_add_relaxed(&shared_origins, UINT64_C(1)) + 1);
}

/* True: realloc to `size` bytes may keep the whale as it is. */
static bool whale_fits(size_t whale_size, size_t size)
{
    return whale_size >= size && whale_size - size <= size / WHALE_SLACK_DIVISOR;
}

/* From two huge pages on, whales start at a huge page's boundary. That costs little address space,
 * lets the kernel use huge pages, and lets it move page tables and huge pages whole. */
static size_t whale_alignment(size_t size)
{
    return size >= 2 * HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : hak__os_page_size();
}

/* The size to map for a whale of `size` bytes. It is whole huge pages if that adds at most a
 * sixteenth, so that no rests remain when ranges are cut and joined. With huge pages it is also
 * rounded up if that adds at most a quarter and the last huge page holds WHALE_END_MIN: otherwise
 * the small pages at the end would stay small when the whale grows. */
static size_t whale_wanted_size(size_t size, bool huge)
{
    if (HAK_SECURE) {
        return size; /* its tail follows the last page that was asked for */
    }
    size_t excess = bits_align_up(size, HUGE_PAGE_SIZE) - size;
    bool huge_end = huge && excess <= size / 4 && excess <= HUGE_PAGE_SIZE - WHALE_END_MIN;
    bool adds_little = size >= 2 * HUGE_PAGE_SIZE && excess <= size / WHALE_EXCESS_DIVISOR;
    return huge_end || adds_little ? size + excess : size;
}

/* Without marks of the kernel this purges pages, which may wait as other purges. */
static void whale_close_tail(uintptr_t end)
{
    if (HAK_SECURE) {
        hak__gate_begin_call();
        hak__os_close_pages((void *)end, WHALE_TAIL);
        hak__gate_end_call();
    }
}

static void whale_close_ends(uintptr_t address, size_t size)
{
    if (HAK_SECURE) {
        hak__os_close_pages((void *)(address - WHALE_HEAD), WHALE_HEAD);
        whale_close_tail(address + size);
    }
}

struct huge_evidence hak__whale_evidence[2];

static size_t whale_live_bytes(void)
{
    lock_acquire(&hak__whale_lock);
    size_t live = hak__whale_registry_totals().live_bytes;
    lock_release(&hak__whale_lock);
    return live;
}

bool hak__whale_earns_huge(size_t size, bool zeroed)
{
    if (size < 2 * HUGE_PAGE_SIZE) {
        return false;
    }
    size_t live = whale_live_bytes();
    return hak__huge_is_earned(&hak__whale_evidence[zeroed], size, live,
                               live + size + hak__superslab_bytes_claimed());
}

static bool whale_needs_huge(size_t old_size, size_t size)
{
    return bits_align_up(size, HUGE_PAGE_SIZE) > bits_align_up(old_size, HUGE_PAGE_SIZE);
}

/* As hak__os_remap, for a whale with its head and tail. */
static int whale_remap(struct whale whale, size_t size, size_t alignment, void **moved)
{
    const size_t ends = WHALE_HEAD + WHALE_TAIL;
    char *start = (char *)whale.address - WHALE_HEAD;
    if (HAK_SECURE &&
        (!hak__os_open_pages((char *)whale.address + whale.size, WHALE_TAIL) ||
         !hak__os_open_pages(start, WHALE_HEAD))) { /* closed by protection, they split a mapping */
        return -ENOMEM;
    }
    void *place = start;
    hak__gate_begin_call();
    int error =
        hak__os_remap_behind(WHALE_HEAD, start, whale.size + ends, size + ends, alignment, &place);
    hak__gate_end_call();
    whale_close_ends((uintptr_t)place + WHALE_HEAD, error == 0 ? size : whale.size);
    *moved = error == 0 ? (char *)place + WHALE_HEAD : *moved;
    return error;
}

/* Grows a whale by mremap: moving pages takes a hundredth of the time of new page faults. Address
 * 0: that failed, and the whale is as it was. Head and tail have its page sizes: other ones would
 * be other mappings, and mremap grows a single one. */
static struct whale whale_grow(struct whale whale, size_t size, bool want_zero)
{
    const size_t ends = WHALE_HEAD + WHALE_TAIL;
    bool grows = whale_needs_huge(whale.size, size);
    bool huge = grows && hak__whale_earns_huge(size, want_zero);
    size_t wanted = whale_wanted_size(size, huge);
    size_t alignment = whale_is_joined(whale) ? 0 : whale_alignment(size);
    void *moved = (void *)whale.address;
    if (whale_remap(whale, wanted, alignment, &moved) != 0) {
        if (whale_is_joined(whale)) {
            return hak__whale_join_grow(whale, size);
        }
        if (wanted == size || whale_remap(whale, size, alignment, &moved) != 0) {
            return (struct whale){0};
        }
        wanted = size; /* a limit is near: the size without rounding may still fit */
    }
    if (huge) {
        hak__huge_ask((char *)moved - WHALE_HEAD, wanted + ends, WHALE_HEAD + whale.size);
    } else if (grows && whale.size >= 2 * HUGE_PAGE_SIZE) {
        hak__os_small((char *)moved - WHALE_HEAD, wanted + ends); /* else new ones are as the old */
    }
    if (whale_is_joined(whale)) {
        atomic_add_relaxed(&hak__whale_joined_bytes, wanted - whale.size);
        return (struct whale)WHALE_OF((uintptr_t)moved, wanted, whale.origin);
    }
    /* It may have moved, or have other page sizes than its neighbours. So it is a mapping of its
     * own, and must not meet ranges of the old one. */
    uint64_t node = whale.origin >> ORIGIN_NUMBER_BITS << ORIGIN_NUMBER_BITS; /* as its pages */
    uint64_t origin = hak__whale_new_origin() & ((UINT64_C(1) << ORIGIN_NUMBER_BITS) - 1);
    return (struct whale)WHALE_OF((uintptr_t)moved, wanted, node | origin);
}

/* Bytes that the cache counts for a freed whale: its size; if it is sparse, its resident bytes, but
 * at least a sixteenth of its size. It counts as sparse only if that fits into `room`. */
static size_t whale_resident(struct whale whale, size_t room)
{
    size_t most = room < WHALE_SPARSE_MIN ? room : WHALE_SPARSE_MIN;
    size_t least = whale.size / WHALE_SPARSE_DIVISOR, resident = 0;
    if (whale.size <= WHALE_SPARSE_MIN || least > most) {
        return whale.size;
    }
    for (size_t at = 0, part; at < whale.size && resident <= most; at += part) {
        part = whale.size - at < OS_RESIDENT_SIZE_MAX ? whale.size - at : OS_RESIDENT_SIZE_MAX;
        size_t bytes = hak__os_resident((const void *)(whale.address + at), part);
        if (bytes == SIZE_MAX) { /* unknown: all of it may be resident */
            return whale.size;
        }
        resident += bytes;
    }
    resident = resident < least ? least : resident;
    return resident > most ? whale.size : resident;
}

static struct whale whale_map(size_t size, size_t alignment, bool want_zero)
{
    bool huge = hak__whale_earns_huge(size, want_zero);
    size_t wanted = whale_wanted_size(size, huge);
    size_t wanted_alignment = whale_alignment(size);
    wanted_alignment = alignment > wanted_alignment ? alignment : wanted_alignment;
    const size_t ends = WHALE_HEAD + WHALE_TAIL;
    void *address;
    if (hak__os_map_behind(WHALE_HEAD, wanted + ends, wanted_alignment, &address) != 0) {
        bool least = wanted == size && wanted_alignment == alignment;
        if (least || hak__os_map_behind(WHALE_HEAD, size + ends, alignment, &address) != 0) {
            return (struct whale){0};
        }
        wanted = size; /* a limit is near: the size without rounding may still fit */
    }
    address = (char *)address + WHALE_HEAD;
    struct whale whale = WHALE_OF((uintptr_t)address, wanted, hak__whale_new_origin());
    whale_close_ends(whale.address, whale.size);
    /* Huge pages for all of it or none: two kinds are two mappings, which mremap cannot move at
     * once. */
    if (!huge || hak__huge_ask((char *)address - WHALE_HEAD, wanted + ends, WHALE_HEAD) != 0) {
        hak__huge_watch(&hak__whale_evidence[want_zero],
                        (struct huge_sample){.address = address,
                                             .size = wanted,
                                             .live = whale_live_bytes(),
                                             .dense_percent = HUGE_DENSE_PERCENT});
    }
    return whale;
}

/* A whale out of cached ranges; address 0: they have nothing suitable. */
static struct whale whale_take_cached(size_t size, size_t alignment, bool want_zero)
{
    size_t wanted = whale_wanted_size(size, false);
    struct whale_parts taken;
    struct whale whale = {0};
    hak__whale_cache_take(&taken, wanted, alignment, want_zero);
    if (taken.count != 0) {
        whale = taken.whole ? taken.parts[0] : hak__whale_join(&taken, wanted, want_zero);
    }
    if (whale.address != 0 && whale.size < size) {
        struct whale grown = whale_grow(whale, size, want_zero);
        hak__whale_unmap(grown.address == 0 ? whale : (struct whale){0});
        whale = grown;
    }
    return whale;
}

static struct whale_result whale_allocate(size_t size, size_t alignment, bool want_zero,
                                          bool may_map)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - WHALE_HEAD - WHALE_TAIL) {
        return (struct whale_result){NULL, false};
    }
    size_t requested = size == 0 ? 1 : size;
    size = bits_align_up(requested, page);
    alignment = alignment < page ? page : alignment;
    struct whale whale = {0};
    if (!HAK_SECURE) { /* which caches no whales */
        whale = whale_take_cached(size, alignment, want_zero);
    }
    bool zeroed = whale.address == 0;
    if (zeroed && may_map) {
        whale = whale_map(size, alignment, want_zero);
    }
    whale_begin_use(&whale, requested);
    if (whale.address != 0 && !hak__whale_registry_insert(whale)) {
        (void)hak__mappings_probe(); /* while the whale has what may be the last mapping */
        hak__whale_unmap(whale);
        whale.address = 0;
    }
    hak__whale_cache_trim(UINT32_MAX); /* more memory is in use now, so the cache may hold less */
    return (struct whale_result){(void *)whale.address, zeroed};
}

struct whale_result hak__whale_allocate(size_t size, size_t alignment, bool want_zero)
{
    /* In this order: whale_may_be_span asks the kernel. */
    bool may_map = !hak__mappings_are_short() || !whale_may_be_span(size, alignment);
    return whale_allocate(size, alignment, want_zero, may_map);
}

struct whale_result hak__whale_allocate_anyway(size_t size, size_t alignment, bool want_zero)
{
    return whale_allocate(size, alignment, want_zero, true);
}

/* Puts a whale into the cache; unmaps it if there is no room at all. */
static void whale_keep(struct whale whale)
{
    size_t room = hak__whale_cache_room();
    if (room == 0) {
        hak__whale_unmap(whale);
        return;
    }
    hak__whale_cache_put(whale, whale_resident(whale, room));
    hak__whale_cache_trim(UINT32_MAX);
    if (whale.size >= FREED_MUCH_SLICES * SLICE_SIZE) {
        superslab_note_freed_much();
    }
}

bool hak__whale_free(void *pointer)
{
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_remove((uintptr_t)pointer);
    if (whale.address != 0) {
        whale_graves[whale_next_grave++ % WHALE_GRAVES] = whale.address;
    }
    lock_release(&hak__whale_lock);
    if (whale.address == 0) {
        return false;
    }
    if (HAK_SECURE) {
        whale_check_canary(&whale);
    }
    hak__huge_unwatch(hak__whale_evidence, 2, pointer);
    if (whale.size > SPAN_SIZE_MAX) {
        whale_keep(whale);
    } else { /* emergency memory (large/emergency.h) is too small for the cache */
        hak__whale_unmap(whale);
    }
    return true;
}

/* Takes the lock, or returns false after some 0.1 s: this thread may hold it itself. */
static bool whale_lock_soon(void)
{
    for (uint32_t i = 0; i < WHALE_LOOKS_MAX; i++) {
        if (hak__lock_spin(&hak__whale_lock)) {
            return true;
        }
        if (alone()) { /* a handler has interrupted its own thread under the lock */
            return false;
        }
        hak__os_sleep_ms(1);
    }
    return false;
}

/* What the thread was doing before a look. */
struct whale_look {
    uint32_t inside;
    uint64_t signals;
};

/* Takes the lock to look. A look need not begin at the gate, because no thread writes while the
 * gate is closed. False: this is a signal handler that may have interrupted its own thread under
 * the lock, and the lock did not become free. */
static bool whale_lock_to_look(struct whale_look *look)
{
    *look = (struct whale_look){hak__inside, hak__lock_block_signals()};
    if ((look->inside & INSIDE_OPERATION) == 0) {
        hak__inside |= INSIDE_LOCK;
        lock_acquire(&hak__whale_lock);
        return true;
    }
    if (whale_lock_soon()) {
        return true;
    }
    hak__os_restore_signals(look->signals);
    return false;
}

static void whale_unlock_after_look(const struct whale_look *look)
{
    lock_release(&hak__whale_lock);
    hak__inside = look->inside;
    hak__os_restore_signals(look->signals);
}

size_t hak__whale_bytes(const void *pointer)
{
    struct whale_look look;
    if (!whale_lock_to_look(&look)) {
        return 0;
    }
    struct whale whale = hak__whale_registry_find((uintptr_t)pointer);
    size_t size = whale_usable(&whale);
    if (size == 0) {
        size = hak__emergency_find((uintptr_t)pointer).size;
    }
    whale_unlock_after_look(&look);
    return size;
}

bool hak__whale_has_size(const void *pointer, size_t size)
{
    struct whale_look look;
    if (pointer == NULL || !whale_lock_to_look(&look)) {
        return true;
    }
    struct whale whale = hak__whale_registry_find((uintptr_t)pointer);
    whale_unlock_after_look(&look);
    size_t usable = whale_usable(&whale);
    return usable == 0 || usable == size ||
           (usable == whale.size && usable == hak__emergency_mapped(size));
}

bool hak__whale_was_freed(const void *pointer)
{
    struct whale_look look;
    bool found = false;
    if (!whale_lock_to_look(&look)) {
        return false;
    }
    for (uint32_t i = 0; i < WHALE_GRAVES; i++) {
        found |= whale_graves[i] == (uintptr_t)pointer;
    }
    whale_unlock_after_look(&look);
    return found;
}

struct whale hak__whale_containing(const void *pointer)
{
    struct whale_look look;
    if (!whale_lock_to_look(&look)) {
        return (struct whale){0};
    }
    struct whale whale = hak__whale_registry_containing((uintptr_t)pointer);
    whale = whale.address == 0 ? hak__emergency_containing((uintptr_t)pointer) : whale;
    whale_unlock_after_look(&look);
    return whale;
}

void *hak__whale_resize(void *pointer, size_t size)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - WHALE_HEAD - WHALE_TAIL) {
        return NULL;
    }
    size_t requested = size;
    size = bits_align_up(size, page);
    /* The whale leaves the registry while it changes, so that no other thread finds it. */
    lock_acquire(&hak__whale_lock);
    size_t live = hak__whale_registry_totals().live_bytes;
    struct whale whale = hak__whale_registry_lift((uintptr_t)pointer);
    lock_release(&hak__whale_lock);
    if (whale.address == 0) {
        return NULL;
    }
    size_t old_size = whale.size, old_requested = whale_usable(&whale);
    if (HAK_SECURE) {
        whale_check_canary(&whale);
        hak__secure_clear_gap(pointer, old_requested, old_size);
    }
    struct whale rest = {0};
    struct whale resized = whale;
    if (!whale_fits(whale.size, size)) {
        if (!hak__huge_unwatch(hak__whale_evidence, 2, pointer) && size > whale.size) {
            hak__huge_note_growth(&hak__whale_evidence[0], whale.size, live);
        }
        if (size > whale.size) {
            bool stays = (whale.address & (whale_alignment(size) - 1)) == 0;
            whale.size += stays ? hak__whale_cache_take_next(whale, size - whale.size) : 0;
            resized = whale.size == size ? whale : whale_grow(whale, size, false);
        } else {
            resized.size = size;
        }
        size_t kept = resized.address != 0 ? resized.size : old_size;
        if (whale.size > kept) {
            /* In the secure form the tail moves to the place where the rest began, and the rest
             * begins with a head. It is larger than both (whale_fits). */
            const size_t ends = WHALE_HEAD + WHALE_TAIL;
            whale_close_tail(whale.address + kept);
            rest = (struct whale)WHALE_OF(whale.address + kept + ends, whale.size - kept - ends,
                                          whale.origin);
            whale.size = kept;
        }
    }
    struct whale now = resized.address != 0 ? resized : whale;
    whale_begin_use(&now, resized.address != 0 ? requested : old_requested);
    lock_acquire(&hak__whale_lock);
    hak__whale_registry_put_back(now);
    lock_release(&hak__whale_lock);
    if (rest.size != 0) {
        whale_keep(rest);
    }
    hak__whale_cache_trim(UINT32_MAX); /* more memory may be in use, so the cache may hold less */
    return (void *)resized.address;
}

struct whale_totals hak__whale_totals(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_totals totals = hak__whale_registry_totals();
    totals.cached_bytes = hak__ranges.size;
    totals.metadata_bytes += hak__ranges.mapped + hak__emergency_metadata_bytes();
    lock_release(&hak__whale_lock);
    return totals;
}
