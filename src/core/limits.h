/* limits.h: every constant of the layout and every bound, each with its reason. A constant that
 * trades time, memory or pauses also says what changes if it doubles or halves.
 *
 * Assertion level 2 has much smaller values (HAK_TINY_LIMITS). Refills, flushes, claims, purges and
 * evictions, which are rare in normal use, then happen all the time in tests. */
#ifndef HAK_CORE_LIMITS_H
#define HAK_CORE_LIMITS_H

#include "base/arch.h"
#include "base/compiler.h"

#define HAK_TINY_LIMITS (HAK_LEVEL >= 2)

/* Slice: the unit of ownership, and the smallest slab. A heap has a slab for each class that it
 * uses, and half of that slab is unused on average. Twice the size: larson with 16 threads needs
 * about a quarter more memory (docs/decisions/0003). Half the size: twice the tables, which take 68
 * bytes a slice now (0.2 %). */
#define SLICE_SHIFT 15u
#define SLICE_SIZE ((size_t)1 << SLICE_SHIFT)

/* The largest OS page in use: aarch64 kernels have pages of 4, 16 or 64 KiB. Each pair of tables
 * starts at a multiple of it. */
#define OS_PAGE_SIZE_MAX ((size_t)64 << 10)

/* Superslab: the unit in which hakmem claims address space. It has 64 slices, so that one 64-bit
 * word is the map of its free slices. */
#define SUPERSLAB_SLICES 64u
#define SUPERSLAB_SIZE (SUPERSLAB_SLICES * SLICE_SIZE)

/* Window: the address range of all superslabs. hakmem reserves none of it (docs/decisions/0001), so
 * a large window costs nothing. Its size is 4 times the RAM, but at least 1 TiB and at most 16 TiB.
 * Slice numbers then stay below 2^29. */
#define WINDOW_SIZE_MIN (UINT64_C(1) << 40)
#define WINDOW_SIZE_MAX (UINT64_C(1) << 44)
#define WINDOW_RAM_FACTOR 4u

/* The window starts at a random place in this range. Linux and common run times map nothing between
 * 32 and 80 TiB. Below lie non-PIE programs, brk, and the heaps of Java and Go. Above lie PIE
 * programs (85 TiB) and mmap's own area (from 127 TiB down). ThreadSanitizer allows only mmap's
 * area, so its build uses a range inside that area. */
#if HAK_TSAN
#define WINDOW_BASE_LOW UINT64_C(0x7e8000000000)
#define WINDOW_BASE_HIGH UINT64_C(0x7e9000000000)
#else
#define WINDOW_BASE_LOW UINT64_C(0x200000000000)
#define WINDOW_BASE_HIGH UINT64_C(0x500000000000)
#endif
/* Places that hakmem tries for the window before its start fails. The later half of the tries
 * assumes a small address space. */
#define WINDOW_BASE_TRIES 16u
/* The range and the size for address spaces of 39 bits, which some aarch64 kernels have. The window
 * is a quarter of the address space, above the addresses that programs usually use. */
#define WINDOW_SMALL_BASE_LOW UINT64_C(0x1000000000)
#define WINDOW_SMALL_BASE_HIGH UINT64_C(0x3000000000)
#define WINDOW_SMALL_SIZE (UINT64_C(1) << 37)

/* Superslabs whose tables are claimed together. 64 need 276 KiB of addresses; only touched pages
 * take memory. Twice as many: half the system calls for tables while the heap grows. At least 16:
 * their slab metadata, 4 KiB each, fills the largest OS page. */
#define TABLE_STEP_SUPERSLABS (HAK_TINY_LIMITS ? 16u : 64u)

/* Superslabs that one search for an aligned run looks at; a request searches twice at most. A free
 * run may be long enough and still start at no multiple of the alignment. Twice as many: such a
 * request may hold REGION twice as long. Half: it claims memory more often although a run fits. */
#define ALIGNED_LOOKS 64u

/* Superslabs that a purge pass looks at before it releases REGION. Twice as many: other threads may
 * wait twice as long for REGION. Half: the pass takes the lock twice as often. */
#define PURGE_LOOKS (HAK_TINY_LIMITS ? 2u : 64u)

/* If the superslabs have TABLE_HUGE_HEAP_BYTES or more, a table longer than TABLE_HUGE_BYTES gets
 * huge pages and grows by whole ones. Fork copies an entry for each page of a table: at 64 GiB it
 * takes 0.37 ms, and 2.4 ms with small pages (docs/decisions/0069). Half of TABLE_HUGE_HEAP_BYTES:
 * smaller heaps, too, may have 2 MiB more resident. Twice: heaps of 1 to 2 GiB fork more slowly. */
