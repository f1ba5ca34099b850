/* SPDX-License-Identifier: MIT */
/* heap.h: heaps (hakmem/heap.h). The code calls one a heap, because struct heap is what
 * threads draw ordinary objects from.
 *
 *   hak_heap_malloc -> bin of this thread's cache for the heap -> slabs -> free pages of chunks
 *                      -> provider
 *   hak_heap_free   -> the same bin -> the same way
 *
 * A heap is a small allocator of its own, on top of hakmem's functions: its chunks are ordinary
 * blocks of hak_aligned_alloc. So limits, purging, reports and fork need to know nothing of heaps.
 * A heap in the program's memory has one chunk, and one whose pages the program provides gets its
 * chunks by calls. Everything else is the same code (docs/decisions/0113).
 *
 *   chunk     | pages of 4 KiB ...                                       the program's reach
 *             | slab of class 7   | free | block of 3 pages |
 *   struct    | start, length | kind of each page | map of used pages | runs |     out of it
 *
 * What hakmem knows of a chunk lies in memory of its own, so no write beyond an object reaches it.
 * Chunks of a heap begin at multiples of HEAP_CHUNK_SIZE, except that of the program's memory. A
 * heap finds a chunk by the last bits of its number (struct hak_heap, `near`), or else in the map
 * of all chunks (heap_chunks.c). In chunks longer than HEAP_CHUNK_SIZE, for one huge block, the
 * block begins in the first HEAP_CHUNK_SIZE bytes.
 *
 * Caches: each thread has a struct heap_cache for each heap that it uses, with a bin for each size
 * class. Only the thread touches its bins, so the fast paths need no lock and no atomic operation.
 * A thread finds its cache in an array of slots, by the number of the heap's struct. The slot also
 * holds the id of the heap, which is never used twice, so a slot of a destroyed heap matches none.
 *
 * Structs of heaps, caches and chunks are never freed, only used again: reading one needs no proof
 * that it still exists.
 *
 * Locks: HEAP, one in each heap, guards its chunks, slabs and sums. HEAPS guards the list of a
 * heap's caches, and what waits to be used again. The second is held when the first is taken, never
 * the reverse. Every operation with a lock is inside the gate, so fork finds both free
 * (core/gate.h). No lock is held when a provider or event function is called, or chunks go back.
 *
 * Which accesses pair: all of a heap's data is under its lock, except bins and where chunks are.
 * Bins have one owner thread. Others touch them only in hak_heap_walk, which the program has
 * ordered after all other uses, and when the cache is used again, which HEAPS orders. Statistics
 * read the count of a bin racily. A free reads where its chunk is and the kind of the page without
 * a lock: both were written before the object was handed out, and stay while it is in use. */
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

/* Structs and tables that are longer are mapped for each use, in whole OS pages. */
#define HEAP_SPARE_MAX ((size_t)8192)
/* First in each struct that is used again. */
struct heap_spare {
    struct heap_spare *next; /* under HEAPS, while it waits */
};

/* A slab, or a block: an object of whole pages. */
struct heap_run {
    struct heap_run *next; /* in its class's list, if the slab has room */
    struct heap_run *previous;
    struct heap_chunk *chunk;
    union {
        struct object *free_list; /* of a slab */
        size_t pages;             /* of a block */
    };
    uint16_t used_count; /* the rest: of a slab. Objects handed out, those in bins included */
    uint16_t carved_count;
    uint16_t capacity;   /* objects */
    uint8_t class_index; /* 0: a block */
};
HAK_STATIC_ASSERT(sizeof(struct heap_run) == 40, "a 100th of a page");

/* Kind 0: the page is free, or inside a block. A class: it is part of a slab. */
#define PAGE_BLOCK 255u /* the first page of a block */
struct heap_page {
    uint8_t kind;
    uint8_t back; /* pages from the first one of the slab to here */
};
HAK_STATIC_ASSERT(CLASS_COUNT <= PAGE_BLOCK, "no kind has two meanings");

/* Lists of chunks by their longest free run (heap_chunks.c). */
#define HEAP_RUN_KINDS 29u

