/* SPDX-License-Identifier: MIT */
/* window.h: the one address range that holds every slab and span, and the tables that describe it.
 *
 *   <-- groups of superslabs | owner words -->   room | slab metadata -->   superslabs ... -->
 *       39 B a superslab       4 B a slice              64 B a slice       ^base   ^frontier
 *
 * Tables: two tables form a pair. They begin at the same address and grow away from each other, so
 * one mapping holds both. A small process touches only one page of the first pair
 * (docs/decisions/0054). In the second pair the lower part is the room: a fixed piece of memory for
 * the first arenas and threads.
 *
 * Nothing is reserved. Tables and superslabs are claimed (mapped with MAP_FIXED_NOREPLACE) when the
 * frontier reaches them. So the process's address space holds only what is used, and that is all
 * that ulimit -v, overcommit mode 2 and mlockall count (docs/decisions/0001). A superslab whose
 * addresses another mapping has taken is skipped. The gaps after each pair are never claimed: they
 * catch writes beyond a table's end.
 *
 * The owner words are the page map: each slice has one word. A pointer lies in slice (pointer -
 * base) / 32 KiB. One load of that slice's word says which arena owns the slice and which size
 * class it has.
 *
 *   owner word:  | arena id, 24 bits | code, 8 bits |
 *   code         2 x class: a slab of that class. Doubled, it is a bin's offset in units of 8
 *                bytes, which the processor scales in the same instruction.
 *                OWNER_SPAN: first slice of a span (arena id 0)
 *                OWNER_SPAN_TAKEN: the same while it is resized or waits to be freed
 *   0            nobody: a free slice, or a further slice of a span
 *
 * Slabs of arena 0 have the sampled objects; no thread draws from it. So each word below 256 is a
 * sample's, a span's or nobody's, and one comparison tells free so.
 *
 * State: one hak__window. base and the table addresses are written once, at start; shared_limit
 * only grows.
 * Locks: GROWTH for the frontier and the tables; it is held over the system call of a claim, which
 * takes about a microsecond. Owner words and shared_limit are read without a lock.
 */
#ifndef HAK_REGION_WINDOW_H
#define HAK_REGION_WINDOW_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/tags.h"
#include "core/limits.h"

/* Codes that are no class. */
enum owner_code {
    OWNER_NOBODY = 0,
    OWNER_SPAN_TAKEN = 0xFC,
    OWNER_SPAN = 0xFE,
};
#define OWNER_CODE_MASK ((1u << OWNER_CODE_BITS) - 1)
#define OWNER_CLASS_SHIFT 1u /* a code is twice a class */
/* Codes from here on belong to no slab. */
#define OWNER_CODE_END (CLASS_COUNT << OWNER_CLASS_SHIFT)

/* Words from here on are of slabs from which threads draw. */
#define OWNER_DRAWN_FIRST ((ARENA_ID_SAMPLES + 1) << OWNER_CODE_BITS)

HAK_STATIC_ASSERT(OWNER_CODE_END <= OWNER_SPAN_TAKEN, "no code has two meanings");
HAK_STATIC_ASSERT(ARENA_ID_SAMPLES == 0, "no arena that threads draw from has a smaller id");

struct slab; /* slab/slab.h; one for each slice */

struct window {
    uintptr_t base;       /* first byte of superslab 0; WINDOW_NOWHERE before start */
    size_t shared_limit;  /* slices from the base to the end of the highest claim; only grows. 0
                             before start: no pointer is inside */
    uint32_t *owners;     /* [slice] */
    unsigned char *slabs; /* [slice], HAK_CACHE_LINE each */
    uintptr_t mark;       /* of free objects (region/object.h): random, and no address. It is here
                             because free reads this cache line anyway. */
    size_t size;          /* bytes of address space that superslabs may take */
};

HAK_HIDDEN extern struct window hak__window;

/* Chooses the window's addresses and claims the first step of the tables. 0 or -errno; after an
 * error it may be called again. Under START (arena/start.c). */
HAK_HIDDEN int hak__window_start(void);

/* Makes the tables cover slices [0, slice_count), and some more if no limit is near. 0 or -errno.
 * Under GROWTH. */
HAK_HIDDEN int hak__window_grow_tables(size_t slice_count);

/* Unmaps what the lower tables have to spare beyond slices [0, slice_count) and all that were
 * claimed: near a limit it is worth more as slices. False: nothing. Under GROWTH. */
HAK_HIDDEN bool hak__window_give_spare(size_t slice_count);

/* Called when the frontier skips ahead to `slice`. No slab will ever lie in the skipped slices, so
 * their slab metadata is not needed: the part of it that is not claimed yet stays unclaimed. Under
 * GROWTH. */
HAK_HIDDEN void hak__window_skip(size_t slice);

/* Returns the OS pages of large tables to the kernel that describe only slices of this run: slab
 * metadata, and in the secure form states. The caller has taken the slices out of the free map, and
 * they have no owner. Their entries then read as zero, or stay as they are. */
HAK_HIDDEN void hak__window_purge_tables(size_t slice, size_t count);

/* Bytes claimed for the tables, without the room. Any thread, no lock. */
HAK_HIDDEN size_t hak__window_table_bytes(void);

/* The claimed part of a pair's tables. 0: slices, 1: slab metadata with the room, of which parts
 * may be skipped, 2: the tables of the secure form. False: there is no such pair, or it is not
 * claimed yet. Any thread, no lock. */
HAK_HIDDEN bool hak__window_pair(uint32_t pair, uintptr_t *low, uintptr_t *high);

