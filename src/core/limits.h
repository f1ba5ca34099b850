/* SPDX-License-Identifier: MIT */
/* limits.h: constants of the layout, and those that several files need or that trade time, memory
 * or pauses, each with its reason; the latter also say what changes if they double or halve. A
 * constant of one file stays there.
 *
 * Assertion level 2 has much smaller values (HAK_TINY_LIMITS). Refills, flushes, claims, purges and
 * evictions, which are rare in normal use, then happen all the time in tests. */
#ifndef HAK_CORE_LIMITS_H
#define HAK_CORE_LIMITS_H

#include "base/arch.h"
#include "base/compiler.h"

#define HAK_TINY_LIMITS (HAK_LEVEL >= 2)

/* The file of options that each process reads at its start (core/option_sources.c); "": none. The
 * build may name another one: -DHAKMEM_CONFIG_FILE=PATH for cmake. */
#ifndef HAK_CONFIG_FILE
#define HAK_CONFIG_FILE "/etc/hakmem.conf"
#endif

/* Slice: the unit of ownership, and the smallest slab. An arena has a slab for each class that it
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
 * programs (85 TiB) and mmap's own area (from 127 TiB down). */
#define WINDOW_BASE_LOW UINT64_C(0x200000000000)
#define WINDOW_BASE_HIGH UINT64_C(0x500000000000)
/* Sanitizers have tables in that range, and refuse a process with mappings outside of mmap's area.
 * In such a process the window lies below the last mapping: at this distance, or a quarter more. On
 * x86-64, ThreadSanitizer accepts 512 GiB there at least; on aarch64, 4 GiB. The window is as large
 * as the distance. */
#if defined(__x86_64__)
#define WINDOW_SANITIZED_SIZE (UINT64_C(1) << 38)
#else
#define WINDOW_SANITIZED_SIZE (UINT64_C(1) << 30)
#endif
/* Places that hakmem tries for the window before its start fails. The later half of the tries
 * assumes a small address space. */
#define WINDOW_BASE_TRIES 16u
/* The range and the size for address spaces of 39 bits, which some aarch64 kernels have. The window
 * is a quarter of the address space, above the addresses that programs usually use. */
#define WINDOW_SMALL_BASE_LOW UINT64_C(0x1000000000)
#define WINDOW_SMALL_BASE_HIGH UINT64_C(0x3000000000)
#define WINDOW_SMALL_SIZE (UINT64_C(1) << 37)

/* Superslabs whose tables are claimed together, if no limit is near. 64 need 276 KiB of addresses,
 * and 4 in the secure form 529 KiB; only touched pages take memory, but all pages under
 * mlockall(MCL_FUTURE). Twice as many: half the system calls for tables while the heap grows. */
#define TABLE_STEP_SUPERSLABS (HAK_SECURE ? 4u : HAK_TINY_LIMITS ? 16u : 64u)

/* The most superslabs that one look for an aligned run visits. A search makes two such looks and
 * visits one superslab between them; a request makes at most two searches while it holds REGION. A
 * long enough free run may still have no aligned start. Twice as many: such a request may hold
 * REGION twice as long. Half: it claims memory more often although a run fits. */
#define ALIGNED_LOOKS 64u

/* Superslabs that a purge pass looks at before it releases REGION. Twice as many: other threads may
 * wait twice as long for REGION. Half: the pass takes the lock twice as often. */
#define PURGE_LOOKS (HAK_TINY_LIMITS ? 2u : 64u)

/* If the superslabs take TABLE_HUGE_HEAP_BYTES or more, a table longer than TABLE_HUGE_BYTES gets
 * huge pages and grows by whole ones. The reason is fork, which copies an entry for each page of a
 * table: with 64 GiB it takes 0.37 ms, and 2.4 ms with small pages (docs/decisions/0069). Half of
 * TABLE_HUGE_HEAP_BYTES: smaller processes, too, may have 2 MiB more resident. Twice: processes of
 * 1 to 2 GiB fork more slowly. */
#define TABLE_HUGE_BYTES HUGE_PAGE_SIZE
#define TABLE_HUGE_HEAP_BYTES ((size_t)1 << 30)

