/* SPDX-License-Identifier: MIT */
/* zone.h: first-class heaps (hakmem/heap.h). The code calls one a zone, because struct heap is what
 * threads draw ordinary objects from.
 *
 *   hak_heap_malloc -> bin of this thread's cache for the zone -> slabs -> free runs of pages
 *                      -> chunks -> provider
 *   hak_heap_free   -> the same bin -> the same way
 *
 * A zone is a small allocator of its own, on top of hakmem's functions: its chunks are ordinary
 * blocks of hak_aligned_alloc. So limits, purging, reports and fork need to know nothing of zones.
 * A zone in the program's memory has one chunk, and one whose pages the program provides gets its
 * chunks by calls. Everything else is the same code (docs/decisions/0091).
 *
 *   chunk:  | header, and 32 bytes for each page | pages of 4 KiB ...                            |
 *                                                 | slab of class 7   | free | block of 3 pages |
 *
 * Chunks of a zone begin at multiples of ZONE_CHUNK_SIZE, except that of the program's memory. An
 * object's chunk is (address & mask) + base in both cases: mask 0 leads to the only chunk. In
 * chunks longer than that, for one huge block, the block begins in the first ZONE_CHUNK_SIZE bytes.
 *
 * Caches: each thread has a struct zone_cache for each zone that it uses, with a bin for each size
 * class. Only the thread touches its bins, so the fast paths need no lock and no atomic operation.
 * A thread finds its cache by the zone's id: in its slots, where the id chooses one, or in a table,
 * which it hashes with linear probing. A new cache gets the slot; the older one moves to the table,
 * so each is in one of the two. Only the thread reads and writes them, so it may replace a table
 * that is full. Ids are never used twice, so what they say of a destroyed zone matches nothing; a
 * new table is made from the list of the thread's caches, which has no such zone. Zones, caches and
 * threads are never freed, only used again: reading one needs no proof that it still exists. Tables
 * are blocks of hak_calloc; those of other threads stay in fork's child, as all their blocks do.
 *
 * Locks: ZONE, one in each zone, guards its chunks, slabs and sums. ZONES guards the list of a
 * zone's caches, that of a thread's caches, and what waits to be used again. The second is held
 * when the first is taken, never the reverse. Every operation with a lock is inside the gate, so
 * fork finds both free (core/gate.h). No lock is held when a provider or event function is called,
 * or chunks go back.
 *
 * Which accesses pair: all of a zone's data is under its lock, except bins. Bins have one owner
 * thread. Others touch them only in hak_heap_walk, which the program has ordered after all other
 * uses, and when the cache is used again, which ZONES orders. Statistics read the count of a bin
 * racily. */
#ifndef HAK_ZONE_ZONE_H
#define HAK_ZONE_ZONE_H

#include "base/bits.h"
#include "cache/cache.h"
#include "core/gate.h"
#include "hakmem/heap.h"

/* Free objects are linked and marked as region/object.h says, in the secure form, too: what that
 * form knows about an object goes by its place in the window, where zones need not lie. Lists of
 * slabs have the mark of the process, and the bins of each cache have one of their own. */
/* What the secure form changes in the mark of an object with this link, below the process's bits.
 * So the mark is wrong if the link was overwritten, and nobody follows it. */
HAK_INLINE uintptr_t zone_link_sum(const struct object *next)
{
    return HAK_SECURE ? (uintptr_t)(bits_mix((uintptr_t)next) >> 16) : 0;
}
HAK_INLINE void zone_object_set_free(struct object *object, struct object *next, uintptr_t mark)
{
    object->next = next;
    object->mark = mark ^ zone_link_sum(next);
}
HAK_INLINE bool zone_object_is_marked(const struct object *object, uintptr_t mark)
{
    return (object->mark ^ zone_link_sum(object->next)) == mark;
}
/* Takes the mark away. False: it had another one, or none. */
HAK_INLINE bool zone_object_set_used(struct object *object, uintptr_t mark)
{
    object->mark = (object->mark ^ zone_link_sum(object->next)) - mark;
    return object->mark == 0;
}

enum zone_page_kind {
    PAGE_INSIDE, /* of a slab or block, but not its first page; or never used */
    PAGE_FREE,   /* first or last page of a free run */
    PAGE_SLAB,   /* first page of a slab */
    PAGE_BLOCK   /* first page of an object of whole pages */
};

