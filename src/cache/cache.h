/* cache.h: the thread cache: one bin per class for the fast paths, a second list behind each, and
 * the buffer of remote frees.
 *
 *   malloc <- bin.head
 *   free   -> bin.head, when the object's slab is this heap's
 *          -> remote entry -> the slab's remote word, when it is another's (remote.c)
 *   bin empty:  reserve -> bin, else slabs -> bin (refill.c)
 *   bin full:   older half of the bin -> reserve, if that is empty, else the last freed -> slabs
 *               (flush.c)
 *
 * Two lists of up to `limit` objects let a thread allocate and free back and forth across a full
 * bin without work (Bonwick & Adams, "Magazines and Vmem", 2001). A bin holds objects of slabs its
 * heap owns only, so no two threads are handed parts of one cache line and nothing drifts between
 * heaps.
 *
 * `limit` adapts: 0 until the first overflow, doubled when a class both overflows and misses, up to
 * knobs.bin_bytes_max and the budgets of the thread and of all threads; 0 again when the class has
 * had no slow operation between two ticks (trim). A limit is charged its bytes and one slab,
 * because a single cached object keeps its slab: 400 idle threads with two objects in each of 100
 * bins would otherwise hold 2.9 GB (measured) in 3 MB of objects.
 *
 * Written by the owner thread only, refill, flush and trim under its heap's lock; counts are read
 * relaxed by reports.
 */
#ifndef HAK_CACHE_CACHE_H
#define HAK_CACHE_CACHE_H

#include "slab/slab.h"

struct bin {
    struct object *head;
    int32_t room;   /* limit - objects in the list; a free that makes it negative is an overflow */
    uint32_t limit; /* objects */
};

/* Objects of one slice. By slice and not by slab, because the slice follows from the address: the
 * slab's metadata, which its owner writes, is then looked at once a batch and not at every free. */
struct remote_entry {
    struct object *head;
    struct object *tail;
    uint32_t link;  /* slice + 1, 0: empty */
    uint32_t count; /* read by reports */
    uint32_t limit; /* objects; a full entry is sent */
};

HAK_STATIC_ASSERT(sizeof(struct remote_entry) == 32, "256 of them are 8 KiB");

struct cache {
    uint32_t key;                 /* = slabs.key; read by free */
    uint32_t tick;                /* slow operations, wraps */
    uint64_t charged;             /* bytes the limits may cost, slabs they hold included */
    struct bin bins[CLASS_COUNT]; /* bins[0] stays empty: malloc(0) takes the slow door */
    struct object_list reserves[CLASS_COUNT];
    bool missed[CLASS_COUNT]; /* refilled since the last overflow */
    bool active[CLASS_COUNT]; /* slow operation since the last trim */
    struct slab_set
        *lagging; /* an owner that a batch was sent to and that does not drain; NULL: none */
    uint32_t remote_waiting; /* entries that are not empty */
    struct remote_entry remote[REMOTE_ENTRIES];
    struct slab_set slabs;
};

HAK_INLINE uint32_t bin_count(const struct bin *bin)
{
    return bin->limit - (uint32_t)bin->room;
}

/* No owner word has this key: every free through a cache with it takes the slow door. */
#define CACHE_KEY_NONE ((HEAP_ID_MAX + 1) << OWNER_CODE_BITS)

/* `charged` of all caches together. Relaxed. */
HAK_HIDDEN extern uint64_t hak__cache_charged;

/* A zeroed cache becomes that of heap `id`. */
HAK_HIDDEN void hak__cache_start(struct cache *cache, uint32_t id);

/* An object of the class, with the bin refilled behind it. NULL: no memory. Under the heap's lock.
 */
HAK_HIDDEN void *hak__cache_refill(struct cache *cache, uint32_t class_index);

/* The bin of the class exceeds its limit: makes room. Under the heap's lock. */
HAK_HIDDEN void hak__cache_overflow(struct cache *cache, uint32_t class_index);

/* Everything back to the slabs, limits to 0. Under the heap's lock. */
HAK_HIDDEN void hak__cache_flush(struct cache *cache);
/* Flushes the bins of classes without slow operations since the last call. Under the heap's lock.
 */
HAK_HIDDEN void hak__cache_trim(struct cache *cache);
/* Bins and buffer become empty without a look at their objects: after fork, for heaps of threads
 * that are gone. */
HAK_HIDDEN void hak__cache_abandon(struct cache *cache);

/* Objects of a class in the bin and its reserve; bytes in all of them. Any thread; exact when the
 * owner is at rest. */
HAK_HIDDEN uint32_t hak__cache_objects(const struct cache *cache, uint32_t class_index);
HAK_HIDDEN size_t hak__cache_bytes(const struct cache *cache);

HAK_INLINE struct remote_entry *remote_entry_of(struct cache *cache, size_t slice)
{
    /* Fibonacci hashing: neighbours get different entries */
    uint32_t hash = (uint32_t)slice * UINT32_C(0x9e3779b1);
    return &cache->remote[(hash >> 16) & (REMOTE_ENTRIES - 1)];
}

/* The usual free of an object in somebody else's slab, which `slice` is part of: the slice has an
 * entry, and not yet a full one. Owner thread, no lock. False: nothing was done. */
HAK_INLINE bool remote_push(struct cache *cache, size_t slice, void *pointer)
{
    struct remote_entry *entry = remote_entry_of(cache, slice);
    struct object *object = (struct object *)pointer;
    uint32_t count = entry->count + 1;
    if (HAK_UNLIKELY(entry->link != (uint32_t)slice + 1 || count >= entry->limit)) {
        return false;
    }
    object->next = entry->head;
    entry->head = object;
    atomic_store_relaxed(&entry->count, count);
    return true;
}

/* Any free of such an object. Owner thread, no lock. True when a batch was sent. */
HAK_HIDDEN bool hak__remote_free(struct cache *cache, size_t slice, void *pointer);
/* Sends every batch. Owner thread, no lock. */
HAK_HIDDEN void hak__remote_flush(struct cache *cache);

#endif
