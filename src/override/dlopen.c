/* SPDX-License-Identifier: MIT */
/* dlopen.c: dlopen with RTLD_DEEPBIND, a flag that would give a library another malloc.
 *
 * With the flag, a library finds names in the libraries that it needs before those of the program.
 * One of these is the C library, whose malloc and free must never meet hakmem's blocks. So before
 * the first such library is loaded, the C library's own table of symbols is changed: its malloc is
 * hakmem's. Whoever looks the name up there, at any time and in any way, finds hakmem.
 *
 * If the table cannot be changed, the flag is left out, and one line says so. Nothing of this
 * happens with HAKMEM_KEEP_DEEPBIND=1 (docs/decisions/0006-deepbind.md).
 *
 * dlmopen stays the C library's: a new namespace has a C library of its own, with its own malloc.
 *
 * This file is in the shared library only: a static program must use the C library's own dlopen. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#include "base/atomics.h"
#include "base/bits.h"
#include "base/symbols.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "override/family.h"

/* Names that a library must share with the program, each with its end. One string, because a table
 * of pointers would cost each start of a process its relocation. */
static const char shared_names[] =
    "malloc\0calloc\0realloc\0free\0cfree\0memalign\0valloc\0pvalloc\0aligned_alloc\0"
    "posix_memalign\0reallocarray\0free_sized\0free_aligned_sized\0malloc_usable_size\0"
    "__libc_malloc\0__libc_calloc\0__libc_realloc\0__libc_free\0__libc_cfree\0__libc_memalign\0"
    "__libc_valloc\0__libc_pvalloc\0malloc_trim\0malloc_stats\0malloc_info\0mallinfo\0mallinfo2\0"
    "mallopt\0_exit\0_Exit\0"
    "_Znwm\0_ZnwmRKSt9nothrow_t\0_ZnwmSt11align_val_t\0_ZnwmSt11align_val_tRKSt9nothrow_t\0"
    "_Znam\0_ZnamRKSt9nothrow_t\0_ZnamSt11align_val_t\0_ZnamSt11align_val_tRKSt9nothrow_t\0"
    "_ZdlPv\0_ZdlPvm\0_ZdlPvRKSt9nothrow_t\0_ZdlPvSt11align_val_t\0_ZdlPvmSt11align_val_t\0"
    "_ZdlPvSt11align_val_tRKSt9nothrow_t\0"
    "_ZdaPv\0_ZdaPvm\0_ZdaPvRKSt9nothrow_t\0_ZdaPvSt11align_val_t\0_ZdaPvmSt11align_val_t\0"
    "_ZdaPvSt11align_val_tRKSt9nothrow_t\0";
enum { SHARED_NAMES = 50 };

/* --- sharing --- */

/* Hidden names of the linker: the beginning and the end of this library. */
HAK_HIDDEN extern const ElfW(Ehdr) __ehdr_start;
HAK_HIDDEN extern const char _end[];

/* The C++ library has operator new. NULL: the program started without one; then the new of a later
 * one calls malloc. */
__attribute__((weak)) void dlopen_throw(void) __asm__("__cxa_throw");

struct sharing {
    uintptr_t wanted[SHARED_NAMES]; /* hakmem's function, or a recorder's; 0: another one is used */
    uintptr_t marks[2];             /* an address inside each of the libraries to change */
    bool failed;
};

/* Looks up who serves the program. False: hakmem serves it nothing. */
static bool sharing_look_up(struct sharing *sharing)
{
    const char *name = shared_names;
    bool any = false;
    for (uint32_t i = 0; i < SHARED_NAMES; i++) {
        uintptr_t found = (uintptr_t)dlsym(RTLD_DEFAULT, name);
        bool own = found - (uintptr_t)&__ehdr_start < (uintptr_t)_end - (uintptr_t)&__ehdr_start;
        own = own || hak__family_is_recorded(found);
        sharing->wanted[i] = own ? found : 0;
        any = any || own;
        while (*name++ != '\0') {
        }
    }
    sharing->marks[0] = (uintptr_t)dlsym(RTLD_NEXT, "gnu_get_libc_version");
    sharing->marks[1] = (uintptr_t)dlopen_throw;
    return any;
}

