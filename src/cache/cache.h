/* SPDX-License-Identifier: MIT */
/* cache.h: the thread cache: one bin for each size class, and the buffer of remote frees.
 *
 *   malloc <- bin
 *   free   -> bin, if the object belongs to a slab of this thread's arena
 *          -> bin, if it belongs to another arena, its class has own lines, and the bin has room
 *          -> remote entry -> the slab's remote word, for all other objects of slabs (remote.c)
 *   bin empty:  slabs of this arena -> bin (refill.c)
 *               or, if the class has own lines: slabs of another arena -> bin
 *   bin full:   bin -> slabs, for the objects that were freed last (flush.c)
 *
 * Own lines: objects of classes above 1,040 bytes share no cache line with other objects. Such an
 * object stays with the thread that freed it, whose processor has it in its caches
 * (docs/decisions/0029). Bins of smaller objects hold only objects of this thread's arena. So while
 * the arena has one thread, no other thread gets a part of a cache line that this thread uses.
 *
 * How large bins and refills are (docs/design/cache.md says why). A number of bytes means as many
 * objects as fit into it, but at least 2 and at most BIN_OBJECTS_MAX.
 *   Limit   The limit of a bin is 2 KiB after its first overflows. Each overflow that a refill came
 *           before doubles it, up to HAKMEM_BIN_BYTES (divided by the threads of the arena, for
 *           objects up to 1 KiB) and as far as the budgets allow. A class without a slow operation
 *           in half a purge delay returns all its objects, and its limit is 0 until the next one.
 *   Steps   A refill brings as many objects as the limit, or a number of bytes if that is more:
 *           256 after an overflow, then 2 KiB, doubled to 32 KiB. An overflow that leaves the bin
 *           above its limit returns the objects that were freed last: 24, or 4 above 1 KiB; all if
 *           there is no budget for a limit.
 * The first FREES_CHECKED overflows of a class make the limit what the bin holds, so that each of
 * the first frees takes the slow path. Small objects stay then, and are checked against each other.
 *
 * Budgets: the thread and the process each have one. Both are charged the bytes of a limit and one
 * slab, because a single cached object keeps its slab from being given back. The process is charged
 * some more ahead, so that threads write to its sum seldom. Measured: 400 idle
 * threads with slabs of their own and two objects in each of 100 bins hold 2.9 GB for 3 MB of
 * objects.
 *
 * Locks: only the owner thread, whose cache it is, writes to a cache. Overflow, flush and trim also
 * need the lock of its arena. Reports read the counts without a lock.
 */
#ifndef HAK_CACHE_CACHE_H
#define HAK_CACHE_CACHE_H

#include "core/counters.h"
#include "region/object.h"

struct slab_set;

struct bin {
    struct object *head;
    int32_t room;   /* limit - objects in the list; a free that makes it negative is an overflow */
    uint32_t limit; /* objects */
};

/* Freed objects of one slice. The entries go by slice, not by slab, because the slice follows from
 * the address alone. So a free does not read the slab's metadata, which other threads write. Only
 * the sending of a batch reads it. */
struct remote_entry {
    struct object *head;
    uint32_t link; /* slice + 1; 0: the entry is empty */
    uint16_t tail; /* the list's last object: granules from the slice's start */
    uint8_t limit; /* objects; an entry that reaches it is sent */
    uint8_t room;  /* limit - objects in the list */
};

HAK_STATIC_ASSERT(sizeof(struct remote_entry) == 16, "four are a cache line");
HAK_STATIC_ASSERT(SLICE_SIZE / OBJECT_ALIGNMENT <= UINT16_MAX, "a tail is 16 bits");
HAK_STATIC_ASSERT(REMOTE_OBJECTS_MAX <= UINT8_MAX, "a limit is 8 bits");

/* Objects in the entry. Any thread; exact for the owner thread, or while the owner thread does not
 * run. */
HAK_INLINE uint32_t remote_count(const struct remote_entry *entry)
{
    uint32_t limit = atomic_load_relaxed(&entry->limit), room = atomic_load_relaxed(&entry->room);
    return limit > room ? limit - room : 0;
}

/* What a bin's next refill and overflow go by. */
struct bin_history {
    uint8_t refills : 4; /* since the last overflow or flush, up to 32 KiB */
    uint8_t frees : 3;   /* first overflows, up to FREES_CHECKED + 1 */
    uint8_t active : 1;  /* the class had a slow operation since the last trim */
};
HAK_STATIC_ASSERT(REFILL_BYTES_START << 15 >= SLICE_SIZE, "refills have 4 bits");
HAK_STATIC_ASSERT(FREES_CHECKED + 1 < 8, "frees have 3 bits");

/* What the thread has allocated and freed, in bytes, for hak_thread_bytes_read
 * (arena/thread_bytes.c). The fast paths do not count: what they hand out and take back follows
 * from their countdown and their bins. */
