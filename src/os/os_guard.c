/* SPDX-License-Identifier: MIT */
/* os_guard.c: memory that no instruction may touch, and the signal of one that does. See os.h.
 *
 * Linux 6.13 marks single pages as guards (MADV_GUARD_INSTALL), which takes no further mapping.
 * Older kernels change the protection of a part of the mapping, which splits it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/bound.h"
#include "os/charge.h"

/* Older headers lack them; the values are part of the kernel's ABI. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MADV_GUARD_REMOVE
#define MADV_GUARD_REMOVE 103
#endif

/* --- memory --- */

enum { MARKS_UNKNOWN, MARKS_GUARDS, MARKS_NOTHING };
static uint32_t shared_os_marks; /* relaxed: each thread may find it out itself */

/* The name mprotect belongs to programs that follow their own mappings; this one is hakmem's. */
static bool os_protect(void *address, size_t size, int protection)
{
    return syscall(SYS_mprotect, address, size, protection) == 0;
}

/* Closes pages by marks. False: the kernel does not mark them, or may not be asked. */
static bool os_mark(void *address, size_t size)
{
    uint32_t marks = atomic_load_relaxed(&shared_os_marks);
    bool marked = HAK_LEVEL < 2 && marks != MARKS_NOTHING && hak__os_may_ask() &&
                  syscall(SYS_madvise, address, size, MADV_GUARD_INSTALL) == 0;
    if (marks == MARKS_UNKNOWN) {
        /* An emulator may accept what it does not know. What is not seen to be closed is opened:
         * from now on nobody would remove a mark. Assertion level 2 tests the other way. */
        if (marked && hak__os_is_readable((uintptr_t)address)) {
            (void)syscall(SYS_madvise, address, size, MADV_GUARD_REMOVE);
            marked = false;
        }
        (void)atomic_cas_acquire(&shared_os_marks, &marks,
                                 (uint32_t)(marked ? MARKS_GUARDS : MARKS_NOTHING));
    }
    return marked;
}

/* Opens pages closed by marks. With a filter the kernel may not be asked for that: memory that was
 * marked before the filter is replaced. The last page may be marked without the others. */
static bool os_unmark(void *address, size_t size)
{
    if (hak__os_may_ask()) {
        return syscall(SYS_madvise, address, size, MADV_GUARD_REMOVE) == 0;
    }
    uintptr_t first = (uintptr_t)address, last = first + size - hak__os_page_size();
    return os_protect(address, size, PROT_READ | PROT_WRITE) &&
           ((hak__os_is_readable(first) && hak__os_is_readable(last)) ||
            hak__os_replace(address, size));
}

static uint32_t shared_os_closed; /* ranges closed by their protection */

uint32_t hak__os_closed_ranges(void)
{
    return atomic_load_relaxed(&shared_os_closed);
}

bool hak__os_mark_pages(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_PURGE);
    return os_mark(address, size);
}

bool hak__os_close_pages(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_PURGE);
    bool closed = os_mark(address, size);
    if (!closed) { /* also for locked memory, which the kernel does not mark */
        uint32_t count = atomic_add_relaxed(&shared_os_closed, 1u);
        /* Mappings that closed pages may add where the kernel does not mark pages; Linux allows a
         * process 65,530. Twice as many: a program with many mappings of its own may reach the
         * limit. Half: half as many blocks end in a closed page. */
        closed = count < 16384 && os_protect(address, size, PROT_NONE);
        (void)bound_madvise(address, size, MADV_DONTNEED);
        if (!closed) {
            atomic_sub_relaxed(&shared_os_closed, 1u);
        }
    }
    return closed;
}

bool hak__os_open_pages(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    bool marks = atomic_load_relaxed(&shared_os_marks) == MARKS_GUARDS, opened = true;
    if (marks) {
        opened = os_unmark(address, size);
    }
    /* Which ranges were closed by their protection is not known. With marks these are the few of
     * locked memory, and the count stays as it is. Otherwise it may get too low. */
    uint32_t closed = atomic_load_relaxed(&shared_os_closed);
    if (!marks || closed != 0) {
        opened = os_protect(address, size, PROT_READ | PROT_WRITE) && opened;
    }
    if ((!marks || hak__os_is_filtered()) && closed != 0) {
        (void)atomic_cas_acquire(&shared_os_closed, &closed, closed - 1);
    }
    return opened;
}