#define TABLE_HUGE_BYTES HUGE_PAGE_SIZE
#define TABLE_HUGE_HEAP_BYTES ((size_t)1 << 30)

/* Memory for heap and thread structs is mapped in chunks of this size; untouched pages of a chunk
 * take no memory. Twice the size: half the system calls while threads are created. */
#define METADATA_CHUNK_SIZE ((size_t)256 << 10)

/* Size classes of slabs:
 *   to TINY_SIZE_MAX    steps of 16 bytes
 *   to 8 KiB            8 classes a doubling; rounding up adds at most 13.3 %
 *   to MID_SIZE_MAX     3 classes a doubling; rounding up adds at most 30 %
 *   aligned requests    4 classes a doubling, of round sizes; at most 25 % (docs/decisions/0071)
 * The last row serves requests above 1 KiB that are aligned to more than a cache line. */
#define OBJECT_ALIGNMENT 16u
/* 1 KiB and a header: sqlite needs 3 % less memory than with 1,024 (docs/decisions/0052). Each
 * class more takes 18 bytes a thread and 24 bytes a heap. */
#define TINY_SIZE_MAX 1040u
/* Ordinary classes from 8 KiB on, and those that would be powers of two, are this much larger than
 * round. Otherwise all objects of a class start in the same few sets of the cache: the workload
 * document takes 4 to 5 times as long (docs/decisions/0050, 0051). Twice the skew: 128 bytes more
 * for each of these objects, 1.6 % of 8 KiB. */
#define MID_SKEW 128u
#define MID_SIZE_MAX (65536u + MID_SKEW)
#define MID_STEP_SHIFT 7u /* 128 bytes: the smallest step between classes above 1 KiB */
#define TINY_CLASS_COUNT                                                                           \
    (TINY_SIZE_MAX / OBJECT_ALIGNMENT) /* classes 1 to 65; class 0 has no objects */
/* Classes for aligned requests are above ROUND_SIZE_MIN, up to ROUND_SIZE_MAX. */
#define ROUND_SIZE_MIN 1024u
#define ROUND_SIZE_MAX 65536u
#define ROUND_CLASS_COUNT (6u * 4u)
#define ROUND_CLASS_FIRST (1u + TINY_CLASS_COUNT + 3u * 8u + 3u * 3u)
#define CLASS_COUNT (ROUND_CLASS_FIRST + ROUND_CLASS_COUNT)
/* A slab holds at least SLAB_OBJECTS_MIN objects; 4 of the largest class need 9 slices. Twice as
 * many: one object in use keeps up to twice the memory. Half: slabs of large objects fill and empty
 * more often. With slabs of 512 KiB, perl's peak was 1.157 of the C library's, with these 1.10
 * (docs/decisions/0020). */
#define SLAB_SLICES_MAX 9u
#define SLAB_OBJECTS_MIN 4u

/* Spans: allocations of whole slices, each inside one superslab. */
#define SPAN_SIZE_MAX ((size_t)2 << 20)
#define SPAN_SLICES_MAX ((uint32_t)(SPAN_SIZE_MAX >> SLICE_SHIFT))

/* The largest request, in bytes: in C the difference of two pointers into a block must fit into
 * ptrdiff_t. */
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
/* Objects whose slab metadata is fetched together when a bin is flushed. Twice as many: a larger
 * array on the stack. Half: a flush of a long bin waits for metadata twice as often. */
#define FLUSH_PART_OBJECTS 24u
/* A full bin with a limit returns at most so many objects: some 20 ns each, all of it in one free
 * (docs/decisions/0058). Of objects above 1 KiB few: they lie far apart, in classes that fill
 * their bins seldom, so that each is waited for longer (0061, 0066). Twice: the slowest frees take
 * longer; p99.99 of a soak is 911 ns with 32 small objects, 703 with 24, 623 with 16. Half: bins
 * have less room after an overflow and so hold more on average; larson needs more memory (0066). */
#define FLUSH_OBJECTS_MAX (HAK_TINY_LIMITS ? 2u : FLUSH_PART_OBJECTS)
#define FLUSH_LARGE_OBJECTS_MAX (HAK_TINY_LIMITS ? 1u : 4u)

/* Bytes of objects that one refill carves at most. A refill links the objects it carves and so
 * touches their OS pages. In untouched memory it carves the objects that start in one page; the
 * first of them alone, so that the program touches the page (docs/decisions/0060). Twice: a malloc
 * may touch two pages, at 1.3 microseconds each. Half: twice the refills while a slab is new. */
#define CARVE_BYTES 4096u

