/* SPDX-License-Identifier: MIT */
/* remote.c: frees of other arenas' objects, gathered by slice before they are sent to their slabs.
 *
 * The remote buffer is direct-mapped: a slice number has one entry, which gathers the freed objects
 * of that slice. An entry is sent when it is full, when another slice needs its place, or when
 * REMOTE_ENTRIES / 2 entries wait. Sending costs one atomic operation, or three if the owner must
 * be notified (slab/slab_remote.c).
 *
 * Why: if the objects lie in few slices, one atomic operation serves up to REMOTE_OBJECTS_MAX of
 * them. If they lie in many, batches shrink, at worst to one object. Other allocators usually need
 * one atomic operation for each object.
 *
 * Locks: none. Only the cache's own thread calls these functions; reports read entries relaxed. */
#include "cache/cache.h"

#include "base/probe.h"
#include "core/diagnose.h"
#include "region/numa.h"
#include "slab/slab.h"

/* Sends the entry, which is not empty, to its slab and empties it. */
static void remote_send(struct cache *cache, struct remote_entry *entry)
{
    struct object_list list = {entry->head, remote_count(entry)};
    size_t slice = entry->link - 1;
    unsigned char *tail = (unsigned char *)window_slice_address(slice);
    tail += (size_t)entry->tail * OBJECT_ALIGNMENT;
    struct slab *slab = slab_of_slice(slice);
    slab_check_object(slab, list.head); /* all of them: 5 % of producer_consumer_2 */
    uint32_t size = size_class_bytes(slab->class_index); /* once sent, it may be another slab */
    probe_hakmem_remote_send(size, list.count);
    struct slab_set *lagging = hak__slab_return_remote(slab, list, (struct object *)(void *)tail);
    if (HAK_UNLIKELY(lagging != NULL)) {
        cache->lagging = lagging; /* arena/collect.c drains for it */
    }
    cache->bytes.given -= (int64_t)list.count * size;
    counter_add(&cache->counters, COUNTER_FREE_REMOTE, list.count);
    counter_add(&cache->counters, COUNTER_REMOTE_BATCHES, 1);
    atomic_store_relaxed(&entry->link, 0u); /* atomic: reports read link and room */
    atomic_store_relaxed(&entry->room, entry->limit);
    cache->remote_waiting--;
}

/* Sends one waiting entry, so that each has its turn. At least one entry waits. */
static void remote_make_room(struct cache *cache)
{
    struct remote_entry *entry;
    do {
        entry = remote_entry_of(cache, cache->remote_hand++);
    } while (entry->link == 0);
    remote_send(cache, entry);
}

/* Begins an entry for `slice`, whose first object will be `object`. The entry was empty. */
static void remote_start(struct cache *cache, struct remote_entry *entry, size_t slice,
                         struct object *object)
{
    uint32_t class_index = owner_class(window_owner(slice));
    /* Another thread has freed the object, too, and with it its slab. */
    if (HAK_UNLIKELY(class_index == 0 || class_index >= CLASS_COUNT)) {
        hak__diagnose_fatal("double free", object, 0, 0);
    }
    uint32_t size = size_class_bytes(class_index);
    /* The most bytes of one batch. Half: the workload silent_2 takes 1.11 times as long and 0.9 of
     * the memory (docs/decisions/0055). Twice: more freed objects wait. */
    uint32_t limit = ((HAK_TINY_LIMITS ? 512u : (uint32_t)SLICE_SIZE / 2) + size - 1) / size;
    limit = limit < REMOTE_OBJECTS_MAX ? limit : REMOTE_OBJECTS_MAX;
    atomic_store_relaxed(&entry->limit, (uint8_t)limit); /* atomic: reports read all three */
    atomic_store_relaxed(&entry->room, (uint8_t)limit);
    atomic_store_relaxed(&entry->link, (uint32_t)slice + 1);
    entry->head = NULL;
    entry->tail = (uint16_t)((uintptr_t)object % SLICE_SIZE / OBJECT_ALIGNMENT);
    cache->remote_waiting++;
}

bool hak__remote_free(struct cache *cache, size_t slice, void *pointer)
{
    if (remote_push(cache, slice, pointer)) {
        return false;
    }
    struct remote_entry *entry = remote_entry_of(cache, slice);
    struct object *object = (struct object *)pointer;
    bool sent = false;
    if (entry->link != (uint32_t)slice + 1) {
        if (entry->link != 0) {
            remote_send(cache, entry);
            sent = true;
        } else if (cache->remote_waiting == REMOTE_ENTRIES / 2) {
            remote_make_room(cache);
            sent = true;
        }
        remote_start(cache, entry, slice, object);
    }
    object_set_free(object, entry->head, object_mark_of(window_owner(slice)));
    entry->head = object;
    uint32_t room = entry->room - 1u;
    atomic_store_relaxed(&entry->room, (uint8_t)room);
    if (room == 0) {
        remote_send(cache, entry);
        sent = true;
    }
    return sent;
}

void hak__remote_flush(struct cache *cache)
{
    /* stops at the last waiting entry, so a buffer that was never used is not touched */
    for (struct remote_entry *entry = cache_far_of(cache)->remote; cache->remote_waiting != 0;
         entry++) {
        HAK_ASSERT(entry < cache_far_of(cache)->remote + REMOTE_ENTRIES);
        if (entry->link != 0) {
            remote_send(cache, entry);
        }
    }
}

size_t hak__remote_bytes(const struct cache *cache)
{
    size_t bytes = 0;
    uint32_t left = cache->remote_waiting;
    for (const struct remote_entry *entry = cache_far_of(cache)->remote; left != 0; entry++) {
        if (entry->link != 0) {
            uint32_t class_index = owner_class(window_owner(entry->link - 1));
            bytes += (size_t)remote_count(entry) * size_class_bytes(class_index);
            left--;
        }
    }
    return bytes;
}

bool hak__remote_keep(struct cache *cache, uint32_t class_index, void *pointer)
{
    struct bin *bin = &cache->bins[class_index];
    if (HAK_SECURE || !size_class_has_own_lines(class_index) || bin->room <= 0 ||
        numa_is_far(window_slice_of(pointer))) {
        return false;
    }
    struct object *object = (struct object *)pointer;
    object_set_free(object, bin->head, cache->mark);
    bin->head = object;
    bin->room--;
    return true;
}