/* One for each page of a chunk. Invariants: the first and the last page of a run say what the run
 * is. Further pages are INSIDE or, in free runs and blocks, may still be FREE. A page has a class
 * exactly while it is part of a slab. */
struct zone_page {
    struct zone_page *next;     /* FREE: in the list of runs; SLAB with room: in its class's list */
    struct zone_page *previous; /* the same */
    union {
        struct object *free_list; /* SLAB */
        size_t pages;             /* FREE, BLOCK: length of the run */
    };
    union {
        struct {
            uint16_t used_count;   /* SLAB: objects handed out, those in bins included */
            uint16_t carved_count; /* SLAB */
        };
        uint32_t back; /* INSIDE: pages from the first one to here */
    };
    uint16_t capacity;   /* SLAB: objects */
    uint8_t class_index; /* SLAB, and INSIDE a slab; 0: all others */
    uint8_t kind;
};
HAK_STATIC_ASSERT(sizeof(struct zone_page) == 32, "a 128th of a page");

/* The entries follow the header, but page 0, which holds it, has none: the second half of the
 * header lies there. The top byte of a word is 0, so that what looks like the entry has class 0.
 *
 * A stray write of the program can reach header and entries. So zone_tables.c checks them before
 * they are used, but for the fast path of free, which at worst takes an object for one of another
 * class. */
struct zone_chunk {
    struct hak_heap *zone;
    struct zone_chunk *next;
    struct zone_chunk *previous;
    size_t size;         /* bytes of the provider's memory */
    size_t pages_count;  /* that have entries, the header's included */
    uint64_t size_check; /* these two: the words above, changed by zone_chunk_secret */
    uint64_t pages_check;
    uintptr_t cookie; /* of the address, while it is a chunk of the default provider */
};
HAK_STATIC_ASSERT(sizeof(struct zone_chunk) == 2 * sizeof(struct zone_page),
                  "the entry of page 1 follows");

/* The most objects of a slab: those of 16 bytes in ZONE_SLAB_BYTES. */
#define ZONE_SLAB_OBJECTS (ZONE_SLAB_BYTES / OBJECT_ALIGNMENT)

struct zone_class {
    struct zone_page *first; /* slabs with room */
    size_t slabs_count;
    size_t slab_bytes; /* of all slabs, in whole pages */
    size_t out_count;  /* objects handed out, those in bins included */
};

/* Lists of free runs: one for each length up to 16 pages, then four a doubling (M. Masmano et al.,
 * TLSF, 2004). */
#define ZONE_RUN_LISTS 128u

struct zone_cache;

struct hak_heap {
    uint64_t id;         /* of no other zone, ever; ZONE_DEAD: destroyed */
    size_t slot_offset;  /* bytes from a thread's first slot to its slot for the zone */
    size_t table_offset; /* the same in a table, beyond its size */
    uintptr_t mask;
    uintptr_t base;
    struct lock lock;
    uint32_t bin_bytes;  /* the largest limit of a bin */
    uint32_t slab_bytes; /* the least size of a slab */
    size_t head_pages;   /* pages of each chunk before those of objects; the closed one included */
    size_t tables_size;  /* bytes of header and entries of a chunk, at most */
    bool fixed;          /* it lives in the program's memory */
    bool own_pages;      /* its chunks come from hak_aligned_alloc */
    struct hak_heap_pages pages;
    hak_heap_event_function *event;
    void *event_argument;
    char name[HAK_HEAP_NAME_MAX + 1];

    /* Under the lock. */
    struct zone_chunk *chunks;
    struct zone_chunk *released; /* go back to the provider after the lock; linked by `next` */
    size_t chunks_count;
    size_t mapped; /* bytes of all chunks, and of those that are being mapped */
    size_t mapped_peak;
    size_t limit; /* SIZE_MAX: none */
    size_t free_pages;
    size_t blocks_count;
    size_t blocks_bytes;
    size_t failures_count;
    uint32_t operations;                   /* for the checks of assertion level 2 */
    uint64_t run_map[ZONE_RUN_LISTS / 64]; /* bit i: runs[i] is not empty */
    struct zone_page *runs[ZONE_RUN_LISTS];
    struct zone_class classes[CLASS_COUNT];

    /* Objects freed by threads that could take no lock then; linked by their first word. */
    struct object *shared_late;

