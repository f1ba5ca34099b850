/* SPDX-License-Identifier: MIT */
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

/* Advice that stays on memory, and what undoes it. The numbers are of the kernel's ABI; older
 * headers lack some names. */
static const struct left_advice {
    int advice, undone_by;
    enum left_kind kind;
} left_advices[] = {
    {10, 11, LEFT_FORK},   /* MADV_DONTFORK, MADV_DOFORK */
    {12, 13, LEFT_MERGE},  /* MADV_MERGEABLE, MADV_UNMERGEABLE */
    {16, 17, LEFT_DUMP},   /* MADV_DONTDUMP, MADV_DODUMP */
    {18, 19, LEFT_WIPE},   /* MADV_WIPEONFORK, MADV_KEEPONFORK */
    {102, 103, LEFT_GUARD} /* MADV_GUARD_INSTALL, MADV_GUARD_REMOVE */
};

static int left_result(long result)
{
    if (HAK_UNLIKELY(result < 0)) {
        errno = (int)-result;
        return -1;
    }
    return (int)result;
}

/* Returns the result of a call. After a success it notes the change. */
static int left_end(long result, const void *address, size_t size, enum left_kind kind, bool undone)
{
    size_t page = hak__os_page_size();
    uintptr_t from = bits_align_down((uintptr_t)address, page);
    uintptr_t to = bits_align_up((uintptr_t)address + size, page);
    if (result >= 0 && from < to) {
        struct left_change change = {from, to, kind, undone};
        hak__left_note(&change);
        hak__whale_left_note(&change);
    }
    return left_result(result);
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
    for (size_t i = 0; i < sizeof left_advices / sizeof left_advices[0]; i++) {
        const struct left_advice *left = &left_advices[i];
        if (HAK_SECURE && left->kind == LEFT_GUARD) { /* that form itself calls it by this name */
            continue;
        }
        if (advice == left->advice || advice == left->undone_by) {
            return left_end(result, address, size, left->kind, advice == left->undone_by);
        }
    }
    return left_result(result);
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
