/* SPDX-License-Identifier: MIT */
/* heap.h: heaps (hakmem/heap.h). The code calls one a heap, because struct heap is what
 * threads draw ordinary objects from.
 *
 *   hak_heap_malloc -> bin of this thread's cache for the heap -> slabs -> free runs of pages
 *                      -> chunks -> provider
 *   hak_heap_free   -> the same bin -> the same way
 *
 * A heap is a small allocator of its own, on top of hakmem's functions: its chunks are ordinary
 * blocks of hak_aligned_alloc. So limits, purging, reports and fork need to know nothing of heaps.
 * A heap in the program's memory has one chunk, and one whose pages the program provides gets its
 * chunks by calls. Everything else is the same code (docs/decisions/0091).
 *
 *   chunk:  | header, and 32 bytes for each page | pages of 4 KiB ...                            |
 *                                                 | slab of class 7   | free | block of 3 pages |
 *
 * Chunks of a heap begin at multiples of HEAP_CHUNK_SIZE, except that of the program's memory. An
 * object's chunk is (address & mask) + base in both cases: mask 0 leads to the only chunk. In
 * chunks longer than that, for one huge block, the block begins in the first HEAP_CHUNK_SIZE bytes.
 *
 * Caches: each thread has a struct heap_cache for each heap that it uses, with a bin for each size
 * class. Only the thread touches its bins, so the fast paths need no lock and no atomic operation.
 * A thread finds its cache by the heap's id: in its slots, where the id chooses one, or in a table,
 * which it hashes with linear probing. A new cache gets the slot; the older one moves to the table,
 * so each is in one of the two. Only the thread reads and writes them, so it may replace a table
 * that is full. Ids are never used twice, so what they say of a destroyed heap matches nothing; a
 * new table is made from the list of the thread's caches, which has no such heap. Heaps, caches and
 * threads are never freed, only used again: reading one needs no proof that it still exists. Tables
 * are blocks of hak_calloc; those of other threads stay in fork's child, as all their blocks do.
 *
 * Locks: HEAP, one in each heap, guards its chunks, slabs and sums. HEAPS guards the list of a
 * heap's caches, that of a thread's caches, and what waits to be used again. The second is held
 * when the first is taken, never the reverse. Every operation with a lock is inside the gate, so
 * fork finds both free (core/gate.h). No lock is held when a provider or event function is called,
 * or chunks go back.
 *
 * Which accesses pair: all of a heap's data is under its lock, except bins. Bins have one owner
 * thread. Others touch them only in hak_heap_walk, which the program has ordered after all other
 * uses, and when the cache is used again, which HEAPS orders. Statistics read the count of a bin
 * racily. */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "base/bits.h"
#include "cache/cache.h"
#include "core/gate.h"
#include "hakmem/heap.h"

/* Free objects are linked and marked as region/object.h says, in the secure form, too: what that
 * form knows about an object goes by its place in the window, where heaps need not lie. Lists of
 * slabs have the mark of the process, and the bins of each cache have one of their own. */
/* What the secure form changes in the mark of an object with this link, below the process's bits.
 * So the mark is wrong if the link was overwritten, and nobody follows it. */
HAK_INLINE uintptr_t heap_link_sum(const struct object *next)
{
    return HAK_SECURE ? (uintptr_t)(bits_mix((uintptr_t)next) >> 16) : 0;
}
HAK_INLINE void heap_object_set_free(struct object *object, struct object *next, uintptr_t mark)
{
    object->next = next;
    object->mark = mark ^ heap_link_sum(next);
}
HAK_INLINE bool heap_object_is_marked(const struct object *object, uintptr_t mark)
{
    return (object->mark ^ heap_link_sum(object->next)) == mark;
}
/* Takes the mark away. False: it had another one, or none. */
HAK_INLINE bool heap_object_set_used(struct object *object, uintptr_t mark)
{
    object->mark = (object->mark ^ heap_link_sum(object->next)) - mark;
    return object->mark == 0;
}

