/* SPDX-License-Identifier: MIT */
/* flush.c: full bins, bin limits, and trimming. The rules are in cache.h. */
#include "cache/cache.h"

#include "base/probe.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "slab/slab.h"

#include <string.h>

struct arch_own_line hak__cache_charged;

void hak__cache_start(struct cache *cache, struct slab_set *slabs)
{
    cache->key = slabs->key;
    cache->slabs = slabs;
    cache->mark = object_mark_of(slabs->key);
    if (HAK_SECURE) {
        hak__quarantine_begin(cache, atomic_load_relaxed(&slabs->shared_threads));
    }
}

static uint32_t cache_limit_for(uint32_t class_index, uint32_t bytes)
{
    uint32_t limit = size_class_quotient(bytes, class_index);
    limit = limit < 2 ? 2 : limit;
    return limit > BIN_OBJECTS_MAX ? BIN_OBJECTS_MAX : limit;
}

/* The charge of a limit, in bytes: its objects, and one slab, which even a single cached object
 * keeps from being given back. */
static uint64_t cache_charge(uint32_t class_index, uint32_t limit)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    return limit == 0
               ? 0
               : size_class->slab_slices * SLICE_SIZE + (uint64_t)limit * size_class->object_size;
}

/* Charges the process for the cache's charge and some to spare, if that is too little or much. */
static void cache_charge_process(struct cache *cache)
{
    uint64_t total = atomic_load_relaxed(&hak__knobs.cache_bytes_total);
    /* A cache charges the process this part of the budget more than it needs, so that it writes to
     * the shared sum seldom, until half of the budget is charged. Twice as many: caches write twice
     * as often while threads start. Half: 128 threads charge half of the budget, not 256. */
    uint64_t spare = total / 512, told = cache->charged_told;
    if (cache->charged != 0 && cache->charged <= told && told - cache->charged <= 2 * spare) {
        return;
    }
    bool may_spare =
        cache->charged != 0 && atomic_load_relaxed(&hak__cache_charged.word) < total / 2;
    cache->charged_told = cache->charged + (may_spare ? spare : 0);
    /* unsigned wrapping: right for a decrease, too */
    atomic_add_relaxed(&hak__cache_charged.word, cache->charged_told - told);
}

static void cache_set_limit(struct cache *cache, uint32_t class_index, uint32_t limit)
{
    struct bin *bin = &cache->bins[class_index];
    uint64_t change = cache_charge(class_index, limit) - cache_charge(class_index, bin->limit);
    cache->charged += change; /* unsigned wrapping: right for a decrease, too */
    cache_charge_process(cache);
    bin->room += (int32_t)(limit - bin->limit);
    bin->limit = limit;
}

static bool cache_affords(const struct cache *cache, uint64_t growth)
{
    uint64_t charged = cache->charged + growth;
    return charged <= atomic_load_relaxed(&hak__knobs.cache_bytes) &&
           (charged <= cache->charged_told ||
            atomic_load_relaxed(&hak__cache_charged.word) + (charged - cache->charged_told) <=
                atomic_load_relaxed(&hak__knobs.cache_bytes_total));
}

/* Threads of one arena share the limit of small objects: what is in one's bin the others cannot
 * get, because only large ones move between bins (docs/decisions/0098). */
static uint32_t cache_limit_most(const struct cache *cache, uint32_t class_index)
{
    uint32_t bytes = atomic_load_relaxed(&hak__knobs.bin_bytes_max);
    uint32_t threads = atomic_load_relaxed(&cache->slabs->shared_threads);
    bool shares = threads > 1 && !size_class_has_own_lines(class_index);
    return cache_limit_for(class_index, shares ? bytes / threads : bytes);
}

/* The limit that a bin should have that overflows (cache.h), before bounds and budgets. */
static uint32_t cache_limit_wanted(struct cache *cache, uint32_t class_index)
{
    const struct bin *bin = &cache->bins[class_index];
    if (cache->history[class_index].frees > FREES_CHECKED) {
        return cache->history[class_index].refills != 0 ? 2 * bin->limit : bin->limit;
    }
    uint32_t count = bin_count(bin), start = cache_limit_for(class_index, 2 * REFILL_BYTES_START);
    return cache->history[class_index].frees++ < FREES_CHECKED && count < start ? count : start;
}

/* Sets the limit if it is larger, as far as the budgets allow. Threads that do this at the same
 * time may exceed the budget of the process, each by one step. */
static void cache_grow_limit(struct cache *cache, uint32_t class_index, uint32_t larger)
{
    uint32_t limit = cache->bins[class_index].limit;
    if (larger <= limit) {
        return;
    }
    uint32_t most = cache_limit_most(cache, class_index);
    larger = larger < most ? larger : most;
    uint64_t growth = cache_charge(class_index, larger) - cache_charge(class_index, limit);
    if (larger > limit && cache_affords(cache, growth)) {
        cache_set_limit(cache, class_index, larger);
    }
}

