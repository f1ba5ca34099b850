/* cache.h: the thread cache: one bin per class for the fast paths, and the buffer of remote frees.
 *
 *   malloc <- bin.head
 *   free   -> bin.head, when the object's slab is its heap's
 *          -> bin.head, when it is another's, its class has lines of its own and there is room
 *          -> remote entry -> the slab's remote word, when it is another's (remote.c)
 *   bin empty:  slabs -> bin (refill.c); or other heaps' slabs, of a class with lines of its own
 *   bin full:   the last freed -> slabs (flush.c)
 *
 * A bin of small objects holds those of slabs its heap owns only, so as long as a heap has one
 * thread no two threads are handed parts of one cache line. Objects that share no line stay with
 * whoever freed them, in whose processor's caches they are (docs/decisions/0029).
 *
 * How large bins and refills are (docs/design/cache.md says why):
 *   1. The limit of a bin is 0 until its first overflow, which makes it 2 KiB of objects.
 *   2. An overflow doubles the limit if there was a refill since the overflow before, up to
 *      HAKMEM_BIN_BYTES (a quarter for objects to 1 KiB) and while the budgets last.
 *   3. A refill brings 1 KiB of objects, and each further one without an overflow between twice as
 *      many, to 32 KiB; or as many as the limit, if that is more.
 *   4. An overflow returns the objects that were freed last to their slabs: 24 at most, 4 above
 *      1 KiB; all of them if there is no budget for a limit.
 *   5. A class without a slow operation in half a purge delay returns all its objects, and begins
 *      again with rule 1.
 *
 * A limit is charged to the budgets of the thread and the process: its bytes and one slab, because
 * a single cached object keeps its slab. 400 idle threads with two objects in each of 100 bins held
 * 2.9 GB (measured) in 3 MB of objects when each had slabs of its own.
 *
 * Written by the owner thread only, flush and trim under its heap's lock; counts are read relaxed
 * by reports.
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
    uint32_t link; /* slice + 1, 0: empty */
    uint16_t tail; /* of the list: granules from the slice's start */
    uint8_t limit; /* objects; a full entry is sent */
    uint8_t room;  /* limit - objects in the list */
};

HAK_STATIC_ASSERT(sizeof(struct remote_entry) == 16, "four are a cache line");
HAK_STATIC_ASSERT(SLICE_SIZE / OBJECT_ALIGNMENT <= UINT16_MAX, "a tail is 16 bits");
HAK_STATIC_ASSERT(REMOTE_OBJECTS_MAX <= UINT8_MAX, "a limit is 8 bits");

/* Objects in it. Any thread; exact for the owner thread, or while that is at rest. */
HAK_INLINE uint32_t remote_count(const struct remote_entry *entry)
{
    uint32_t limit = atomic_load_relaxed(&entry->limit), room = atomic_load_relaxed(&entry->room);
    return limit > room ? limit - room : 0;
}

/* Requests of one class that were seen, and the bytes of their objects beyond what was asked for.
 * If a sum gets large, both are halved. */
struct request_sums {
    uint32_t count;
    uint32_t unused;
};

struct cache {
    uint32_t key;           /* = slabs->key; read by free */
    int32_t countdown;      /* bytes that malloc hands out before it takes the slow door */
    struct slab_set *slabs; /* of the heap that this thread draws from */
    uint64_t charged;       /* bytes the limits may cost, slabs they hold included */
    struct slab_set
        *lagging; /* an owner that a batch was sent to and that does not drain; NULL: none */
    uint32_t remote_waiting; /* entries that are not empty, at most REMOTE_WAITING_MAX */
    uint32_t remote_hand;    /* the entry after the last that was sent for being one too many */
    /* No bin lies across two cache lines. bins[0] stays empty: malloc(0) takes the slow door. */
    struct bin bins[CLASS_COUNT] __attribute__((aligned(sizeof(struct bin))));
    uint8_t refills[CLASS_COUNT]; /* since the last overflow, until one may bring 32 KiB */
    bool active[CLASS_COUNT];     /* slow operation since the last trim */
    struct counters counters;     /* what this thread does without the heap's lock, or with it */
    struct request_sums requests[CLASS_COUNT];  /* seen when the countdown ran out */
    struct remote_entry remote[REMOTE_ENTRIES]; /* last: most threads never touch it */
};

HAK_INLINE uint32_t bin_count(const struct bin *bin)
{
    return bin->limit - (uint32_t)bin->room;
}

/* A bin takes as many bytes as one tiny class is larger than the one before: a tiny size, rounded
 * up, is the offset of its bin, which saves the fast path a shift. */
HAK_STATIC_ASSERT(sizeof(struct bin) == OBJECT_ALIGNMENT, "an offset is a rounded size");
HAK_INLINE size_t bin_offset(size_t class_index)
{
    return class_index * sizeof(struct bin);
}

/* The bin is not empty. Owner thread. */
HAK_INLINE struct object *bin_pop(struct bin *bin)
{
    struct object *object = bin->head, *next = object->next;
    HAK_PREFETCH(next); /* the next malloc's, long before its first use */
    bin->head = next;
    bin->room++;
    return object;
}

