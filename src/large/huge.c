/* SPDX-License-Identifier: MIT */
/* huge.c: see huge.h.
 *
 *   allocate   a range of the cache (take, and grow if it is too small), else joined parts, else a
 *              new mapping; then an entry in the registry
 *   free       out of the registry, into the cache, and trim the cache to its bound
 *   resize     out of the registry, grow or cut, back into the registry */
#include "large/huge.h"

#include <errno.h>

#include "base/bits.h"
#include "core/gate.h"
#include "core/watched.h"
#include "large/emergency.h"
#include "large/huge_cache.h"
#include "large/huge_registry.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/mappings.h"
#include "region/superslab.h"

struct lock HAK_LOCK_LINE hak__huge_lock = LOCK_INITIAL(LOCK_RANK_HUGE);
/* The last freed huge blocks, to tell a double free from a foreign pointer, and a use after free
 * from another fault. Twice as many: more mistakes get the right message. Under the lock. */
static struct huge huge_graves[64] HAK_SELDOM;
static uint32_t huge_next_grave;

uint64_t hak__huge_new_origin(void)
{
    static uint64_t shared_origins;
    return huge_origin_here(atomic_add_relaxed(&shared_origins, UINT64_C(1)) + 1);
}

/* True: realloc to `size` bytes may keep the huge block as it is. */
static bool huge_fits(size_t huge_size, size_t size)
{
    /* realloc keeps the huge block as it is if the new size fits and leaves at most an eighth
     * unused. Twice the divisor: less unused memory, and more system calls. Half: the reverse. */
    return huge_size >= size && huge_size - size <= size / 8;
}

/* From two huge pages on, huge blocks start at a huge page's boundary. That costs little address
 * space, lets the kernel use huge pages, and lets it move page tables and huge pages whole. In the
 * secure form they start anywhere, but move by whole huge pages only. */
static size_t huge_alignment(size_t size)
{
    return size >= 2 * HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : hak__os_page_size();
}

/* The size to map for a huge block of `size` bytes. It is whole huge pages if that adds at most a
 * sixteenth, so that no rests remain when ranges are cut and joined. With huge pages it is also
 * rounded up if that adds at most a quarter and the last huge page holds HUGE_REST_MIN: otherwise
 * the small pages at the end would stay small when the huge block grows. */
static size_t huge_wanted_size(size_t size, bool huge_pages)
{
    if (HUGE_HEAD != 0) {
        return size; /* its tail follows the last page that was asked for */
    }
    size_t excess = bits_align_up(size, HUGE_PAGE_SIZE) - size;
    bool huge_end = huge_pages && excess <= size / 4 && excess <= HUGE_PAGE_SIZE - HUGE_REST_MIN;
    /* From 4 MiB on, a size is rounded up to whole huge pages if that adds at most a sixteenth.
     * Ranges are then cut without rests: a benchmark has 229,000 page faults and 404 MiB with
     * rounding, and 295,000 and 399 MiB without (docs/decisions/0070). Twice the divisor: half the
     * waste at most, and fewer sizes are rounded. */
    bool adds_little = size >= 2 * HUGE_PAGE_SIZE && excess <= size / 16;
    return huge_end || adds_little ? size + excess : size;
}

/* Closes a tail and a head. Without marks of the kernel this purges pages, which may wait as other
 * purges. */
static void huge_close(uintptr_t tail, uintptr_t head)
{
    if (HUGE_HEAD != 0) {
        hak__gate_let_ending_signals(true);
        struct os_two ends = {(void *)tail, (void *)head, HUGE_HEAD, HUGE_HEAD};
        (void)hak__os_close_two(ends);
        hak__gate_let_ending_signals(false);
    }
}

static void huge_close_ends(uintptr_t address, size_t size)
{
    huge_close(address + size, address - HUGE_HEAD);
}

struct huge_pages_evidence hak__huge_evidence[2] HAK_SELDOM;

static size_t huge_live_bytes(void)
{
    lock_acquire(&hak__huge_lock);
    size_t live = hak__huge_registry_totals().live_bytes;
    lock_release(&hak__huge_lock);
    return live;
}