struct heap_chunk {
    struct heap_spare spare;
    struct hak_heap *heap;
    uintptr_t shared_start; /* a free may still read these two of a chunk that is gone. Such a chunk
                               lies elsewhere than what is freed */
    size_t shared_pages;    /* that have entries */
    size_t size;            /* bytes of the provider's memory */
    struct heap_chunk *next;
    struct heap_chunk *previous;
    void **place;          /* in the map of all chunks; NULL: it is not there */
    uint64_t *used_map;    /* a bit for each page, and set ones behind the last */
    struct heap_run *runs; /* [page]; untouched where no slab or block begins */
    size_t used_count;     /* pages */
    size_t hint;           /* no page before this one is free */
    uint32_t kind;         /* its list; no free run is longer than its name says */
    struct heap_page pages[];
};
/* A huge block's chunk has no more entries. */
#define HEAP_CHUNK_PAGES (HEAP_CHUNK_SIZE >> HEAP_PAGE_SHIFT)

struct heap_class {
    struct heap_run *first; /* slabs with room */
    size_t slab_bytes;      /* of all slabs, in whole pages */
    size_t out_count;       /* objects handed out, those in bins included */
};

struct heap_cache;

struct hak_heap {
    struct heap_spare spare;
    uint64_t id;        /* of no other heap, ever; HEAP_DEAD: destroyed */
    size_t slot_offset; /* bytes from a thread's first slot to that for this struct; constant */
    struct lock lock;
    uint32_t bin_bytes;  /* the largest limit of a bin */
    uint32_t slab_bytes; /* the least size of a slab */
    bool fixed;          /* it lives in the program's memory */
    bool own_pages;      /* its chunks come from hak_aligned_alloc */
    struct hak_heap_pages pages;
    hak_heap_event_function *event;
    void *event_argument;
    char name[HAK_HEAP_NAME_MAX + 1];

    /* The chunk that was last looked for, by the last bits of its number; hak__heap_no_chunk: none.
     * Of a heap in the program's memory, each is the only chunk. Chunks that a heap finds by their
     * address at once. Twice: 512 bytes more for each heap, and frees in heaps above 32 MiB take 40
     * instructions less. */
    struct heap_chunk *shared_near[64];
    /* Objects freed by threads that could take no lock then; linked by their first word. */
    struct object *shared_late;

    /* Under the lock. */
    struct heap_chunk *chunks[HEAP_RUN_KINDS];
    struct heap_chunk *released; /* go back to the provider after the lock; linked by `next` */
    size_t chunks_count;
    size_t mapped; /* bytes of all chunks and of what describes them, also while they are made */
    size_t mapped_peak;
    size_t limit; /* SIZE_MAX: none */
    size_t free_pages;
    size_t blocks_count;
    size_t blocks_bytes;
    size_t failures_count;
    uint32_t operations; /* for the checks of assertion level 2 */
    struct heap_class classes[CLASS_COUNT];

    struct heap_cache *caches; /* under HEAPS */
};

struct heap_cache {
    struct heap_spare spare;
    uint64_t id; /* of the heap; 0: none */
    struct bin bins[CLASS_COUNT] __attribute__((aligned(sizeof(struct bin))));
    struct hak_heap *heap;
    uintptr_t mark; /* of the objects in the bins; constant */
    uint32_t epoch; /* of hak__thread_epoch when its thread was last known to exist */
    bool inherited; /* by a fork's child, of a heap whose memory it may share with the parent */
    struct heap_cache *next; /* in the heap's list, under HEAPS */
    struct heap_cache *previous;
};

struct heap_slot {
    uint64_t id;
    struct heap_cache *cache;
};
/* Where a thread finds its caches. Only the thread touches it. */
struct heap_slots {
    struct heap_slot *first; /* hak__heap_no_slot: there are none */
    size_t mask;             /* bytes of all slots - those of one */
};

HAK_HIDDEN extern struct heap_slot hak__heap_no_slot; /* its id, 0, matches no heap */
HAK_HIDDEN extern HAK_TLS struct heap_slots hak__heap_slots;
#define HEAP_DEAD UINT64_MAX

/* This thread's slot for the heap; it may have the id of another one. */
HAK_INLINE struct heap_slot *heap_slot(const struct hak_heap *heap)
{
    size_t offset = heap->slot_offset & hak__heap_slots.mask;
    return (struct heap_slot *)(void *)((char *)hak__heap_slots.first + offset);
}

/* Where the heap last looked for a chunk at this address. */
HAK_INLINE struct heap_chunk **heap_near(struct hak_heap *heap, uintptr_t address)
{
    return &heap->shared_near[address / HEAP_CHUNK_SIZE % HAK_COUNT_OF(heap->shared_near)];
}
/* Page 0 of the default provider's chunks stays unused: an object there would have the address of
 * the chunk itself, which free would take for it. */
