/* SPDX-License-Identifier: MIT */
/* os.h: everything that hakmem asks of the kernel. System calls are made in src/os alone, but for
 * prctl (override/next.c) and the start of threads (control/background.c).
 *
 * These rules hold for all functions, unless one says otherwise:
 *   - Addresses and sizes are multiples of hak__os_page_size().
 *   - An `int` result is 0 or -errno. No function changes errno itself.
 *   - New memory is zero, private, readable and writable.
 *   - Any thread may call them at any time.
 *   - The system calls of enum os_call are counted in hak__os_calls.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include <errno.h>

#include "base/arch.h"
#include "base/atomics.h"

enum os_call {
    OS_CALL_MAP,
    OS_CALL_UNMAP,
    OS_CALL_REMAP,
    OS_CALL_PURGE,
    OS_CALL_HUGE_PAGES,
    OS_CALL_SMALL,
    OS_CALL_POPULATE,
    OS_CALL_RESIDENT,
    OS_CALL_FUTEX,
    OS_CALL_COUNT
};
HAK_HIDDEN extern uint64_t hak__os_calls[OS_CALL_COUNT]; /* relaxed adds from any thread */
HAK_HIDDEN extern const char hak__os_call_names[OS_CALL_COUNT][20];

HAK_INLINE void os_count(enum os_call call)
{
    atomic_add_relaxed(&hak__os_calls[call], UINT64_C(1)); /* pairs with nothing: a counter */
}

HAK_INLINE void os_restore_errno(const int *kept)
{
    errno = *kept;
}
/* Gives errno the value back that it has here, at the end of the block. */
#define HAK_KEEP_ERRNO int kept_errno __attribute__((cleanup(os_restore_errno), unused)) = errno

/* Reads the page size, finds the vDSO's clock, looks for a filter of system calls and notes what
 * descriptor 2 is. Later calls do nothing. The first call comes before the functions that need
 * these, and before there are two threads or under a lock. */
HAK_HIDDEN void hak__os_init(void);
/* A filter of system calls (seccomp) may end the process at a call that programs with the C
 * library's malloc do not make. docs/guarantees.md, "Filters of system calls", lists the calls that
 * hakmem makes with a filter. True: there is a filter, or the kernel does not say. */
HAK_HIDDEN bool hak__os_is_filtered(void);
/* True: no filter is there at this moment, so that any call may be made. A system call. */
HAK_HIDDEN bool hak__os_may_ask(void);
/* The program is about to set a filter. */
HAK_HIDDEN void hak__os_note_filter(void);
/* From now on no filter counts, because the user says so. */
HAK_HIDDEN void hak__os_ignore_filters(void);

/* Bytes of a file of the kernel's that are read: about a thread with some 500 groups of users,
 * about memory, or a path. Twice: more stack at start. Half: a process in 150 groups counts as one
 * with a filter. */
#define OS_TEXT_SIZE 4096u
/* Bytes of an OS page: ARCH_PAGE_SIZE_MIN on most machines, up to ARCH_PAGE_SIZE_MAX. */
HAK_HIDDEN size_t hak__os_page_size(void);
/* Bytes of RAM of the machine; 16 GiB if the kernel does not say. */
HAK_HIDDEN uint64_t hak__os_ram_size(void);
/* The memory node of the processor on which the calling thread runs, without a system call; 0 if
 * only such a call could tell. */
HAK_HIDDEN uint32_t hak__os_node(void);
/* The function that tells; NULL: there is none. Tests put theirs here. */
typedef long os_getcpu_function(unsigned *processor, unsigned *node, void *unused);
HAK_HIDDEN extern os_getcpu_function *hak__os_getcpu;
/* Processors that this process may run on, at least 1; 8,192 if the kernel does not say. */
HAK_HIDDEN uint32_t hak__os_processors(void);
struct os_container {
    uint32_t processors; /* that it may keep busy, rounded up; UINT32_MAX: no quota */
    uint64_t memory;     /* bytes; UINT64_MAX: no limit */
};
/* The smallest limits of the process's cgroup (version 2) and the groups above it. `membership` is
 * the path of /proc/self/cgroup, `root` the directory of the groups. It opens files, so it must run
 * before there are threads that open files, too: they could get other descriptors than usual. */