struct cache_bytes {
    int64_t asked;      /* requested since the last reading, without what the countdown shows */
    int64_t given;      /* handed to the cache or past it to the program, less what came back */
    int64_t net;        /* the program's part of `given` at the last reading */
    uint64_t allocated; /* at the last reading */
};

/* Secure form: freed objects that wait before they may be handed out again (quarantine.c). Each
 * power of two of the size has a ring. A free takes the next place of the ring and exchanges its
 * object with one of the 64 newest, or of half the ring. So an object leaves after about as many
 * frees as the ring has places, at a random one, and never before half of them. Places that a ring
 * has not filled yet are never read: a thread that frees little touches few pages. Threads of one
 * arena share the bytes, as with bins. */
struct quarantine_ring {
    uint64_t taken; /* objects, since the ring was empty */
    uint16_t seen;  /* the low bits of that at the last trim */
    uint16_t first; /* its first place */
    uint16_t mask;  /* places - 1; this and the next: a power of two minus 1 */
    uint16_t near;  /* the most places behind */
};
struct quarantine {
    uint64_t random;
    struct quarantine_ring rings[QUARANTINE_RINGS];
};
#define QUARANTINE_PLACES                                                                          \
    (QUARANTINES * (2 * QUARANTINE_BYTES / OBJECT_ALIGNMENT + 8 * QUARANTINE_RINGS))
HAK_STATIC_ASSERT(QUARANTINE_PLACES <= UINT16_MAX, "a place is 16 bits");

/* The parts of a cache that most threads never touch. They lie elsewhere, so that the caches of
 * many threads, or a small process's cache and arena, share OS pages (docs/decisions/0119). */
struct cache_far {
    struct remote_entry remote[REMOTE_ENTRIES];
    void *resting[QUARANTINE_PLACES];
};

struct cache {
    uint64_t key;             /* = slabs->key; read by free, which saves an extension to 64 bits */
    uintptr_t mark;           /* of the objects in the bins (region/object.h) */
    int32_t countdown;        /* bytes that malloc hands out before it takes the slow path */
    uint32_t far_at;          /* bytes from here to its struct cache_far; constant */
    struct slab_set *slabs;   /* of the arena that this thread draws from */
    uint64_t charged;         /* the sum of the charges of all bin limits, in bytes */
    uint64_t charged_told;    /* what the process is charged for it: at least as much */
    struct slab_set *lagging; /* an owner that leaves its notifications unread; NULL: none */
    uint32_t remote_waiting;  /* entries that are not empty, at most REMOTE_ENTRIES / 2 */
    uint32_t remote_hand;     /* if too many entries wait, the search for one to send begins here */
    struct bin_history history[CLASS_COUNT];
    struct counters counters; /* events of this thread; no lock guards them */
    struct cache_bytes bytes;
    struct quarantine quarantine[QUARANTINES];
    /* No bin lies across two cache lines. bins[0] stays empty, so malloc(0) takes the slow path.
     * Last, because few threads touch those of the largest classes: 24 structs and the head of
     * their chunk (arena/metadata.c) take 15 OS pages and a cache line. */
    struct bin bins[CLASS_COUNT] __attribute__((aligned(sizeof(struct bin))));
};

/* A distance, not a pointer: structs of threads that have none of their own are constants, and a
 * pointer would make them relocations. */
HAK_INLINE struct cache_far *cache_far_of(const struct cache *cache)
{
    return (struct cache_far *)((uintptr_t)cache + cache->far_at);
}

/* The bytes of the next refill of the class, unless its limit is more. The secure form shuffles the
 * objects of a refill, so its first one has as many as it can. */
HAK_INLINE uint32_t cache_refill_bytes(const struct cache *cache, uint32_t class_index)
{
    uint32_t refills = cache->history[class_index].refills;
    bool first = refills == 0 && !HAK_SECURE;
    return first ? REFILL_BYTES_START / 4 : REFILL_BYTES_START << refills;
}

HAK_INLINE uint32_t bin_count(const struct bin *bin)
{
    return bin->limit - (uint32_t)bin->room;
}

/* The bytes of a bin equal the step between two tiny classes. So a tiny size, rounded up to its
 * class, is also the offset of its bin. That saves the fast path a shift. */
HAK_STATIC_ASSERT(sizeof(struct bin) == OBJECT_ALIGNMENT, "an offset is a rounded size");
HAK_INLINE size_t bin_offset(size_t class_index)
{
    return class_index * sizeof(struct bin);
}

/* The same by the code of an owner word, which is twice a class. */
HAK_INLINE size_t bin_offset_of_code(size_t code)
{
    return code * (sizeof(struct bin) >> OWNER_CLASS_SHIFT);
}

