/* limits.h: every constant of the layout and every bound, each with its reason.
 *
 * Assertion level 2 shrinks what can be shrunk, so that refills, flushes, claims, purges and
 * evictions, rare in normal life, happen all the time under test. */
#ifndef HAK_CORE_LIMITS_H
#define HAK_CORE_LIMITS_H

#include "base/arch.h"
#include "base/compiler.h"

#define HAK_TINY_LIMITS (HAK_LEVEL >= 2)

/* Slice: unit of ownership, and the smallest slab. 32 KiB: every class a heap uses holds half a
 * slab on average that nobody uses; 64 KiB made that 1.2 times mimalloc 3's memory in larson with 2
 * and 16 threads (docs/decisions/0003). The registry costs 4 bytes a slice, its metadata 64: 0.2 %.
 */
#define SLICE_SHIFT 15u
#define SLICE_SIZE ((size_t)1 << SLICE_SHIFT)

/* The largest OS page in use (aarch64 has 4, 16 and 64 KiB): pairs of tables lie at multiples of
 * it. */
#define OS_PAGE_SIZE_MAX ((size_t)64 << 10)

/* Superslab: unit of claiming and of free maps; 64 slices, so that one word maps it. */
#define SUPERSLAB_SLICES 64u
#define SUPERSLAB_SIZE (SUPERSLAB_SLICES * SLICE_SIZE)

/* Window: the address range of all superslabs. Nothing is reserved (docs/decisions/0001), so a
 * large one costs nothing: 1 TiB, or 4 x RAM if that is more, at most 16 TiB (slice numbers stay
 * below 2^29). */
#define WINDOW_SIZE_MIN (UINT64_C(1) << 40)
#define WINDOW_SIZE_MAX (UINT64_C(1) << 44)
#define WINDOW_RAM_FACTOR 4u

/* Where the window may start. 32 to 80 TiB is free of everything that Linux and common run times
 * place: below lie non-PIE programs, brk, the Java machine's and Go's heaps, above PIE programs (85
 * TiB) and mmap's own area (from 127 TiB down). ThreadSanitizer knows only mmap's area: a fixed
 * range inside it. */
#if HAK_TSAN
#define WINDOW_BASE_LOW UINT64_C(0x7e8000000000)
#define WINDOW_BASE_HIGH UINT64_C(0x7e9000000000)
#else
#define WINDOW_BASE_LOW UINT64_C(0x200000000000)
#define WINDOW_BASE_HIGH UINT64_C(0x500000000000)
#endif
#define WINDOW_BASE_TRIES 16u
/* For address spaces of 39 bits (some aarch64 kernels): a quarter of it, above what a program maps
 * low. */
#define WINDOW_SMALL_BASE_LOW UINT64_C(0x1000000000)
#define WINDOW_SMALL_BASE_HIGH UINT64_C(0x3000000000)
#define WINDOW_SMALL_SIZE (UINT64_C(1) << 37)

/* Superslabs whose tables are claimed together: 4 KiB of slab metadata each, so 16 are one 64 KiB
 * claim. */
#define TABLE_STEP_SUPERSLABS (HAK_TINY_LIMITS ? 16u : 64u)

/* Superslabs looked at for an aligned run, twice at most: a run that is long enough for it may lie
 * wrongly. */
#define ALIGNED_LOOKS 64u

/* Superslabs that a purge pass looks at before it lets the lock go. */
#define PURGE_LOOKS (HAK_TINY_LIMITS ? 2u : 64u)

/* In a heap of so much, tables that are longer than this have huge pages and grow by them. */
#define TABLE_HUGE_BYTES HUGE_PAGE_SIZE
#define TABLE_HUGE_HEAP_BYTES ((size_t)1 << 30)

/* Memory for heaps and threads comes so much at a time; what is not touched costs nothing. */
#define METADATA_CHUNK_SIZE ((size_t)256 << 10)

/* Objects of slabs: to TINY_SIZE_MAX in 16-byte steps, then 8 classes a doubling (at most 13.3 %
 * lost) to 8 KiB, then 3 (at most 30 %). From there on, and where they would be powers of two, they
 * are MID_SKEW larger than round, so that neighbours do not start at the same lines of their pages
 * (docs/decisions/0050, 0051). Requests aligned to more than a line have classes of their own, 4
 * round sizes a doubling (at most 25 % lost, docs/decisions/0071). */