/* Memory for arena and thread structs is mapped in chunks of this size; untouched pages of a chunk
 * take no memory. Twice the size: half the system calls while threads are created. */
#define METADATA_CHUNK_SIZE ((size_t)256 << 10)

/* Size classes of slabs: core/size_class.h lists them. */
#define OBJECT_ALIGNMENT 16u
#define OBJECT_SHIFT 4u /* log2 of OBJECT_ALIGNMENT */
/* Bytes at the end of each object that the program does not get: the secure form has a canary
 * there. */
#define OBJECT_TAIL (HAK_SECURE ? 8u : 0u)
/* 1 KiB and a header of 16 bytes: sqlite needs 3 % less memory than with 1,024
 * (docs/decisions/0052). Each further class takes 23 bytes a thread and 24 bytes an arena. */
#define TINY_SIZE_MAX 1040u
/* The skew: bytes that hakmem adds to a round object size. The mid classes from 8 KiB on get it,
 * and those that would be powers of two. Without it, all objects of such a class start in the same
 * few cache sets: the workload document takes 4 to 5 times as long (docs/decisions/0050, 0051).
 * Twice: 128 bytes more for each of these objects, 1.6 % of 8 KiB. */
#define MID_SKEW 128u
#define MID_SIZE_MAX (65536u + MID_SKEW)
/* The largest requests that tiny classes, or any classes, serve. */
#define TINY_REQUEST_MAX (TINY_SIZE_MAX - OBJECT_TAIL)
#define MID_REQUEST_MAX (MID_SIZE_MAX - OBJECT_TAIL)
#define MID_STEP_SHIFT 7u /* 128 bytes: the smallest step between classes above 1 KiB */
#define TINY_CLASS_COUNT                                                                           \
    (TINY_SIZE_MAX / OBJECT_ALIGNMENT) /* classes 1 to 65; class 0 has no objects */
/* The object sizes of classes for aligned requests: above ROUND_SIZE_MIN, up to ROUND_SIZE_MAX. */
#define ROUND_SIZE_MIN 1024u
#define ROUND_SIZE_MAX 65536u
#define ROUND_CLASS_COUNT (6u * 4u)
#define ROUND_CLASS_FIRST (1u + TINY_CLASS_COUNT + 3u * 8u + 3u * 3u)
#define CLASS_COUNT (ROUND_CLASS_FIRST + ROUND_CLASS_COUNT)
/* A slab holds at least SLAB_OBJECTS_MIN objects; 4 of the largest class need 9 slices. Twice as
 * many: one object in use keeps up to twice the memory. Half: slabs of large objects fill and empty
 * more often. Slabs of 512 KiB gave perl a peak of 1.157 of the C library's, these slabs
 * 1.10 (docs/decisions/0020). */
#define SLAB_SLICES_MAX 9u
#define SLAB_OBJECTS_MIN 4u
/* Slices of the idle slabs that an arena keeps (slab/slab_kept.c). Twice as many: programs whose
 * memory goes up and down by up to 8 MiB take no lock of the process for it; with 8 MiB, soak held
 * 32 MiB for seconds where it held 24. Half: by up to 2 MiB. */
#define SLABS_KEPT_SLICES (HAK_TINY_LIMITS ? 8u : 128u)
/* Secure form: slabs of objects of at least this size end in a page that no access survives. Half:
 * twice as many classes lose a page and two system calls with each slab. */
#define CLOSED_END_MIN 8192u
/* Quarantines of each kind that a thread or an arena has: none in the ordinary form. */
#define QUARANTINES HAK_SECURE
/* Secure form: slabs of an arena that wait before they may become slabs of another class. Twice as
 * many: twice the time, and twice the memory that waits. */
#define SLABS_QUARANTINED 8u
/* Secure form: freed objects that wait in a thread before they may be handed out again: small ones,
 * and those above TINY_SIZE_MAX. Each free lets a random one out. Twice as many: a dangling pointer
 * meets a new object half as soon, and the objects take twice as much of the processor's caches. */