bool hak__huge_earns_huge_pages(size_t size, bool zeroed)
{
    if (size < 2 * HUGE_PAGE_SIZE) {
        return false;
    }
    size_t live = huge_live_bytes();
    return hak__huge_pages_are_earned(&hak__huge_evidence[zeroed], size, live,
                                      live + size + hak__superslab_bytes_claimed());
}

static bool huge_needs_huge_pages(size_t old_size, size_t size)
{
    return bits_align_up(size, HUGE_PAGE_SIZE) > bits_align_up(old_size, HUGE_PAGE_SIZE);
}

/* As hak__os_remap, for a huge block with its head and tail. */
static int huge_remap(struct huge block, size_t size, size_t alignment, void **moved)
{
    const size_t ends = 2 * HUGE_HEAD;
    char *start = (char *)block.address - HUGE_HEAD;
    if (HUGE_HEAD != 0 &&
        (!hak__os_open_pages((char *)block.address + block.size, HUGE_HEAD) ||
         !hak__os_open_pages(start, HUGE_HEAD))) { /* closed by protection, they split a mapping */
        return -ENOMEM;
    }
    void *place = start;
    size_t front = HUGE_HEAD == 0 || alignment == 0 ? 0 : (0 - (uintptr_t)start) % alignment;
    hak__gate_let_ending_signals(true);
    int error = hak__os_remap(front, start, block.size + ends, size + ends, alignment, &place);
    hak__gate_let_ending_signals(false);
    huge_close_ends((uintptr_t)place + HUGE_HEAD, error == 0 ? size : block.size);
    *moved = error == 0 ? (char *)place + HUGE_HEAD : *moved;
    return error;
}

/* Grows a huge block by mremap: moving pages takes a hundredth of the time of new page faults.
 * `stays`: it keeps its address. Address 0: that failed, and the huge block is as it was. Head and
 * tail have its page sizes: mremap grows one mapping, and other page sizes would be another. */
static struct huge huge_grow(struct huge block, size_t size, bool want_zero, bool stays)
{
    const size_t ends = 2 * HUGE_HEAD;
    bool grows = huge_needs_huge_pages(block.size, size);
    bool huge_pages = grows && hak__huge_earns_huge_pages(size, want_zero);
    size_t wanted = huge_wanted_size(size, huge_pages);
    size_t alignment = huge_is_joined(block) || stays ? 0 : huge_alignment(size);
    void *moved = (void *)block.address;
    if (huge_remap(block, wanted, alignment, &moved) != 0) {
        if (huge_is_joined(block) && !stays) {
            return hak__huge_join_grow(block, size);
        }
        if (wanted == size || huge_remap(block, size, alignment, &moved) != 0) {
            return (struct huge){0};
        }
        wanted = size; /* a limit is near: the size without rounding may still fit */
    }
    if (huge_pages) {
        hak__huge_pages_try((char *)moved - HUGE_HEAD, wanted + ends, HUGE_HEAD + block.size);
    } else if (grows && block.size >= 2 * HUGE_PAGE_SIZE) {
        hak__os_small((char *)moved - HUGE_HEAD, wanted + ends); /* else new ones are as the old */
    }
    if (huge_is_joined(block)) {
        atomic_add_relaxed(&hak__huge_joined_bytes, wanted - block.size);
        return (struct huge)HUGE_OF((uintptr_t)moved, wanted, block.origin);
    }
    /* It may have moved, or have other page sizes than its neighbours. So it is a mapping of its
     * own, and must not meet ranges of the old one. */
    uint64_t node = block.origin >> ORIGIN_NUMBER_BITS << ORIGIN_NUMBER_BITS; /* as its pages */
    uint64_t origin = hak__huge_new_origin() & ((UINT64_C(1) << ORIGIN_NUMBER_BITS) - 1);
    return (struct huge)HUGE_OF((uintptr_t)moved, wanted, node | origin);
}

/* Bytes that the cache counts for a freed huge block: its size; if it is sparse, its resident
 * bytes, but at least a sixteenth of its size. */