#define OBJECT_ALIGNMENT 16u
#define TINY_SIZE_MAX 1040u /* 1 KiB and a header (docs/decisions/0052) */
#define MID_SKEW 128u
#define MID_SIZE_MAX (65536u + MID_SKEW)
#define MID_STEP_SHIFT 7u /* 128 bytes: the finest step above 1 KiB */
#define TINY_CLASS_COUNT                                                                           \
    (TINY_SIZE_MAX / OBJECT_ALIGNMENT) /* classes 1 to 65; class 0 has no objects */
#define ROUND_SIZE_MIN 1024u           /* above it */
#define ROUND_SIZE_MAX 65536u
#define ROUND_CLASS_COUNT (6u * 4u)
#define ROUND_CLASS_FIRST (1u + TINY_CLASS_COUNT + 3u * 8u + 3u * 3u)
#define CLASS_COUNT (ROUND_CLASS_FIRST + ROUND_CLASS_COUNT)
#define SLAB_SLICES_MAX 9u /* 4 objects of 64 KiB and the skew */
#define SLAB_OBJECTS_MIN 4u

/* Spans: whole slices, inside one superslab. */
#define SPAN_SIZE_MAX ((size_t)2 << 20)
#define SPAN_SLICES_MAX ((uint32_t)(SPAN_SIZE_MAX >> SLICE_SHIFT))

/* Largest request: ISO C lets no object exceed PTRDIFF_MAX. */
#define REQUEST_SIZE_MAX ((size_t)PTRDIFF_MAX)

/* One bin: free objects of one class ready for malloc. At most so many bytes, a quarter of them for
 * objects to 1 KiB: a refill's lock and list work vanish per object, and what is in it stays in a
 * second-level cache. That much of larger ones would be a few (docs/decisions/0041). A new bin is
 * small, and grows (cache/cache.h): most classes of most threads never need more. */
#define BIN_BYTES_MAX (HAK_TINY_LIMITS ? 1024u : 524288u)
#define BIN_SMALL_SHIFT 2u
/* A class's first refill, and the first limit of its bin. Short threads return what a larger refill
 * brings too much of (docs/decisions/0022). Idle threads hold what a larger limit allows. */
#define REFILL_BYTES_START (HAK_TINY_LIMITS ? 64u : 1024u)
#define BIN_BYTES_START (2 * REFILL_BYTES_START)
#define BIN_OBJECTS_MAX (HAK_TINY_LIMITS ? 4u : 4096u)
#define BIN_OBJECTS_MIN 2u
/* Objects that are returned to their slabs together: their slabs' metadata is waited for at once.
 */
#define FLUSH_PART_OBJECTS 24u
/* A full bin with a limit returns at most so many objects: some 20 ns each, all of it in one free
 * (docs/decisions/0058). Of objects above 1 KiB few: they lie far apart, in classes that fill
 * their bins seldom, so that each is waited for longer (0061, 0066). */
#define FLUSH_OBJECTS_MAX (HAK_TINY_LIMITS ? 2u : FLUSH_PART_OBJECTS)
#define FLUSH_LARGE_OBJECTS_MAX (HAK_TINY_LIMITS ? 1u : 4u)

/* Objects carved at once are at most this many bytes: carving links them and so touches their OS
 * pages. In a slab of untouched ones those that start in as many, a page's, the first alone
 * (docs/decisions/0060). */
#define CARVE_BYTES 4096u

/* Remote buffer: one entry per slice freed to lately; a full entry is sent. A consumer of messages
 * of 33 classes keeps some 50 slices in play, batches of objects to 1 KiB from two threads 200;
 * where they displace each other a batch has few objects (docs/decisions/0011, 0055). 8 KiB of a
 * thread that frees remotely. Only so many wait at once, because each keeps its slab. */
#define REMOTE_ENTRIES (HAK_TINY_LIMITS ? 4u : 512u)
#define REMOTE_WAITING_MAX (HAK_TINY_LIMITS ? 3u : 256u)
#define REMOTE_OBJECTS_MAX (HAK_TINY_LIMITS ? 3u : 128u)
#define REMOTE_BYTES_MAX (HAK_TINY_LIMITS ? 512u : 16384u)
/* Notifications an owner may leave unread before another thread drains for it: an owner that
 * allocates drains at every refill and never gets there.  */
#define NOTIFIED_PENDING_MAX (HAK_TINY_LIMITS ? 2u : 8u)
/* The same for a heap without a thread, which never drains. */
#define NOTIFIED_PENDING_MAX_PARKED (HAK_TINY_LIMITS ? 1u : 4u)

/* Before the process grows, so many other heaps are asked for free objects (docs/decisions/0059).
 */