#define OBJECTS_QUARANTINED 64u
#define LARGE_OBJECTS_QUARANTINED 8u

/* Spans: allocations of whole slices, each inside one superslab. */
#define SPAN_SLICES_MAX SUPERSLAB_SLICES
/* In the secure form a page that no access survives follows the block (large/span.h). */
#define SPAN_TAIL (HAK_SECURE ? OS_PAGE_SIZE_MAX : 0u)
#define SPAN_SIZE_MAX (SPAN_SLICES_MAX * SLICE_SIZE - SPAN_TAIL)

/* Secure form: the most spans that an arena closes in a second. To close one, to open it again and
 * to touch its pages takes 10 to 100 microseconds. Four times as many: a program that does little
 * else loses up to 2.5 % of its time instead of 0.6 %. Half: more freed spans can be used by a
 * dangling pointer. */
#define SPANS_CLOSED_MAX 64u
/* Secure form: neighbours of a page that are handed out in random order, before the next so many. A
 * whole page: a program that walks along what it has allocated waits for memory at each step;
 * cppcheck took 3.2 times as long, now 2.1 (docs/decisions/0093). Half: an attacker guesses the
 * block behind the last one in one of four tries instead of eight. */
#define SHUFFLED_OBJECTS 8u
/* Secure form: closed spans of an arena whose slices nobody gets yet. Twice as many: a use after
 * free faults for twice as long. They take addresses only. */
#define SPANS_QUARANTINED 16u

/* The largest request, in bytes: in C the difference of two pointers into a block must fit into
 * ptrdiff_t. */
#define REQUEST_SIZE_MAX ((size_t)PTRDIFF_MAX)

/* The largest limit of a bin, in bytes, and in objects. Bins start small and grow with use
 * (cache/cache.h), because most classes of most threads need no more. Twice: threads may keep twice
 * as much memory, and return it in one piece when a class is idle. Half: programs that free
 * thousands of objects in a row take the slow path for more of them (docs/decisions/0098). */
#define BIN_BYTES_MAX (HAK_TINY_LIMITS ? 1024u : 524288u)
#define BIN_OBJECTS_MAX (HAK_TINY_LIMITS ? 4u : 16384u)
/* Bytes of the first refill of a class, and of the first limit of its bin. A larger first refill:
 * threads that end soon must return more unused objects (docs/decisions/0022). A larger first
 * limit: idle threads keep more memory. */
#define REFILL_BYTES_START (HAK_TINY_LIMITS ? 64u : 1024u)
#define BIN_BYTES_START (2 * REFILL_BYTES_START)
#define BIN_OBJECTS_MIN 2u
/* So many first frees of a class are checked, each against so many before it. Twice: short programs
 * take longer, by some 100 instructions a free. Half: less of what small programs do is noticed. */
#define FREES_CHECKED 3u
/* The most objects that a full bin with a limit returns. Each takes some 20 ns, and one free pays
 * for all of them (docs/decisions/0058). After so many, each flush looks whether the list leads
 * back to one of them. Objects above 1,040 bytes take longer, because they lie far apart and were
 * freed longer ago. So fewer of them go back at once. Twice: the slowest frees take longer. In a
 * soak, p99.99 of free is 911 ns with 32 small objects, 703 ns with 24 and 623 ns with 16. Half:
 * bins have less room after an overflow, so they hold more on average; larson needs more memory. */
#define FLUSH_OBJECTS_MAX (HAK_TINY_LIMITS ? 2u : 24u)
#define FLUSH_LARGE_OBJECTS_MAX (HAK_TINY_LIMITS ? 1u : 4u)

/* The most bytes of objects that one refill carves of untouched memory. A refill links these
 * objects and so touches their OS pages. The first object that starts in a page is carved alone, so
 * that the program touches the page first. The next refill carves the other objects that start in
 * the page (docs/decisions/0060). Twice: a malloc may touch two pages, at 1.3 microseconds each.
 * Half: twice the refills while a slab is new. Of used memory a refill carves twice as much, and
 * at least two objects; the secure form carves as much, and shuffles it. */
