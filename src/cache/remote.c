/* remote.c: frees of other heaps' objects, gathered by slice before they are sent.
 *
 * A direct-mapped buffer: an entry collects the objects of one slice; a collision or a full entry
 * sends it with one atomic operation. With few slices in play a batch has up to REMOTE_OBJECTS_MAX
 * objects, with many it degrades to the one-operation-per-free that other allocators always pay. */
#include "cache/cache.h"

static void remote_send(struct cache *cache, struct remote_entry *entry)
{
    struct object_list list = {entry->head, entry->count};
    struct slab_set *lagging =
        hak__slab_return_remote(slab_of_slice(entry->link - 1), list, entry->tail);
    if (HAK_UNLIKELY(lagging != NULL)) {
        cache->lagging = lagging; /* heap/collect.c drains for it */
    }
    counter_add(&cache->counters, COUNTER_FREE_REMOTE, list.count);
    counter_add(&cache->counters, COUNTER_REMOTE_BATCHES, 1);
    atomic_store_relaxed(&entry->link, 0u); /* reports read both */
    atomic_store_relaxed(&entry->count, 0u);
    cache->remote_waiting--;
}

static void remote_start(struct cache *cache, struct remote_entry *entry, size_t slice,
                         struct object *object)
{
    uint32_t class_index = window_owner(slice) & OWNER_CODE_MASK;
    uint32_t size = size_class_bytes(class_index);
    /* a quarter of 16 KiB is one object, or a few, of the larger classes: no batch at all */
    uint32_t crowd = size_class_has_own_lines(class_index)
                         ? 0
                         : atomic_load_relaxed(&cache->slabs->shared_crowd_shift);
    uint32_t bytes = REMOTE_BYTES_MAX >> crowd;
    uint32_t limit = (bytes + size - 1) / size;
    atomic_store_relaxed(&entry->link, (uint32_t)slice + 1);
    entry->limit = limit < REMOTE_OBJECTS_MAX ? limit : REMOTE_OBJECTS_MAX;
    entry->head = NULL;
    entry->tail = object;
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
        }
        remote_start(cache, entry, slice, object);
    }
    object->next = entry->head;
    entry->head = object;
    uint32_t count = entry->count + 1;
    atomic_store_relaxed(&entry->count, count);
    if (count >= entry->limit) {
        remote_send(cache, entry);
        sent = true;
    }
    return sent;
}

void hak__remote_flush(struct cache *cache)
{
    for (struct remote_entry *entry = cache->remote; cache->remote_waiting != 0; entry++) {
        HAK_ASSERT(entry < cache->remote + REMOTE_ENTRIES);
        if (entry->link != 0) {
            remote_send(cache, entry);
        }
    }
}