#define LENDERS_MAX (HAK_TINY_LIMITS ? 2u : 8u)

/* The heartbeat (heap/heartbeat.c): slow operations from one look at the clock to the next, and
 * from one tick to the next; milliseconds from one tick to the next. */
#define LOOK_OPERATIONS (HAK_TINY_LIMITS ? 2u : 8u)
#define TICK_OPERATIONS (HAK_TINY_LIMITS ? 4u : 64u)
#define TICK_MS (HAK_TINY_LIMITS ? 1u : 50u)
/* A look takes about as long as five mallocs, so one in so many mallocs costs 2 %; a thread that
 * has slowed down takes so many until it knows. */
#define LOOK_MALLOCS (HAK_TINY_LIMITS ? 4u : 256u)
/* After so many slices more have become free so many mallocs look, each. */
#define FREED_MUCH_SLICES (HAK_TINY_LIMITS ? 4u : 128u)
#define LOOK_EAGER (HAK_TINY_LIMITS ? 4u : 64u)

/* A tick purges so much, and a superslab more: at 0.2 to 0.75 microseconds a page of 4 KiB that is
 * a millisecond in a malloc or free. While a pass is under way ticks come after PURGE_TICK_MS; one
 * that comes later purges up to so many times as much. */
#define PURGE_BYTES_AT_ONCE (HAK_TINY_LIMITS ? (size_t)1 << 20 : (size_t)4 << 20)
#define PURGE_TICK_MS (HAK_TINY_LIMITS ? 1u : 4u)
#define PURGE_PARTS_MAX 8u

/* Above the soft limit (HAKMEM_LIMIT), and while memory is short, free memory goes back when it is
 * older than this. */
#define LIMIT_DELAY_MS (HAK_TINY_LIMITS ? 0u : 10u)

/* A thread that returned full bins and found its heap's lock taken so often within so many
 * milliseconds moves to another heap, of which there may be more then: a wait costs about 3
 * microseconds, and as many are for refills, so that is a twentieth of its time and more
 * (docs/decisions/0021). */
#define CROWDED_WAITS (HAK_TINY_LIMITS ? 1u : 128u)
#define CROWDED_MS (HAK_TINY_LIMITS ? UINT32_MAX : 16u)
#define HEAPS_CROWDED_FACTOR 2u

/* Freed spans kept by a heap, for loops that allocate and free the same large size. */
#define SPAN_CACHE_ENTRIES (HAK_TINY_LIMITS ? 2u : 4u)

/* A whale is joined from at most so many parts of freed ones. All joined whales together are at
 * most so large: each huge page's place in them may be a mapping for the kernel, which allows
 * 65,530. */
#define WHALE_PARTS_MAX (HAK_TINY_LIMITS ? 4u : 32u)
#define WHALE_JOINED_MAX ((size_t)16 << 30)

/* Heap ids share a 32-bit owner word with 8 bits of class. */
#define OWNER_CODE_BITS 8u
#define HEAP_ID_MAX ((UINT32_C(1) << (32 - OWNER_CODE_BITS)) - 2)

/* A superslab or large block of small pages speaks for huge pages if so much of it is resident. */
#define HUGE_DENSE_PERCENT 75u

/* So many superslabs (16 GiB) may have lost their huge pages because a part of them was purged.
 * Each may cost two of the 65,530 mappings of a process. Beyond that no superslab gets huge pages.
 */
#define SPLIT_SUPERSLABS_MAX 8192u

#define HUGE_PAGE_SIZE ((size_t)2 << 20)
/* With larger OS pages a huge one is of many superslabs: 32 MiB, 512 MiB. */
#define HUGE_OS_PAGE_SIZE 4096u
/* One that takes longer than 512 small ones is no gain. Pauses without any; with each a page of 5
 * ms is lost, so at most a twentieth of the time, and soon nothing (docs/decisions/0036). */
#define HUGE_PAGE_US_MAX 1000u
#define HUGE_PAUSE_MS_MIN 100u
#define HUGE_PAUSE_MS_MAX 60000u
/* So many first touches in a row took too long: the kernel is slow, not the program. */
#define HUGE_SLOW_COUNT 3u
HAK_STATIC_ASSERT(CLASS_COUNT < 0xF0, "class codes and the special owner codes must not meet");
HAK_STATIC_ASSERT((REMOTE_ENTRIES & (REMOTE_ENTRIES - 1)) == 0,
                  "remote entries are chosen by a mask");
HAK_STATIC_ASSERT(SPAN_SLICES_MAX <= SUPERSLAB_SLICES, "a span lies inside one superslab");

#endif
