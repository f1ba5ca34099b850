/* SPDX-License-Identifier: MIT */
/* census.c: see census.h. hak__census_take counts the slices, the arenas, and then the threads.
 *
 * Threads write their bins and remote buffers without a lock, and slabs under their arena's. The
 * census takes no lock and reads all of them while they change: entries of remote buffers by
 * relaxed loads, bins and slabs by functions that hide the race from ThreadSanitizer. */
#include "control/census.h"

#include "base/atomics.h"
#include "large/emergency.h"
#include "region/superslab.h"
#include "slab/slab.h"

/* a - b, or 0 if b is larger: counts of running threads may be slightly off. */
static uint64_t census_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t hak__census_in_use(const struct class_census *class_census)
{
    return census_minus(class_census->carved_count,
                        class_census->in_slabs_count + class_census->cached_count);
}

static void census_add_up(struct census *census)
{
    census->objects_in_use_count = census->spans_count + census->huge.live_count;
    census->bytes_in_use = census->span_bytes + census->huge.live_bytes;
    census->bytes_cached = census->span_cached_bytes + census->huge.cached_bytes;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *class_census = &census->classes[class_index];
        uint64_t in_use = hak__census_in_use(class_census), size = size_class_bytes(class_index);
        census->objects_in_use_count += in_use;
        census->bytes_in_use += in_use * size;
        census->bytes_cached += class_census->cached_count * size;
        census->slab_bytes += class_census->slab_bytes;
    }
}

/* Objects in a bin. A bin that is just changing its limit may seem to hold less than none: that
 * counts as empty. */
static uint64_t census_bin_objects(const struct cache *cache, uint32_t class_index)
{
    uint32_t count = hak__cache_objects(cache, class_index);
    return (int32_t)count > 0 ? count : 0;
}

/* Adds the objects of the remote buffer. The slice of an entry is read once, and its owner word may
 * be out of date at once, as every figure of a running thread may be. */
static void census_add_remote(const struct cache *cache, uint64_t cached_counts[CLASS_COUNT])
{
    for (uint32_t i = 0; i < REMOTE_ENTRIES; i++) {
        const struct remote_entry *entry = &cache_far_of(cache)->remote[i];
        uint32_t link = atomic_load_relaxed(&entry->link);
        uint32_t class_index = link != 0 ? owner_class(window_owner(link - 1)) : 0;
        if (class_index != 0 && class_index < CLASS_COUNT) {
            cached_counts[class_index] += remote_count(entry);
        }
    }
}

static void census_add_cached(const struct cache *cache, uint64_t cached_counts[CLASS_COUNT])
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        cached_counts[class_index] += census_bin_objects(cache, class_index);
    }
    census_add_remote(cache, cached_counts);
}

uint64_t hak__census_span_cached_bytes(const struct arena *arena)
{
    return (uint64_t)atomic_load_relaxed(&arena->spans.slices) * SLICE_SIZE;
}

uint64_t hak__census_cache_bytes(const struct cache *cache)
{
    uint64_t counts[CLASS_COUNT] = {0};
    census_add_cached(cache, counts);
    uint64_t bytes = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        bytes += counts[class_index] * size_class_bytes(class_index);
    }
    return bytes;
}

static void census_add_counters(struct census *census, const struct counters *counters)
{
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        census->counters.values[i] += atomic_load_relaxed(&counters->values[i]);
    }
}

/* Adds the slab of the class that begins at `slice`; nothing if it does not begin there. Its arena
 * may be changing it, or have given it back just now. */
static HAK_RACY_READER void census_add_slab(struct class_census *class_census, size_t slice,
                                            uint32_t class_index)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    const struct slab *slab = window_slab_metadata(slice);
    uint64_t carved_count = census_minus(slab->carved_count, slab->purged_count);
    uint64_t free_count = slab->free_count + slab_remote_count(slab);
    if (slab->slices_back == 0) {
        class_census->slabs_count++;
        class_census->slab_bytes += size_class->slab_slices * SLICE_SIZE;
        class_census->carved_count += carved_count;
        class_census->in_slabs_count += free_count < carved_count ? free_count : carved_count;
    }
}

static void census_count_slices(struct census *census)
{
    size_t end = atomic_load_acquire(&hak__window.shared_limit); /* window_contains_slice */
    for (size_t slice = 0; slice < end; slice++) {
        uint32_t owner = window_owner(slice), class_index = owner_class(owner);
        if (owner == OWNER_SPAN || owner == OWNER_SPAN_TAKEN) {
            census->spans_count++;
            census->span_bytes += hak__span_bytes_seen(slice);
        } else if (owner_is_slab(owner)) {
            census_add_slab(&census->classes[class_index], slice, class_index);
            census->sampled_bytes += owner < OWNER_DRAWN_FIRST ? SLICE_SIZE : 0;
        }
    }
}

/* Requests that threads of the arena have seen. */
static void census_add_requests(struct census *census, const struct arena *arena)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct request_sums *sums = &arena->requests[class_index];
        uint64_t unused = atomic_load_relaxed(&sums->unused) * size_class_bytes(class_index);
        census->classes[class_index].requests_count += atomic_load_relaxed(&sums->count);
        census->classes[class_index].unused_bytes += unused / REQUEST_UNITS;
    }
}

static void census_count_arenas(struct census *census)
{
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        census_add_counters(census, &arena->slabs.counters);
        census_add_requests(census, arena);
        census->arenas_count++;
        census->arenas_parked_count += atomic_load_relaxed(&arena->threads_count) == 0 ? 1 : 0;
        census->span_cached_bytes += hak__census_span_cached_bytes(arena);
    }
}

static void census_count_threads(struct census *census)
{
    uint64_t cached_counts[CLASS_COUNT] = {0};
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        census_add_counters(census, &thread->cache.counters);
        if (hak__thread_is_used(thread)) { /* others are empty, or lost to fork's child */
            census->threads_count += !atomic_load_relaxed(&thread->apart);
            census_add_cached(&thread->cache, cached_counts);
        }
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        census->classes[class_index].cached_count = cached_counts[class_index];
    }
}

void hak__census_take(struct census *census)
{
    *census = (struct census){.spans_count = 0};
    if (!hak__gate_enter(GATE_PATIENTLY)) { /* in a handler that interrupted an operation */
        return;
    }
    bool refused = hak__own.refused;
    if (!hak__emergency_settle() && !hak__gate_enter(GATE_PATIENTLY)) {
        return;
    }
    hak__own.refused = refused; /* for the settle alone the census is not incomplete */
    hak__thread_settle_gone();
    census_count_slices(census);
    census_count_arenas(census);
    census_count_threads(census);
    census->superslabs_count = atomic_load_relaxed(&hak__superslabs.claimed_count);
    census->huge = hak__huge_totals();
    census_add_up(census);
    hak__gate_leave();
}