/* Marks two ranges, or takes their marks away. False: each is to be done by itself. */
static bool os_advise_two(struct os_two ranges, int advice)
{
    enum { CALL = 440 /* process_madvise, which older headers lack */ };
    enum { THIS_PROCESS = -10001 /* instead of a descriptor; Linux 6.14 */ };
    static uint32_t shared_lacks; /* 1: the kernel cannot. Relaxed: each thread may find it out */
    if (HAK_LEVEL > 1 || ranges.first_size == 0 || ranges.second_size == 0 ||
        atomic_load_relaxed(&shared_os_marks) != MARKS_GUARDS ||
        atomic_load_relaxed(&shared_lacks) != 0 || !hak__os_may_ask()) {
        return false;
    }
    struct iovec parts[2] = {{ranges.first, ranges.first_size},
                             {ranges.second, ranges.second_size}};
    os_count(OS_CALL_PURGE);
    long done = syscall(CALL, THIS_PROCESS, parts, 2, advice, 0);
    if (done < 0 && errno != EINVAL && errno != ENOMEM) { /* these may be locked memory's */
        atomic_store_relaxed(&shared_lacks, 1u);
    }
    return done == (long)(ranges.first_size + ranges.second_size);
}

uint32_t hak__os_close_two(struct os_two ranges)
{
    HAK_KEEP_ERRNO;
    if (os_advise_two(ranges, MADV_GUARD_INSTALL)) {
        return 3;
    }
    bool first = ranges.first_size != 0 && hak__os_close_pages(ranges.first, ranges.first_size);
    bool second = ranges.second_size != 0 && hak__os_close_pages(ranges.second, ranges.second_size);
    return (first ? 1u : 0u) | (second ? 2u : 0u);
}

bool hak__os_open_two(struct os_two ranges)
{
    HAK_KEEP_ERRNO;
    if (atomic_load_relaxed(&shared_os_closed) == 0 && os_advise_two(ranges, MADV_GUARD_REMOVE)) {
        return true;
    }
    bool first = ranges.first_size == 0 || hak__os_open_pages(ranges.first, ranges.first_size);
    bool second = ranges.second_size == 0 || hak__os_open_pages(ranges.second, ranges.second_size);
    return first && second;
}

void hak__os_contain_closed(uint32_t ranges)
{
    if (atomic_load_relaxed(&shared_os_marks) != MARKS_GUARDS) {
        atomic_sub_relaxed(&shared_os_closed, ranges);
    }
}

/* Marking empties pages; other ways may not empty locked ones. */
bool hak__os_closed_are_empty(void)
{
    return atomic_load_relaxed(&shared_os_marks) == MARKS_GUARDS && !hak__os_is_filtered() &&
           atomic_load_relaxed(&shared_os_closed) == 0;
}

int hak__os_guard_reserve(size_t size, void **address)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_MAP);
    void *result = bound_mmap(NULL, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (result == MAP_FAILED) {
        return -errno;
    }
    if (!hak__os_close_pages(result, size)) {
        hak__os_recharge(size);
        hak__os_discard(result, size);
        return -ENOMEM;
    }
    *address = result;
    return 0;
}

bool hak__os_guard_open(void *address, size_t size)
{
    bool opened = hak__os_charge(size);
    if (opened && !hak__os_open_pages(address, size)) {
        hak__os_uncharge(size);
        opened = false;
    }
    hak__os_note_peak();
    return opened;
}

void hak__os_guard_close(void *address, size_t size)
{
    if (!hak__os_close_pages(address, size)) {
        (void)hak__os_replace(address, size);
        (void)os_protect(address, size, PROT_NONE);
    }
    hak__os_uncharge(size);
}

bool hak__os_write_protect(void *address, size_t size, bool closed, bool code)
{
    HAK_KEEP_ERRNO;
    int protection = PROT_READ | (closed ? 0 : PROT_WRITE) | (code ? PROT_EXEC : 0);
    return os_protect(address, size, protection);
}

bool hak__os_keep_addresses(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_UNMAP);
    /* A new mapping takes a single call, however many pages the old one has. */
    bool kept = bound_mmap(address, size, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1) == address;
    if (kept) {
        hak__os_uncharge(size);
    }
    return kept;
}

void hak__os_release_addresses(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_UNMAP);
    bound_munmap(address, size); /* if that fails they stay closed */
}

/* --- the signal --- */

static os_fault_function *shared_fault_function; /* NULL: not watched */
static uint32_t shared_fault_busy;               /* 1: a thread changes the action */
/* The action before which each handler stands. Constant once the handler is set. Programs set
 * handlers, and these restore or call the one that they have replaced: hakmem's. So hakmem has
 * several handlers, each of which stands before another action and gives way to that one: 0 before
 * the first action, 1 before the handler that replaced 0, and so on. */
static struct sigaction fault_previous[4] HAK_SELDOM;
static uint32_t shared_fault_levels; /* in use */

#if defined(__x86_64__)
static struct os_fault fault_of(const siginfo_t *info, const ucontext_t *context)
{
    const greg_t *registers = context->uc_mcontext.gregs;
    enum { TRAP_PAGE_FAULT = 14, ERROR_WRITE = 2 };
    struct os_fault fault = {(uintptr_t)info->si_addr, (uintptr_t)registers[REG_RIP],
                             OS_ACCESS_UNKNOWN};
    if (registers[REG_TRAPNO] == TRAP_PAGE_FAULT) {
        fault.access = (registers[REG_ERR] & ERROR_WRITE) != 0 ? OS_ACCESS_WRITE : OS_ACCESS_READ;
    }
    return fault;
}
#elif defined(__aarch64__)
/* The kernel's records behind the registers; that of the exception syndrome has the magic "ESR". */
struct fault_record {
    uint32_t magic;
    uint32_t size;
};