HAK_INLINE size_t heap_first_page(const struct hak_heap *heap)
{
    return heap->own_pages ? 1 : 0;
}
/* Both loads are plain for speed, as in window_limit_seen. */
HAK_INLINE size_t heap_chunk_pages(const struct heap_chunk *chunk)
{
    return HAK_TSAN ? atomic_load_relaxed(&chunk->shared_pages) : chunk->shared_pages;
}
/* The number of the page in the chunk; heap_chunk_pages or more: the address is elsewhere. */
HAK_INLINE size_t heap_page_index(const struct heap_chunk *chunk, const void *pointer)
{
    uintptr_t start = HAK_TSAN ? atomic_load_relaxed(&chunk->shared_start) : chunk->shared_start;
    return ((uintptr_t)pointer - start) >> HEAP_PAGE_SHIFT;
}
HAK_INLINE bool heap_chunk_has(const struct heap_chunk *chunk, const void *pointer)
{
    return heap_page_index(chunk, pointer) < heap_chunk_pages(chunk);
}
HAK_INLINE size_t heap_run_index(const struct heap_run *run)
{
    return (size_t)(run - run->chunk->runs);
}
/* The run that begins at the page `index`, which was taken. */
HAK_INLINE struct heap_run *heap_run_at(struct heap_chunk *chunk, size_t index)
{
    chunk->runs[index].chunk = chunk;
    return &chunk->runs[index];
}
/* First byte of the run. */
HAK_INLINE char *heap_run_start(const struct heap_run *run)
{
    return (char *)(run->chunk->shared_start + (heap_run_index(run) << HEAP_PAGE_SHIFT));
}
HAK_INLINE size_t heap_pages_for(size_t bytes)
{
    return (bytes + HEAP_PAGE_SIZE - 1) >> HEAP_PAGE_SHIFT;
}
HAK_INLINE size_t heap_run_pages(const struct heap_run *run)
{
    return run->class_index == 0
               ? run->pages
               : heap_pages_for(run->capacity * (size_t)size_class_bytes(run->class_index));
}
/* Bytes of the struct of a chunk with `pages` entries. */
HAK_INLINE size_t heap_chunk_bytes(size_t pages)
{
    return sizeof(struct heap_chunk) + bits_align_up(pages * sizeof(struct heap_page), 8) +
           pages * sizeof(struct heap_run) + bits_align_up(pages, 64) / 8;
}

/* --- heap_chunks.c: chunks, and the pages in them. Under the heap's lock unless said otherwise. */

HAK_HIDDEN extern struct heap_chunk hak__heap_no_chunk;
/* The chunk at any pointer, unless that is one of the program's memory. NULL: none. No lock. */
HAK_HIDDEN struct heap_chunk *hak__heap_chunk_find(const void *pointer);
/* The chunk of the heap with an entry for the page of `pointer`. NULL: none. No lock. */
HAK_HIDDEN struct heap_chunk *hak__heap_chunk_of(struct hak_heap *heap, const void *pointer);
/* Makes a struct for `size` bytes of memory. NULL: no memory. No lock, outside the gate. */
HAK_HIDDEN struct heap_chunk *hak__heap_chunk_make(struct hak_heap *heap, void *memory,
                                                   size_t size);
/* Adds the chunk. Its first `used` pages are in use, the others free. */
HAK_HIDDEN void hak__heap_chunk_add(struct hak_heap *heap, struct heap_chunk *chunk, size_t used);
/* The next one of all chunks of the heap; NULL: the first one. */
HAK_HIDDEN struct heap_chunk *hak__heap_chunk_next(const struct hak_heap *heap,
                                                   const struct heap_chunk *chunk);
/* Takes a chunk out. It goes back after the lock. */
HAK_HIDDEN void hak__heap_chunk_release(struct hak_heap *heap, struct heap_chunk *chunk);
/* Gives chunks, linked by `next`, to their provider. No lock, outside the gate. */
HAK_HIDDEN void hak__heap_chunks_unmap(const struct hak_heap *heap, struct heap_chunk *chunks);
/* Takes `pages` pages whose first one is a multiple of `alignment` pages, a power of two. The
 * caller sets the kinds of the pages. NULL: no free run is long enough. */
HAK_HIDDEN struct heap_run *hak__heap_run_take(struct hak_heap *heap, size_t pages,
                                               size_t alignment);
/* Makes pages free. If their chunk is then empty, and not the program's memory, it is released. */
HAK_HIDDEN void hak__heap_run_give(struct hak_heap *heap, struct heap_run *run, size_t pages);
/* Takes all free pages, as blocks linked by `next`. */
HAK_HIDDEN struct heap_run *hak__heap_runs_detach(struct hak_heap *heap);
/* The first page from `index` on, and before `end`, that is used, or free; `end`: there is none. */
HAK_HIDDEN size_t hak__heap_next_page(const struct heap_chunk *chunk, size_t index, size_t end,
                                      bool used);
