/* SPDX-License-Identifier: MIT */
/* quarantine.c: the rings of freed objects that wait (cache.h). Only in the secure form. */
#include "cache/cache.h"

#include "slab/slab.h"

void hak__quarantine_begin(struct cache *cache, uint32_t threads)
{
    struct quarantine *quarantine = cache->quarantine;
    quarantine->random = hak__secure_draw();
    uint32_t first = 0, share = bits_log2(threads);
    for (uint32_t i = QUARANTINE_RINGS; i-- != 0;) { /* the shortest ring first: on few pages */
        uint32_t places = QUARANTINE_BYTES / OBJECT_ALIGNMENT >> share >> i;
        places = places > 8 ? places : 8; /* fewer would be no quarantine for large objects */
        /* 64: an object leaves at one of about 128 frees. Twice: more objects of a ring are read
         * and written again soon after their free. Half: half as many. */
        uint32_t near = places / 2 < 64 ? places / 2 : 64;
        quarantine->rings[i] = (struct quarantine_ring){
            .first = (uint16_t)first, .mask = (uint16_t)(places - 1), .near = (uint16_t)(near - 1)};
        first += places;
    }
}

/* Objects in a ring. Any thread. */
static uint32_t ring_count(const struct quarantine_ring *ring)
{
    /* acquire: pairs with the release in cache_quarantine */
    uint64_t taken = atomic_load_acquire(&ring->taken);
    return taken > ring->mask ? ring->mask + 1u : (uint32_t)taken;
}

/* Ends the quarantine of an object. */
static void quarantine_end_object(struct cache *cache, struct object *object)
{
    secure_leave_quarantine(object);
    size_t slice = window_slice_of(object);
    struct slab *slab = slab_of_slice(slice);
    if (slab->owner != cache->slabs) {
        hak__remote_free(cache, slice, object);
        return;
    }
    cache->bytes.given -= size_class_bytes(slab->class_index);
    object_set_free(object, NULL, 0);
    slab_return(slab, (struct object_list){object, 1}, object);
}

/* Takes an object out of a ring. NULL: none is left. One at a time, because a signal handler may
 * free between two of them. */
static void *ring_take(struct cache *cache, struct quarantine_ring *ring)
{
    uint32_t count = ring_count(ring);
    if (count == 0) {
        return NULL;
    }
    ring->taken = count - 1;
    return cache_far_of(cache)->resting[ring->first + count - 1];
}

void hak__quarantine_end(struct cache *cache, bool everything)
{
    for (uint32_t i = 0; i != QUARANTINE_RINGS; i++) {
        struct quarantine_ring *ring = &cache->quarantine->rings[i];
        bool ends = everything || (uint16_t)ring->taken == ring->seen;
        for (void *object; ends && (object = ring_take(cache, ring)) != NULL;) {
            quarantine_end_object(cache, object);
        }
        ring->seen = (uint16_t)ring->taken;
    }
}

void *hak__quarantine_take(struct cache *cache)
{
    void *object = NULL;
    for (uint32_t i = 0; i != QUARANTINE_RINGS && object == NULL; i++) {
        object = ring_take(cache, &cache->quarantine->rings[i]);
    }
    return object;
}

/* The class of an object that rests in a ring. */
static uint32_t ring_class(const struct cache *cache, const struct quarantine_ring *ring,
                           uint32_t number)
{
    const void *object = atomic_load_relaxed(&cache_far_of(cache)->resting[ring->first + number]);
    return owner_class(window_owner(window_slice_of(object)));
}

HAK_RACY_READER uint32_t hak__quarantine_count(const struct cache *cache, uint32_t class_index)
{
    const struct quarantine_ring *ring =
        &cache->quarantine->rings[quarantine_ring_of(size_class_bytes(class_index))];
    uint32_t count = 0;
    for (uint32_t i = ring_count(ring); i-- != 0;) {
        count += ring_class(cache, ring, i) == class_index;
    }
    return count;
}

HAK_RACY_READER size_t hak__quarantine_bytes(const struct cache *cache)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i != QUARANTINE_RINGS; i++) {
        const struct quarantine_ring *ring = &cache->quarantine->rings[i];
        for (uint32_t j = ring_count(ring); j-- != 0;) {
            bytes += size_class_bytes(ring_class(cache, ring, j));
        }
    }
    return bytes;
}