enum heap_page_kind {
    PAGE_INSIDE, /* of a slab or block, but not its first page; or never used */
    PAGE_FREE,   /* first or last page of a free run */
    PAGE_SLAB,   /* first page of a slab */
    PAGE_BLOCK   /* first page of an object of whole pages */
};

/* One for each page of a chunk. Invariants: the first and the last page of a run say what the run
 * is. Further pages are INSIDE or, in free runs and blocks, may still be FREE. A page has a class
 * exactly while it is part of a slab. */
struct heap_page {
    struct heap_page *next;     /* FREE: in the list of runs; SLAB with room: in its class's list */
    struct heap_page *previous; /* the same */
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
HAK_STATIC_ASSERT(sizeof(struct heap_page) == 32, "a 128th of a page");

/* The entries follow the header, but page 0, which holds it, has none: the second half of the
 * header lies there. The top byte of a word is 0, so that what looks like the entry has class 0.
 *
 * A stray write of the program can reach header and entries. So heap_tables.c checks them before
 * they are used, but for the fast path of free, which at worst takes an object for one of another
 * class. */
struct heap_chunk {
    struct hak_heap *heap;
    struct heap_chunk *next;
    struct heap_chunk *previous;
    size_t size;         /* bytes of the provider's memory */
    size_t pages_count;  /* that have entries, the header's included */
    uint64_t size_check; /* these two: the words above, changed by heap_chunk_secret */
    uint64_t pages_check;
    uintptr_t cookie; /* of the address, while it is a chunk of the default provider */
};
HAK_STATIC_ASSERT(sizeof(struct heap_chunk) == 2 * sizeof(struct heap_page),
                  "the entry of page 1 follows");

/* The most objects of a slab: those of 16 bytes in HEAP_SLAB_BYTES. */
#define HEAP_SLAB_OBJECTS (HEAP_SLAB_BYTES / OBJECT_ALIGNMENT)

struct heap_class {
    struct heap_page *first; /* slabs with room */
    size_t slabs_count;
    size_t slab_bytes; /* of all slabs, in whole pages */
    size_t out_count;  /* objects handed out, those in bins included */
};

/* Lists of free runs: one for each length up to 16 pages, then four a doubling (M. Masmano et al.,
 * TLSF, 2004). */
#define HEAP_RUN_LISTS 128u

struct heap_cache;

struct hak_heap {
    uint64_t id;         /* of no other heap, ever; HEAP_DEAD: destroyed */
    size_t slot_offset;  /* bytes from a thread's first slot to its slot for the heap */
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
    struct heap_chunk *chunks;
    struct heap_chunk *released; /* go back to the provider after the lock; linked by `next` */
    size_t chunks_count;
    size_t mapped; /* bytes of all chunks, and of those that are being mapped */
    size_t mapped_peak;
    size_t limit; /* SIZE_MAX: none */
    size_t free_pages;
    size_t blocks_count;
    size_t blocks_bytes;
    size_t failures_count;
    uint32_t operations;                   /* for the checks of assertion level 2 */
    uint64_t run_map[HEAP_RUN_LISTS / 64]; /* bit i: runs[i] is not empty */
    struct heap_page *runs[HEAP_RUN_LISTS];
    struct heap_class classes[CLASS_COUNT];

    /* Objects freed by threads that could take no lock then; linked by their first word. */
    struct object *shared_late;