static size_t huge_resident(struct huge block)
{
    /* A freed huge block is sparse if it is larger than this and at most this much of it is
     * resident. The cache counts a sparse huge block as its resident bytes (docs/decisions/0039),
     * but at least as a sixteenth of its size, so that address space is limited, too. Half: calls
     * of mincore from 16 MiB on. Twice the divisor: the cache may hold twice the addresses. */
    const size_t most = HUGE_CLEAR_MAX;
    size_t least = block.size / 16, resident = 0;
    if (block.size <= most || least > most) {
        return block.size;
    }
    for (size_t at = 0, part; at < block.size && resident <= most; at += part) {
        part = block.size - at < OS_RESIDENT_SIZE_MAX ? block.size - at : OS_RESIDENT_SIZE_MAX;
        size_t bytes = hak__os_resident((const void *)(block.address + at), part);
        if (bytes == SIZE_MAX) { /* unknown: all of it may be resident */
            return block.size;
        }
        resident += bytes;
    }
    resident = resident < least ? least : resident;
    return resident > most ? block.size : resident;
}

/* A random place for `size` bytes, which may be in use; the block begins behind the head. 0: none.
 * The ranges are those of the window (region/window.c), outside of which it was placed. */
static uintptr_t huge_random_place(size_t size, size_t alignment)
{
    uint64_t low = UINT64_C(0x200000000000), high = UINT64_C(0x500000000000);
    uint64_t base = hak__window.base, window = hak__window.size;
    if (base < low) { /* a small address space */
        low = UINT64_C(0x1000000000);
        high = UINT64_C(0x6000000000);
    }
    if (base < low || base >= high || size >= (high - low) / 2 || alignment > (high - low) / 4) {
        return 0;
    }
    uint64_t places = (high - low - size) / alignment;
    uintptr_t place = low + hak__secure_draw() % places * alignment - HUGE_HEAD;
    /* its tables lie before it */
    return place + size > base - window / 4 && place < base + window ? 0 : place;
}

/* Maps a huge block with its ends; in the secure form at a random place, where no other block's
 * place tells. */
static int huge_map_anywhere(size_t size, size_t alignment, void **address)
{
    /* Random places to try. Twice: where half of the addresses are in use, one block of 65,000 is
     * placed by the kernel instead of one of 256. Half: one of 16. */
    for (uint32_t tries = HAK_SECURE && !hak__os_is_sanitized() ? 8 : 0; tries != 0; tries--) {
        uintptr_t place = huge_random_place(size, alignment);
        int error = place == 0 ? -EEXIST : hak__os_map_apart((void *)place, size);
        if (error == 0) {
            *address = (void *)place;
            return 0;
        }
        if (error != -EEXIST) {
            break; /* no memory, or no such addresses */
        }
    }
    return hak__os_map_behind(HUGE_HEAD, size, alignment, address);
}

static struct huge huge_map(size_t size, size_t alignment, bool want_zero)
{
    bool huge_pages = hak__huge_earns_huge_pages(size, want_zero);
    size_t wanted = huge_wanted_size(size, huge_pages);
    size_t wanted_alignment = HAK_SECURE ? alignment : huge_alignment(size);
    wanted_alignment = alignment > wanted_alignment ? alignment : wanted_alignment;
    const size_t ends = 2 * HUGE_HEAD;
    void *address;
    if (huge_map_anywhere(wanted + ends, wanted_alignment, &address) != 0) {
        bool least = wanted == size && wanted_alignment == alignment;
        if (least || huge_map_anywhere(size + ends, alignment, &address) != 0) {
            return (struct huge){0};
        }
        wanted = size; /* a limit is near: the size without rounding may still fit */
    }
    address = (char *)address + HUGE_HEAD;
    struct huge block = HUGE_OF((uintptr_t)address, wanted, hak__huge_new_origin());
    huge_close_ends(block.address, block.size);
    /* Huge pages for all of it or none: two kinds are two mappings, which mremap cannot move at
     * once. */
    if (!huge_pages ||
        hak__huge_pages_try((char *)address - HUGE_HEAD, wanted + ends, HUGE_HEAD) != 0) {
        hak__huge_pages_watch(&hak__huge_evidence[want_zero], address, wanted, huge_live_bytes(),
                              HUGE_PAGES_DENSE_PERCENT);
    }
    return block;
}

