/* SPDX-License-Identifier: MIT */
/* limits.h: constants of the layout, and those that several files need or that trade time, memory
 * or pauses, each with its reason; the latter also say what changes if they double or halve. A
 * number with one use stands there.
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
#define SLICE_SIZE ((size_t)32 << 10)

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
#define WINDOW_SIZE_MAX (UINT64_C(1) << 44)

/* Sanitizers have tables in that range, and refuse a process with mappings outside of mmap's area.
 * In such a process the window lies below the last mapping: at this distance, or a quarter more. On
 * x86-64, ThreadSanitizer accepts 512 GiB there at least; on aarch64, 4 GiB. The window is as large
 * as the distance. */
#if defined(__x86_64__)
#define WINDOW_SANITIZED_SIZE (UINT64_C(1) << 38)
#else
#define WINDOW_SANITIZED_SIZE (UINT64_C(1) << 30)
#endif

/* Superslabs whose tables are claimed together, if no limit is near. 64 need 276 KiB of addresses,
 * and 4 in the secure form 529 KiB; only touched pages take memory, but all pages under
 * mlockall(MCL_FUTURE). Twice as many: half the system calls for tables while the heap grows. */
#define TABLE_STEP_SUPERSLABS (HAK_SECURE ? 4u : HAK_TINY_LIMITS ? 16u : 64u)

/* The most places of a kind that a search looks at while it holds a lock, or for a hint: superslabs
 * for an aligned run (a search makes two such looks and visits one superslab between them; a
 * request makes at most two searches while it holds REGION), superslabs of a part of a purge pass,
 * slabs of a heap for one to move an object to, addresses for a block of size 0. Twice as many:
 * others may wait twice as long for the lock. Half: memory is claimed more often although an
 * aligned run fits, and a purge pass takes REGION twice as often. */
#define LOOKS_MAX 64u

/* If the superslabs take TABLE_HUGE_HEAP_BYTES or more, a table longer than HUGE_PAGE_SIZE gets
 * huge pages and grows by whole ones. The reason is fork, which copies an entry for each page of a
 * table: with 64 GiB it takes 0.37 ms, and 2.4 ms with small pages (docs/decisions/0069). Half of
 * TABLE_HUGE_HEAP_BYTES: smaller processes, too, may have 2 MiB more resident. Twice: processes of
 * 1 to 2 GiB fork more slowly. */
#define TABLE_HUGE_HEAP_BYTES ((size_t)1 << 30)

/* Memory for arena and thread structs is mapped in chunks of this size; untouched pages of a chunk
 * take no memory. Twice the size: half the system calls while threads are created. */
#define METADATA_CHUNK_SIZE ((size_t)256 << 10)

/* Size classes of slabs: core/size_class.h lists them. */
#define OBJECT_ALIGNMENT 16u
/* Bytes at the end of each object that the program does not get: the secure form has a canary
 * there. */
#define OBJECT_TAIL (HAK_SECURE ? 8u : 0u)
/* 1 KiB and a header of 16 bytes: sqlite needs 3 % less memory than with 1,024
 * (docs/decisions/0052). Each further class takes 17 bytes a thread and 20 bytes an arena. */
#define TINY_SIZE_MAX 1040u
/* The step of mid object sizes, two cache lines, and the room for a header in the largest. That is
 * not a power of two: else all its objects start in the same few cache sets, and the workload
 * document takes 4 to 5 times as long (docs/decisions/0050, 0051). Half: twice the table of
 * classes. Twice: the smallest of these classes waste more. */
#define MID_SKEW 128u
#define MID_SIZE_MAX (65536u + MID_SKEW)
/* The largest request that classes serve. */
#define MID_REQUEST_MAX (MID_SIZE_MAX - OBJECT_TAIL)
#define TINY_CLASS_COUNT                                                                           \
    (TINY_SIZE_MAX / OBJECT_ALIGNMENT) /* classes 1 to 65; class 0 has no objects */
/* The object sizes of classes for aligned requests: above the first, 4 in each doubling. */
#define ROUND_SIZE_MIN 1024u
#define ROUND_SIZE_MAX 32768u
#define ROUND_CLASS_FIRST (1u + TINY_CLASS_COUNT + 40u)
#define CLASS_COUNT (ROUND_CLASS_FIRST + 5u * 4u)
/* A slab holds at least 4 objects; 4 of the largest class need 9 slices. Twice as many: one object
 * in use keeps up to twice the memory. Half: slabs of large objects fill and empty more often.
 * Slabs of 512 KiB gave perl a peak of 1.157 of the C library's, shorter slabs 1.10
 * (docs/decisions/0020). */
