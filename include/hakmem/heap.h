/* SPDX-License-Identifier: MIT */
/* heap.h: heaps: objects that belong together, in memory of their own.
 *
 * A heap is for objects that are freed together (a request, a document, a query), for memory with a
 * bound of its own, and for memory that the program supplies: a shared mapping, hugetlbfs, a static
 * array, pages of a device. docs/heaps.md shows examples and says what a heap costs.
 *
 * Guarantees, which docs/heaps.md lists with their tests:
 *   - Any thread may allocate from a heap, and free an object that another thread has allocated.
 *   - hak_heap_destroy gives back everything at once. Its time grows with the memory, not with the
 *     number of objects; but the secure form looks at each object.
 *   - No two heaps share a page. A heap takes no memory from the program's ordinary objects, except
 *     the chunks that the default provider allocates with hak_aligned_alloc.
 *   - A heap never has more memory than its limit. Chunks that it gave back do not count, also
 *     where the provider has no unmap.
 *   - A heap in the program's memory writes nothing outside that memory but its own struct, its
 *     tables and the caches of its threads, which hakmem allocates. It takes no further memory for
 *     objects.
 *
 * Threads: all functions are thread-safe, with two exceptions. hak_heap_destroy and hak_heap_walk
 * need the heap for themselves: every other use of the heap must have happened before, or happen
 * after. None is async-signal-safe. After fork the child has a copy of each heap and may go on with
 * it; free objects in the caches of the parent's other threads stay out of use in the child. A heap
 * in shared memory is one process's heap: the child of a fork must not use it.
 *
 * A thread that holds a lock of the C library (a constructor that dlopen runs, an fopencookie
 * function) must not use a heap while another thread forks: unlike malloc, a heap waits for the
 * end of the fork.
 *
 * Errors: a failed allocation returns NULL with errno ENOMEM, or EINVAL for a bad argument. A free
 * keeps errno. A pointer that is no object of the heap ends the process with a message, unless the
 * heap's event function says otherwise; where no memory is near the pointer, by SIGSEGV. An address
 * inside a small object and a second free may end it at a later call, or never. Lists that a wrong
 * free has damaged end it without the event function. */
#ifndef HAKMEM_HEAP_H
#define HAKMEM_HEAP_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct hak_heap hak_heap;

/* The largest alignment of an object in a heap, bytes. */
#define HAK_HEAP_ALIGNMENT_MAX ((size_t)256 << 10)
/* A page provider is asked for chunks at multiples of this, and usually of this size. */
#define HAK_HEAP_CHUNK_SIZE ((size_t)512 << 10)
/* The least memory that a heap can live in, bytes; and the most. */
#define HAK_HEAP_MEMORY_MIN ((size_t)16 << 10)
#define HAK_HEAP_MEMORY_MAX ((size_t)1 << 43)
/* Bytes of a name; the rest is cut. */
#define HAK_HEAP_NAME_MAX 63

/* A page provider: where a heap gets its chunks. The functions are called without any lock, in the
 * thread whose call needs the chunk or gives it back. So they may allocate, block, and be called by
 * several threads at once. They must not use the heap that calls them. */
struct hak_heap_pages {
    /* Returns `size` bytes at a multiple of `alignment`, or NULL if there are none. Both are
     * multiples of 4 KiB. The contents do not matter. */
    void *(*map)(void *argument, size_t alignment, size_t size);
    /* Takes back what map returned, with the same size. NULL: the memory stays out of use, for the
     * provider to reuse after the heap's destruction. */
    void (*unmap)(void *argument, void *address, size_t size);
    /* Tells that the contents of whole 4 KiB pages of a chunk are not needed, as madvise does. The
     * heap may use the pages again without notice. NULL: nothing is done. */
    void (*purge)(void *argument, void *address, size_t size);
    void *argument;
};

