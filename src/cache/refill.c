/* SPDX-License-Identifier: MIT */
/* refill.c: fills empty bins from the arena's slabs. The rules are in cache.h. */
#include "cache/cache.h"

#include "base/probe.h"
#include "core/diagnose.h"
#include "slab/slab.h"

struct refill hak__cache_refill(struct cache *cache, uint32_t class_index)
{
    return hak__slab_refill(cache->slabs, class_index, hak__cache_refill_most(cache, class_index));
}

struct object *hak__bin_pop(struct cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    struct object *object = bin_pop(cache, bin, class_index);
    if (HAK_UNLIKELY(object == NULL)) {
        hak__object_is_wrong(bin->head);
    }
    return object;
}

/* An exchange, because a thread that has one of the objects in its bin, too, may take the old mark
 * away at this moment: then either this thread finds no mark, or that thread's store destroys the
 * new one. Relaxed: the mark alone decides. */
void hak__cache_take_over(const struct cache *cache, struct object_list list)
{
    uintptr_t old = object_mark_of(window_owner(window_slice_of(list.head)));
    struct object *object = list.head;
    for (uint32_t i = 0; !HAK_SECURE && i < list.count; i++, object = object->next) {
        if (HAK_UNLIKELY(object == NULL ||
                         atomic_exchange_relaxed(&object->mark, cache->mark) != old)) {
            hak__object_is_wrong(object);
        }
    }
}

void *hak__cache_fill(struct cache *cache, uint32_t class_index, struct refill refill)
{
    struct bin *bin = &cache->bins[class_index];
    HAK_ASSERT(bin->head == NULL);
    if (HAK_LEVEL >= 1 && bin_count(bin) != 0) {
        hak__diagnose_fatal("corrupted free list (written after free?)", bin,
                            size_class_usable(class_index), cache_arena_id(cache));
    }
    if (refill.list.count == 0) {
        return NULL;
    }
    probe_hakmem_refill(cache_arena_id(cache), size_class_bytes(class_index), refill.list.count);
    uint32_t bytes = size_class_bytes(class_index);
    cache_count_block(cache, bytes);
    cache->bytes.given += (int64_t)(refill.list.count - 1) * bytes;
    cache->history[class_index].active = true;
    /* A small object that came alone is the first one of an untouched page (slab/slab.c). If that
     * were a step, the thread would take most of the page next. */
    bool step = refill.list.count != 1 || size_class_has_own_lines(class_index);
    if (step && cache_refill_bytes(cache, class_index) < SLICE_SIZE) {
        cache->history[class_index].refills++;
    }
    struct object *object = refill_pop(&refill, class_index, cache->mark);
    bin->head = refill_link(refill, cache->mark).head;
    bin->room -= (int32_t)refill.list.count;
    return object;
}