#define SLAB_SLICES_MAX 9u
/* Slices of the idle slabs that an arena keeps (slab/slab_kept.c); and when so many more (4 MiB)
 * have become free, the program may be about to idle, so threads look at the clock more often
 * (docs/decisions/0067). Twice as many: programs whose memory goes up and down by up to 8 MiB take
 * no lock of the process for it; with 8 MiB, soak held 32 MiB for seconds where it held 24. Half:
 * by up to 2 MiB. */
#define SLABS_KEPT_SLICES (HAK_TINY_LIMITS ? 8u : 128u)
/* Quarantines of each kind that a thread or an arena has: none in the ordinary form. */
#define QUARANTINES HAK_SECURE
/* Secure form: freed objects wait in a thread before they may be handed out again, in a ring for
 * each power of two of their size: as many as this number holds powers, and at least 8
 * (cache/cache.h). Twice the bytes: a dangling pointer meets a new object half as soon, and the
 * objects take twice as much of memory and of the processor's caches. Half: the reverse. */
#define QUARANTINE_BYTES (HAK_TINY_LIMITS ? 4096u : 32768u)
#define QUARANTINE_RINGS 10u /* for 16, 32, ... 8,192 bytes and more */

/* Spans: allocations of whole slices, each inside one superslab. In the secure form longer blocks
 * are huge ones, whose addresses are harder to guess than those of runs that nearly fill a
 * superslab. Twice: only 26 bits of some addresses are random. Half: a program that fills and frees
 * blocks of 512 KiB to 1 MiB has five times the page faults (docs/decisions/0115). */
#define SPAN_SIZE_MAX (HAK_SECURE ? SUPERSLAB_SIZE / 2 : SUPERSLAB_SIZE)

/* The largest request, in bytes: in C the difference of two pointers into a block must fit into
 * ptrdiff_t. */
#define REQUEST_SIZE_MAX ((size_t)PTRDIFF_MAX)

/* The largest limit of a bin, in bytes, and in objects. Bins start small and grow with use
 * (cache/cache.h), because most classes of most threads need no more. Twice: threads may keep twice
 * as much memory, and return it in one piece when a class is idle. Half: programs that free
 * thousands of objects in a row take the slow path for more of them (docs/decisions/0098). */
#define BIN_BYTES_MAX (HAK_TINY_LIMITS ? 1024u : 524288u)
#define BIN_OBJECTS_MAX (HAK_TINY_LIMITS ? 4u : 16384u)
/* Half of the bytes of the second refill of a class, and of the first limit of its bin; four times
 * those of the first refill. A larger first refill: threads that hold little need more pages, and
 * threads that end soon must return more unused objects (docs/decisions/0022, 0119). A larger first
 * limit: idle threads keep more memory. */
#define REFILL_BYTES_START (HAK_TINY_LIMITS ? 64u : 1024u)
/* So many first frees of a class are checked, each against so many before it. Twice: short programs
 * take longer, by some 100 instructions a free. Half: less of what small programs do is noticed. */
#define FREES_CHECKED 3u
/* The most objects that a full bin with a limit returns. Each takes some 20 ns, and one free pays
 * for all of them (docs/decisions/0058). After so many, each flush looks whether the list leads
 * back to one of them. Objects above 1,040 bytes take longer, because they lie far apart and were
 * freed longer ago. So a sixth as many go back at once. Twice: the slowest frees take longer. In a
 * soak, p99.99 of free is 911 ns with 32 small objects, 703 ns with 24 and 623 ns with 16. Half:
 * bins have less room after an overflow, so they hold more on average; larson needs more memory. */
#define FLUSH_OBJECTS_MAX (HAK_TINY_LIMITS ? 2u : 24u)

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
 * Twice: the buffer takes 16 KiB instead of 8 in each thread that frees remotely. Half of the
 * entries may hold objects at the same time. A waiting object keeps its slab from being given back:
 * 256 slabs of objects to 1 KiB are 8 MiB. All: a sleeping thread may keep twice that. A quarter:
 * batches get small if threads free into 200 slices in turn, as in batch_sh8_2. */