#define CARVE_BYTES 4096u

/* Entries of a thread's remote buffer. Each gathers the freed objects of one slice, and is sent
 * when it is full. Slices that share an entry displace each other, and batches get small. Half as
 * many: the workload batch_sh8_2 sends 0.65 million batches instead of 0.51 (docs/decisions/0055).
 * Twice: the buffer takes 16 KiB instead of 8 in each thread that frees remotely. */
#define REMOTE_ENTRIES (HAK_TINY_LIMITS ? 4u : 512u)
/* Entries that may hold objects at the same time. A waiting object keeps its slab from being given
 * back: 256 slabs of objects to 1 KiB are 8 MiB. Twice as many: a sleeping thread may keep twice
 * that. Half: batches get small if threads free into 200 slices in turn, as in batch_sh8_2. */
#define REMOTE_WAITING_MAX (HAK_TINY_LIMITS ? 3u : 256u)
/* The most objects and bytes of one batch; a count has 8 bits. Half the bytes: the workload
 * silent_2 takes 1.11 times as long and 0.9 of the memory (docs/decisions/0055). Twice: more freed
 * objects wait. */
#define REMOTE_OBJECTS_MAX (HAK_TINY_LIMITS ? 3u : 128u)
#define REMOTE_BYTES_MAX (HAK_TINY_LIMITS ? 512u : 16384u)
/* At this number of unread notifications of an arena, another thread drains for it. An arena whose
 * threads allocate drains at every refill, and rarely has so many. Twice as many: a sleeping owner
 * keeps more empty slabs. Half: other threads drain for it more often. */
#define NOTIFIED_PENDING_MAX (HAK_TINY_LIMITS ? 2u : 8u)
/* The same for an arena without threads. It has no refills that would drain it, so other threads
 * drain for it sooner. */
#define NOTIFIED_PENDING_MAX_PARKED (HAK_TINY_LIMITS ? 1u : 4u)

/* The most arenas that a refill goes through for free objects before the process grows; it skips
 * its own. That takes some 100 ns, and a new slab at least 8 microseconds (docs/decisions/0059).
 * Twice as many: a process of more than 8 arenas grows less often, but the refills that grow it are
 * slower. Half: it grows more often. */
#define LENDERS_MAX (HAK_TINY_LIMITS ? 2u : 8u)
/* 2 to this power, less one: the most refills of a growing arena that do not ask after one that
 * asked in vain. One more: an arena takes up to 7 slabs for each LENDERS_MAX arenas before it finds
 * the one that could have spared it. One less: it asks in vain twice as often while many arenas
 * grow, and the lines that it reads move (lab/README.md). */
#define BORROW_VAIN_MAX (HAK_TINY_LIMITS ? 1u : 2u)

/* The heartbeat (arena/heartbeat.c). Slow operations from one look at the clock to the next; a look
 * takes 10 ns. Twice as many: work that is due starts later. Half: twice the looks. */
#define LOOK_OPERATIONS (HAK_TINY_LIMITS ? 2u : 8u)
/* The most slow operations from one tick to the next. Twice as many: an arena keeps freed spans
 * twice as long. Ticks that return spans took the peak of lua from 1.15 of the C library's to 1.04
 * (docs/decisions/0020). Half: a large buffer must be reused sooner to be found in the cache. */
#define TICK_OPERATIONS (HAK_TINY_LIMITS ? 4u : 64u)
/* Milliseconds from one tick to the next. Twice as many: gathered remote frees wait twice as long,
 * and a purge pass may start later. Half: twice the ticks. */
#define TICK_MS (HAK_TINY_LIMITS ? 1u : 50u)
/* The most mallocs of a fast thread from one look at the clock to the next. A look takes as long as
 * five mallocs, so looks take 2 % of the time of 256 mallocs. Twice as many: 1 %, but a thread that
 * slows down notices it later. Half: 4 %. */
#define LOOK_MALLOCS (HAK_TINY_LIMITS ? 4u : 256u)
/* The most bytes of mallocs from one look to the next, unless LOOK_MALLOCS_LEAST mallocs of the
 * size need more. A program that idles after large blocks may make small ones only, and would not
 * look for minutes. Twice: it looks half as soon. Half: a program with blocks above 128 bytes looks
 * more often than each 256 mallocs. */
