/* os.h: everything hakmem asks of the kernel. The only folder with system calls.
 *
 * Contract of all: addresses and sizes are multiples of os_page_size() unless said otherwise; the
 * result is 0 or -errno; errno itself is never changed; memory handed out is zero, private,
 * readable and writable. All functions are thread-safe. Each call is counted in hak__os_calls.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/atomics.h"

enum os_call {
    OS_CALL_MAP,
    OS_CALL_UNMAP,
    OS_CALL_REMAP,
    OS_CALL_PURGE,
    OS_CALL_HUGE,
    OS_CALL_SMALL,
    OS_CALL_POPULATE,
    OS_CALL_RESIDENT,
    OS_CALL_FUTEX,
    OS_CALL_COUNT
};
HAK_HIDDEN extern uint64_t hak__os_calls[OS_CALL_COUNT]; /* relaxed adds from any thread */
HAK_HIDDEN extern const char *const hak__os_call_names[OS_CALL_COUNT];

HAK_INLINE void os_count(enum os_call call)
{
    atomic_add_relaxed(&hak__os_calls[call], UINT64_C(1)); /* pairs with nothing: a counter */
}

/* Reads what never changes (page size, random bytes, limits). Idempotent; the first call is made
 * before any other function of this header and before there are two threads or under a lock. */
HAK_HIDDEN void hak__os_init(void);
HAK_HIDDEN size_t hak__os_page_size(void);
/* Bytes of RAM of the machine. */
HAK_HIDDEN uint64_t hak__os_ram_size(void);
/* Processors this process may run on, at least 1. */
HAK_HIDDEN uint32_t hak__os_processors(void);
struct os_container {
    uint32_t processors; /* it may keep busy, rounded up; UINT32_MAX: no quota */
    uint64_t memory;     /* bytes; UINT64_MAX: no limit */
};
/* The least that the process's cgroup (version 2) and those above allow. `membership` is
 * /proc/self/cgroup, `root` where the groups' files are. Opens files: before there are threads that
 * could open some, too. */
HAK_HIDDEN struct os_container hak__os_container(const char *membership, const char *root);

/* The file that says for how long tasks of the process's cgroup waited for memory; false: it is in
 * none of version 2. Opens files, as does the next: for threads with descriptors of their own. */
HAK_HIDDEN bool hak__os_pressure_path(const char *membership, const char *root, char *path,
                                      size_t size);
/* Microseconds in which some task of the group, or of the machine, waited for memory so far;
 * UINT64_MAX when unknown. */
HAK_HIDDEN uint64_t hak__os_pressure_stalled_us(const char *path);
/* Gives the calling thread a table of descriptors of its own, empty: what it opens and closes
 * changes no other thread's. False when the kernel cannot (before 5.9): nothing is changed then. */
HAK_HIDDEN bool hak__os_leave_descriptors(void);
/* The environment, at any time of a process's start: glibc hands constructors a pointer to it
 * before `environ` is set, musl sets that at once and hands them nothing. `handed` is a
 * constructor's third argument. */
HAK_HIDDEN char **hak__os_environment(char **handed);
/* The path by which the program was started; NULL when the kernel does not say. */
HAK_HIDDEN const char *hak__os_program(void);
/* True for setuid and setgid programs and others the loader marked secure: the environment is not
 * to be trusted. */
HAK_HIDDEN bool hak__os_is_secure(void);
/* 64 bits the kernel chose at exec; constant for the life of the process image. */
HAK_HIDDEN uint64_t hak__os_random_seed(void);

/* Maps exactly [address, address + size). -EEXIST when any part is in use; nothing is changed then.
 */
HAK_HIDDEN int hak__os_map_at(void *address, size_t size);
/* The same as more of the mapping that ends at `address`, which is the caller's: for when there are
 * too many mappings for another one. */
HAK_HIDDEN int hak__os_extend(void *address, size_t size);
/* Bytes of all that is mapped by this header's functions. */
HAK_HIDDEN uint64_t hak__os_mapped_bytes(void);
/* Mappings that would make it more than so many bytes fail with -ENOMEM from now on. */
HAK_HIDDEN void hak__os_set_limit(uint64_t bytes);
/* Maps `size` bytes anywhere, at a multiple of `alignment` (a power of two, at least the OS page).
 */
HAK_HIDDEN int hak__os_map(size_t size, size_t alignment, void **address);
HAK_HIDDEN int hak__os_unmap(void *address, size_t size);
/* Unmaps what nobody needs any more. The kernel may refuse (it has to split a mapping, and there
 * are too many): then its pages go back, and its addresses with a later discard that works or with
 * hak__os_discard_again, which returns the bytes that went. */
HAK_HIDDEN void hak__os_discard(void *address, size_t size);
HAK_HIDDEN size_t hak__os_discard_again(void);
/* Bytes that wait for that. */
HAK_HIDDEN size_t hak__os_discarded_bytes(void);
/* Counts bytes among them that may no longer be ours and are never unmapped. */
HAK_HIDDEN void hak__os_leave(size_t size);
/* Grows or shrinks a mapping. One that grows and cannot stay, or starts at no multiple of
 * `alignment` (a power of two, at least the OS page), goes to such a multiple if there is a place,
 * else anywhere; alignment 0: it must not move. The contents
 * are kept, new bytes are zero. What was joined by hak__os_move must not move. -ENOMEM when it
 * cannot: the old mapping is as it was. */