    /* Under HEAPS. */
    struct heap_cache *caches;
    struct hak_heap *next_free; /* while it waits to be used again */
};

struct heap_cache {
    struct bin bins[CLASS_COUNT] __attribute__((aligned(sizeof(struct bin))));
    struct hak_heap *heap;
    struct heap_thread *thread;
    uintptr_t mark; /* of the objects in the bins; constant */
    uint32_t epoch; /* of hak__thread_epoch when its thread was last known to exist */
    bool inherited; /* by a fork's child, of a heap whose memory it may share with the parent */
    /* Under HEAPS. In the heap's list, or `next` of those that wait to be used again. */
    struct heap_cache *next;
    struct heap_cache *previous;
    struct heap_cache *next_in_thread;
    struct heap_cache *previous_in_thread;
};

struct heap_slot {
    uint64_t id;
    struct heap_cache *cache;
};
/* Where a thread finds its caches. Only the thread touches slots and table. */
struct heap_thread {
    struct heap_slot slots[HEAP_SLOTS]; /* of a heap: id % HEAP_SLOTS */
    struct heap_slot *table;            /* of hak__heap_thread_none: none */
    size_t table_mask;                  /* bytes of the table - those of a slot */
    size_t table_room;                  /* entries that it may still get */
    struct heap_cache *caches;          /* under HEAPS */
    size_t shared_caches_count;         /* the same; the thread reads it without */
    struct heap_thread *next_free;
};

/* No id of a heap is 0, so the empty slots of a thread without a table match none. */
HAK_HIDDEN extern const struct heap_thread hak__heap_thread_none;
HAK_HIDDEN extern HAK_TLS struct heap_thread *hak__heap_thread;
#define HEAP_DEAD UINT64_MAX

/* The slot that lies `offset` bytes after `first`. */
HAK_INLINE struct heap_slot *heap_slot_at(const struct heap_slot *first, size_t offset)
{
    return (struct heap_slot *)((uintptr_t)first + offset);
}
HAK_INLINE struct heap_slot *heap_slot(const struct hak_heap *heap)
{
    return heap_slot_at(hak__heap_thread->slots, heap->slot_offset);
}
/* Where a table's search for the id begins; the mask makes it an offset. Adjacent ids, and those at
 * equal distances, lie apart (D. E. Knuth, TAOCP 3, 6.4). */
HAK_INLINE size_t heap_table_offset(uint64_t id)
{
    return ((uint32_t)id * 0x9e3779b9u >> 8) * sizeof(struct heap_slot);
}

/* This thread's cache for the heap, if that is in its table. */
HAK_INLINE bool heap_find_in_table(const struct hak_heap *heap, struct heap_cache **cache)
{
    const struct heap_thread *thread = hak__heap_thread;
    size_t offset = heap->table_offset;
    const struct heap_slot *slot = heap_slot_at(thread->table, offset & thread->table_mask);
    while (slot->id != heap->id) {
        if (slot->id == 0) {
            return false;
        }
        offset += sizeof *slot;
        slot = heap_slot_at(thread->table, offset & thread->table_mask);
    }
    *cache = slot->cache;
    return true;
}

/* This thread's cache for the heap. False: neither its slots nor its table have one. */
HAK_INLINE bool heap_find(const struct hak_heap *heap, struct heap_cache **cache)
{
    const struct heap_slot *slot = heap_slot(heap);
    if (HAK_LIKELY(slot->id == heap->id)) {
        *cache = slot->cache;
        return true;
    }
    return heap_find_in_table(heap, cache);
}

/* The chunk in which an object of the heap at `pointer` would lie. */
HAK_INLINE struct heap_chunk *heap_chunk_of(const struct hak_heap *heap, const void *pointer)
{
    return (struct heap_chunk *)(((uintptr_t)pointer & heap->mask) + heap->base);
}

HAK_INLINE struct heap_page *heap_page_at(struct heap_chunk *chunk, size_t index)
{
    return (struct heap_page *)(void *)chunk + 1 + index;
}
HAK_INLINE size_t heap_page_index(const struct heap_chunk *chunk, const struct heap_page *page)
{
    return (size_t)(page - (const struct heap_page *)(const void *)chunk) - 1;
}
/* First byte of a page. */
HAK_INLINE unsigned char *heap_page_start(const struct heap_chunk *chunk,
                                          const struct heap_page *page)
{
    return (unsigned char *)(uintptr_t)chunk + (heap_page_index(chunk, page) << HEAP_PAGE_SHIFT);
}

/* The page of `pointer` in the chunk; NULL: it lies outside of the heap's memory. */
HAK_INLINE struct heap_page *heap_page_of(const struct hak_heap *heap, struct heap_chunk *chunk,
                                          const void *pointer)
{
    size_t index = ((uintptr_t)pointer - (uintptr_t)chunk) >> HEAP_PAGE_SHIFT;
    if (HAK_UNLIKELY(chunk->heap != heap || index >= chunk->pages_count)) {
        return NULL;
    }
    return heap_page_at(chunk, index);
}

/* True: the chunk holds one huge block and nothing else. */
HAK_INLINE bool heap_chunk_is_huge(const struct hak_heap *heap, const struct heap_chunk *chunk)
{
    return !heap->fixed && chunk->size > HEAP_CHUNK_SIZE;
}

HAK_INLINE size_t heap_pages_for(size_t bytes)
{
    return (bytes + HEAP_PAGE_SIZE - 1) >> HEAP_PAGE_SHIFT;
}

/* True: the page before a chunk's first object is closed, so that no linear write reaches the
 * tables. A provider may have memory that cannot be closed. */
HAK_INLINE bool heap_closes_pages(const struct hak_heap *heap)
{
    return HAK_SECURE && heap->own_pages && hak__os_page_size() == HEAP_PAGE_SIZE;
}

/* --- heap_tables.c: what the tables say is checked. All under the heap's lock. --- */

/* Ends the process. `place`: in the tables. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__heap_corrupt(const struct hak_heap *heap,
                                                                     const void *place);
/* Who does not know it cannot change the header's words so that they fit their checks. */
HAK_INLINE uint64_t heap_chunk_secret(const struct heap_chunk *chunk)
{
    return hak__window.mark ^ (uintptr_t)chunk;
}
/* Ends it unless the chunk's header is as it was written; the links may not be. */
HAK_INLINE void heap_check_chunk(const struct hak_heap *heap, const struct heap_chunk *chunk)
{
    uint64_t secret = heap_chunk_secret(chunk);
    if (HAK_UNLIKELY(((chunk->size ^ chunk->size_check ^ secret) |
                      (chunk->pages_count ^ chunk->pages_check ^ secret)) != 0 ||
                     chunk->heap != heap)) {
        hak__heap_corrupt(heap, chunk);
    }
}
/* Ends it unless both neighbours of a page or chunk in its list, of which `list` is the first item,
 * are entries or chunks of the heap with links to it. */
HAK_HIDDEN void hak__heap_check_links(const struct hak_heap *heap, const struct heap_page *list,
                                      const struct heap_page *page);
HAK_HIDDEN void hak__heap_check_chunk_links(const struct hak_heap *heap,
                                            const struct heap_chunk *chunk);
/* The next one of the list, so checked. */
HAK_HIDDEN struct heap_page *hak__heap_next(const struct hak_heap *heap,
                                            const struct heap_page *page);
HAK_HIDDEN struct heap_chunk *hak__heap_chunk_next(const struct hak_heap *heap,
                                                   const struct heap_chunk *chunk);
/* Pages of the run, slab or block that begins at `first`. Ends the process unless they, and what
 * else a slab says, are possible. The chunk's header is right. */
HAK_HIDDEN size_t hak__heap_pages(const struct hak_heap *heap, const struct heap_chunk *chunk,
                                  const struct heap_page *first);
/* The first page of the slab or block that this page is part of, by what it says. */
HAK_INLINE struct heap_page *heap_page_first(const struct hak_heap *heap,
                                             const struct heap_chunk *chunk, struct heap_page *page)
{
    if (page->kind != PAGE_INSIDE || page->class_index == 0) {
        return page;
    }
    if (HAK_UNLIKELY(page->back > heap_page_index(chunk, page))) {
        hak__heap_corrupt(heap, page);
    }
    return page - page->back;
}

/* --- heap_runs.c: free runs of pages, and chunks. All under the heap's lock. --- */

/* Takes `pages` pages whose first one is a multiple of `alignment` pages, a power of two. The
 * caller sets the entries of the first and the last page. NULL: no run fits. */
HAK_HIDDEN struct heap_page *hak__heap_run_take(struct hak_heap *heap, size_t pages,
                                                size_t alignment);
/* Makes a run free. If its chunk is then empty, and not the program's memory, it is released. */
HAK_HIDDEN void hak__heap_run_give(struct hak_heap *heap, struct heap_page *first, size_t pages);
/* Writes the header of a chunk in `size` bytes. No lock. */
HAK_HIDDEN void hak__heap_chunk_init(struct hak_heap *heap, void *memory, size_t size);
/* Adds a chunk; its pages are free, unless it is for one huge block. */
HAK_HIDDEN void hak__heap_chunk_add(struct hak_heap *heap, struct heap_chunk *chunk, bool huge);
/* True: `chunk`, which can be read, was made by hak__heap_chunk_init for the default provider, and
 * was not given back. */
HAK_HIDDEN bool hak__heap_chunk_has_cookie(const struct heap_chunk *chunk);
/* Takes a chunk out, for the provider. */
HAK_HIDDEN void hak__heap_chunk_release(struct hak_heap *heap, struct heap_chunk *chunk);
/* Takes all free runs out of their lists, as blocks linked by `next`; the second function makes
 * them free again. */
HAK_HIDDEN struct heap_page *hak__heap_runs_detach(struct hak_heap *heap);
HAK_HIDDEN void hak__heap_runs_attach(struct hak_heap *heap, struct heap_page *runs);
/* For assertion level 2: checks every chunk, run and slab. */
HAK_HIDDEN void hak__heap_check(struct hak_heap *heap);

/* --- heap_slab.c: slabs. All under the heap's lock. --- */

/* Takes up to `most` objects of the class, linked and with `mark`. Count 0: no run for a slab. */
HAK_HIDDEN struct object_list hak__heap_slab_take(struct hak_heap *heap, uint32_t class_index,
                                                  uint32_t most, uintptr_t mark);
/* Returns objects with the mark of the process, of which `last` is the last one, to their slab. */
HAK_HIDDEN void hak__heap_slab_return(struct hak_heap *heap, struct heap_page *slab,
                                      struct object_list list, struct object *last);
/* Gives back the slabs that are empty but were kept. */
HAK_HIDDEN void hak__heap_slab_gather(struct hak_heap *heap);
/* Takes an object of a slab of the same class that is fuller than `slab`; NULL: there is none.
 * `really` false: only looks; the result is not an object to use. */
HAK_HIDDEN struct object *hak__heap_slab_take_fuller(struct hak_heap *heap, struct heap_page *slab,
                                                     bool really);

/* --- heap.c: the life of a heap, and its operations --- */

/* Ends the process if the heap was destroyed. */
HAK_HIDDEN void hak__heap_check_alive(const struct hak_heap *heap);
/* Begins an operation: enters the gate and takes the heap's lock. False: this thread is inside an
 * operation already (a signal handler), and nothing is done. */
HAK_HIDDEN bool hak__heap_enter(struct hak_heap *heap);
/* Ends it, and gives released chunks to the provider. */
HAK_HIDDEN void hak__heap_leave(struct hak_heap *heap);
/* Tells the heap's event function. True: it wants the call to go on. No lock. */
HAK_HIDDEN HAK_COLD bool hak__heap_event(struct hak_heap *heap, enum hak_heap_event event,
                                         size_t size, const void *pointer);
/* At the pointer no object of the heap starts: as below. */
HAK_HIDDEN HAK_COLD void hak__heap_no_object(struct hak_heap *heap, const void *pointer);
/* Reports the pointer to the event function. Returns if that allows it, else ends the process. */
HAK_HIDDEN HAK_COLD void hak__heap_bad_pointer(struct hak_heap *heap, const void *pointer,
                                               const char *what);

/* --- heap_blocks.c: what the fast paths leave --- */

/* Allocates an object of the class, or, with class 0, `size` bytes of whole pages at a multiple of
 * `alignment`. NULL: no memory, and errno says so. No lock. */
HAK_HIDDEN void *hak__heap_allocate(struct hak_heap *heap, uint32_t class_index, size_t size,
                                    size_t alignment);
/* Returns an object or block of the heap, past the bins. Under the heap's lock. */
HAK_HIDDEN void hak__heap_return(struct hak_heap *heap, void *pointer);
/* Frees any pointer. Keeps errno. No lock. */
HAK_HIDDEN void hak__heap_free(struct hak_heap *heap, void *pointer);

/* Where an object is. page NULL: no object starts at the pointer. */
struct heap_place {
    struct heap_chunk *chunk;
    struct heap_page *page; /* the first one of its slab or block */
    size_t bytes;           /* usable */
};
HAK_HIDDEN struct heap_place hak__heap_locate(const struct hak_heap *heap, const void *pointer);
/* Whose object `pointer` is, which may be any value: the heap, if its chunks are of the default
 * provider. NULL: no heap's. No lock. */
HAK_HIDDEN struct hak_heap *hak__heap_of(const void *pointer);

/* --- heap_cache.c --- */

/* This thread's cache for the heap. NULL: it can have none (it has ended, or there is no memory).
 * No lock. */
HAK_HIDDEN struct heap_cache *hak__heap_cache(struct hak_heap *heap);
/* Puts the objects into the empty bin, and raises its limit. Owner thread, no lock. */
HAK_HIDDEN void hak__heap_cache_fill(struct heap_cache *cache, uint32_t class_index,
                                     struct object_list list);
/* Objects that a refill of the class should bring. Owner thread. */
HAK_HIDDEN uint32_t hak__heap_cache_wants(const struct heap_cache *cache, uint32_t class_index);
/* True: the object is in the bin of the class. For assertion level 2. Owner thread. */
HAK_HIDDEN bool hak__heap_cache_holds(const struct heap_cache *cache, uint32_t class_index,
                                      const void *pointer);
/* Makes room in a bin that exceeds its limit. Owner thread, no lock. */
HAK_HIDDEN void hak__heap_cache_overflow(struct heap_cache *cache, uint32_t class_index);
/* The bin that lies `offset` bytes after the first one. */
HAK_INLINE struct bin *heap_bin_at(struct heap_cache *cache, size_t offset)
{
    return (struct bin *)(void *)((char *)cache->bins + offset);
}
/* Takes the first object of a bin that is not empty. NULL: it has no mark, and the bin stays as it
 * is. Owner thread, no lock. */
HAK_INLINE struct object *heap_bin_pop(const struct heap_cache *cache, struct bin *bin)
{
    struct object *object = bin->head, *next = object->next;
    HAK_PREFETCH(next);
    if (HAK_UNLIKELY(!heap_object_set_used(object, cache->mark))) {
        return NULL;
    }
    bin->head = next;
    bin->room++;
    return object;
}
/* As heap_bin_pop, but aborts if the object has no mark. */
HAK_HIDDEN struct object *hak__heap_bin_pop(const struct heap_cache *cache, struct bin *bin);
/* Frees an object into the bin at `offset`. Owner thread, no lock. */
HAK_INLINE void heap_cache_push(struct heap_cache *cache, size_t offset, void *pointer)
{
    struct bin *bin = heap_bin_at(cache, offset);
    heap_object_set_free((struct object *)pointer, bin->head, cache->mark);
    bin->head = (struct object *)pointer;
    if (HAK_UNLIKELY(--bin->room < 0)) {
        hak__heap_cache_overflow(cache, (uint32_t)(offset / sizeof(struct bin)));
    }
}
/* Returns all objects of a cache. The cache is this thread's, or nobody else can use it. Under the
 * heap's lock. */
HAK_HIDDEN void hak__heap_cache_flush(struct heap_cache *cache);
/* The same for all caches of the heap whose threads exist. Under HEAPS and the heap's lock. */
HAK_HIDDEN void hak__heap_cache_flush_all(struct hak_heap *heap);
/* True: the heap has caches of threads that existed in fork's parent only. Under HEAPS. */
HAK_HIDDEN bool hak__heap_has_lost_caches(const struct hak_heap *heap);
/* Takes all caches away from a heap that is being destroyed. Under HEAPS. */
HAK_HIDDEN void hak__heap_cache_drop_all(struct hak_heap *heap);
/* Objects of the class in the caches of the heap. Under HEAPS. */
HAK_HIDDEN size_t hak__heap_cache_objects(const struct hak_heap *heap, uint32_t class_index);
/* Guards lists of caches, and what waits to be used again. */
HAK_HIDDEN extern struct lock hak__heaps_lock;

#endif