#define LOOK_BYTES ((uint32_t)64 << 10)
/* The fewest mallocs of the size at hand from one early look to the next. Without it, two threads
 * that replace blocks of 8 to 32 KiB (`mid_mt_2`) take 14 % longer. Twice as many: 1 or 2 % less,
 * but a program that idles after such blocks looks half as soon. */
#define LOOK_MALLOCS_LEAST (HAK_TINY_LIMITS ? 1u : 32u)
/* After FREED_MUCH_SLICES more (4 MiB) have become free, the program may be about to idle. So each
 * of a thread's next LOOK_EAGER mallocs and slow operations looks at the clock
 * (docs/decisions/0067). Twice the slices: an idle program may keep up to 8 MiB. Half the slices,
 * or twice LOOK_EAGER: busy programs look at the clock more often. */
#define FREED_MUCH_SLICES (HAK_TINY_LIMITS ? 4u : 128u)
#define LOOK_EAGER (HAK_TINY_LIMITS ? 4u : 64u)

/* A tick purges at most this much and one more superslab. A page of 4 KiB takes 0.2 to 0.75
 * microseconds, so one malloc or free pauses for about a millisecond (docs/decisions/0027). Twice:
 * twice the pause. Half: a pass takes twice as many ticks. */
#define PURGE_BYTES_AT_ONCE (HAK_TINY_LIMITS ? (size_t)1 << 20 : (size_t)4 << 20)
/* What a purge pass over slabs in use counts beside the bytes purged: for a superslab, for a slab
 * whose free list it walks, and for each object of the list. Half: a tick takes up to twice as
 * long. Twice: a pass takes twice as many ticks. */
#define PAGES_LOOK_BYTES ((size_t)32 << 10)
#define SLAB_WALK_BYTES ((size_t)16 << 10)
#define OBJECT_WALK_BYTES ((size_t)128)

/* Passes, half a purge delay apart, that must see a slab's free list unchanged before its pages go.
 * Half: programs whose threads take turns walk and touch such pages again and again. Twice: memory
 * goes back twice as late. */
#define PAGES_PASSES 4u
/* A pass over slabs in use also begins when the heap has grown by this part of itself, and by at
 * least PAGES_GROWTH_MIN, since the last one. Then PAGES_PASSES_GROWING passes must have seen a
 * list unchanged. Half the parts: a program whose sizes change has up to a third more memory.
 * Without waiting: up to twice the page faults (docs/decisions/0105). */
#define PAGES_GROWTH_PARTS 16u
#define PAGES_GROWTH_MIN ((HAK_TINY_LIMITS ? (size_t)1 : (size_t)4) << 20)
#define PAGES_PASSES_GROWING 1u
/* Milliseconds from one tick to the next while a purge pass is under way. Twice as many: free
 * memory goes back at half the rate. Half: the pauses follow each other more closely. */
#define PURGE_TICK_MS (HAK_TINY_LIMITS ? 1u : 4u)
/* If more than this many times PURGE_BYTES_AT_ONCE wait (2 GiB), ticks purge more at once, so that
 * these ticks, 4 ms apart, purge most of it within 2 s. Twice: memory goes back half as fast. Half:
 * pauses grow when 1 GiB waits. */
#define PURGE_TICKS 500u
/* During a pass, a tick TICK_MS or more after the thread's last one purges PURGE_BYTES_AT_ONCE for
 * each PURGE_PART_MS between, at least PURGE_PARTS_MIN times (32 MiB) and at most PURGE_PARTS_MAX
 * times (256 MiB, 13 ms). The tick that begins a pass is no late one. Twice PURGE_PART_MS: 1 GB
 * takes 6 s in a program that allocates each 100 ms. Half PURGE_PARTS_MAX: idle redis, which
 * allocates once a second, keeps 260 MB a second longer. Twice the bounds: the pauses of such
 * programs are twice as long. */