HAK_HIDDEN int hak__os_remap(void *address, size_t old_size, size_t new_size, size_t alignment,
                             void **moved);
/* Moves the pages of one mapping, or of a part of one, to `to`: as many bytes of the caller's own
 * mapping, untouched and of small pages. `from` is unmapped then, or, if the move `leaves` it
 * (needs Linux 5.7), mapped and zero. -EEXIST: the pages are where they were, but what is at `to`
 * is another thread's mapping. Another error: nothing has changed. */
HAK_HIDDEN int hak__os_move(void *from, size_t size, void *to, bool leaves);
/* Gives the pages back; the addresses stay usable and read as zero. Non-zero: the contents may be
 * unchanged. */
HAK_HIDDEN int hak__os_purge(void *address, size_t size);
/* Asks for huge pages; a refusal is harmless. */
HAK_HIDDEN int hak__os_huge(void *address, size_t size);
/* Asks for none, also where all memory has them. */
HAK_HIDDEN int hak__os_small(void *address, size_t size);
/* Makes it resident now, as by writes that change nothing. Needs Linux 5.14. */
HAK_HIDDEN int hak__os_populate(void *address, size_t size);

/* Bytes of it that are resident, 0 when the kernel will not say. `size` is at most
 * OS_RESIDENT_SIZE_MAX. */
#define OS_RESIDENT_SIZE_MAX ((size_t)2 << 20)
HAK_HIDDEN size_t hak__os_resident(const void *address, size_t size);
/* The same in percent of the OS pages looked at: all, or that many bytes in the middle. Any address
 * and size. */
HAK_HIDDEN uint32_t hak__os_resident_percent(const void *address, size_t size);
/* Makes it zero: what is resident is written, the rest stays without memory. Any address and size.
 */
HAK_HIDDEN void hak__os_clear(void *address, size_t size);

/* Milliseconds of a monotonic clock, a few ms coarse; wraps after 49 days: compare differences
 * only. */
HAK_HIDDEN uint32_t hak__os_clock_ms(void);
/* Microseconds of the same, to the microsecond; 0 when the kernel will not say. */
HAK_HIDDEN uint64_t hak__os_clock_us(void);

HAK_HIDDEN void hak__os_sleep_ms(uint32_t duration_ms);

/* Sleeps while *word == value, until woken or for no reason. */
HAK_HIDDEN void hak__os_wait(uint32_t *word, uint32_t value);
/* The same for at most so long. False: that long has passed, or a signal came. */
HAK_HIDDEN bool hak__os_wait_ms(uint32_t *word, uint32_t value, uint32_t duration_ms);
/* Wakes one sleeper. */
HAK_HIDDEN void hak__os_wake(uint32_t *word);
HAK_HIDDEN void hak__os_wake_all(uint32_t *word);

/* Blocks the calling thread's signals, but for those that its own instructions raise and the C
 * library's own. Returns what hak__os_restore_signals wants. */
HAK_HIDDEN uint64_t hak__os_block_signals(void);
HAK_HIDDEN void hak__os_restore_signals(uint64_t blocked);

/* Writes all of it to standard error or gives up silently. Descriptor 2 counts as standard error if
 * it is what it was when the process started, what descriptor 1 is, a pipe, a terminal or a file
 * that is appended to: a data file or a connection may have got the number of a closed one. */
HAK_HIDDEN void hak__os_write_error(const char *text, size_t size);
/* For hak__os_init: what descriptor 2 is now. */
HAK_HIDDEN void hak__os_note_error_file(void);
/* Opens `path` for appending (created with mode 0644), -errno on failure; the caller closes it. */
HAK_HIDDEN int hak__os_open_append(const char *path);
/* A file that stays open for the process and its forked children. */
struct os_kept {
    int descriptor; /* OS_KEPT_MIN or above, where programs do not look; -1: none */
    uint64_t device;
    uint64_t inode;
};
#define OS_KEPT_MIN 512
/* Another number for `descriptor`. */
HAK_HIDDEN struct os_kept hak__os_keep(int descriptor);
/* As hak__os_open_append; `descriptor` is -1 when it cannot be opened or kept. exec closes it. */
HAK_HIDDEN struct os_kept hak__os_keep_append(const char *path);
/* False when the program has closed the descriptor or opened another file under its number, and
 * when the file was deleted. */
HAK_HIDDEN bool hak__os_is_kept(const struct os_kept *kept);
/* Reads the start of a file; returns bytes, at most `size`, or -errno. */
HAK_HIDDEN long hak__os_read_file(const char *path, char *buffer, size_t size);
/* True when, besides the calling thread, only the remains of an ended main thread are left in the
 * process, and when there is no /proc that could say. */
HAK_HIDDEN bool hak__os_is_last_thread(void);
/* What debuggers and /proc call the calling thread; at most 15 characters. */
HAK_HIDDEN void hak__os_name_thread(const char *name);
/* 0 when all of it is written, else -errno. */
HAK_HIDDEN int hak__os_write(int descriptor, const char *text, size_t size);
/* Why a file could not be opened or written, in words: `error` is -errno. */
HAK_HIDDEN const char *hak__os_file_error(int error);
HAK_HIDDEN void hak__os_close(int descriptor);
HAK_HIDDEN uint32_t hak__os_process_id(void);
HAK_HIDDEN __attribute__((noreturn)) void hak__os_abort(void);

#endif