/* Remote buffer of a thread: each entry gathers the freed objects of one slice, and is sent when it
 * is full. Slices that share an entry displace each other, and batches get small. Half as many:
 * batch_sh8_2 sends 0.65 million batches, now 0.51 (docs/decisions/0055). Twice: 16 KiB in each
 * thread that frees remotely, now 8. */
#define REMOTE_ENTRIES (HAK_TINY_LIMITS ? 4u : 512u)
/* Entries that may hold objects at the same time. A waiting object keeps its slab from being given
 * back: 256 slabs of objects to 1 KiB are 8 MiB. Twice as many: a sleeping thread may keep twice
 * that. Half: small batches where threads free into 200 slices in turn, as in batch_sh8_2. */
#define REMOTE_WAITING_MAX (HAK_TINY_LIMITS ? 3u : 256u)
/* Objects and bytes of one batch at most; a count is 8 bits. Half the bytes: silent_2 takes 1.11 of
 * the time for 0.9 of the memory (docs/decisions/0055). Twice: more freed objects wait. */
#define REMOTE_OBJECTS_MAX (HAK_TINY_LIMITS ? 3u : 128u)
#define REMOTE_BYTES_MAX (HAK_TINY_LIMITS ? 512u : 16384u)
/* Notifications that a heap may leave unread before another thread drains for it. A heap whose
 * threads allocate drains at every refill and never has so many. Twice as many: a sleeping owner
 * keeps more slabs that are empty. Half: other threads drain for it more often. */
#define NOTIFIED_PENDING_MAX (HAK_TINY_LIMITS ? 2u : 8u)
/* The same for a heap without threads. Only the help of other threads and purge passes drain it, so
 * other threads help sooner. */
#define NOTIFIED_PENDING_MAX_PARKED (HAK_TINY_LIMITS ? 1u : 4u)

/* Heaps that a refill asks for free objects before the process grows. Asking takes some 100 ns, a
 * new slab at least 8 microseconds (docs/decisions/0059). Twice as many: with more than 9 heaps the
 * process grows less often, and refills that grow it are slower. Half: it grows more often. */
#define LENDERS_MAX (HAK_TINY_LIMITS ? 2u : 8u)

/* The heartbeat (heap/heartbeat.c). Slow operations from one look at the clock to the next; a look
 * takes 10 ns. Twice as many: work that is due starts later. Half: twice the looks. */
#define LOOK_OPERATIONS (HAK_TINY_LIMITS ? 2u : 8u)
/* Slow operations from one tick to the next at most. Twice as many: a heap keeps freed spans twice
 * as long; ticks that return them took lua's peak from 1.15 of the C library's to 1.04 and less
 * (docs/decisions/0020). Half: a large buffer must be reused sooner to be found in the cache. */
#define TICK_OPERATIONS (HAK_TINY_LIMITS ? 4u : 64u)
/* Milliseconds from one tick to the next. Twice as many: gathered remote frees wait twice as long,
 * and a purge pass may start later. Half: twice the ticks. */
#define TICK_MS (HAK_TINY_LIMITS ? 1u : 50u)
/* Mallocs of a fast thread from one look at the clock to the next at most. A look takes as long as
 * five mallocs, so 256 make it 2 % of the time. Twice as many: 1 %, but a thread that slows down
 * notices it later. Half: 4 %. */
#define LOOK_MALLOCS (HAK_TINY_LIMITS ? 4u : 256u)
/* When FREED_MUCH_SLICES more (4 MiB) are free, the program may be about to idle. Then each of a
 * thread's next LOOK_EAGER mallocs looks at the clock (docs/decisions/0067). Twice the slices: an
 * idle program may keep up to 8 MiB. Half, or twice LOOK_EAGER: busy programs look more often. */
#define FREED_MUCH_SLICES (HAK_TINY_LIMITS ? 4u : 128u)
#define LOOK_EAGER (HAK_TINY_LIMITS ? 4u : 64u)

/* A tick purges at most this much, and one superslab more. A page of 4 KiB takes 0.2 to 0.75
 * microseconds, so one malloc or free pauses for about a millisecond (docs/decisions/0027). Twice:
 * twice the pause. Half: a pass takes twice as many ticks. */
#define PURGE_BYTES_AT_ONCE (HAK_TINY_LIMITS ? (size_t)1 << 20 : (size_t)4 << 20)
/* Milliseconds from one tick to the next while a purge pass is under way. Twice as many: free
 * memory goes back at half the rate. Half: the pauses follow each other more closely. */
#define PURGE_TICK_MS (HAK_TINY_LIMITS ? 1u : 4u)
/* A tick that comes late purges up to this many times as much: 32 MiB. Twice: pauses of a thread
 * that ticks seldom may be twice as long. Half: such a program shrinks more slowly. */
