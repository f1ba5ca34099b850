/* whale.c: see whale.h. Calls: allocate -> cache_take, reshape | os_map; free -> registry_remove ->
 * cache_put | os_unmap. */
#include "large/whale.h"

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "large/emergency.h"
#include "large/whale_pages.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/huge.h"

/* A cached whale may be an eighth too large. */
#define WHALE_SLACK_DIVISOR 8u
#define WHALE_SPARSE_DIVISOR 16u
/* calloc takes a new mapping rather than clear more than this of an old one: the pages it never
 * touches cost nothing then. */
#define WHALE_CLEAR_MAX ((size_t)32 << 20)
/* An end with less than this is not worth a huge page. */
#define WHALE_END_MIN ((size_t)64 << 10)

struct whale_cached {
    struct whale whale;
    size_t bytes; /* its size, or what whale_sparse_bytes says */
    uint32_t freed_ms;
};

struct lock hak__whale_lock = LOCK_INITIAL(LOCK_RANK_WHALES);
/* Oldest first, [0, count). Under the lock. */
static struct whale_cached whale_cache[WHALE_CACHE_ENTRIES];
static uint32_t whale_cache_count;
static size_t whale_cache_bytes;
/* Where the last freed whales started, to know a double free from a foreign pointer. Under the
 * lock. */
#define WHALE_GRAVES 64u
static uintptr_t whale_graves[WHALE_GRAVES];
static uint32_t whale_next_grave;

/* How often a look is tried, a millisecond each, by a thread that may hold the lock itself. */
#define WHALE_LOOKS_MAX 100u

static struct whale whale_cache_remove(uint32_t index)
{
    struct whale whale = whale_cache[index].whale;
    whale_cache_bytes -= whale_cache[index].bytes;
    whale_cache_count--;
    for (uint32_t i = index; i < whale_cache_count; i++) {
        whale_cache[i] = whale_cache[i + 1];
    }
    return whale;
}

/* A whale that may be handed out as it is. */
static bool whale_fits(size_t whale_size, size_t size)
{
    return whale_size >= size && whale_size - size <= size / WHALE_SLACK_DIVISOR;
}

/* How badly a cached whale suits a request: larger ones by their excess, behind them smaller ones
 * by what they lack; UINT64_MAX when it would not pay to reshape it. */
static uint64_t whale_misfit(size_t whale_size, size_t size)
{
    if (whale_size >= size) {
        return whale_size - size <= size ? whale_size - size : UINT64_MAX;
    }
    return whale_size >= size / 2 ? UINT64_C(1) << 62 | (size - whale_size) : UINT64_MAX;
}

/* The least misfit, the youngest of equals (its pages are the warmest). Reshaping may move a whale:
 * where the alignment is more than an OS page's only a fit will do. address 0: none. */
static struct whale whale_cache_take(size_t size, size_t alignment, bool want_zero)
{
    uint32_t best = UINT32_MAX;
    uint64_t best_misfit = UINT64_MAX;
    for (uint32_t i = whale_cache_count; i-- != 0;) {
        const struct whale *whale = &whale_cache[i].whale;
        uint64_t misfit = whale_misfit(whale->size, size);
        bool clears = want_zero && whale_cache[i].bytes > WHALE_CLEAR_MAX;
        if (misfit < best_misfit && !clears && (whale->address & (alignment - 1)) == 0 &&
            (alignment <= hak__os_page_size() || whale_fits(whale->size, size))) {
            best = i;
            best_misfit = misfit;
        }
    }
    return best == UINT32_MAX ? (struct whale){0, 0} : whale_cache_remove(best);
}

static void whale_unmap(struct whale whale)
{
    if (whale.address != 0) {
        hak__os_discard((void *)whale.address, whale.size);
    }
}

/* From twice the huge page on, huge-page alignment costs little address space and lets the kernel
 * use them; and page tables, or huge pages, are moved whole. */
static size_t whale_alignment(size_t size)
{
    return size >= 2 * HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : hak__os_page_size();
}

/* What a whale that has huge pages is mapped with: its end has one, too, unless that adds more than
 * a quarter, or there is next to nothing in it. (Small pages at the end stay small when the whale
 * is stretched later.) */
static size_t whale_huge_size(size_t size)
{
    size_t excess = bits_align_up(size, HUGE_PAGE_SIZE) - size;
    return excess <= size / 4 && excess <= HUGE_PAGE_SIZE - WHALE_END_MIN ? size + excess : size;
}

static bool whale_needs_huge(size_t old_size, size_t size)
{
    return bits_align_up(size, HUGE_PAGE_SIZE) > bits_align_up(old_size, HUGE_PAGE_SIZE);
}

/* Cuts or stretches a whale: moving pages costs a hundredth of faulting them in anew, and its own
 * fresh ones are less. address 0: that failed, and it is as it was. */