enum hak_heap_event {
    HAK_HEAP_OUT_OF_MEMORY = 1, /* the provider has no chunk, or the program's memory is full */
    HAK_HEAP_OVER_LIMIT = 2,    /* the heap would exceed its limit */
    HAK_HEAP_BAD_POINTER = 3    /* a pointer that is no object of the heap, or was freed before */
};

/* Called for each event, without any lock, in the thread that causes it. `size` is the size of the
 * failed request in bytes, or 0; `pointer` is the bad pointer, or NULL. The function may use the
 * heap, throw away caches, or raise the limit.
 *   OUT_OF_MEMORY, OVER_LIMIT   true: try the allocation again; false: it fails. A function that
 *                               always returns true hangs at a request that no memory can meet.
 *   BAD_POINTER                 true: the call does nothing; false: the process aborts */
typedef bool hak_heap_event_function(hak_heap *heap, enum hak_heap_event event, size_t size,
                                     void *pointer, void *argument);

/* Zero means the default for every field but `size`. */
struct hak_heap_options {
    size_t size;      /* sizeof(struct hak_heap_options) of the program */
    const char *name; /* copied; NULL: "" */
    size_t limit;     /* most bytes of memory that the heap has, its tables included; 0: no limit */
    /* The heap's objects live in these bytes, of any alignment and of HAK_HEAP_MEMORY_MIN bytes or
     * more. Its tables, 1 % of that, lie elsewhere. The memory must stay mapped until
     * hak_heap_destroy, which does not touch it. NULL: it takes chunks from `pages`. */
    void *memory;
    size_t memory_size;
    const struct hak_heap_pages *pages; /* copied; NULL: hak_aligned_alloc and hak_free */
    hak_heap_event_function *event;     /* NULL: allocations fail, bad pointers abort */
    void *event_argument;
};

/* Creates a heap with the options; NULL: with all defaults. A new heap has no chunk yet. Returns
 * NULL with errno EINVAL if an option is wrong (memory too small or with a limit or provider, a
 * provider without map, an unknown size of the struct), or ENOMEM. */
HAK_API hak_heap *
hak_heap_create(const struct hak_heap_options *options) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* Destroys a heap and all its objects. No object of it may be used from then on, and nobody else
 * may use the heap meanwhile. Other threads' caches need no preparation. NULL does nothing. */
HAK_API void hak_heap_destroy(hak_heap *heap) HAK_NOEXCEPT;

/* Allocates at least `size` bytes in the heap, aligned to 16, with undefined contents. Size 0 gives
 * an object of its own. */
HAK_API void *hak_heap_malloc(hak_heap *heap, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_size(2));
/* Allocates `count * size` zeroed bytes in the heap. */
HAK_API void *hak_heap_calloc(hak_heap *heap, size_t count, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_size(2, 3));
/* Allocates `size` bytes in the heap at a multiple of `alignment`, a power of two up to
 * HAK_HEAP_ALIGNMENT_MAX. */
HAK_API void *hak_heap_aligned_alloc(hak_heap *heap, size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_align(2), alloc_size(3));
/* Resizes an object of the heap to at least `size` bytes and keeps the first min(old, new) bytes;
 * it may move. `pointer` NULL: like hak_heap_malloc. Size 0 with a pointer: frees it and returns
 * NULL. On failure the old object stays as it was. */
HAK_API void *hak_heap_realloc(hak_heap *heap, void *pointer, size_t size) HAK_NOEXCEPT
    HAK_ATTR_RESIZE(alloc_size(3));

/* Frees an object of the heap; NULL does nothing. For an object of a heap with the default
 * provider, free, hak_free, hak_realloc and hak_usable_size work, too, but take longer. */
HAK_API void hak_heap_free(hak_heap *heap, void *pointer) HAK_NOEXCEPT;
/* Frees an object of the heap faster: `alignment` (1 if the object came from hak_heap_malloc or
 * calloc) and `size` are those of its allocation. Debug builds and the secure form abort if
 * they are not; release builds trust them. Not for objects that hak_heap_realloc or hak_heap_move
 * returned. */