#define PURGE_PARTS_MAX 8u

/* Above the soft limit (HAKMEM_LIMIT) and under memory pressure, free memory goes back after this
 * many milliseconds. Twice as many: the process stays above its limit longer. Half: memory that is
 * about to be used again is purged more often. */
#define LIMIT_DELAY_MS (HAK_TINY_LIMITS ? 0u : 10u)

/* A thread moves to another heap if it returned full bins, and found its heap's lock taken, this
 * often within CROWDED_MS milliseconds. A wait takes about 3 microseconds, and refills wait about
 * as often, so that is a twentieth of the thread's time (docs/decisions/0021). Twice the waits:
 * fewer heaps and less memory, but threads wait longer. Half: the reverse. */
#define CROWDED_WAITS (HAK_TINY_LIMITS ? 1u : 128u)
#define CROWDED_MS (HAK_TINY_LIMITS ? UINT32_MAX : 16u)
/* Heaps for crowded threads, in all, as a multiple of knobs.heaps_max. Twice: fewer waits, and more
 * slabs that are partly used. 1: no heap is added. */
#define HEAPS_CROWDED_FACTOR 2u

/* Freed spans that a heap keeps, for loops that allocate and free the same large size. Twice as
 * many: loops over up to 8 buffers hit the cache, and searches look at more entries. The bytes are
 * limited apart (SPAN_CACHE_SLICES in large/span.c). */
#define SPAN_CACHE_ENTRIES (HAK_TINY_LIMITS ? 2u : 4u)

/* Parts of freed whales that a new whale is joined from at most. Twice as many: fewer page faults
 * where the cache holds many small ranges, and an array of 1.5 KiB on the stack, now 776 bytes. */
#define WHALE_PARTS_MAX (HAK_TINY_LIMITS ? 4u : 32u)
/* Bytes of all joined whales together. Each 2 MiB of them may be a mapping for the kernel, which
 * allows 65,530 a process. Twice: joined whales may use up a quarter of these, now an eighth. */
#define WHALE_JOINED_MAX ((size_t)16 << 30)

/* An owner word has 32 bits: 8 for the class code, the others for the id of the heap. */
#define OWNER_CODE_BITS 8u
#define HEAP_ID_MAX ((UINT32_C(1) << (32 - OWNER_CODE_BITS)) - 2)

/* A superslab or large block with small pages is dense, and earns huge pages for later ones, if
 * this percentage of it is resident. Lower: programs that touch little of their memory get huge
 * pages, and need more memory. Higher: fewer programs get any (docs/decisions/0017). */
#define HUGE_DENSE_PERCENT 75u

/* Superslabs that may be split at the same time: hakmem asks for small pages there, because a part
 * of them was purged. Each may cost the process two of its 65,530 mappings. At this number new
 * superslabs get no huge pages. Twice as many: half of the mappings may go, now a quarter. */
#define SPLIT_SUPERSLABS_MAX 8192u

#define HUGE_PAGE_SIZE ((size_t)2 << 20)
/* hakmem asks for huge pages only if the OS page has this size. With OS pages of 16 or 64 KiB a
 * huge page has 32 or 512 MiB and would cover many superslabs. */
#define HUGE_OS_PAGE_SIZE 4096u
/* Microseconds within which a huge page must come. The 512 small pages that it replaces take about
 * 700; a huge page takes 90, or 5,200 on some virtual machines (docs/decisions/0036). Twice: pages
 * that gain nothing count as quick. Half: a short delay on a busy machine ends huge pages. */
#define HUGE_PAGE_US_MAX 1000u
/* Milliseconds without huge pages after one came slowly. Each further slow one doubles the pause,
 * up to HUGE_PAUSE_MS_MAX. A slow page takes 5 ms, so at most a twentieth of the time is lost. Half
 * of HUGE_PAUSE_MS_MIN: a tenth. Twice: more page faults after a page that was slow by chance.
 * Twice HUGE_PAUSE_MS_MAX: hakmem notices two minutes late that huge pages are quick again. */
#define HUGE_PAUSE_MS_MIN 100u
#define HUGE_PAUSE_MS_MAX 60000u
/* So many first touches in a row took too long: the kernel is slow, not the program. */
#define HUGE_SLOW_COUNT 3u
HAK_STATIC_ASSERT(CLASS_COUNT < 0xF0, "class codes and the special owner codes must not meet");
HAK_STATIC_ASSERT((REMOTE_ENTRIES & (REMOTE_ENTRIES - 1)) == 0,
                  "remote entries are chosen by a mask");
HAK_STATIC_ASSERT(SPAN_SLICES_MAX <= SUPERSLAB_SLICES, "a span lies inside one superslab");

#endif