/* Counts a block that the program gets past the bins. Owner thread. */
HAK_INLINE void cache_count_block(struct cache *cache, size_t bytes)
{
    cache->bytes.asked += (int64_t)bytes;
    cache->bytes.given += (int64_t)bytes;
}

/* Takes the first object of a bin that is not empty. NULL: it has no mark, and the bin stays
 * as it is. The caller takes its slow path, where hak__bin_pop reports it. Owner thread.
 */
HAK_INLINE struct object *bin_pop(const struct cache *cache, struct bin *bin, uint32_t class_index)
{
    struct object *object = bin->head, *next;
    if (HAK_UNLIKELY(!object_pop(object, class_index, cache->mark, &next))) {
        return NULL;
    }
    HAK_PREFETCH(next); /* the next malloc of the class usually returns it */
    bin->head = next;
    bin->room++;
    return object;
}

/* As bin_pop from the bin of the class, but aborts if the bin is corrupt. For slow paths. */
HAK_HIDDEN struct object *hak__bin_pop(struct cache *cache, uint32_t class_index);

/* The ring of objects of `bytes` bytes. */
HAK_INLINE uint32_t quarantine_ring_of(size_t bytes)
{
    uint32_t ring = bits_log2(bytes / OBJECT_ALIGNMENT);
    return ring < QUARANTINE_RINGS ? ring : QUARANTINE_RINGS - 1;
}

/* Secure form: puts an object of `bytes` bytes into quarantine. Returns one whose quarantine ends
 * now; NULL: none. Owner thread.
 * A thread may stop for good between any two of the stores, in a child of fork. Then one object
 * is lost, or lies in two places, which its state tells. No place below the count has an object
 * from before the ring was last empty. */
HAK_INLINE void *cache_quarantine(struct cache *cache, void *object, size_t bytes)
{
    struct quarantine *quarantine = cache->quarantine;
    struct quarantine_ring *ring = &quarantine->rings[quarantine_ring_of(bytes)];
    void **places = cache_far_of(cache)->resting + ring->first;
    uint64_t taken = ring->taken, mask = ring->mask;
    void **next = &places[taken & mask];
    void *oldest = taken > mask ? *next : NULL;
    uint64_t back = secure_random(&quarantine->random) & ring->near;
    void **other = back <= taken ? &places[(taken - back) & mask] : next;
    *next = *other;
    *other = object;
    atomic_store_release(&ring->taken, taken + 1); /* last; ring_count reads it */
    return oldest;
}

/* Checks an object whose quarantine ends. Its first word becomes a link, so nobody looks later.
 */
HAK_INLINE void secure_leave_quarantine(const void *object)
{
    if (HAK_UNLIKELY(atomic_load_relaxed(secure_state_at(object)) != SECURE_QUARANTINED ||
                     *(const uintptr_t *)object != 0)) {
        hak__secure_bad_quarantine(object);
    }
}

/* The key of a cache without an arena. It matches no owner word, so every free takes a slow
 * path. */
#define CACHE_KEY_NONE ((ARENA_ID_MAX + 1) << OWNER_CODE_BITS)

/* The sum of `charged_told` over all caches. All accesses are relaxed. */
HAK_HIDDEN extern struct arch_own_line hak__cache_charged;

/* Lets an empty cache draw from `slabs` from now on. Under ARENAS. */
HAK_HIDDEN void hak__cache_start(struct cache *cache, struct slab_set *slabs);

/* quarantine.c, secure form: begins empty rings for a thread of an arena with so many threads. */
HAK_HIDDEN void hak__quarantine_begin(struct cache *cache, uint32_t threads);
/* Ends the quarantine of all objects, or of those in rings that have taken none since the last
 * trim. Under the arena's lock. */
HAK_HIDDEN void hak__quarantine_end(struct cache *cache, bool everything);
/* Takes an object out, for a thread that is gone or whose arena is held by one. NULL: none is left.
 */
HAK_HIDDEN void *hak__quarantine_take(struct cache *cache);
/* Resting objects of the class. Any thread; exact while the owner thread does not run. */
HAK_HIDDEN uint32_t hak__quarantine_count(const struct cache *cache, uint32_t class_index);
/* The bytes of all. */
HAK_HIDDEN size_t hak__quarantine_bytes(const struct cache *cache);

/* Takes objects for the empty bin of the class from the arena's slabs. Count 0: no memory. Under
 * the arena's lock. */
HAK_HIDDEN struct refill hak__cache_refill(struct cache *cache, uint32_t class_index);
/* Gives the free objects of another arena's list, at least one, the mark of this cache's arena, so
 * that its bins may take them. Aborts if an object does not have that arena's mark. Owner thread,
 * no lock. */
