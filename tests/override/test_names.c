/* SPDX-License-Identifier: MIT */
/* test_names.c: every name of the malloc family is there and is hakmem's, none is left to glibc.
 *
 * A single name that stays with the C library is enough to crash a program (jemalloc #2246:
 * pvalloc): its memory reaches the other allocator's free. */
#include "override.h"

#include <link.h>

#define WEAK __attribute__((weak))

/* glibc's headers do not declare these. */
WEAK void cfree(void *pointer);
WEAK void free_sized(void *pointer, size_t size);
WEAK void free_aligned_sized(void *pointer, size_t alignment, size_t size);
/* Formatted by hand: clang-format's result would be another one each time. */
/* clang-format off */
#define C_NAMES(X)                                                                      \
    X(malloc) X(free) X(calloc) X(realloc) X(reallocarray) X(memalign) X(aligned_alloc) \
    X(posix_memalign) X(valloc) X(pvalloc) X(malloc_usable_size) X(malloc_trim)         \
    X(malloc_stats) X(malloc_info) X(mallinfo) X(mallinfo2) X(mallopt) X(free_sized)    \
    X(free_aligned_sized) X(cfree)
/* Declared as data: only their addresses are of interest. */
#define OTHER_NAMES(X)                                                                  \
    X(__libc_malloc) X(__libc_free) X(__libc_calloc) X(__libc_realloc)                  \
    X(__libc_memalign) X(__libc_valloc) X(__libc_pvalloc)                               \
    X(_Znwm) X(_Znam) X(_ZnwmRKSt9nothrow_t) X(_ZnamRKSt9nothrow_t)                     \
    X(_ZnwmSt11align_val_t) X(_ZnamSt11align_val_t)                                     \
    X(_ZnwmSt11align_val_tRKSt9nothrow_t) X(_ZnamSt11align_val_tRKSt9nothrow_t)         \
    X(_ZdlPv) X(_ZdaPv) X(_ZdlPvm) X(_ZdaPvm)                                           \
    X(_ZdlPvRKSt9nothrow_t) X(_ZdaPvRKSt9nothrow_t)                                     \
    X(_ZdlPvSt11align_val_t) X(_ZdaPvSt11align_val_t)                                   \
    X(_ZdlPvmSt11align_val_t) X(_ZdaPvmSt11align_val_t)                                 \
    X(_ZdlPvSt11align_val_tRKSt9nothrow_t) X(_ZdaPvSt11align_val_tRKSt9nothrow_t)
/* clang-format on */

#define DECLARE(name) extern WEAK char name[];
OTHER_NAMES(DECLARE)

struct name {
    const char *text;
    uintptr_t linked; /* the address this program was linked with, 0 when there was none */
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
#define C_ENTRY(name) {#name, (uintptr_t)name},
#define OTHER_ENTRY(name) {#name, (uintptr_t)name},
static const struct name names[] = {C_NAMES(C_ENTRY) OTHER_NAMES(OTHER_ENTRY)};
#pragma GCC diagnostic pop

static bool is_served(const struct name *name, enum served served)
{
    const void *found = dlsym(RTLD_DEFAULT, name->text);
    const char *owner = owner_of_address(found);
    bool good = is_hakmem_path(owner);
    if (served == SERVED_BY_LINK) {
        /* A name no shared object mentions is not exported by a linked program: then its own
         * address counts. A C program that was linked without the C++ names needs none. */
        found = name->linked != 0 ? (const void *)name->linked : found;
        owner = owner_of_address(found);
        good = strcmp(owner, owner_of_address(names)) == 0 ||
               (found == NULL && name->text[0] == '_' && name->text[1] == 'Z');
    }
    if (!good) {
        dprintf(2, "%s: %s%s\n", name->text, owner[0] != '\0' ? "belongs to " : "missing", owner);
    }
    return good;
}

static int find_cxx_library(struct dl_phdr_info *info, size_t size, void *found)
{
    if (strstr(info->dlpi_name, "libstdc++") || strstr(info->dlpi_name, "libc++")) {
        *(bool *)found = true;
    }
    return 0;
}

int main(void)
{
    enum served served = prove_served();
    size_t wrong_count = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        wrong_count += !is_served(&names[i], served);
    }
    CHECK_EQUAL(wrong_count, 0);
    /* hakmem has operator new, but must not load the C++ library into C programs: it costs each
     * of them a megabyte and a millisecond. */
    bool found = false;
    dl_iterate_phdr(find_cxx_library, &found);
    CHECK(served == SERVED_BY_LINK || !found);

    /* They work together: what one name allocates the others free. */
    if (free_sized != NULL && free_aligned_sized != NULL && cfree != NULL) {
        for (size_t size = 0; size < 3000000; size = size * 3 / 2 + 1) {
            free_sized(get_memory(size), size);
            free_aligned_sized(opaque_pointer(aligned_alloc(64, opaque_size(size))), 64, size);
            cfree(get_memory(size));
            free_sized(NULL, size);
            free_aligned_sized(NULL, 64, size);
        }
        cfree(NULL);
    }
    return 0;
}