/* True: some symbols do not have the wanted addresses. `changes`: gives them these. */
static bool sharing_walk(const struct sharing *sharing, const struct symbols *symbols, bool changes)
{
    const char *name = shared_names;
    bool any = false;
    for (uint32_t i = 0; i < SHARED_NAMES; i++) {
        uintptr_t value = sharing->wanted[i] - symbols->base;
        uint32_t at = sharing->wanted[i] != 0 ? hak__symbols_next(symbols, name, 0) : 0;
        for (; at != 0; at = hak__symbols_next(symbols, name, at)) {
            ElfW(Sym) *symbol = &symbols->table[at];
            bool differs = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_value != value;
            any = any || differs;
            if (differs && changes) {
                /* relaxed: another thread's loader finds the old function or the new one, and both
                 * are whole */
                atomic_store_relaxed(&symbol->st_value, value);
            }
        }
        while (*name++ != '\0') {
        }
    }
    return any;
}

/* Callback of dl_iterate_phdr. It runs under a lock of the loader, so one thread at a time changes
 * a table. Returns 0, which goes on with the next object. */
static int sharing_visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct sharing *sharing = argument;
    struct symbols symbols;
    (void)size;
    if (hak__symbols_segment(object, sharing->marks[0]) == NULL &&
        hak__symbols_segment(object, sharing->marks[1]) == NULL) {
        return 0;
    }
    if (!hak__symbols_read_loaded(&symbols, object) || symbols.gnu_hash == NULL) {
        sharing->failed = true;
        return 0;
    }
    if (!sharing_walk(sharing, &symbols, false)) {
        return 0; /* an earlier call has done it */
    }
    uintptr_t table = (uintptr_t)symbols.table, page = hak__os_page_size();
    uintptr_t end = (uintptr_t)(symbols.table + hak__symbols_count(&symbols));
    const ElfW(Phdr) *segment = hak__symbols_segment(object, table);
    void *start = (void *)bits_align_down(table, page);
    size_t bytes = bits_align_up(end, page) - (uintptr_t)start;
    bool code = segment != NULL && (segment->p_flags & PF_X) != 0;
    if (segment == NULL || !hak__os_write_protect(start, bytes, false, code)) {
        sharing->failed = true;
        return 0;
    }
    (void)sharing_walk(sharing, &symbols, true);
    if ((segment->p_flags & PF_W) == 0) {
        (void)hak__os_write_protect(start, bytes, true, code); /* else it stays writable */
    }
    return 0;
}

/* The flags with which the library is to be opened. */
static int sharing_mode(int mode)
{
    static bool shared_said;
    struct sharing sharing = {.failed = false};
    if ((mode & RTLD_DEEPBIND) == 0 || atomic_load_relaxed(&hak__settings.keep_deepbind) ||
        !sharing_look_up(&sharing)) {
        return mode;
    }
    dl_iterate_phdr(sharing_visit, &sharing);
    if (!sharing.failed) {
        return mode;
    }
    if (!atomic_exchange_acquire(&shared_said, true)) {
        hak__diagnose_warn(
            "RTLD_DEEPBIND is left out, because the C library's table of symbols "
            "cannot be changed: plug-ins may get functions of the program instead of "
            "their own; HAKMEM_KEEP_DEEPBIND=1 keeps the flag",
            NULL);
    }
    return mode & ~RTLD_DEEPBIND;
}

/* The loader finds the search path and the namespace of the caller by the return address. So the
 * last call must be a jump, which returns to hakmem's caller. That is why this file is compiled
 * with -O2 in every form; tests/override/test_deepbind.c checks it. */
typedef void *dlopen_function(const char *file, int mode);

HAK_API void *dlopen(const char *file, int mode)
{
    dlopen_function *next = (dlopen_function *)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
    if (next == NULL) {
        return NULL;
    }
    return next(file, sharing_mode(mode));
}