    /* Under ZONES. */
    struct zone_cache *caches;
    struct hak_heap *next_free; /* while it waits to be used again */
};

struct zone_cache {
    struct bin bins[CLASS_COUNT] __attribute__((aligned(sizeof(struct bin))));
    struct hak_heap *zone;
    struct zone_thread *thread;
    uintptr_t mark; /* of the objects in the bins; constant */
    uint32_t epoch; /* of hak__thread_epoch when its thread was last known to exist */
    bool inherited; /* by a fork's child, of a zone whose memory it may share with the parent */
    /* Under ZONES. In the zone's list, or `next` of those that wait to be used again. */
    struct zone_cache *next;
    struct zone_cache *previous;
    struct zone_cache *next_in_thread;
    struct zone_cache *previous_in_thread;
};

struct zone_slot {
    uint64_t id;
    struct zone_cache *cache;
};
/* Where a thread finds its caches. Only the thread touches slots and table. */
struct zone_thread {
    struct zone_slot slots[ZONE_SLOTS]; /* of a zone: id % ZONE_SLOTS */
    struct zone_slot *table;            /* of hak__zone_thread_none: none */
    size_t table_mask;                  /* bytes of the table - those of a slot */
    size_t table_room;                  /* entries that it may still get */
    struct zone_cache *caches;          /* under ZONES */
    size_t shared_caches_count;         /* the same; the thread reads it without */
    struct zone_thread *next_free;
};

/* No id of a zone is 0, so the empty slots of a thread without a table match none. */
HAK_HIDDEN extern const struct zone_thread hak__zone_thread_none;
HAK_HIDDEN extern HAK_TLS struct zone_thread *hak__zone_thread;
#define ZONE_DEAD UINT64_MAX

/* The slot that lies `offset` bytes after `first`. */
HAK_INLINE struct zone_slot *zone_slot_at(const struct zone_slot *first, size_t offset)
{
    return (struct zone_slot *)((uintptr_t)first + offset);
}
HAK_INLINE struct zone_slot *zone_slot(const struct hak_heap *zone)
{
    return zone_slot_at(hak__zone_thread->slots, zone->slot_offset);
}
/* Where a table's search for the id begins; the mask makes it an offset. Adjacent ids, and those at
 * equal distances, lie apart (D. E. Knuth, TAOCP 3, 6.4). */
HAK_INLINE size_t zone_table_offset(uint64_t id)
{
    return ((uint32_t)id * 0x9e3779b9u >> 8) * sizeof(struct zone_slot);
}

/* This thread's cache for the zone, if that is in its table. */
HAK_INLINE bool zone_find_in_table(const struct hak_heap *zone, struct zone_cache **cache)
{
    const struct zone_thread *thread = hak__zone_thread;
    size_t offset = zone->table_offset;
    const struct zone_slot *slot = zone_slot_at(thread->table, offset & thread->table_mask);
    while (slot->id != zone->id) {
        if (slot->id == 0) {
            return false;
        }
        offset += sizeof *slot;
        slot = zone_slot_at(thread->table, offset & thread->table_mask);
    }
    *cache = slot->cache;
    return true;
}

/* This thread's cache for the zone. False: neither its slots nor its table have one. */
HAK_INLINE bool zone_find(const struct hak_heap *zone, struct zone_cache **cache)
{
    const struct zone_slot *slot = zone_slot(zone);
    if (HAK_LIKELY(slot->id == zone->id)) {
        *cache = slot->cache;
        return true;
    }
    return zone_find_in_table(zone, cache);
}

/* The chunk in which an object of the zone at `pointer` would lie. */
HAK_INLINE struct zone_chunk *zone_chunk_of(const struct hak_heap *zone, const void *pointer)
{
    return (struct zone_chunk *)(((uintptr_t)pointer & zone->mask) + zone->base);
}

HAK_INLINE struct zone_page *zone_page_at(struct zone_chunk *chunk, size_t index)
{
    return (struct zone_page *)(void *)chunk + 1 + index;
}
HAK_INLINE size_t zone_page_index(const struct zone_chunk *chunk, const struct zone_page *page)
{
    return (size_t)(page - (const struct zone_page *)(const void *)chunk) - 1;
}
/* First byte of a page. */
HAK_INLINE unsigned char *zone_page_start(const struct zone_chunk *chunk,
                                          const struct zone_page *page)
{
    return (unsigned char *)(uintptr_t)chunk + (zone_page_index(chunk, page) << ZONE_PAGE_SHIFT);
}