static struct os_fault fault_of(const siginfo_t *info, const ucontext_t *context)
{
    enum { MAGIC_ESR = 0x45535201, SYNDROME_WRITE = 1 << 6 };
    struct os_fault fault = {(uintptr_t)info->si_addr, (uintptr_t)context->uc_mcontext.pc,
                             OS_ACCESS_UNKNOWN};
    const unsigned char *at = (const unsigned char *)context->uc_mcontext.__reserved;
    const unsigned char *end = at + sizeof context->uc_mcontext.__reserved;
    while (at + sizeof(struct fault_record) + sizeof(uint64_t) <= end) {
        const struct fault_record *record = (const struct fault_record *)(const void *)at;
        if (record->magic == MAGIC_ESR) {
            uint64_t syndrome = *(const uint64_t *)(const void *)(record + 1);
            fault.access = (syndrome & SYNDROME_WRITE) != 0 ? OS_ACCESS_WRITE : OS_ACCESS_READ;
        }
        if (record->magic == 0 || record->size == 0) {
            break;
        }
        at += record->size;
    }
    return fault;
}
#else
static struct os_fault fault_of(const siginfo_t *info, const ucontext_t *context)
{
    (void)context;
    return (struct os_fault){(uintptr_t)info->si_addr, 0, OS_ACCESS_UNKNOWN};
}
#endif

static void fault_act(uint32_t level, int signal, siginfo_t *info, void *context)
{
    HAK_KEEP_ERRNO;
    bool faulted = info->si_code > 0; /* else another process or raise has sent it */
    /* acquire: pairs with the release in hak__os_fault_watch */
    os_fault_function *function = atomic_load_acquire(&shared_fault_function);
    if (faulted && function != NULL) {
        struct os_fault fault = fault_of(info, context);
        function(&fault);
    }
    sigaction(signal, &fault_previous[level], NULL);
    if (!faulted) { /* no instruction repeats it; it comes when this handler returns */
        syscall(SYS_tgkill, (long)syscall(SYS_getpid), (long)syscall(SYS_gettid), signal);
    }
}

#define FAULT_ACT(level)                                                                           \
    static void fault_act_##level(int signal, siginfo_t *info, void *context)                      \
    {                                                                                              \
        fault_act(level, signal, info, context);                                                   \
    }
FAULT_ACT(0)
FAULT_ACT(1)
FAULT_ACT(2)
FAULT_ACT(3)

static void (*const fault_acts[HAK_COUNT_OF(fault_previous)])(int, siginfo_t *, void *) = {
    fault_act_0, fault_act_1, fault_act_2, fault_act_3};

static bool fault_is_own(const struct sigaction *action)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(fault_previous); i++) {
        if ((action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == fault_acts[i]) {
            return true;
        }
    }
    return false;
}

/* The handler that stands before the action; a new one if there is room. Their number: none. */
static uint32_t fault_level_before(const struct sigaction *action)
{
    uint32_t count = atomic_load_relaxed(&shared_fault_levels);
    for (uint32_t i = 0; i < count; i++) {
        /* The two forms of a handler share their place. */
        if (fault_previous[i].sa_handler == action->sa_handler &&
            fault_previous[i].sa_flags == action->sa_flags) {
            return i;
        }
    }
    if (count < HAK_COUNT_OF(fault_previous)) {
        fault_previous[count] = *action;
        atomic_store_relaxed(&shared_fault_levels, count + 1);
    }
    return count;
}

static void fault_stand_before(const struct sigaction *action)
{
    uint32_t level = fault_level_before(action);
    if (level < HAK_COUNT_OF(fault_previous)) {
        struct sigaction own = {.sa_sigaction = fault_acts[level], .sa_mask = action->sa_mask};
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &own, NULL);
    }
}

void hak__os_fault_watch(os_fault_function *function)
{
    struct sigaction now;
    HAK_KEEP_ERRNO;
    if (hak__os_is_filtered() && atomic_load_relaxed(&shared_fault_function) != NULL) {
        return;
    }
    /* acquire, release: each thread sees what the last one has done */
    if (atomic_exchange_acquire(&shared_fault_busy, 1u) == 0) {
        /* release: pairs with the acquire in fault_act */
        atomic_store_release(&shared_fault_function, function);
        if (sigaction(SIGSEGV, NULL, &now) == 0 && !fault_is_own(&now)) {
            fault_stand_before(&now);
        }
        atomic_store_release(&shared_fault_busy, 0u);
    }
}

uint32_t hak__os_thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}