/* Notes a request of `size` bytes that got an object of the class, for the estimate of rounding in
 * summaries. Owner thread; reports read the sums relaxed. */
HAK_INLINE void cache_note_request(struct cache *cache, uint32_t class_index, size_t size)
{
    struct request_sums *sums = &cache->requests[class_index];
    uint32_t count = sums->count + 1;
    uint32_t unused = sums->unused + (uint32_t)(size_class_bytes(class_index) - size);
    uint32_t shift = ((count | unused) >> 31) & 1;
    atomic_store_relaxed(&sums->count, count >> shift);
    atomic_store_relaxed(&sums->unused, unused >> shift);
}

/* No owner word has this key: every free through a cache with it takes the slow door. */
#define CACHE_KEY_NONE ((HEAP_ID_MAX + 1) << OWNER_CODE_BITS)

/* `charged` of all caches together. Relaxed. */
HAK_HIDDEN extern uint64_t hak__cache_charged;

/* A cache that holds nothing draws from `slabs` from now on. */
HAK_HIDDEN void hak__cache_start(struct cache *cache, struct slab_set *slabs);

/* What the empty bin of the class is to be filled with from its heap; count 0: no memory. Under the
 * heap's lock. */
HAK_HIDDEN struct refill hak__cache_refill(struct cache *cache, uint32_t class_index);
/* Fills it, and returns the first object; NULL: there is none. Owner thread, no lock. */
HAK_HIDDEN void *hak__cache_fill(struct cache *cache, uint32_t class_index, struct refill refill);

/* Objects that the next refill of the class takes at most (rule 3). */
HAK_HIDDEN uint32_t hak__cache_refill_most(const struct cache *cache, uint32_t class_index);

/* The bin of the class exceeds its limit: makes room. Under the heap's lock. */
HAK_HIDDEN void hak__cache_overflow(struct cache *cache, uint32_t class_index);

/* Everything back to the slabs, limits to 0. Under the heap's lock. */
HAK_HIDDEN void hak__cache_flush(struct cache *cache);
/* Flushes the bins of classes without slow operations since the last call. Under the heap's lock.
 */
HAK_HIDDEN void hak__cache_trim(struct cache *cache);
/* Bins and buffer become empty without a look at their objects: after fork, for threads that are
 * gone. hak__cache_charged is the caller's. */
HAK_HIDDEN void hak__cache_abandon(struct cache *cache);

/* Objects of a class in its bin; bytes in all bins. Any thread; exact when the owner is at rest. */
HAK_HIDDEN uint32_t hak__cache_objects(const struct cache *cache, uint32_t class_index);
HAK_HIDDEN size_t hak__cache_bytes(const struct cache *cache);

/* No hash: slices go out lowest first, so those in play are neighbours, which share no entry. */
HAK_INLINE struct remote_entry *remote_entry_of(struct cache *cache, size_t slice)
{
    return &cache->remote[slice & (REMOTE_ENTRIES - 1)];
}

/* The usual free of an object in somebody else's slab, which `slice` is part of: the slice has an
 * entry, and not yet a full one. Owner thread, no lock. False: nothing was done. */
HAK_INLINE bool remote_push(struct cache *cache, size_t slice, void *pointer)
{
    struct remote_entry *entry = remote_entry_of(cache, slice);
    struct object *object = (struct object *)pointer;
    uint32_t room = entry->room;
    if (HAK_UNLIKELY(entry->link != (uint32_t)slice + 1 || room <= 1)) {
        return false;
    }
    object->next = entry->head;
    entry->head = object;
    atomic_store_relaxed(&entry->room, (uint8_t)(room - 1));
    return true;
}

/* Can the object be in a bin of the class? */
HAK_INLINE bool cache_may_hold(const struct cache *cache, uint32_t class_index,
                               const struct object *object)
{
    size_t slice = window_slice_of(object);
    uint32_t owner = window_contains_slice(slice) ? window_owner(slice) : CACHE_KEY_NONE;
    return owner == (cache->key | class_index) ||
           (size_class_has_own_lines(class_index) && (owner & OWNER_CODE_MASK) == class_index);
}

/* A free of another heap's object: this thread's next malloc is to have it, if its bin has room.
 * Owner thread, no lock. False: nothing was done. */
HAK_INLINE bool remote_keep(struct cache *cache, uint32_t class_index, void *pointer)
{
    struct bin *bin = &cache->bins[class_index];
    if (!size_class_has_own_lines(class_index) || bin->room <= 0) {
        return false;
    }
    struct object *object = (struct object *)pointer;
    object->next = bin->head;
    bin->head = object;
    bin->room--;
    return true;
}

/* Any free of such an object. Owner thread, no lock. True when a batch was sent. */
HAK_HIDDEN bool hak__remote_free(struct cache *cache, size_t slice, void *pointer);
/* Sends every batch. Owner thread, no lock. */
HAK_HIDDEN void hak__remote_flush(struct cache *cache);

#endif