/* A huge block out of cached ranges; address 0: they have nothing suitable. */
static struct huge huge_take_cached(size_t size, size_t alignment, bool want_zero)
{
    size_t wanted = huge_wanted_size(size, false);
    struct huge_parts taken;
    struct huge block = {0};
    hak__huge_cache_take(&taken, wanted, alignment, want_zero);
    if (taken.count != 0) {
        block = taken.whole ? taken.parts[0] : hak__huge_join(&taken, wanted, want_zero);
    }
    if (block.address != 0 && block.size < size) {
        struct huge grown = huge_grow(block, size, want_zero, false);
        hak__huge_unmap(grown.address == 0 ? block : (struct huge){0});
        block = grown;
    }
    return block;
}

struct huge_result hak__huge_allocate(size_t size, size_t alignment, bool want_zero, bool may_map)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - 2 * HUGE_HEAD) {
        return (struct huge_result){NULL, 0, false};
    }
    size_t requested = size == 0 ? 1 : size;
    size = bits_align_up(requested, page);
    alignment = alignment < page ? page : alignment;
    struct huge block = huge_take_cached(size, alignment, want_zero);
    bool zeroed = block.address == 0;
    if (zeroed && may_map) {
        block = huge_map(size, alignment, want_zero);
    }
    huge_begin_use(&block, requested);
    if (block.address != 0 && !hak__huge_registry_insert(block)) {
        (void)hak__mappings_probe(); /* while the huge block has what may be the last mapping */
        hak__huge_unmap(block);
        block.address = 0;
    }
    hak__huge_cache_trim(UINT32_MAX); /* more memory is in use now, so the cache may hold less */
    return huge_result_of((void *)block.address, huge_usable(&block), zeroed);
}

/* Puts a huge block into the cache. */
static void huge_keep(struct huge block)
{
    if (HAK_SECURE || watched()) { /* nothing is kept */
        hak__huge_unmap(block);
        return;
    }
    hak__huge_cache_put(block, huge_resident(block));
    hak__huge_cache_trim(UINT32_MAX);
    if (block.size >= SLABS_KEPT_SLICES * SLICE_SIZE) {
        superslab_note_freed_much();
    }
}

bool hak__huge_free(void *pointer)
{
    lock_acquire(&hak__huge_lock);
    struct huge block = hak__huge_registry_remove((uintptr_t)pointer);
    if (block.address != 0) {
        huge_graves[huge_next_grave++ % HAK_COUNT_OF(huge_graves)] = block;
    }
    lock_release(&hak__huge_lock);
    if (block.address == 0) {
        return false;
    }
    huge_check_canary(&block);
    hak__huge_pages_unwatch(hak__huge_evidence, 2, pointer);
    if (block.size > SPAN_SIZE_MAX) {
        huge_keep(block);
    } else { /* emergency memory (large/emergency.h) is too small for the cache */
        hak__huge_unmap(block);
    }
    return true;
}

/* Takes the lock, or returns false after some 0.1 s: this thread may hold it itself. */
static bool huge_lock_soon(void)
{
    /* How often a thread that may hold the lock itself tries to look, a millisecond apart. Twice: a
     * signal handler that interrupted its own thread under the lock waits 200 ms in vain. Half: it
     * gives up sooner although another thread holds the lock. */
    for (uint32_t i = 0; i < 100; i++) {
        if (lock_try(&hak__huge_lock)) {
            return true;
        }
        if (alone()) { /* a handler has interrupted its own thread under the lock */
            return false;
        }
        hak__os_sleep_ms(1);
    }
    return false;
}

/* The huge block, or new emergency memory, that starts at `pointer`, or contains it if `inside`.
 * Address 0: none, or this is a signal handler that may have interrupted its own thread under the
 * lock, which did not become free. A look need not begin at the gate, because no thread writes
 * while the gate is closed. */
static struct huge huge_look(const void *pointer, bool inside)
{
    uintptr_t address = (uintptr_t)pointer;
    struct huge block = {0};
    uint32_t before = hak__inside;
    uint64_t signals = hak__lock_block_signals();
    bool locked = true;
    if ((before & INSIDE_OPERATION) != 0) {
        locked = huge_lock_soon();
    } else {
        hak__inside |= INSIDE_LOCK;
        lock_acquire(&hak__huge_lock);
    }
    if (locked) {
        block = inside ? hak__huge_registry_containing(address) : hak__huge_registry_find(address);
        if (block.address == 0) {
            block = inside ? hak__emergency_containing(address) : hak__emergency_find(address);
        }
        lock_release(&hak__huge_lock);
    }
    hak__inside = before;
    hak__os_restore_signals(signals);
    return block;
}

