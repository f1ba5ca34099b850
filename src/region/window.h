/* window.h: the one address range that holds every slab and span, and the flat tables that describe
 * it.
 *
 *   <-- groups of superslabs | owner words -->   room | slab metadata -->   superslabs ... -->
 *       39 B a superslab       4 B a slice              64 B a slice       ^base   ^frontier
 *
 * Two tables begin where they meet and grow away from each other, so that a small process has one
 * mapping and one page for both; the room, for what lies above this layer, is the second's other
 * side (docs/decisions/0054).
 *
 * Nothing is reserved: tables and superslabs are claimed with MAP_FIXED_NOREPLACE as the frontier
 * advances, so the process's address space holds what is used and limits (ulimit -v, overcommit
 * mode 2, mlockall) see no more than that (docs/decisions/0001). The unclaimed gaps between the
 * pairs and before the user's memory are guards. A superslab whose addresses somebody else has
 * taken is skipped.
 *
 * The slab registry is the owner table: owner word of slice (pointer - base) / 32 KiB. One load
 * answers whose and which class.
 *
 *   owner word:  | heap id, 24 bits | code, 8 bits |
 *   code         1..CLASS_COUNT-1: a slab of that class
 *                OWNER_SPAN: first slice of a span (heap id 0)
 *   0            nobody: free, or inside a span
 *
 * State: one hak__window. base and the table addresses are written once at start; `limit` only
 * grows.
 * Locks: REGION for the maps, GROWTH (held over the claim's system call, a microsecond) for the
 * frontier.
 */
#ifndef HAK_REGION_WINDOW_H
#define HAK_REGION_WINDOW_H

#include "base/atomics.h"
#include "core/limits.h"

#define OWNER_NOBODY 0u
#define OWNER_SPAN 0xFEu
#define OWNER_CODE_MASK ((1u << OWNER_CODE_BITS) - 1)

struct slab; /* slab/slab.h; SLAB_METADATA_SIZE bytes, one per slice */
#define SLAB_METADATA_SIZE 64u

struct window {
    uintptr_t base;       /* first byte of superslab 0; WINDOW_NOWHERE before start */
    size_t shared_limit;  /* slices whose tables exist; grows only. 0 before start: no pointer is
                             inside */
    uint32_t *owners;     /* [slice] */
    unsigned char *slabs; /* [slice], SLAB_METADATA_SIZE each */
    size_t size;          /* bytes of address space the window may take */
};

HAK_HIDDEN extern struct window hak__window;

/* Chooses the addresses and claims the first tables. 0 or -errno; may be called again after a
 * failure. Called once at a time (heap/start.c's lock). */
HAK_HIDDEN int hak__window_start(void);

/* Makes the tables cover slices [0, slice_count). 0 or -errno. Under the GROWTH lock. */
HAK_HIDDEN int hak__window_grow_tables(size_t slice_count);

/* No slab will ever lie in slices that the tables do not cover yet and that are below `slice`:
 * their metadata is not claimed. Under the GROWTH lock. */
HAK_HIDDEN void hak__window_skip(size_t slice);

/* Bytes claimed for the tables. */
HAK_HIDDEN size_t hak__window_table_bytes(void);

/* METADATA_CHUNK_SIZE zeroed bytes at an OS page that came with the tables, for whoever asks first;
 * how many there are, 0 before the tables. */
HAK_HIDDEN void *hak__window_room(void);
HAK_HIDDEN size_t hak__window_room_bytes(void);

/* No pointer is inside a window there. Who frees NULL while another thread starts may see it beside
 * the limit of a window that has started. */
#define WINDOW_NOWHERE ((uintptr_t)1 << 63)

/* Plain but for ThreadSanitizer, as window_limit_seen. Pointers below base become huge numbers. */
HAK_INLINE size_t window_slice_of(const void *pointer)
{
    uintptr_t base = HAK_TSAN ? atomic_load_relaxed(&hak__window.base) : hak__window.base;
    return ((uintptr_t)pointer - base) >> SLICE_SHIFT;
}

/* Bytes: another number of lines, below `colors`, for each slice, so that what starts at slices
 * does not start at one set of the cache. Fibonacci hashing (D. Knuth, The Art of Computer
 * Programming 3, 6.4): neighbours are far apart. */
HAK_INLINE uint32_t window_slice_color(size_t slice, uint32_t colors)
{
    uint32_t hash = ((uint32_t)slice * UINT32_C(0x9e3779b1)) >> 16;
    return hash * colors / 65536u * HAK_CACHE_LINE;
}

HAK_INLINE void *window_slice_address(size_t slice)
{
    return (void *)(hak__window.base + (slice << SLICE_SHIFT));
}

/* acquire: pairs with the release in superslab.c when the limit grows */
HAK_INLINE bool window_contains_slice(size_t slice)
{
    return slice < atomic_load_acquire(&hak__window.shared_limit);
}

/* The fast path's look at the limit. A pointer it is given came from an allocation that happened
 * before, so any value it can see covers it. Plain, so that it becomes an operand of the comparison
 * (one instruction less); an aligned word is read whole on both processors. ThreadSanitizer is
 * told. */
HAK_INLINE size_t window_limit_seen(void)
{
    return HAK_TSAN ? atomic_load_relaxed(&hak__window.shared_limit) : hak__window.shared_limit;
}

/* Relaxed: an owner word changes only while no object of its slice exists, and handing an object to
 * another thread orders the two. A stray pointer may read any value, each of which is safe. */
HAK_INLINE uint32_t window_owner(size_t slice)
{
    return atomic_load_relaxed(&hak__window.owners[slice]);
}

HAK_INLINE void window_set_owner(size_t slice, uint32_t owner)
{
    atomic_store_relaxed(&hak__window.owners[slice], owner);
}

HAK_INLINE struct slab *window_slab_metadata(size_t slice)
{
    return (struct slab *)(void *)(hak__window.slabs + slice * SLAB_METADATA_SIZE);
}

#endif
