/* left_calls.c: mprotect, madvise, mlock and their relatives. They do what the program asks, and
 * note the changes that could reach the next owner of the memory (region/left.h).
 * Async-signal-safe, as the C library's: they take no lock that they wait for, and allocate
 * nothing.
 *
 * Weak, so that a program linked with libhakmem.a may define its own. Programs that make the system
 * call themselves, and the C library's own calls, are not noticed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "large/whale_left.h"
#include "os/os.h"

#pragma weak mprotect
#pragma weak pkey_mprotect
#pragma weak madvise
#pragma weak mlock
#pragma weak mlock2
#pragma weak munlock

/* Of the kernel's ABI; older headers lack some. */
enum {
    LEFT_DONTFORK = 10,
    LEFT_DOFORK = 11,
    LEFT_MERGEABLE = 12,
    LEFT_UNMERGEABLE = 13,
    LEFT_DONTDUMP = 16,
    LEFT_DODUMP = 17,
    LEFT_WIPEONFORK = 18,
    LEFT_KEEPONFORK = 19,
    LEFT_GUARD_INSTALL = 102,
    LEFT_GUARD_REMOVE = 103
};

/* Returns the result of a call. After a success it notes the change. */
static int left_end(long result, const void *address, size_t size, enum left_kind kind, bool undone)
{
    if (HAK_UNLIKELY(result < 0)) {
        errno = (int)-result;
        return -1;
    }
    size_t page = hak__os_page_size();
    uintptr_t from = bits_align_down((uintptr_t)address, page);
    uintptr_t to = bits_align_up((uintptr_t)address + size, page);
    if (from < to && kind != 0) {
        struct left_change change = {from, to, kind, undone};
        hak__left_note(&change);
        hak__whale_left_note(&change);
    }
    return (int)result;
}

HAK_API int mprotect(void *address, size_t size, int protection)
{
    long result = hak__os_pass(OS_PASS_PROTECT, address, size, protection, 0);
    bool undone = protection == (PROT_READ | PROT_WRITE);
    return left_end(result, address, size, LEFT_PROTECTION, undone);
}

/* Not every C library's header has these two. */
HAK_API int pkey_mprotect(void *, size_t, int, int); /* NOLINT(readability-redundant-declaration) */
int pkey_mprotect(void *address, size_t size, int protection, int key)
{
    if (key == -1) {
        return mprotect(address, size, protection);
    }
    long result = hak__os_pass(OS_PASS_PROTECT_KEY, address, size, protection, key);
    return left_end(result, address, size, LEFT_KEY,
                    key == 0 && protection == (PROT_READ | PROT_WRITE));
}

HAK_API int madvise(void *address, size_t size, int advice)
{
    long result = hak__os_pass(OS_PASS_ADVISE, address, size, advice, 0);
    int kind = 0;
    bool undone = false;
    switch (advice) {
    case LEFT_DONTFORK:
    case LEFT_DOFORK:
        kind = LEFT_FORK;
        undone = advice == LEFT_DOFORK;
        break;
    case LEFT_WIPEONFORK:
    case LEFT_KEEPONFORK:
        kind = LEFT_WIPE;
        undone = advice == LEFT_KEEPONFORK;
        break;
    case LEFT_DONTDUMP:
    case LEFT_DODUMP:
        kind = LEFT_DUMP;
        undone = advice == LEFT_DODUMP;
        break;
    case LEFT_MERGEABLE:
    case LEFT_UNMERGEABLE:
        kind = LEFT_MERGE;
        undone = advice == LEFT_UNMERGEABLE;
        break;
    case LEFT_GUARD_INSTALL:
    case LEFT_GUARD_REMOVE:
        kind = HAK_SECURE ? 0 : LEFT_GUARD; /* the secure form calls it by this name */
        undone = advice == LEFT_GUARD_REMOVE;
        break;
    default:
        break;
    }
    return left_end(result, address, size, (enum left_kind)kind, undone);
}

HAK_API int mlock(const void *address, size_t size)
{
    long result = hak__os_pass(OS_PASS_LOCK, address, size, 0, 0);
    return left_end(result, address, size, LEFT_LOCK, false);
}

HAK_API int mlock2(const void *, size_t, unsigned); /* NOLINT(readability-redundant-declaration) */
int mlock2(const void *address, size_t size, unsigned flags)
{
    if (flags == 0) { /* kernels before 4.4 have mlock only */
        return mlock(address, size);
    }
    long result = hak__os_pass(OS_PASS_LOCK2, address, size, (long)flags, 0);
    return left_end(result, address, size, LEFT_LOCK, false);
}

HAK_API int munlock(const void *address, size_t size)
{
    long result = hak__os_pass(OS_PASS_UNLOCK, address, size, 0, 0);
    return left_end(result, address, size, LEFT_LOCK, true);
}