/* The room: zeroed memory for arena/metadata.c, claimed together with the first tables. It starts
 * at an OS page. hak__window_room_bytes returns its size: METADATA_CHUNK_SIZE, or 0 before the
 * window has started, or if it started near a limit. */
HAK_HIDDEN void *hak__window_room(void);
HAK_HIDDEN size_t hak__window_room_bytes(void);

/* The base before start. With it every pointer a program can have is far beyond the limit. That
 * matters for a thread that frees NULL while another thread starts the window: it may see the old
 * base together with the new limit. */
#define WINDOW_NOWHERE ((uintptr_t)1 << 63)

/* The slice of any pointer. Pointers below the base give huge numbers, beyond every limit. The load
 * is plain, for the reason given at window_limit_seen. */
HAK_INLINE size_t window_slice_of(const void *pointer)
{
    uintptr_t base = HAK_TSAN ? atomic_load_relaxed(&hak__window.base) : hak__window.base;
    pointer = HAK_TAGS ? tag_strip(pointer) : pointer;
    return ((uintptr_t)pointer - base) / SLICE_SIZE;
}

/* As window_slice_of, but a pointer that is no multiple of OBJECT_ALIGNMENT also gives a huge
 * number. One instruction more: the rotation carries the low bits, which are 0, to the top. */
HAK_INLINE size_t window_slice_of_object(const void *pointer)
{
    uintptr_t base = HAK_TSAN ? atomic_load_relaxed(&hak__window.base) : hak__window.base;
    uintptr_t distance = (uintptr_t)pointer - base;
    const uint32_t bits = bits_log2(OBJECT_ALIGNMENT);
    uintptr_t rotated = distance >> bits | distance << (sizeof distance * 8 - bits);
    return rotated / (SLICE_SIZE / OBJECT_ALIGNMENT);
}

/* The distance in bytes from the start of a slab or span to its first object or its allocation.
 * `slice` is the first slice of the slab or span. The distance is a multiple of a cache line, less
 * than `colors` lines. It varies from slice to slice, so that slabs and spans do not compete for
 * the same cache sets (docs/decisions/0034). Fibonacci hashing (D. Knuth, The Art of Computer
 * Programming 3, 6.4) gives neighbouring slices very different distances. */
HAK_INLINE uint32_t window_slice_color(size_t slice, uint32_t colors)
{
    uint32_t hash = ((uint32_t)slice * UINT32_C(0x9e3779b1)) >> 16;
    return hash * colors / 65536u * HAK_CACHE_LINE;
}

/* The first byte of the slice. */
HAK_INLINE void *window_slice_address(size_t slice)
{
    return (void *)(hak__window.base + slice * SLICE_SIZE);
}

/* True if the slice is below the limit, and so has an owner word. Any thread, no lock. acquire:
 * pairs with the release in superslab.c when the limit grows */
HAK_INLINE bool window_contains_slice(size_t slice)
{
    return slice < atomic_load_acquire(&hak__window.shared_limit);
}

/* The limit, for the fast path of free. A valid pointer came from an earlier allocation, so any
 * limit that this thread can see covers it. The load is plain: on x86-64 it becomes an operand of
 * the comparison, which saves an instruction. x86-64 and aarch64 never read an aligned word in
 * pieces. The load is atomic under ThreadSanitizer only. */
HAK_INLINE size_t window_limit_seen(void)
{
    return HAK_TSAN ? atomic_load_relaxed(&hak__window.shared_limit) : hak__window.shared_limit;
}

/* The owner word of a slice below the limit. Any thread, no lock. Relaxed: the word changes only
 * while no object of the slice exists, and a program that hands an object to another thread
 * synchronizes the two threads. For an invalid pointer the result may be an old or a new word; both
 * are safe. */
HAK_INLINE uint32_t window_owner(size_t slice)
{
    return atomic_load_relaxed(&hak__window.owners[slice]);
}

/* The code of an owner word for a slab of the class. */
HAK_INLINE uint32_t owner_code_of_class(uint32_t class_index)
{
    return class_index << OWNER_CLASS_SHIFT;
}

/* The class of the slab that an owner word belongs to. 0: nobody's slice; CLASS_COUNT or more: it
 * is no slab's. */
HAK_INLINE uint32_t owner_class(uint32_t word)
{
    return (word & OWNER_CODE_MASK) >> OWNER_CLASS_SHIFT;
}

/* True: a slab's. */
HAK_INLINE bool owner_is_slab(uint32_t word)
{
    return owner_class(word) - 1 < CLASS_COUNT - 1;
}

/* True: a slab's of the arena. */
HAK_INLINE bool owner_is_slab_of(uint32_t word, uint32_t arena_id)
{
    return owner_is_slab(word) && word >> OWNER_CODE_BITS == arena_id;
}

/* Sets the owner word. Only the thread that takes the slice or gives it back calls it. */
HAK_INLINE void window_set_owner(size_t slice, uint32_t owner)
{
    atomic_store_relaxed(&hak__window.owners[slice], owner);
}

/* Sets the owner word and returns the old one. Of several threads that do so, one gets it. */
HAK_INLINE uint32_t window_take_owner(size_t slice, uint32_t owner)
{
    return atomic_exchange_acquire(&hak__window.owners[slice], owner);
}

/* The slice's entry in the slab metadata. The tables must cover the slice. */
HAK_INLINE struct slab *window_slab_metadata(size_t slice)
{
    return (struct slab *)(void *)(hak__window.slabs + slice * HAK_CACHE_LINE);
}

#endif