#define REMOTE_ENTRIES (HAK_TINY_LIMITS ? 4u : 512u)
/* The most objects of one batch; a count has 8 bits. Twice: more freed objects wait. */
#define REMOTE_OBJECTS_MAX (HAK_TINY_LIMITS ? 3u : 128u)
/* At this number of unread notifications of an arena, another thread drains for it. An arena whose
 * threads allocate drains at every refill, and rarely has so many. Twice as many: a sleeping owner
 * keeps more empty slabs. Half: other threads drain for it more often. That is the number of an
 * arena without threads: it has no refills that would drain it. */
#define NOTIFIED_PENDING_MAX (HAK_TINY_LIMITS ? 2u : 8u)

/* The heartbeat (arena/heartbeat.c). Slow operations from one look at the clock to the next; a look
 * takes 10 ns. Twice as many: work that is due starts later. Half: twice the looks. */
#define LOOK_OPERATIONS (HAK_TINY_LIMITS ? 2u : 8u)
/* The most slow operations from one tick to the next. Twice as many: an arena keeps freed spans
 * twice as long. Ticks that return spans took the peak of lua from 1.15 of the C library's to 1.04
 * (docs/decisions/0020). Half: a large buffer must be reused sooner to be found in the cache.
 * Also the mallocs and slow operations of a thread that look at the clock each, after
 * SLABS_KEPT_SLICES more have become free. Twice: busy programs look at the clock more often. */
#define TICK_OPERATIONS (HAK_TINY_LIMITS ? 4u : 64u)
/* Milliseconds from one tick to the next. Twice as many: gathered remote frees wait twice as long,
 * and a purge pass may start later. Half: twice the ticks. */
#define TICK_MS (HAK_TINY_LIMITS ? 1u : 50u)
/* The most bytes of mallocs from one look to the next, unless LOOK_MALLOCS_LEAST mallocs of the
 * size need more. A program that idles after large blocks may make small ones only, and would not
 * look for minutes. Twice: it looks half as soon. Half: a program with blocks above 128 bytes looks
 * more often than each 256 mallocs. */
#define LOOK_BYTES ((uint32_t)64 << 10)
/* The fewest mallocs of the size at hand from one early look to the next. Without it, two threads
 * that replace blocks of 8 to 32 KiB (`mid_mt_2`) take 14 % longer. Twice as many: 1 or 2 % less,
 * but a program that idles after such blocks looks half as soon.
 * Eight times as many are the most of a fast thread. A look takes as long as five mallocs, so looks
 * take 2 % of the time of 256 mallocs. Twice as many: 1 %, but a thread that slows down notices it
 * later. Half: 4 %. */
#define LOOK_MALLOCS_LEAST (HAK_TINY_LIMITS ? 1u : 32u)

/* A tick purges at most this much and one more superslab. A page of 4 KiB takes 0.2 to 0.75
 * microseconds, so one malloc or free pauses for about a millisecond (docs/decisions/0027). Twice:
 * twice the pause. Half: a pass takes twice as many ticks. */
#define PURGE_BYTES_AT_ONCE (HAK_TINY_LIMITS ? (size_t)1 << 20 : (size_t)4 << 20)
/* Passes, half a purge delay apart, since a slab's free list gave objects, before its pages go.
 * Half: programs whose threads take turns walk and touch such pages again and again. Twice: memory
 * goes back twice as late. */
#define PAGES_PASSES 4u
/* Bytes of free memory that a process keeps although it has not shown that it uses them again. A
 * thread's end, and a free after a burst, gives back what is beyond that and what it has. Twice:
 * 16 MiB more stay in a process that sleeps. Half: programs whose threads come and go with a few
 * MiB each touch them anew once more. */
#define RESERVE_BYTES (HAK_TINY_LIMITS ? (size_t)1 << 20 : (size_t)16 << 20)
/* Bytes by which the memory in use must fall within 4 to 8 purge delays, beyond what is expected to
 * be used again, for a free to give memory back at once. Twice: a program that frees 250 MB and
 * sleeps keeps them. Half: programs that go through phases of 64 MiB touch a phase's memory anew,
 * once. */
#define BURST_BYTES (HAK_TINY_LIMITS ? (size_t)4 << 20 : (size_t)128 << 20)

