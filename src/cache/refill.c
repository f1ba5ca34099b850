/* refill.c: fills empty bins from the heap's slabs. The rules are in cache.h. */
#include "cache/cache.h"

#include "base/probe.h"
#include "core/diagnose.h"

struct refill hak__cache_refill(struct cache *cache, uint32_t class_index)
{
    return hak__slab_refill(cache->slabs, class_index, hak__cache_refill_most(cache, class_index));
}

/* `object` comes from a list of free objects, and has no mark. */
static HAK_COLD void object_is_wrong(const struct object *object)
{
    size_t slice = window_slice_of_object(object);
    uint32_t class_index = window_contains_slice(slice) ? owner_class(window_owner(slice)) : 0;
    bool inside = class_index != 0 && class_index < CLASS_COUNT;
    hak__diagnose_fatal(inside ? "corrupted free list (double free, or written after free)"
                               : "corrupted free list (written after free?)",
                        object, inside ? size_class_bytes(class_index) : 0, 0);
}

struct object *hak__bin_pop(struct bin *bin)
{
    struct object *object = bin_pop(bin);
    if (HAK_UNLIKELY(object == NULL)) {
        object_is_wrong(bin->head);
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
    bool listed = refill.stride == 0;
    struct object *object = refill_pop(&refill);
    if (HAK_UNLIKELY(listed && !object_set_used(object))) {
        object_is_wrong(object);
    }
    bin->head = refill_link(refill).head;
    bin->room -= (int32_t)refill.list.count;
    return object;
}