HAK_HIDDEN struct os_container hak__os_container(const char *membership, const char *root);

/* How full the fullest of these groups is, in percent of its memory limit; the cache of files does
 * not count. 0: none has a limit, or is full to `least` percent. For threads with descriptors of
 * their own, as the next two. */
HAK_HIDDEN uint32_t hak__os_memory_percent(const char *membership, const char *root,
                                           uint32_t least);

/* Writes the path of the cgroup's memory.pressure file to `path`, which has `size` bytes. False:
 * the process is in no group of version 2. This function and the next open files: they are for
 * threads with descriptors of their own (hak__os_leave_descriptors). */
HAK_HIDDEN bool hak__os_pressure_path(const char *membership, const char *root, char *path,
                                      size_t size);
/* Microseconds, so far, in which a task of the group or machine of `path` waited for memory.
 * UINT64_MAX: unknown. */
HAK_HIDDEN uint64_t hak__os_pressure_stalled_us(const char *path);
/* Gives the calling thread an empty table of descriptors of its own, so that files it opens and
 * closes do not concern other threads. False: the kernel cannot (before 5.9); nothing changes. */
HAK_HIDDEN bool hak__os_leave_descriptors(void);
/* The environment, at any time of a process's start. glibc gives constructors a pointer to it
 * before it sets `environ`; musl sets `environ` first and gives them nothing. `handed` is the third
 * argument of a constructor. */
HAK_HIDDEN char **hak__os_environment(char **handed);
/* The path by which the program was started. NULL: the kernel does not say. */
HAK_HIDDEN const char *hak__os_program(void);
/* True: the loader marked the process secure, because it is setuid, setgid or similar. Its
 * environment cannot be trusted. */
HAK_HIDDEN bool hak__os_is_secure(void);
/* The process has a sanitizer, which allows mappings only at certain addresses. */
HAK_HIDDEN bool hak__os_is_sanitized(void);
/* 64 random bits that the kernel chose at exec. Constant until the next exec. */
HAK_HIDDEN uint64_t hak__os_random_seed(void);

/* Maps exactly [address, address + size). -EEXIST: a part of it is in use; nothing changes. */
HAK_HIDDEN int hak__os_map_at(void *address, size_t size);
/* The same for a mapping that others do not continue, as those of hak__os_map. */
HAK_HIDDEN int hak__os_map_apart(void *address, size_t size);
/* Maps [address, address + size) by growing the mapping that ends at `address`, which is the
 * caller's. It works also if the process may have no further mapping. */
HAK_HIDDEN int hak__os_extend(void *address, size_t size);
/* Bytes mapped by the functions of this header. */
HAK_HIDDEN uint64_t hak__os_mapped_bytes(void);
/* The most bytes mapped so far, or since the last reset. */
HAK_HIDDEN uint64_t hak__os_mapped_peak(void);
HAK_HIDDEN void hak__os_reset_mapped_peak(void);
/* Sets the hard limit: a call that would map more than `bytes` in all fails with -ENOMEM. */
HAK_HIDDEN void hak__os_set_limit(uint64_t bytes);
/* Maps `size` bytes anywhere at a multiple of `alignment`, a power of two and at least the OS page.
 * Sets *address only on success. */
HAK_HIDDEN int hak__os_map(size_t size, size_t alignment, void **address);
/* The same, but the place `front` bytes behind the start, whole OS pages, is at the multiple. */
HAK_HIDDEN int hak__os_map_behind(size_t front, size_t size, size_t alignment, void **address);
/* True: this thread's calls of the following functions, and of hak__os_map, make the system calls,
 * not the functions that a library may have put before them (os/bound.h). Returns what was. */
