/* refill.c: fills empty bins from the heap's slabs. The rules are in cache.h. */
#include "cache/cache.h"

#include "base/probe.h"
#include "core/diagnose.h"

struct refill hak__cache_refill(struct cache *cache, uint32_t class_index)
{
    return hak__slab_refill(cache->slabs, class_index, hak__cache_refill_most(cache, class_index));
}

struct object *hak__bin_pop(struct bin *bin, uint32_t class_index)
{
    struct object *object = bin_pop(bin, class_index);
    if (HAK_UNLIKELY(object == NULL)) {
        hak__object_is_wrong(bin->head);
    }
    return object;
}

void *hak__cache_fill(struct cache *cache, uint32_t class_index, struct refill refill)
{
    struct bin *bin = &cache->bins[class_index];
    HAK_ASSERT(bin->head == NULL);
    if (HAK_LEVEL >= 1 && bin_count(bin) != 0) {
        hak__diagnose_fatal("corrupted free list (written after free?)", bin,
                            size_class_bytes(class_index), cache_heap_id(cache));
    }
    if (refill.list.count == 0) {
        return NULL;
    }
    probe_hakmem_refill(cache_heap_id(cache), size_class_bytes(class_index), refill.list.count);
    cache->active[class_index] = true;
    if (REFILL_BYTES_START << cache->refills[class_index] < SLICE_SIZE) {
        cache->refills[class_index]++;
    }
    if (HAK_SECURE) {
        bin->head = refill_link(refill).head; /* the first one is drawn by lot, too */
        bin->room -= (int32_t)refill.list.count;
        return hak__bin_pop(bin, class_index);
    }
    struct object *object = refill_pop(&refill, class_index);
    bin->head = refill_link(refill).head;
    bin->room -= (int32_t)refill.list.count;
    return object;
}