static struct whale whale_reshape(struct whale whale, size_t size, bool want_zero)
{
    bool grows = whale_needs_huge(whale.size, size);
    bool huge = grows && hak__whale_earns_huge(size, want_zero);
    size_t wanted = huge ? whale_huge_size(size) : size;
    size_t alignment = whale_alignment(size);
    void *moved = (void *)whale.address;
    if (hak__os_remap(moved, whale.size, wanted, alignment, &moved) != 0) {
        if (wanted == size || hak__os_remap(moved, whale.size, size, alignment, &moved) != 0) {
            return (struct whale){0, 0};
        }
        wanted = size; /* near a limit: just what is asked for */
    }
    if (huge) {
        hak__huge_ask(moved, wanted, whale.size);
    } else if (grows && whale.size >= 2 * HUGE_PAGE_SIZE) {
        hak__os_small(moved, wanted); /* what is new would have huge pages if the rest has */
    }
    return (struct whale){(uintptr_t)moved, wanted};
}

/* Puts a whale in as the youngest and takes out the oldest that there is no room for any more.
 * Returns their number. Under the lock; the caller unmaps them. */
static uint32_t whale_cache_put(struct whale_cached cached, struct whale *evicted)
{
    uint32_t count = 0;
    while (whale_cache_count != 0 &&
           (whale_cache_count == WHALE_CACHE_ENTRIES ||
            whale_cache_bytes + cached.bytes > hak__knobs.whale_cache_bytes)) {
        evicted[count++] = whale_cache_remove(0);
    }
    whale_cache[whale_cache_count++] = cached;
    whale_cache_bytes += cached.bytes;
    return count;
}

/* Of a large sparse table the cache counts what is resident, and a sixteenth of it at least, so
 * that what is mapped is bounded, too; above the soft limit all of it. Looks until that is more
 * than `most`. */
static size_t whale_sparse_bytes(struct whale whale, size_t most)
{
    if (hak__os_mapped_bytes() > atomic_load_relaxed(&hak__knobs.limit)) {
        return whale.size;
    }
    size_t least = whale.size / WHALE_SPARSE_DIVISOR, resident = 0;
    for (size_t at = 0, part; at < whale.size && least <= most && resident <= most; at += part) {
        part = whale.size - at < OS_RESIDENT_SIZE_MAX ? whale.size - at : OS_RESIDENT_SIZE_MAX;
        resident += hak__os_resident((const void *)(whale.address + at), part);
    }
    return resident < least ? least : resident;
}

static struct whale whale_map(size_t size, size_t alignment, bool want_zero)
{
    bool huge = hak__whale_earns_huge(size, want_zero);
    size_t wanted = huge ? whale_huge_size(size) : size;
    size_t wanted_alignment = whale_alignment(size);
    wanted_alignment = alignment > wanted_alignment ? alignment : wanted_alignment;
    void *address;
    if (hak__os_map(wanted, wanted_alignment, &address) != 0) {
        bool least = wanted == size && wanted_alignment == alignment;
        if (least || hak__os_map(size, alignment, &address) != 0) {
            return (struct whale){0, 0};
        }
        wanted = size; /* near a limit: just what is asked for */
    }
    struct whale whale = {(uintptr_t)address, wanted};
    /* all of it: mremap takes no two kinds of pages at once */
    if (!huge || hak__huge_ask(address, wanted, 0) != 0) {
        hak__whale_watch(whale, want_zero);
    }
    return whale;
}

struct whale_result hak__whale_allocate(size_t size, size_t alignment, bool want_zero)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page) {
        return (struct whale_result){NULL, false};
    }
    size = bits_align_up(size == 0 ? 1 : size, page);
    alignment = alignment < page ? page : alignment;
    struct whale whale = {0, 0};
    bool zeroed = false;
    lock_acquire(&hak__whale_lock);
    whale = whale_cache_take(size, alignment, want_zero);
    lock_release(&hak__whale_lock);
    if (whale.address != 0 && !whale_fits(whale.size, size)) {
        struct whale reshaped = whale_reshape(whale, size, want_zero);
        if (reshaped.address == 0) {
            whale_unmap(whale);
        }
        whale = reshaped;
    }
    if (whale.address == 0) {
        whale = whale_map(size, alignment, want_zero);
        zeroed = true;
    }
    if (whale.address != 0 && !hak__whale_registry_insert(whale)) {
        whale_unmap(whale);
        whale.address = 0;
    }
    return (struct whale_result){(void *)whale.address, zeroed};
}

static HAK_NOINLINE void whale_keep(struct whale whale, size_t bytes)
{
    struct whale evicted[WHALE_CACHE_ENTRIES];
    uint32_t now = hak__os_clock_ms();
    lock_acquire(&hak__whale_lock);
    uint32_t count = whale_cache_put((struct whale_cached){whale, bytes, now}, evicted);
    lock_release(&hak__whale_lock);
    for (uint32_t i = 0; i < count; i++) {
        whale_unmap(evicted[i]);
    }
}