HAK_HIDDEN bool hak__os_go_direct(bool direct);
/* Unmaps memory. It fails if the kernel would have to split a mapping and allows no further one. */
HAK_HIDDEN int hak__os_unmap(void *address, size_t size);
/* Unmaps memory that is not needed again, and cannot fail. If the kernel refuses, it purges the
 * pages and notes the addresses; later discards try to unmap them again. hak__os_discard_again
 * tries at once and returns the bytes unmapped. */
HAK_HIDDEN void hak__os_discard(void *address, size_t size);
HAK_HIDDEN size_t hak__os_discard_again(void);
/* True: memory waits to be unmapped, which the kernel has refused. Any thread. */
HAK_HIDDEN bool hak__os_is_discarding(void);
/* Bytes that wait to be unmapped. */
HAK_HIDDEN size_t hak__os_discarded_bytes(void);
/* Puts new memory in place of mapped pages: it is zero and open, whatever they were. It may cost
 * two mappings. Any thread. */
HAK_HIDDEN bool hak__os_replace(void *address, size_t size);
/* Adds bytes to these that may belong to another thread now, and are therefore never unmapped. */
HAK_HIDDEN void hak__os_leave(size_t size);
/* Grows or shrinks a mapping, keeps its contents, and sets *moved to its address. New bytes are
 * zero. If it cannot grow in place, or the place `front` bytes behind its start, whole OS pages, is
 * at no multiple of `alignment` (a power of two, at least the OS page), that place moves to such a
 * multiple, or failing that anywhere. With alignment 0 it stays where it is: memory from
 * hak__os_move is several mappings and cannot move. On an error the mapping is as it was. */
HAK_HIDDEN int hak__os_remap(size_t front, void *address, size_t old_size, size_t new_size,
                             size_t alignment, void **moved);
/* Moves the pages of a mapping, or of a part of one, to `to`, where the caller has mapped `size`
 * untouched bytes with small pages. `from` is unmapped then; with `leaves` it stays mapped and
 * reads as zero (Linux 5.7). -EEXIST: the pages have not moved, but another thread has mapped
 * memory at `to`, which the caller has lost. Any other error: nothing changes. */
HAK_HIDDEN int hak__os_move(void *from, size_t size, void *to, bool leaves);
/* Returns the pages to the OS; the addresses stay usable and read as zero. On an error the contents
 * may be unchanged. It is an error, too, if the kernel says that it did so and did not. No other
 * thread may use the memory meanwhile. */
HAK_HIDDEN int hak__os_purge(void *address, size_t size);
/* Asks for huge pages. The kernel may refuse, which is harmless. With a filter this function, the
 * next two and those about residency fail without a call. */
HAK_HIDDEN int hak__os_huge_pages(void *address, size_t size);
/* Asks for small pages, also if the machine prefers huge ones. Resident pages stay as they are. */
HAK_HIDDEN int hak__os_small(void *address, size_t size);
/* Makes memory resident now, without a change of its contents. Needs Linux 5.14. */
HAK_HIDDEN int hak__os_populate(void *address, size_t size);

/* Resident bytes of a range of at most OS_RESIDENT_SIZE_MAX bytes; SIZE_MAX: the kernel does not
 * say. The page map lies on the stack: 512 bytes for 2 MiB. Twice: 1 KiB. Half: twice the calls. */
#define OS_RESIDENT_SIZE_MAX ((size_t)2 << 20)
HAK_HIDDEN size_t hak__os_resident(const void *address, size_t size);
/* Looks which pages of a range are resident: the lowest bit of pages[i] says it of OS page i. For
 * reports; the call is not counted. -ENOMEM: a part of the range is not mapped. */
HAK_HIDDEN int hak__os_look(const void *address, size_t size, unsigned char *pages);
/* Which of `count` adjacent ranges of 2 MiB from `start` on lie in huge pages, by the page tables:
 * bit i of the mask stands for range i. At most 64; `start` is a multiple of 2 MiB. False: the
 * kernel does not say, as before Linux 6.7. For reports: it opens a file of /proc for a moment, and
 * takes 12 us, and 1.5 us more for each range with small pages. Its calls are not counted. */