void hak__cache_lower_limits(struct cache *cache)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        uint32_t most = cache_limit_most(cache, class_index);
        if (cache->bins[class_index].limit > most) {
            cache_set_limit(cache, class_index, most);
        }
    }
}

uint32_t hak__cache_refill_most(const struct cache *cache, uint32_t class_index)
{
    uint32_t limit = cache->bins[class_index].limit;
    uint32_t least = cache_limit_for(class_index, cache_refill_bytes(cache, class_index));
    return limit < least ? least : limit;
}

/* An object that is returned must have the bin's mark. Else another thread has it, too, and may
 * have handed it out, or the program has written to it. */
static void cache_check_mark(const struct cache *cache, const struct object *object)
{
    if (HAK_UNLIKELY(!object_is_marked(object, cache->mark))) {
        hak__object_is_wrong(object);
    }
}

/* Frees an object of a bin through the remote buffer, because it lies in no slab of this arena and
 * class: it was kept (hak__remote_keep) or borrowed. Aborts if it can be neither, or if the list is
 * shorter than its count (NULL). Returns the next object of the list. */
static HAK_NOINLINE struct object *cache_return_kept(struct cache *cache, uint32_t class_index,
                                                     struct object *object)
{
    size_t slice = window_slice_of(object);
    if (HAK_UNLIKELY(!cache_may_hold(cache, class_index, object))) {
        bool empty = window_contains_slice(slice) && window_owner(slice) == OWNER_NOBODY;
        hak__diagnose_fatal(empty ? "double free (more objects freed than the slab holds)"
                                  : "corrupted free list (written after free?)",
                            object != NULL ? object : cache->bins[class_index].head,
                            size_class_usable(class_index), cache_arena_id(cache));
    }
    cache_check_mark(cache, object);
    struct object *next = object_next(object);
    hak__remote_free(cache, slice, object);
    return next;
}

static HAK_COLD void cache_list_broken(const struct cache *cache, uint32_t class_index,
                                       const char *what, const struct object *object)
{
    hak__diagnose_fatal(what, object, size_class_usable(class_index), cache_arena_id(cache));
}

/* Returns the `count` objects of a bin that were freed last, at most FLUSH_OBJECTS_MAX, to their
 * slabs. Objects of one slice that follow each other are linked already, and go back together.
 * Those of other arenas go to the remote buffer. */
static HAK_NOINLINE void cache_return_part(struct cache *cache, uint32_t class_index,
                                           uint32_t count)
{
    const struct object *returned[FLUSH_OBJECTS_MAX], **at = returned, **end = returned + count;
    struct bin *bin = &cache->bins[class_index];
    struct object *object = bin->head;
    size_t slice = window_slice_of(object);
    uint32_t owner = cache_owner_word(cache, class_index), kept = 0;
    HAK_ASSERT(count <= FLUSH_OBJECTS_MAX);
    while (at != end) {
        if (HAK_UNLIKELY(!window_contains_slice(slice) || window_owner(slice) != owner)) {
            *at++ = object;
            kept++;
            object = cache_return_kept(cache, class_index, object);
            slice = window_slice_of(object);
            continue;
        }
        struct slab *slab = slab_of_slice(slice);
        struct slab_grid grid = slab_grid_of(slab, class_index);
        struct object_list list = {object, 0};
        struct object *tail;
        size_t last_slice = slice;
        do {
            if (HAK_UNLIKELY(!slab_grid_has(grid, object))) {
                hak__slab_not_object(slab, object);
            }
            cache_check_mark(cache, object);
            *at++ = tail = object;
            list.count++;
            object = object_next(object);
            slice = window_slice_of(object);
        } while (slice == last_slice && at != end);
        slab_return(slab, list, tail);
    }
    cache->bytes.given -= (int64_t)(count - kept) * size_class_bytes(class_index);
    bin->head = object;
    bin->room += (int32_t)count;
    if (HAK_UNLIKELY((object == NULL) != (bin_count(bin) == 0))) {
        cache_list_broken(cache, class_index,
                          object != NULL ? "corrupted free list (double free?)"
                                         : "corrupted free list (written after free?)",
                          returned[0]);
    }
#pragma GCC unroll 4
    while (at != returned) { /* a list that leads back to an object just returned */
        if (HAK_UNLIKELY(*--at == object)) {
            cache_list_broken(cache, class_index, "corrupted free list (double free?)", object);
        }
    }
}

/* Returns the `count` objects of a bin that were freed last to their slabs. */
static void cache_return(struct cache *cache, uint32_t class_index, uint32_t count)
{
    counter_add(&cache->counters, COUNTER_FREE_FLUSHED_OBJECTS, count);
    probe_hakmem_flush(cache_arena_id(cache), size_class_bytes(class_index), count);
    while (count != 0) {
        uint32_t part = count < FLUSH_OBJECTS_MAX ? count : FLUSH_OBJECTS_MAX;
        cache_return_part(cache, class_index, part);
        count -= part;
    }
}