bool hak__whale_free(void *pointer)
{
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_remove((uintptr_t)pointer);
    bool look = false;
    if (whale.address != 0) {
        whale_graves[whale_next_grave++ % WHALE_GRAVES] = whale.address;
        look = hak__whale_is_worth_a_look(whale);
    }
    lock_release(&hak__whale_lock);
    if (whale.address == 0) {
        return false;
    }
    if (HAK_UNLIKELY(look)) {
        hak__whale_look(whale, true);
    }
    size_t most = hak__knobs.whale_cache_bytes / 2; /* one whale never fills the cache */
    size_t bytes = whale.size <= most ? whale.size : whale_sparse_bytes(whale, most);
    if (bytes <= most && whale.size > SPAN_SIZE_MAX) { /* none of large/emergency.h's */
        whale_keep(whale, bytes);
    } else {
        whale_unmap(whale);
    }
    return true;
}

/* For looks, which need not begin at the gate: while it is closed nobody writes. A signal handler
 * that interrupted this thread under the lock finds nothing. */
static bool whale_lock_to_look(uint32_t *inside)
{
    *inside = hak__inside;
    if ((*inside & INSIDE_OPERATION) == 0) {
        hak__inside |= INSIDE_LOCK;
        lock_acquire(&hak__whale_lock);
        return true;
    }
    for (uint32_t i = 0; i < WHALE_LOOKS_MAX; i++) {
        if (hak__lock_spin(&hak__whale_lock)) {
            return true;
        }
        hak__os_sleep_ms(1);
    }
    return false;
}

static void whale_unlock_after_look(uint32_t inside)
{
    lock_release(&hak__whale_lock);
    hak__inside = inside;
}

size_t hak__whale_bytes(const void *pointer)
{
    uint32_t inside;
    if (!whale_lock_to_look(&inside)) {
        return 0;
    }
    size_t size = hak__whale_registry_find((uintptr_t)pointer).size;
    if (size == 0) {
        struct whale whale = hak__emergency_find((uintptr_t)pointer);
        size = whale.address == (uintptr_t)pointer ? whale.size : 0;
    }
    whale_unlock_after_look(inside);
    return size;
}

bool hak__whale_was_freed(const void *pointer)
{
    uint32_t inside;
    bool found = false;
    if (!whale_lock_to_look(&inside)) {
        return false;
    }
    for (uint32_t i = 0; i < WHALE_GRAVES; i++) {
        found |= whale_graves[i] == (uintptr_t)pointer;
    }
    whale_unlock_after_look(inside);
    return found;
}

struct whale hak__whale_containing(const void *pointer)
{
    uint32_t inside;
    if (!whale_lock_to_look(&inside)) {
        return (struct whale){0, 0};
    }
    struct whale whale = hak__whale_registry_containing((uintptr_t)pointer);
    whale = whale.address == 0 ? hak__emergency_find((uintptr_t)pointer) : whale;
    whale_unlock_after_look(inside);
    return whale;
}

void *hak__whale_resize(void *pointer, size_t size)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page) {
        return NULL;
    }
    size = bits_align_up(size, page);
    /* Out of the registry while it changes: a whale being resized is nobody else's business. */
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_lift((uintptr_t)pointer);
    lock_release(&hak__whale_lock);
    if (whale.address == 0) {
        return NULL;
    }
    if (size >= 2 * HUGE_PAGE_SIZE && whale_needs_huge(whale.size, size)) {
        hak__whale_look(whale, false);
    }
    struct whale resized = whale_fits(whale.size, size) ? whale : whale_reshape(whale, size, false);
    struct whale now = resized.address != 0 ? resized : whale;
    lock_acquire(&hak__whale_lock);
    hak__whale_registry_put_back(now);
    hak__whale_watch_moved(whale.address, now);
    lock_release(&hak__whale_lock);
    return (void *)resized.address;
}

size_t hak__whale_cache_trim(uint32_t age_ms)
{
    struct whale dropped[WHALE_CACHE_ENTRIES];
    uint32_t count = 0;
    lock_acquire(&hak__whale_lock);
    uint32_t now = hak__os_clock_ms(); /* later than all that is in the cache */
    while (whale_cache_count != 0 && now - whale_cache[0].freed_ms >= age_ms) {
        dropped[count++] = whale_cache_remove(0);
    }
    lock_release(&hak__whale_lock);
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += dropped[i].size;
        whale_unmap(dropped[i]);
    }
    return bytes;
}

struct whale_totals hak__whale_totals(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_totals totals = hak__whale_registry_totals();
    for (uint32_t i = 0; i < whale_cache_count; i++) {
        totals.cached_bytes += whale_cache[i].whale.size;
    }
    lock_release(&hak__whale_lock);
    return totals;
}