/* A thread that overflows a bin may find its arena's lock taken. If that happens CROWDED_WAITS
 * times within 16 milliseconds, it moves to another arena if there is one to spare. A wait
 * takes about 3 microseconds, and refills wait about as often. So the thread waits for a twentieth
 * of its time (docs/decisions/0021). Twice the waits: fewer arenas and less memory, but threads
 * wait longer. Half: more arenas and more memory, but shorter waits. */
#define CROWDED_WAITS (HAK_TINY_LIMITS ? 1u : 128u)

/* Heaps (heap/heap.h). Their unit of allocation is a page of 4 KiB whatever the OS page is: a
 * heap in a small static array needs one for each size class. Doubled: half as many classes.
 * Halved: twice the entries, 2 % of the memory. */
#define HEAP_PAGE_SHIFT 12u
#define HEAP_PAGE_SIZE ((size_t)1 << HEAP_PAGE_SHIFT)
/* A chunk. Doubled: a heap with one object takes 1 MiB of addresses. Halved: half as many objects
 * between two calls of the provider. */
#define HEAP_CHUNK_SIZE ((size_t)512 << 10)
/* The least size of a slab. Twice: half as many slabs are made and given back, and one object in
 * use keeps twice the memory. */
#define HEAP_SLAB_BYTES 16384u

/* The most parts of freed huge blocks that a new huge block is joined from. Twice as many: fewer
 * page faults if the cache holds many small ranges, and an array on the stack of 1.3 KiB, not 680
 * bytes. A call may need 2 KiB of stack in all (tests/threads/test_stack_use.c). */
#define HUGE_PARTS_MAX (HAK_TINY_LIMITS ? 4u : 28u)

/* An owner word has 32 bits: 8 for the class code, the others for the id of the arena. */
#define OWNER_CODE_BITS 8u
#define ARENA_ID_SAMPLES 0u /* of the arena of sampled objects (region/window.h) */
#define ARENA_ID_MAX ((UINT32_C(1) << (32 - OWNER_CODE_BITS)) - 2)

/* A block with small pages is filled, and earns huge pages for later ones, if this percentage of it
 * is resident. Lower: programs that touch little of their memory get huge pages, and need more
 * memory. Higher: fewer programs get any (docs/decisions/0111). */
#define HUGE_PAGES_DENSE_PERCENT 75u
/* Superslabs claimed for spans. The end of a span's last slice, and what spans of one length leave
 * of a superslab, is never touched, so huge pages there may waste an eighth at most. Lower: blocks
 * of 85,000 bytes waste 17 % (docs/decisions/0103, 0120). Higher: fewer programs get any. */
#define HUGE_PAGES_DENSE_SPANS_PERCENT 92u

/* At this number of split superslabs and of borders between huge and small pages, new superslabs
 * get small ones. A superslab is split if hakmem asks for small pages there, because a part of it
 * was purged. Each may cost the process two of its 65,530 mappings. Twice as many: they may use
 * half of the mappings, not a quarter. */
#define SPLIT_SUPERSLABS_MAX 8192u

/* The mappings that hakmem may have: nine tenths of the 65,530 that Linux allows a process by
 * default. More: fewer are left for threads and files. Fewer: more huge blocks lie in superslabs,
 * where they take whole ones and realloc copies them. */
#define MAPPINGS_MAX (HAK_TINY_LIMITS ? 256u : 58977u)

/* hakmem asks for huge pages only if the OS page has 4 KiB. With OS pages of 16 or 64 KiB a huge
 * page has 32 or 512 MiB and would cover many superslabs. */
#define HUGE_PAGE_SIZE ((size_t)2 << 20)
/* Superslabs' worth of memory that gets small pages after a slow page; doubled for each further one
 * up to HUGE_PAGES_SLOW_MAX. Half of the first: a gibibyte may be more than a hundred mappings.
 * Twice: a page that was slow by chance costs 16,000 page faults. Half of the most: where all are
 * slow, twice as many are touched. Twice: it is noticed later that they are quick again. */
#define HUGE_PAGES_SLOW_MIN 16u
#define HUGE_PAGES_SLOW_MAX 64u
HAK_STATIC_ASSERT((REMOTE_ENTRIES & (REMOTE_ENTRIES - 1)) == 0,
                  "remote entries are chosen by a mask");

#endif
