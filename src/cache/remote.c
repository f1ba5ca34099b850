/* remote.c: frees of other heaps' objects, gathered by slab before they are sent.
 *
 * A direct-mapped buffer: an entry collects the objects of one slab; a collision or a full entry
 * sends it with one atomic operation. With few slabs in play a batch has up to REMOTE_OBJECTS_MAX
 * objects, with many it degrades to the one-operation-per-free that other allocators always pay. */
#include "cache/cache.h"

static void remote_send(struct cache *cache, struct remote_entry *entry)
{
    struct object_list list = {entry->head, entry->count};
    struct slab_set *lagging = hak__slab_return_remote(entry->slab, list, entry->tail);
    if (HAK_UNLIKELY(lagging != NULL)) {
        cache->lagging = lagging; /* heap/collect.c drains for it */
    }
    entry->slab = NULL;
    atomic_store_relaxed(&entry->count, 0u); /* reports read it */
    counter_add(&cache->slabs.counters, COUNTER_REMOTE_BATCHES, 1);
}

static struct remote_entry *remote_entry_of(struct cache *cache, const struct slab *slab)
{
    /* Fibonacci hashing of the slab's number: neighbours get different entries */
    uint32_t hash = (uint32_t)((uintptr_t)slab / SLAB_METADATA_SIZE) * UINT32_C(0x9e3779b1);
    return &cache->remote[(hash >> 16) & (REMOTE_ENTRIES - 1)];
}

bool hak__remote_free(struct cache *cache, struct slab *slab, void *pointer)
{
    struct remote_entry *entry = remote_entry_of(cache, slab);
    struct object *object = (struct object *)pointer;
    bool sent = false;
    if (entry->slab != slab) {
        if (entry->slab != NULL) {
            remote_send(cache, entry);
            sent = true;
        }
        entry->slab = slab;
        entry->head = NULL;
        entry->tail = object;
    }
    object->next = entry->head;
    entry->head = object;
    uint32_t count = entry->count + 1;
    atomic_store_relaxed(&entry->count, count);
    if (count >= REMOTE_OBJECTS_MAX ||
        count * size_class_bytes(slab->class_index) >= REMOTE_BYTES_MAX) {
        remote_send(cache, entry);
        sent = true;
    }
    return sent;
}

void hak__remote_flush(struct cache *cache)
{
    for (uint32_t i = 0; i < REMOTE_ENTRIES; i++) {
        if (cache->remote[i].slab != NULL) {
            remote_send(cache, &cache->remote[i]);
        }
    }
}