/* The page of `pointer` in the chunk; NULL: it lies outside of the zone's memory. */
HAK_INLINE struct zone_page *zone_page_of(const struct hak_heap *zone, struct zone_chunk *chunk,
                                          const void *pointer)
{
    size_t index = ((uintptr_t)pointer - (uintptr_t)chunk) >> ZONE_PAGE_SHIFT;
    if (HAK_UNLIKELY(chunk->zone != zone || index >= chunk->pages_count)) {
        return NULL;
    }
    return zone_page_at(chunk, index);
}

/* True: the chunk holds one huge block and nothing else. */
HAK_INLINE bool zone_chunk_is_huge(const struct hak_heap *zone, const struct zone_chunk *chunk)
{
    return !zone->fixed && chunk->size > ZONE_CHUNK_SIZE;
}

HAK_INLINE size_t zone_pages_for(size_t bytes)
{
    return (bytes + ZONE_PAGE_SIZE - 1) >> ZONE_PAGE_SHIFT;
}

/* True: the page before a chunk's first object is closed, so that no linear write reaches the
 * tables. A provider may have memory that cannot be closed. */
HAK_INLINE bool zone_closes_pages(const struct hak_heap *zone)
{
    return HAK_SECURE && zone->own_pages && hak__os_page_size() == ZONE_PAGE_SIZE;
}

/* --- zone_tables.c: what the tables say is checked. All under the zone's lock. --- */

/* Ends the process. `place`: in the tables. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__zone_corrupt(const struct hak_heap *zone,
                                                                     const void *place);
/* Who does not know it cannot change the header's words so that they fit their checks. */
HAK_INLINE uint64_t zone_chunk_secret(const struct zone_chunk *chunk)
{
    return hak__window.mark ^ (uintptr_t)chunk;
}
/* Ends it unless the chunk's header is as it was written; the links may not be. */
HAK_INLINE void zone_check_chunk(const struct hak_heap *zone, const struct zone_chunk *chunk)
{
    uint64_t secret = zone_chunk_secret(chunk);
    if (HAK_UNLIKELY(((chunk->size ^ chunk->size_check ^ secret) |
                      (chunk->pages_count ^ chunk->pages_check ^ secret)) != 0 ||
                     chunk->zone != zone)) {
        hak__zone_corrupt(zone, chunk);
    }
}
/* Ends it unless both neighbours of a page or chunk in its list, of which `list` is the first item,
 * are entries or chunks of the zone with links to it. */
HAK_HIDDEN void hak__zone_check_links(const struct hak_heap *zone, const struct zone_page *list,
                                      const struct zone_page *page);
HAK_HIDDEN void hak__zone_check_chunk_links(const struct hak_heap *zone,
                                            const struct zone_chunk *chunk);
/* The next one of the list, so checked. */
HAK_HIDDEN struct zone_page *hak__zone_next(const struct hak_heap *zone,
                                            const struct zone_page *page);
HAK_HIDDEN struct zone_chunk *hak__zone_chunk_next(const struct hak_heap *zone,
                                                   const struct zone_chunk *chunk);
/* Pages of the run, slab or block that begins at `first`. Ends the process unless they, and what
 * else a slab says, are possible. The chunk's header is right. */
HAK_HIDDEN size_t hak__zone_pages(const struct hak_heap *zone, const struct zone_chunk *chunk,
                                  const struct zone_page *first);
/* The first page of the slab or block that this page is part of, by what it says. */
HAK_INLINE struct zone_page *zone_page_first(const struct hak_heap *zone,
                                             const struct zone_chunk *chunk, struct zone_page *page)
{
    if (page->kind != PAGE_INSIDE || page->class_index == 0) {
        return page;
    }
    if (HAK_UNLIKELY(page->back > zone_page_index(chunk, page))) {
        hak__zone_corrupt(zone, page);
    }
    return page - page->back;
}

/* --- zone_runs.c: free runs of pages, and chunks. All under the zone's lock. --- */

/* Takes `pages` pages whose first one is a multiple of `alignment` pages, a power of two. The
 * caller sets the entries of the first and the last page. NULL: no run fits. */