HAK_HIDDEN bool hak__os_find_huge_pages(uintptr_t start, size_t count, uint64_t *mask);
/* The resident ones among the first `count` of these pages. */
HAK_HIDDEN size_t hak__os_resident_pages(const unsigned char *pages, size_t count);
/* Resident part of a range, in percent of its whole OS pages. It looks at the middle
 * OS_RESIDENT_SIZE_MAX bytes of a larger range. Any address and size. */
HAK_HIDDEN uint32_t hak__os_resident_percent(const void *address, size_t size);
/* Makes memory zero. Pages without memory stay without, unless they are few between others. Any
 * address and size. True: all its whole pages are without now. */
HAK_HIDDEN bool hak__os_clear(void *address, size_t size);

/* Memory of the whole process, in bytes; UINT64_MAX: the kernel does not say. It opens files of
 * /proc for a moment. */
struct os_memory {
    uint64_t rss;      /* resident now */
    uint64_t peak_rss; /* the most that was resident since exec */
    uint64_t swapped;  /* in swap areas, and so not resident */
    uint64_t files;    /* resident pages of files and of shared memory */
};
HAK_HIDDEN struct os_memory hak__os_memory(void);
/* Bytes in huge pages. It takes up to 20 ms for each resident GiB. */
HAK_HIDDEN uint64_t hak__os_huge_page_bytes(void);
/* Why the kernel gives the process no huge pages, as words behind "because"; NULL: it does. */
HAK_HIDDEN const char *hak__os_no_huge_pages(void);
/* True: the process has a limit on its addresses (RLIMIT_AS, RLIMIT_DATA). Two system calls; false
 * with a filter. */
HAK_HIDDEN bool hak__os_addresses_are_limited(void);
/* Bytes resident now, by a quick count, which may be off by 32 OS pages or more for each processor
 * before Linux 6.17. UINT64_MAX: the kernel does not say. */
HAK_HIDDEN uint64_t hak__os_rss(void);

/* Milliseconds of a monotonic clock with a resolution of a few milliseconds. It wraps after 49
 * days, so only differences have a meaning. */
HAK_HIDDEN uint32_t hak__os_clock_ms(void);
/* The same clock, which does not wrap here; 0 if only a system call could read it. */
HAK_HIDDEN uint64_t hak__os_clock_uncalled_ms(void);
/* Microseconds of a monotonic clock with a resolution of a microsecond; 0 if the kernel does not
 * say. */
HAK_HIDDEN uint64_t hak__os_clock_us(void);
/* Processor time of the process, user and system, in ns. A system call. */
HAK_HIDDEN uint64_t hak__os_cpu_ns(void);

/* Seconds since 1970, by the machine's clock; 0 if the kernel does not say. */
HAK_HIDDEN uint64_t hak__os_wall_clock_s(void);

/* Sleeps for so many milliseconds, or until a signal comes. */
HAK_HIDDEN void hak__os_sleep_ms(uint32_t duration_ms);

/* Sleeps while *word == value, until it is woken, for at most `duration_ms`. It may also return for
 * no reason. False: that time has passed, or a signal came. */
HAK_HIDDEN bool hak__os_wait_ms(uint32_t *word, uint32_t value, uint32_t duration_ms);
/* Wakes one thread, or all threads, that sleep on the word. */
HAK_HIDDEN void hak__os_wake(uint32_t *word);
HAK_HIDDEN void hak__os_wake_all(uint32_t *word);

/* Blocks the calling thread's signals, except those that its own instructions raise. The C
 * library's own signals wait, too, so the caller restores the signals soon. Returns the argument
 * for hak__os_restore_signals. */
HAK_HIDDEN uint64_t hak__os_block_signals(void);
/* Says that blocking failed, or that none was asked for. No thread's set has this value, because
 * SIGKILL cannot be blocked. */