HAK_API void hak_heap_free_sized(hak_heap *heap, void *pointer, size_t alignment,
                                 size_t size) HAK_NOEXCEPT;

/* Bytes that may be used at `pointer`, an object of the heap. NULL: 0. */
HAK_API size_t hak_heap_usable_size(hak_heap *heap, const void *pointer) HAK_NOEXCEPT;
/* True if `pointer`, any value, points into a chunk of the heap. The time grows with the number of
 * its chunks. */
HAK_API bool hak_heap_owns(hak_heap *heap, const void *pointer) HAK_NOEXCEPT;
/* Returns the name that the heap was given at creation. */
HAK_API const char *hak_heap_name(hak_heap *heap) HAK_NOEXCEPT;

/* Changes the limit, bytes; 0: no limit. A limit below what the heap has stops its growth. Has no
 * effect on a heap in the program's memory. */
HAK_API void hak_heap_limit_set(hak_heap *heap, size_t limit) HAK_NOEXCEPT;

/* Gives the calling thread's cached objects back to the heap, empty chunks to the provider, and
 * tells the provider's purge of other free pages. Other threads' caches stay. Meanwhile a thread
 * that allocates does not find the pages that are being purged. */
HAK_API void hak_heap_trim(hak_heap *heap) HAK_NOEXCEPT;

/* Called for each object with its address and usable bytes. False ends the walk. Must not allocate
 * from the heap or free into it. */
typedef bool hak_heap_visitor(void *object, size_t bytes, void *argument);
/* Visits every live object of the heap, in no particular order. Returns false if the visitor ended
 * the walk. Nobody else may use the heap meanwhile. Empties the caches that threads have for the
 * heap. */
HAK_API bool hak_heap_walk(hak_heap *heap, hak_heap_visitor *visitor, void *argument) HAK_NOEXCEPT;

/* True if memory would become denser by moving this object, for caches and interpreters: its slab
 * is emptier than another slab of the same size with room. Large objects never profit. A hint:
 * other threads may change it. */
HAK_API bool hak_heap_move_helps(hak_heap *heap, const void *pointer) HAK_NOEXCEPT;
/* Moves the object if that helps: copies it into a fuller slab, frees the old one and returns the
 * new address. Otherwise returns `pointer`. Bypasses the thread's cache, which would hand out the
 * holes again. A program calls hak_heap_trim, then this for each object, until nothing moves. Each
 * move goes to a fuller slab, so that ends. */
HAK_API void *hak_heap_move(hak_heap *heap, void *pointer) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* Bytes, unless the name says count. The struct grows at its end only.
 *
 *   bytes_mapped = bytes_in_use + bytes_cached + bytes_free_in_slabs + bytes_free_pages
 *                  + bytes_tables */
struct hak_heap_stats {
    uint32_t version;           /* 1 */
    uint32_t size;              /* bytes that the library has filled */
    size_t bytes_mapped;        /* of all chunks, or of the program's memory, and of tables */
    size_t bytes_in_use;        /* objects handed out and not freed, at their usable size */
    size_t bytes_cached;        /* free objects in the caches of threads */
    size_t bytes_free_in_slabs; /* free objects in slabs, and unused ends */
    size_t bytes_free_pages;    /* pages that any object may get */
    size_t bytes_tables;
    size_t objects_in_use_count;
    size_t chunks_count;
    size_t threads_count;     /* that have a cache for the heap */
    size_t limit;             /* 0: none */
    size_t peak_bytes_mapped; /* since creation */
    size_t failures_count;    /* allocations that returned NULL with ENOMEM */
};
/* Fills at most `size` bytes of `*stats` with the figures of the heap. Exact while nobody uses the
 * heap. */
HAK_API void hak_heap_stats_read(hak_heap *heap, struct hak_heap_stats *stats,
                                 size_t size) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