size_t hak__huge_bytes(const void *pointer)
{
    struct huge block = huge_look(pointer, false);
    return huge_usable(&block);
}

bool hak__huge_has_size(const void *pointer, size_t size)
{
    struct huge block = huge_look(pointer, false);
    size_t usable = huge_usable(&block);
    return usable == 0 || usable == size ||
           (usable == block.size && usable == hak__emergency_mapped(size));
}

struct huge hak__huge_containing(const void *pointer)
{
    return huge_look(pointer, true);
}

HAK_RACY_READER bool hak__huge_was_freed(const void *pointer)
{
    bool found = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(huge_graves); i++) {
        found |= huge_graves[i].address == (uintptr_t)pointer;
    }
    return found;
}

HAK_RACY_READER bool hak__huge_contained(uintptr_t address)
{
    bool found = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(huge_graves); i++) {
        found |= address - huge_graves[i].address < huge_graves[i].size;
    }
    return found;
}

struct huge_result hak__huge_resize(void *pointer, size_t size, bool stays)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - 2 * HUGE_HEAD) {
        return (struct huge_result){NULL, 0, false};
    }
    size_t requested = size;
    size = bits_align_up(size, page);
    /* The huge block leaves the registry while it changes, so that no other thread finds it. */
    lock_acquire(&hak__huge_lock);
    size_t live = hak__huge_registry_totals().live_bytes;
    struct huge block = hak__huge_registry_lift((uintptr_t)pointer);
    lock_release(&hak__huge_lock);
    if (block.address == 0) {
        return (struct huge_result){NULL, 0, false};
    }
    size_t old_size = block.size, old_requested = huge_usable(&block);
    huge_check_canary(&block);
    if (old_requested != old_size) {
        hak__secure_clear_gap(pointer, old_requested, old_size);
    }
    struct huge rest = {0};
    struct huge resized = block;
    if (!huge_fits(block.size, size)) {
        if (!hak__huge_pages_unwatch(hak__huge_evidence, 2, pointer) && size > block.size) {
            hak__huge_pages_note_growth(&hak__huge_evidence[0], block.size, live);
        }
        if (size > block.size) {
            bool joins = stays || (block.address & (huge_alignment(size) - 1)) == 0;
            block.size += joins ? hak__huge_cache_take_next(block, size - block.size) : 0;
            resized = block.size == size ? block : huge_grow(block, size, false, stays);
        } else if (block.size > SPAN_SIZE_MAX) { /* less is too small for the cache */
            resized.size = size;
        }
        size_t kept = resized.address != 0 ? resized.size : old_size;
        if (block.size > kept) {
            /* In the secure form the tail moves to the place where the rest began, and the rest
             * begins with a head. It is larger than both (huge_fits). */
            const size_t ends = 2 * HUGE_HEAD;
            huge_close(block.address + kept, block.address + kept + HUGE_HEAD);
            rest = (struct huge)HUGE_OF(block.address + kept + ends, block.size - kept - ends,
                                        block.origin);
            block.size = kept;
        }
    }
    struct huge now = resized.address != 0 ? resized : block;
    huge_begin_use(&now, resized.address != 0 ? requested : old_requested);
    lock_acquire(&hak__huge_lock);
    hak__huge_registry_put_back(now);
    lock_release(&hak__huge_lock);
    if (rest.size != 0) {
        huge_keep(rest);
    }
    hak__huge_cache_trim(UINT32_MAX); /* more memory may be in use, so the cache may hold less */
    return huge_result_of((void *)resized.address, huge_usable(&now), false);
}

struct huge_totals hak__huge_totals(void)
{
    lock_acquire(&hak__huge_lock);
    struct huge_totals totals = hak__huge_registry_totals();
    for (uint32_t i = 0; i < hak__huge_cache.count; i++) {
        totals.cached_bytes += hak__huge_cache.ranges[i].block.size;
    }
    totals.metadata_bytes += hak__emergency_metadata_bytes();
    lock_release(&hak__huge_lock);
    return totals;
}