#define PURGE_PART_MS 10u
#define PURGE_PARTS_MIN 8u
#define PURGE_PARTS_MAX 64u

/* Above the soft limit (HAKMEM_LIMIT) and under memory pressure, free memory goes back after this
 * many milliseconds. Twice as many: the process stays above its limit longer. Half: memory that is
 * about to be used again is purged more often. */
#define LIMIT_DELAY_MS (HAK_TINY_LIMITS ? 0u : 10u)

/* A thread that overflows a bin may find its arena's lock taken. If that happens CROWDED_WAITS
 * times within CROWDED_MS milliseconds, it moves to another arena if there is one to spare. A wait
 * takes about 3 microseconds, and refills wait about as often. So the thread waits for a twentieth
 * of its time (docs/decisions/0021). Twice the waits: fewer arenas and less memory, but threads
 * wait longer. Half: more arenas and more memory, but shorter waits. */
#define CROWDED_WAITS (HAK_TINY_LIMITS ? 1u : 128u)
#define CROWDED_MS (HAK_TINY_LIMITS ? UINT32_MAX : 16u)
/* A thread that has run on another memory node than its arena's for so many milliseconds moves to a
 * arena of that node. Twice: it gets memory of its old node for twice as long. Half: a thread that
 * the kernel moves for a moment empties its bins. */
#define NUMA_AWAY_MS (HAK_TINY_LIMITS ? 2u : 250u)
/* For crowded threads hakmem adds arenas, up to this multiple of knobs.arenas_max in all. Twice:
 * fewer waits, but more partly used slabs. 1: no arena is added. */
#define ARENAS_CROWDED_FACTOR 2u

/* Heaps (heap/heap.h). Their unit of allocation is a page of 4 KiB whatever the OS page is: a
 * heap in a small static array needs one for each size class. Doubled: half as many classes.
 * Halved: twice the entries, 2 % of the memory. */
#define HEAP_PAGE_SHIFT 12u
#define HEAP_PAGE_SIZE ((size_t)1 << HEAP_PAGE_SHIFT)
/* A chunk. Doubled: a heap with one object takes 1 MiB of addresses. Halved: half as many objects
 * between two calls of the provider. */
#define HEAP_CHUNK_SHIFT 19u
#define HEAP_CHUNK_SIZE ((size_t)1 << HEAP_CHUNK_SHIFT)
/* Chunks that a heap finds by their address at once. Twice: 512 bytes more for each heap, and frees
 * in heaps above 32 MiB take 40 instructions less. */
#define HEAP_NEAR 64u
/* The least size of a slab, and the objects in it: HEAP_SLAB_MANY up to HEAP_SLAB_MANY_SIZE bytes,
 * else HEAP_SLAB_FEW. Twice the size: half as many slabs are made and given back, and one object in
 * use keeps twice the memory. */
#define HEAP_SLAB_BYTES 16384u
#define HEAP_SLAB_MANY_SIZE 8320u
#define HEAP_SLAB_MANY 8u
#define HEAP_SLAB_FEW 4u
/* The limit of a bin for a heap, bytes, and an eighth of it for objects that share cache lines.
 * Twice: threads may keep twice as much; half: they take the heap's lock twice as often. */
#define HEAP_BIN_BYTES (HAK_TINY_LIMITS ? 4096u : 262144u)
#define HEAP_BIN_SMALL_SHIFT 3u
/* In a heap with a bound, a bin may have a 512th of it, and a slab a 64th. Twice the parts: less is
 * out of use, but the lock is taken more often. */
#define HEAP_BIN_PART 512u
#define HEAP_SLAB_PART 64u
/* The fewest slots of a thread that uses heaps. Twice: 2 KiB for each such thread, not 1. */
#define HEAP_SLOTS ((size_t)64)
/* Slabs that are looked at for a fuller one to move an object to. Twice: better choices, and the
 * lock is held twice as long. */
#define HEAP_MOVE_LOOKS 64u

/* The most parts of freed huge blocks that a new huge block is joined from. Twice as many: fewer
 * page faults if the cache holds many small ranges, and an array on the stack of 1.3 KiB, not 680
 * bytes. A call may need 2 KiB of stack in all (tests/threads/test_stack_use.c). */