HAK_HIDDEN struct zone_page *hak__zone_run_take(struct hak_heap *zone, size_t pages,
                                                size_t alignment);
/* Makes a run free. If its chunk is then empty, and not the program's memory, it is released. */
HAK_HIDDEN void hak__zone_run_give(struct hak_heap *zone, struct zone_page *first, size_t pages);
/* Writes the header of a chunk in `size` bytes. No lock. */
HAK_HIDDEN void hak__zone_chunk_init(struct hak_heap *zone, void *memory, size_t size);
/* Adds a chunk; its pages are free, unless it is for one huge block. */
HAK_HIDDEN void hak__zone_chunk_add(struct hak_heap *zone, struct zone_chunk *chunk, bool huge);
/* True: `chunk`, which can be read, was made by hak__zone_chunk_init for the default provider, and
 * was not given back. */
HAK_HIDDEN bool hak__zone_chunk_has_cookie(const struct zone_chunk *chunk);
/* Takes a chunk out, for the provider. */
HAK_HIDDEN void hak__zone_chunk_release(struct hak_heap *zone, struct zone_chunk *chunk);
/* Takes all free runs out of their lists, as blocks linked by `next`; the second function makes
 * them free again. */
HAK_HIDDEN struct zone_page *hak__zone_runs_detach(struct hak_heap *zone);
HAK_HIDDEN void hak__zone_runs_attach(struct hak_heap *zone, struct zone_page *runs);
/* For assertion level 2: checks every chunk, run and slab. */
HAK_HIDDEN void hak__zone_check(struct hak_heap *zone);

/* --- zone_slab.c: slabs. All under the zone's lock. --- */

/* Takes up to `most` objects of the class, linked and with `mark`. Count 0: no run for a slab. */
HAK_HIDDEN struct object_list hak__zone_slab_take(struct hak_heap *zone, uint32_t class_index,
                                                  uint32_t most, uintptr_t mark);
/* Returns objects with the mark of the process, of which `last` is the last one, to their slab. */
HAK_HIDDEN void hak__zone_slab_return(struct hak_heap *zone, struct zone_page *slab,
                                      struct object_list list, struct object *last);
/* Gives back the slabs that are empty but were kept. */
HAK_HIDDEN void hak__zone_slab_gather(struct hak_heap *zone);
/* Takes an object of a slab of the same class that is fuller than `slab`; NULL: there is none.
 * `really` false: only looks; the result is not an object to use. */
HAK_HIDDEN struct object *hak__zone_slab_take_fuller(struct hak_heap *zone, struct zone_page *slab,
                                                     bool really);

/* --- zone.c: the life of a zone, and its operations --- */

/* Ends the process if the zone was destroyed. */
HAK_HIDDEN void hak__zone_check_alive(const struct hak_heap *zone);
/* Begins an operation: enters the gate and takes the zone's lock. False: this thread is inside an
 * operation already (a signal handler), and nothing is done. */
HAK_HIDDEN bool hak__zone_enter(struct hak_heap *zone);
/* Ends it, and gives released chunks to the provider. */
HAK_HIDDEN void hak__zone_leave(struct hak_heap *zone);
/* Tells the zone's event function. True: it wants the call to go on. No lock. */
HAK_HIDDEN HAK_COLD bool hak__zone_event(struct hak_heap *zone, enum hak_heap_event event,
                                         size_t size, const void *pointer);
/* At the pointer no object of the zone starts: as below. */
HAK_HIDDEN HAK_COLD void hak__zone_no_object(struct hak_heap *zone, const void *pointer);
/* Reports the pointer to the event function. Returns if that allows it, else ends the process. */
HAK_HIDDEN HAK_COLD void hak__zone_bad_pointer(struct hak_heap *zone, const void *pointer,
                                               const char *what);

/* --- zone_blocks.c: what the fast paths leave --- */

/* Allocates an object of the class, or, with class 0, `size` bytes of whole pages at a multiple of
 * `alignment`. NULL: no memory, and errno says so. No lock. */
HAK_HIDDEN void *hak__zone_allocate(struct hak_heap *zone, uint32_t class_index, size_t size,
                                    size_t alignment);