static void cache_flush_class(struct cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    if (bin->head != NULL) {
        cache_return(cache, class_index, bin_count(bin));
    }
    cache->history[class_index].refills = 0;
    cache->history[class_index].frees = 0;
    if (bin->limit != 0) { /* a change may cost an atomic operation */
        cache_set_limit(cache, class_index, 0);
    }
}

/* Checks the object that was freed last: it is one, and not one of those freed just before. */
static void cache_check_freed(const struct cache *cache, uint32_t class_index,
                              const struct object *object)
{
    slab_check_object(slab_of_slice(window_slice_of(object)), object);
    uint32_t left = bin_count(&cache->bins[class_index]) - 1;
    left = left < FREES_CHECKED ? left : FREES_CHECKED;
    for (const struct object *at = object; left != 0; left--) {
        at = object_next(at);
        if (HAK_UNLIKELY(at == object)) {
            cache_list_broken(cache, class_index, "double free", object);
        }
        if (HAK_UNLIKELY(!cache_may_hold(cache, class_index, at))) {
            return; /* overwritten: found when the list is used */
        }
    }
}

void hak__cache_overflow(struct cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    cache->history[class_index].active = true;
    counter_add(&cache->counters, COUNTER_FREE_OVERFLOW, 1);
    bool checked = cache->history[class_index].frees < FREES_CHECKED;
    if (checked && bin->head != NULL) {
        cache_check_freed(cache, class_index, bin->head);
    }
    cache_grow_limit(cache, class_index, cache_limit_wanted(cache, class_index));
    cache->history[class_index].refills = 0;
    if (bin->room >= 0) {
        return;
    }
    if (bin->limit == 0) { /* no budget: objects that stay would keep an uncharged slab */
        cache_flush_class(cache, class_index);
        return;
    }
    bool large = size_class_has_own_lines(class_index);
    if (checked && !large) { /* the next free is checked against this one, so it stays */
        return;
    }
    /* The objects freed last are still in the processor's caches, and each older one would be a
     * cache miss. Work on older ones took a third of the time of the workload fragment_stress
     * (docs/decisions/0012). */
    uint32_t count = bin_count(bin);
    uint32_t most = large ? (FLUSH_OBJECTS_MAX + 5) / 6 : FLUSH_OBJECTS_MAX;
    cache_return(cache, class_index, count < most ? count : most);
}

void hak__cache_flush(struct cache *cache)
{
    if (HAK_SECURE) {
        hak__quarantine_end(cache, true);
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        cache_flush_class(cache, class_index);
    }
}

void hak__cache_trim(struct cache *cache)
{
    if (HAK_SECURE) {
        hak__quarantine_end(cache, false);
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        if (cache->history[class_index].active) {
            cache->history[class_index].active = false;
            continue;
        }
        if (cache->bins[class_index].limit != 0 || cache->bins[class_index].head != NULL) {
            cache_flush_class(cache, class_index);
            counter_add(&cache->counters, COUNTER_BINS_TRIMMED, 1);
        }
    }
}

void hak__cache_abandon(struct cache *cache)
{
    for (uint32_t class_index = 0; class_index < CLASS_COUNT; class_index++) {
        cache->bins[class_index] = (struct bin){NULL, 0, 0};
    }
    memset(cache->history, 0, sizeof cache->history);
    for (uint32_t i = 0; i != QUARANTINES * QUARANTINE_RINGS; i++) {
        cache->quarantine->rings[i].taken = 0;
    }
    cache->charged = cache->charged_told = 0;
    cache->lagging = NULL;
    for (uint32_t i = 0; i < REMOTE_ENTRIES; i++) {
        struct remote_entry *entry = remote_entry_of(cache, i);
        if (entry->link != 0) { /* else the pages may be untouched, or a parent's */
            *entry = (struct remote_entry){NULL, 0, 0, 0, 0};
        }
    }
    cache->remote_waiting = 0;
}

HAK_RACY_READER uint32_t hak__cache_objects(const struct cache *cache, uint32_t class_index)
{
    const struct bin *bin = &cache->bins[class_index];
    uint32_t count = bin->limit - (uint32_t)bin->room;
    return count + (HAK_SECURE ? hak__quarantine_count(cache, class_index) : 0);
}

HAK_RACY_READER size_t hak__cache_bytes(const struct cache *cache)
{
    size_t bytes = HAK_SECURE ? hak__quarantine_bytes(cache) : 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct bin *bin = &cache->bins[class_index];
        bytes += (size_t)(bin->limit - (uint32_t)bin->room) * size_class_bytes(class_index);
    }
    return bytes;
}