#define OS_SIGNALS_UNCHANGED UINT64_MAX
/* True if the calling thread's signals are blocked, or the kernel does not say, or has
 * once refused to block them. For assertions. */
HAK_HIDDEN bool hak__os_signals_are_blocked(void);
HAK_HIDDEN void hak__os_restore_signals(uint64_t blocked);
/* Between the two, if signals are blocked: lets those come by which a process is usually ended, or
 * blocks them again, but for those that the thread itself blocks. */
HAK_HIDDEN void hak__os_let_ending_signals(uint64_t blocked, bool come);

/* True: the 8 bytes at a multiple of 8 can be read. They are not touched. Other threads may unmap
 * them at any time, so the caller must know that nobody does. */
HAK_HIDDEN bool hak__os_is_readable(uintptr_t address);
/* True: one of the process's first files is a userfaultfd. */
HAK_HIDDEN bool hak__os_has_userfaultfd(void);

/* Lets `handler` run for a signal whose action is the default one, with all signals blocked
 * meanwhile. False: the signal has another action, which stays. */
HAK_HIDDEN bool hak__os_catch_default(int signal, void (*handler)(int));
/* Ends the process by the default action of the signal, in its handler. It returns if the kernel
 * does not end this process, which is process 1 of a container. */
HAK_HIDDEN void hak__os_end_by_signal(int signal);

/* Switches memory tags on (base/tags.h) for this thread and those that it will start: a wrong
 * access faults at once. What is mapped from now on can have tags. False: the processor or the
 * kernel has none. Called once, before the first mapping that shall have tags. */
HAK_HIDDEN bool hak__os_start_tags(void);

/* Reserves `size` bytes of addresses whose pages are all closed: each access faults. It counts as
 * no mapped memory. Called once in a process. */
HAK_HIDDEN int hak__os_guard_reserve(size_t size, void **address);
/* Opens pages of these addresses, which read as zero. False: no memory, or above the limit. */
HAK_HIDDEN bool hak__os_guard_open(void *address, size_t size);
/* Closes them and gives their memory back. */
HAK_HIDDEN void hak__os_guard_close(void *address, size_t size);

/* Closes OS pages of a mapping: their contents may be lost, and each access faults. They stay
 * mapped. False: the process may have no further mapping; then nothing was closed, but the contents
 * may be lost. Any thread. */
HAK_HIDDEN bool hak__os_close_pages(void *address, size_t size);
/* The same by marks alone, which take no mapping. False: the kernel does not mark pages (before
 * Linux 6.13), or none that are locked. */
HAK_HIDDEN bool hak__os_mark_pages(void *address, size_t size);
/* Two ranges of one mapping, by one system call if possible. A size may be 0. Bit 0: the first is
 * closed; bit 1: the second. */
struct os_two {
    void *first, *second;
    size_t first_size, second_size;
};
HAK_HIDDEN uint32_t hak__os_close_two(struct os_two ranges);

/* Makes the page of `byte` resident, before a neighbour is closed: the first touch may bring a huge
 * page, but not once a part of that is closed. `byte` becomes 0. */
HAK_INLINE void os_touch(char *byte)
{
    *(volatile char *)byte = 0;
}
/* Opens pages that were closed. They read as zero, except where the kernel does not purge. False:
 * they may still be closed. */
HAK_HIDDEN bool hak__os_open_pages(void *address, size_t size);
/* False: a part of the two ranges may still be closed. */
HAK_HIDDEN bool hak__os_open_two(struct os_two ranges);
/* True: all pages that are closed now have no memory, and read as zero once they are open. */
HAK_HIDDEN bool hak__os_closed_are_empty(void);

/* So many closed ranges lie in one that was closed later, and are not opened by themselves. */
HAK_HIDDEN void hak__os_contain_closed(uint32_t ranges);
/* Ranges of pages that were closed by a change of their protection: up to two mappings each. */
HAK_HIDDEN uint32_t hak__os_closed_ranges(void);