HAK_HIDDEN void hak__cache_take_over(const struct cache *cache, struct object_list list);
/* Returns the first object of `refill`, whose linked objects have the mark of the cache, and puts
 * the others into the empty bin of the class. NULL: the refill has no object. Owner thread, no
 * lock. */
HAK_HIDDEN void *hak__cache_fill(struct cache *cache, uint32_t class_index, struct refill refill);

/* The most objects that the next refill of the class may take. */
HAK_HIDDEN uint32_t hak__cache_refill_most(const struct cache *cache, uint32_t class_index);

/* Makes room in the bin of the class, which exceeds its limit. Objects of other
 * arenas go to the remote buffer. Under the arena's lock. */
HAK_HIDDEN void hak__cache_overflow(struct cache *cache, uint32_t class_index);

/* Empties all bins and sets their limits to 0. Objects of other arenas go to the remote buffer,
 * which is not sent. Under the arena's lock. */
HAK_HIDDEN void hak__cache_flush(struct cache *cache);
/* Lowers the limits that are above bin_bytes, which was lowered. The objects above them go back at
 * the next frees. Owner thread, no lock. */
HAK_HIDDEN void hak__cache_lower_limits(struct cache *cache);
/* As hak__cache_flush, but only for classes without a slow operation since the last trim. Under the
 * arena's lock. */
HAK_HIDDEN void hak__cache_trim(struct cache *cache);
/* Makes bins and remote buffer empty without access to their objects. For fork's child, where the
 * thread of this cache is gone. The caller corrects hak__cache_charged. */
HAK_HIDDEN void hak__cache_abandon(struct cache *cache);

/* The objects in the bin of a class, and the bytes of the objects in all bins and in the remote
 * buffer. Any thread; exact while the owner thread does not run. The last one: owner thread. */
HAK_HIDDEN uint32_t hak__cache_objects(const struct cache *cache, uint32_t class_index);
HAK_HIDDEN size_t hak__cache_bytes(const struct cache *cache);
HAK_HIDDEN size_t hak__remote_bytes(const struct cache *cache);

/* The entry for `slice`, chosen by the low bits of its number. A hash would be worse: the lowest
 * free slices are taken first, so slices in use are mostly neighbours, and neighbours have
 * different entries (docs/decisions/0055). */
HAK_INLINE struct remote_entry *remote_entry_of(struct cache *cache, size_t slice)
{
    return &cache_far_of(cache)->remote[slice & (REMOTE_ENTRIES - 1)];
}

/* The usual remote free: adds the object to the entry of its slice, `slice`. False: nothing was
 * done, because the slice has no entry yet, or this object would fill it. Owner thread, no lock. */
HAK_INLINE bool remote_push(struct cache *cache, size_t slice, void *pointer)
{
    struct remote_entry *entry = remote_entry_of(cache, slice);
    struct object *object = (struct object *)pointer;
    uint32_t room = entry->room;
    if (HAK_UNLIKELY(entry->link != (uint32_t)slice + 1 || room <= 1)) {
        return false;
    }
    object_set_free(object, entry->head, object_mark_of(window_owner(slice)));
    entry->head = object;
    atomic_store_relaxed(&entry->room, (uint8_t)(room - 1));
    return true;
}

/* The owner word of the slabs of this cache's arena and the class. */
HAK_INLINE uint32_t cache_owner_word(const struct cache *cache, uint32_t class_index)
{
    return (uint32_t)cache->key | owner_code_of_class(class_index);
}

HAK_INLINE uint32_t cache_arena_id(const struct cache *cache)
{
    return (uint32_t)cache->key >> OWNER_CODE_BITS;
}

/* True if a bin of this cache for the class may hold `object`, which may be any address. */
HAK_INLINE bool cache_may_hold(const struct cache *cache, uint32_t class_index,
                               const struct object *object)
{
    size_t slice = window_slice_of(object);
    uint32_t owner = window_contains_slice(slice) ? window_owner(slice) : CACHE_KEY_NONE;
    return owner == cache_owner_word(cache, class_index) ||
           (size_class_has_own_lines(class_index) && owner_class(owner) == class_index);
}

/* Puts an object of another arena into this thread's bin, for its next malloc. False: nothing was
 * done, because the class has no own lines, the bin has no room, or the object lies on another
 * memory node. Never in the secure form: in fork's child, slabs from before the fork serve nobody.
 * Owner thread, no lock. */
HAK_HIDDEN bool hak__remote_keep(struct cache *cache, uint32_t class_index, void *pointer);
/* Frees an object of another arena, which lies in `slice`, through the remote buffer. True: a batch
 * was sent. Owner thread; needs no lock. */
HAK_HIDDEN bool hak__remote_free(struct cache *cache, size_t slice, void *pointer);
/* Sends all entries of the remote buffer. Owner thread; needs no lock. */
HAK_HIDDEN void hak__remote_flush(struct cache *cache);

#endif