#define HUGE_PARTS_MAX (HAK_TINY_LIMITS ? 4u : 28u)
/* The most bytes of all joined huge blocks together. Each 2 MiB of them may be one mapping of the
 * 65,530 that the kernel allows a process. Twice: joined huge blocks may use a quarter of these,
 * not an eighth. */
#define HUGE_JOINED_MAX ((size_t)16 << 30)

/* An owner word has 32 bits: 8 for the class code, the others for the id of the arena. */
#define OWNER_CODE_BITS 8u
#define ARENA_ID_SAMPLES 0u /* of the arena of sampled objects (region/window.h) */
#define ARENA_ID_MAX ((UINT32_C(1) << (32 - OWNER_CODE_BITS)) - 2)

/* A block with small pages is filled, and earns huge pages for later ones, if this percentage of it
 * is resident. Lower: programs that touch little of their memory get huge pages, and need more
 * memory. Higher: fewer programs get any (docs/decisions/0111). */
#define HUGE_PAGES_DENSE_PERCENT 75u
/* Superslabs claimed for spans longer than a slab. What spans of one length leave of a superslab is
 * never touched, so huge pages there may waste an eighth at most (docs/decisions/0103). */
#define HUGE_PAGES_DENSE_SPANS_PERCENT 89u

/* Slabs of objects up to this size have all their pages touched, because malloc links the objects
 * of a page (slab/slab.c). Twice: it need not link any, and a pool of which the program uses little
 * has all its pages resident. Half: programs with objects of 1 KiB get huge pages later. */
#define HUGE_PAGES_FILLS_BYTES 1024u

/* An arena fills its slabs if at most this part of their bytes, a half, was never handed out. Twice
 * (a quarter): programs with objects of many sizes need twice the heap until they get huge pages
 * (docs/decisions/0111). */
#define HUGE_PAGES_EMPTY_PARTS 2u

/* At this number of split superslabs and of borders between huge and small pages, new superslabs
 * get small ones. A superslab is split if hakmem asks for small pages there, because a part of it
 * was purged. Each may cost the process two of its 65,530 mappings. Twice as many: they may use
 * half of the mappings, not a quarter. */
#define SPLIT_SUPERSLABS_MAX 8192u

/* The mappings that hakmem may have: nine tenths of the 65,530 that Linux allows a process by
 * default. More: fewer are left for threads and files. Fewer: more huge blocks lie in superslabs,
 * where they take whole ones and realloc copies them. */
#define MAPPINGS_MAX (HAK_TINY_LIMITS ? 256u : 58977u)

#define HUGE_PAGE_SIZE ((size_t)2 << 20)
/* hakmem asks for huge pages only if the OS page has this size. With OS pages of 16 or 64 KiB a
 * huge page has 32 or 512 MiB and would cover many superslabs. */
#define HUGE_PAGES_OS_PAGE_SIZE 4096u
/* Microseconds from which a huge page is slow. It takes about 200, or 4,500 if the host has
 * taken the memory back (docs/decisions/0111). Twice: nothing changes there. Half: a short delay on
 * a busy machine counts as slow. */
#define HUGE_PAGE_US_MAX 1000u
/* Superslabs' worth of memory that gets small pages after a slow page; doubled for each further one
 * up to HUGE_PAGES_SLOW_MAX. Half of the first: a gibibyte may be more than a hundred mappings.
 * Twice: a page that was slow by chance costs 16,000 page faults. Half of the most: where all are
 * slow, twice as many are touched. Twice: it is noticed later that they are quick again. */
#define HUGE_PAGES_SLOW_MIN 16u
#define HUGE_PAGES_SLOW_MAX 64u
HAK_STATIC_ASSERT((REMOTE_ENTRIES & (REMOTE_ENTRIES - 1)) == 0,
                  "remote entries are chosen by a mask");
HAK_STATIC_ASSERT(SPAN_SLICES_MAX <= SUPERSLAB_SLICES, "a span lies inside one superslab");

#endif