/* Makes pages of a library read-only, or writable again. `code`: they may hold instructions. False:
 * nothing has changed. Any thread. */
HAK_HIDDEN bool hak__os_write_protect(void *address, size_t size, bool closed, bool code);

/* Unmaps memory but keeps its addresses: each access faults, and no new mapping gets them. False:
 * nothing has changed. hak__os_release_addresses gives them up. Any thread. */
HAK_HIDDEN bool hak__os_keep_addresses(void *address, size_t size);
HAK_HIDDEN void hak__os_release_addresses(void *address, size_t size);

enum os_access { OS_ACCESS_UNKNOWN, OS_ACCESS_READ, OS_ACCESS_WRITE };
/* An instruction that touched memory which it may not touch. */
struct os_fault {
    uintptr_t address;
    uintptr_t code; /* of the instruction; 0: unknown */
    enum os_access access;
};
/* Called in the signal handler. The instruction faults again when it returns, with the action that
 * the program has set, which ends the process if there is none. */
typedef void os_fault_function(const struct os_fault *fault);
/* Puts hakmem's handler of SIGSEGV before the present one, if it is not there already. A program
 * may set a handler at any time, so this is called again and again; each time it costs a system
 * call. With a filter only the first call does something. `function` is always the same. */
HAK_HIDDEN void hak__os_fault_watch(os_fault_function *function);
/* The kernel's number of the calling thread. */
HAK_HIDDEN uint32_t hak__os_thread_id(void);

/* Writes `size` bytes to standard error; a failure is ignored. Programs may close descriptor 2 and
 * open a data file or a connection under its number. So it writes only if descriptor 2 is what it
 * was at start, the same file as descriptor 1, a pipe, a terminal, or a file opened for appending.
 */
HAK_HIDDEN void hak__os_write_error(const char *text, size_t size);
/* Opens `path` for appending, and creates it with mode 0600. Follows no symbolic link but those of
 * /dev and /proc to what is open. -ENXIO: a pipe that nobody reads; -EPERM: also another user's
 * pipe. Returns a descriptor that the caller closes, or -errno. */
HAK_HIDDEN int hak__os_open_append(const char *path);
/* Opens `path` for writing, and creates it or makes it empty. As above. */
HAK_HIDDEN int hak__os_open_new(const char *path);
/* A file that stays open in the process and its forked children. */
struct os_kept {
    int descriptor; /* at least OS_KEPT_MIN, a number that programs do not expect; -1: none */
    uint64_t device;
    uint64_t inode;
};
#define OS_KEPT_MIN 512
/* Keeps the file of `descriptor` open under another number, which exec closes. `descriptor` stays
 * open. */
HAK_HIDDEN struct os_kept hak__os_keep(int descriptor);
/* Opens `path` as hak__os_open_append does and keeps it. Descriptor -1: that failed. */
HAK_HIDDEN struct os_kept hak__os_keep_append(const char *path);
/* False: the program has closed the descriptor or opened another file under its number, or the file
 * was deleted. */
HAK_HIDDEN bool hak__os_is_kept(const struct os_kept *kept);
/* Reads the first `size` bytes of a file at most. Returns the bytes read, or -errno. */
HAK_HIDDEN long hak__os_read_file(const char *path, char *buffer, size_t size);
/* The same from `offset` on. */
HAK_HIDDEN long hak__os_read_part(const char *path, uint64_t offset, char *buffer, size_t size);
/* Reads the start of a file as a string in `text`, which has `size` bytes. "": it cannot be read.
 * True: that is all of it. */
HAK_HIDDEN bool hak__os_read_text(const char *path, char *text, size_t size);
/* Writes these bytes to the file instead of what it has, which others never see empty. Makes it if
 * there is none, with mode 0600. Follows no link. No cancellation point. Returns 0, or -errno. */
HAK_HIDDEN int hak__os_update_file(const char *path, const char *data, size_t size);
/* Copies memory of the process that may be unmapped meanwhile. Returns the bytes copied, 0 if there
 * is no memory any more, or -errno: the kernel does not let the process look. May run in a signal
 * handler. */