/* For assertion level 2: checks every chunk and slab. */
HAK_HIDDEN void hak__heap_check(struct hak_heap *heap);

/* --- heap_slab.c: slabs. All under the heap's lock. --- */

/* Takes up to `most` objects of the class, linked and with `mark`. Count 0: no run for a slab. */
HAK_HIDDEN struct object_list hak__heap_slab_take(struct hak_heap *heap, uint32_t class_index,
                                                  uint32_t most, uintptr_t mark);
/* Takes up to `most` of the first objects of the list, as far as they are of the slab, but at least
 * one, and gives them the mark `to`. Aborts if one is no object of the slab with the mark `from`.
 * The last one is *last, and still linked to the next. Returns how many. */
HAK_HIDDEN uint32_t hak__heap_slab_cut(const struct heap_run *slab, struct object **list,
                                       uint32_t most, uintptr_t from, uintptr_t to,
                                       struct object **last);
/* Returns objects with the mark of the process, of which `last` is the last one, to their slab. */
HAK_HIDDEN void hak__heap_slab_return(struct hak_heap *heap, struct heap_run *slab,
                                      struct object_list list, struct object *last);
/* Gives back what this thread's cache holds, and the slabs that are empty but were kept. */
HAK_HIDDEN void hak__heap_gather(struct hak_heap *heap);
/* A slab of the same class that is fuller than `slab` and has room; NULL: there is none. */
HAK_HIDDEN struct heap_run *hak__heap_slab_fuller(struct hak_heap *heap,
                                                  const struct heap_run *slab);
/* Takes up to `most` objects of a slab with room, at least one, before those of `list`, and gives
 * them `mark`. If the slab has only objects that were never handed out, `list` is empty. */
HAK_HIDDEN void hak__heap_slab_pop(struct hak_heap *heap, struct heap_run *slab, uint32_t most,
                                   struct object_list *list, uintptr_t mark);

/* --- heap.c: the life of a heap, and its operations --- */

/* Guards lists of caches, and what waits to be used again. */
HAK_HIDDEN extern struct lock hak__heaps_lock;
/* Enters the gate. False: this thread is inside already (a signal handler). */
HAK_HIDDEN bool hak__heap_gate(void);
/* Memory for a struct or table of `size` bytes: the last one of `list`, or new and zeroed. NULL: no
 * memory. Both inside the gate, no lock. */
HAK_HIDDEN void *hak__heap_spare_take(struct heap_spare **list, size_t size);
HAK_HIDDEN void hak__heap_spare_give(struct heap_spare **list, void *memory, size_t size);
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

/* An object, free or in use, or one that is still to be carved. */
struct heap_place {
    struct heap_run *run; /* its slab, or the block. NULL: there is none */
    char *object;
    size_t bytes;
};
/* The object that contains `pointer`, any value; and the one that starts there. */
HAK_HIDDEN struct heap_place hak__heap_around(struct hak_heap *heap, const void *pointer);
HAK_HIDDEN struct heap_place hak__heap_locate(struct hak_heap *heap, const void *pointer);
/* Whose object `pointer` is, which may be any value: the heap, if its chunks are of the default
 * provider. NULL: no heap's. No lock. */
HAK_HIDDEN struct hak_heap *hak__heap_of(const void *pointer);

/* --- heap_cache.c --- */

/* This thread's cache for the heap. NULL: it can have none (it has ended, or there is no memory).
 * No lock, outside the gate. */
HAK_HIDDEN struct heap_cache *hak__heap_cache(struct hak_heap *heap);
/* The bin's limit, objects. Sets it at the first call for a class. Owner thread. */
HAK_HIDDEN uint32_t hak__heap_cache_limit(struct heap_cache *cache, uint32_t class_index);
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
/* The same for all caches of the heap whose threads exist. True: there are no others, of threads
 * that existed in fork's parent only. Under HEAPS and the heap's lock. */
HAK_HIDDEN bool hak__heap_cache_flush_all(struct hak_heap *heap);
/* Takes all caches away from a heap that is being destroyed. Under HEAPS. */
HAK_HIDDEN void hak__heap_cache_drop_all(struct hak_heap *heap);
/* Objects of the class in the caches of the heap. Under HEAPS. */
HAK_HIDDEN size_t hak__heap_cache_objects(const struct hak_heap *heap, uint32_t class_index);

#endif