/* Returns an object or block of the zone, past the bins. Under the zone's lock. */
HAK_HIDDEN void hak__zone_return(struct hak_heap *zone, void *pointer);
/* Frees any pointer. Keeps errno. No lock. */
HAK_HIDDEN void hak__zone_free(struct hak_heap *zone, void *pointer);

/* Where an object is. page NULL: no object starts at the pointer. */
struct zone_place {
    struct zone_chunk *chunk;
    struct zone_page *page; /* the first one of its slab or block */
    size_t bytes;           /* usable */
};
HAK_HIDDEN struct zone_place hak__zone_locate(const struct hak_heap *zone, const void *pointer);
/* Whose object `pointer` is, which may be any value: the zone, if its chunks are of the default
 * provider. NULL: no zone's. No lock. */
HAK_HIDDEN struct hak_heap *hak__zone_of(const void *pointer);

/* --- zone_cache.c --- */

/* This thread's cache for the zone. NULL: it can have none (it has ended, or there is no memory).
 * No lock. */
HAK_HIDDEN struct zone_cache *hak__zone_cache(struct hak_heap *zone);
/* Puts the objects into the empty bin, and raises its limit. Owner thread, no lock. */
HAK_HIDDEN void hak__zone_cache_fill(struct zone_cache *cache, uint32_t class_index,
                                     struct object_list list);
/* Objects that a refill of the class should bring. Owner thread. */
HAK_HIDDEN uint32_t hak__zone_cache_wants(const struct zone_cache *cache, uint32_t class_index);
/* True: the object is in the bin of the class. For assertion level 2. Owner thread. */
HAK_HIDDEN bool hak__zone_cache_holds(const struct zone_cache *cache, uint32_t class_index,
                                      const void *pointer);
/* Makes room in a bin that exceeds its limit. Owner thread, no lock. */
HAK_HIDDEN void hak__zone_cache_overflow(struct zone_cache *cache, uint32_t class_index);
/* The bin that lies `offset` bytes after the first one. */
HAK_INLINE struct bin *zone_bin_at(struct zone_cache *cache, size_t offset)
{
    return (struct bin *)(void *)((char *)cache->bins + offset);
}
/* Takes the first object of a bin that is not empty. NULL: it has no mark, and the bin stays as it
 * is. Owner thread, no lock. */
HAK_INLINE struct object *zone_bin_pop(const struct zone_cache *cache, struct bin *bin)
{
    struct object *object = bin->head, *next = object->next;
    HAK_PREFETCH(next);
    if (HAK_UNLIKELY(!zone_object_set_used(object, cache->mark))) {
        return NULL;
    }
    bin->head = next;
    bin->room++;
    return object;
}
/* As zone_bin_pop, but aborts if the object has no mark. */
HAK_HIDDEN struct object *hak__zone_bin_pop(const struct zone_cache *cache, struct bin *bin);
/* Frees an object into the bin at `offset`. Owner thread, no lock. */
HAK_INLINE void zone_cache_push(struct zone_cache *cache, size_t offset, void *pointer)
{
    struct bin *bin = zone_bin_at(cache, offset);
    zone_object_set_free((struct object *)pointer, bin->head, cache->mark);
    bin->head = (struct object *)pointer;
    if (HAK_UNLIKELY(--bin->room < 0)) {
        hak__zone_cache_overflow(cache, (uint32_t)(offset / sizeof(struct bin)));
    }
}
/* Returns all objects of a cache. The cache is this thread's, or nobody else can use it. Under the
 * zone's lock. */
HAK_HIDDEN void hak__zone_cache_flush(struct zone_cache *cache);
/* The same for all caches of the zone whose threads exist. Under ZONES and the zone's lock. */
HAK_HIDDEN void hak__zone_cache_flush_all(struct hak_heap *zone);
/* True: the zone has caches of threads that existed in fork's parent only. Under ZONES. */
HAK_HIDDEN bool hak__zone_has_lost_caches(const struct hak_heap *zone);
/* Takes all caches away from a zone that is being destroyed. Under ZONES. */
HAK_HIDDEN void hak__zone_cache_drop_all(struct hak_heap *zone);
/* Objects of the class in the caches of the zone. Under ZONES. */
HAK_HIDDEN size_t hak__zone_cache_objects(const struct hak_heap *zone, uint32_t class_index);
/* Guards lists of caches, and what waits to be used again. */
HAK_HIDDEN extern struct lock hak__zones_lock;

#endif