HAK_HIDDEN long hak__os_read_memory(uintptr_t from, void *to, size_t size);
/* True: apart from `others_count` threads and the remains of an ended main thread, the calling
 * thread is the only one left. Without /proc: true if the main thread has ended. */
HAK_HIDDEN bool hak__os_is_last_thread(uint32_t others_count);
/* Sets the calling thread's name for debuggers and /proc, at most 15 characters. */
HAK_HIDDEN void hak__os_name_thread(const char *name);
/* Copies the calling thread's name, zero-terminated. */
HAK_HIDDEN void hak__os_thread_name(char name[16]);
/* Writes all `size` bytes to a descriptor. What fails sends no signal (SIGXFSZ, SIGPIPE), and
 * leaves no part at the end of a file that is appended to. It waits seconds
 * for a pipe's reader. */
HAK_HIDDEN int hak__os_write(int descriptor, const char *text, size_t size);
/* Why a file could not be opened or written, in words. `error` is -errno. */
HAK_HIDDEN const char *hak__os_file_error(int error);
/* The same for a file that could not be read. */
HAK_HIDDEN const char *hak__os_read_error(int error);
HAK_HIDDEN void hak__os_close(int descriptor);
HAK_HIDDEN uint32_t hak__os_process_id(void);
/* The name space in which that number counts: its inode number. 0: the machine's own, or unknown.
 */
HAK_HIDDEN uint64_t hak__os_process_space(void);
/* Stops for a tracer: sends a signal to the calling thread with these two arguments more, which the
 * kernel ignores and the tracer sees. Without a tracer the signal's default is to end the process,
 * or, if it is a `quiet` one, nothing. */
HAK_HIDDEN void hak__os_tell_tracer(uint64_t first, uint64_t second, bool quiet);
struct hak_observe_saved;
/* Puts the calling thread back to where the tool has found it, and does not return. Returns on a
 * machine that cannot do this. */
HAK_HIDDEN void hak__os_go_back(struct hak_observe_saved *saved);
/* The effective user, who owns the files that this process makes. */
HAK_HIDDEN uint32_t hak__os_user_id(void);

/* A file in memory that other processes map, too. */
struct os_shared {
    void *address; /* NULL: none */
    size_t size;
    int descriptor; /* -1: closed; the file then keeps its size */
};
/* Makes a file of mode 0600 and maps it; forked children do not inherit the mapping. It replaces a
 * file of that name that the user may remove. Its memory is taken at once. */
HAK_HIDDEN int hak__os_share(const char *path, size_t size, struct os_shared *shared);
/* Changes the size; the mapping may move. On an error all is as it was. One thread at a time. */
HAK_HIDDEN int hak__os_share_resize(struct os_shared *shared, size_t size);
/* Closes the descriptor and keeps the mapping. */
HAK_HIDDEN void hak__os_share_close(struct os_shared *shared);
/* Closes and unmaps it. The file stays until hak__os_remove. */
HAK_HIDDEN void hak__os_unshare(struct os_shared *shared);
/* Removes a file; a failure is ignored. */
HAK_HIDDEN void hak__os_remove(const char *path);
/* Gives a file another name, in place of a file that has it. Link: a second name. */
HAK_HIDDEN int hak__os_rename(const char *from, const char *to);
HAK_HIDDEN int hak__os_link(const char *from, const char *to);
/* As hak__os_wait_ms and hak__os_wake_all, for a word that other processes wait for and wake. */
HAK_HIDDEN void hak__os_wait_shared(uint32_t *word, uint32_t value, uint32_t duration_ms);
HAK_HIDDEN void hak__os_wake_shared(uint32_t *word);

/* Ends the process with SIGABRT. */
HAK_HIDDEN __attribute__((noreturn)) void hak__os_abort(void);
/* Ends the process at once, all its threads included. */
HAK_HIDDEN __attribute__((noreturn)) void hak__os_exit(int status);

#endif
