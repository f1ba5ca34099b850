/* SPDX-License-Identifier: MIT */
/* direct.c: binds hakmem's calls of the C library to the C library itself.
 *
 * Programs have functions of their own with such names: sanitizers, profilers, shims. Many of them
 * work only after a constructor of theirs has run, and hakmem runs earlier: its constructor is the
 * first, and malloc may be called before any. So a call that the loader has bound to somebody
 * else's function is bound anew, while the loader still relocates hakmem. The C library's own
 * malloc cannot be intercepted either.
 *
 * Functions that map memory are the exception. Libraries that follow mappings (registration caches
 * of network cards, profilers) must see hakmem's. So these names stay bound to such a library;
 * until its last constructor has run, os/bound.h makes the system calls instead.
 *
 * Calls:  early.c, before anything else of hakmem runs. Then the constructor.
 * Why not dlsym: it takes locks, and programs have that one, too.
 *
 * This file is in the shared library only. It needs glibc's loader; with another one, or in a
 * namespace of dlmopen, all stays as the loader has bound it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "override/direct.h"

#include <link.h>

#include "arena/arena.h"
#include "base/symbols.h"
#include "base/text.h"
#include "os/bound.h"
#include "os/os.h"

/* Weak: the list of the loader's objects. musl has none of this name. */
extern struct r_debug direct_objects __asm__("_r_debug")
    __attribute__((weak, visibility("default")));

extern ElfW(Dyn) _DYNAMIC[]; /* NOLINT(readability-redundant-declaration) */
HAK_HIDDEN extern const ElfW(Ehdr) __ehdr_start;

#if defined(__x86_64__)
#define DIRECT_IS_ADDRESS(type)                                                                    \
    ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64 || (type) == R_X86_64_JUMP_SLOT)
#else
#define DIRECT_IS_ADDRESS(type)                                                                    \
    ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64 || (type) == R_AARCH64_JUMP_SLOT)
#endif

/* Names of os/bound.h that stay, and the functions that somebody has put there. */
static const char *const direct_followed[] = {"mmap", "munmap", "mremap", "madvise"};
enum { DIRECT_FOLLOWED = sizeof direct_followed / sizeof direct_followed[0] };
static uintptr_t direct_followers[DIRECT_FOLLOWED];

struct direct_library {
    struct symbols symbols;
    uintptr_t end;
};

/* --- at the start --- */

static bool direct_has_name(const struct link_map *object, const char *name)
{
    const char *last = object->l_name;
    for (const char *at = last; *at != '\0'; at++) {
        last = *at == '/' ? at + 1 : last;
    }
    return hak__text_equal(last, name);
}

static bool direct_find_library(struct direct_library *library)
{
    const struct link_map *object = &direct_objects != NULL ? direct_objects.r_map : NULL;
    bool own = false, found = false;
    for (; object != NULL; object = object->l_next) {
        own = own || object->l_ld == _DYNAMIC;
        if (!found && object->l_addr != 0 && direct_has_name(object, "libc.so.6")) {
            found = hak__symbols_read(&library->symbols, object->l_addr, object->l_ld, true);
        }
    }
    if (!own || !found) {
        return false;
    }
    const ElfW(Ehdr) *header = (const void *)library->symbols.base;
    const ElfW(Phdr) *parts = (const void *)(library->symbols.base + header->e_phoff);
    for (size_t i = 0; i < header->e_phnum; i++) {
        uintptr_t end = library->symbols.base + parts[i].p_vaddr + parts[i].p_memsz;
        if (parts[i].p_type == PT_LOAD && end > library->end) {
            library->end = end;
        }
    }
    return true;
}

/* The address of the library's function of this name; 0: it has none. */
static uintptr_t direct_address(const struct symbols *symbols, const char *name)
{
    uint32_t at = hak__symbols_next(symbols, name, 0);
    /* the version that new programs get: others are marked as hidden */
    while (at != 0 && symbols->versions != NULL && (symbols->versions[at] & 0x8000) != 0) {
        at = hak__symbols_next(symbols, name, at);
    }
    if (at == 0) {
        return 0;
    }
    uintptr_t address = symbols->base + symbols->table[at].st_value;
    switch (ELF64_ST_TYPE(symbols->table[at].st_info)) {
    case STT_FUNC:
        return address;
    case STT_GNU_IFUNC: /* glibc's need no arguments */
        return ((uintptr_t(*)(uint64_t, const void *))address)(0, NULL);
    default:
        return 0; /* the program's copy of a variable is the right one */
    }
}

/* Inside an operation a thread has no struct while somebody's function runs, as if it had ended:
 * then no fast path finds a bin, and the gate refuses all others (core/gate.h). */
static void *direct_hide(void *hidden)
{
    struct thread *thread = hak__thread;
    if (hidden != NULL) {
        hak__thread = hidden;
    } else if ((hak__inside & INSIDE_OPERATION) != 0) {
        hak__thread = (struct thread *)(uintptr_t)&hak__thread_ended;
        return thread;
    }
    return NULL;
}

static void direct_set_bound(unsigned state)
{
    atomic_store_relaxed(&hak__os_shared_bound, (uint8_t)state);
}

/* True: somebody follows what is mapped by the function of this name, which stays. */
static bool direct_is_followed(const char *name, uintptr_t bound)
{
    for (size_t i = 0; i < DIRECT_FOLLOWED; i++) {
        if (hak__text_equal(name, direct_followed[i])) {
            direct_followers[i] = bound;
            hak__os_hide_bins = direct_hide;
            direct_set_bound(BOUND_DIRECT);
            return true;
        }
    }
    return false;
}

static void direct_bind_one(const struct symbols *own, const struct direct_library *library,
                            const ElfW(Rela) * relocation)
{
    uint32_t at = (uint32_t)ELF64_R_SYM(relocation->r_info);
    uintptr_t *place = (uintptr_t *)(own->base + relocation->r_offset);
    if (!DIRECT_IS_ADDRESS(ELF64_R_TYPE(relocation->r_info)) || relocation->r_addend != 0 ||
        symbols_is_defined(own, at) || *place == 0 ||
        *place - library->symbols.base < library->end - library->symbols.base) {
        return;
    }
    uintptr_t address = direct_address(&library->symbols, symbols_name(own, at));
    if (address != 0 && !direct_is_followed(symbols_name(own, at), *place)) {
        *place = address;
    }
}

void hak__direct_bind(void)
{
    struct direct_library library = {.end = 0};
    struct symbols own;
    if (!direct_find_library(&library) ||
        !hak__symbols_read(&own, (uintptr_t)&__ehdr_start, _DYNAMIC, true)) {
        return;
    }
    direct_set_bound(BOUND_PLAINLY);
    /* The second table is empty: calls without a stub are bound at the start (-fno-plt). */
    size_t count = own.relocation_bytes[0] / sizeof(ElfW(Rela));
    for (size_t i = 0; i < count; i++) {
        direct_bind_one(&own, &library, &own.relocations[0][i]);
    }
}

/* --- when those who follow mappings are ready --- */

typedef void direct_constructor(int argc, char **argv, char **environment);

static direct_constructor *direct_last; /* of the object that follows mappings */

static void direct_ready(int argc, char **argv, char **environment)
{
    direct_last(argc, argv, environment);
    direct_set_bound(BOUND_FOLLOWED);
}

struct direct_search {
    uintptr_t address;
    direct_constructor **last; /* NULL: it has no constructors */
    bool sealed;               /* the loader has made the place read-only */
};

/* Callback of dl_iterate_phdr: notes the object that holds the address. Returns 0 to go on. */
static int direct_visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct direct_search *search = argument;
    struct symbols symbols;
    uintptr_t base = object->dlpi_addr, array = 0;
    size_t bytes = 0;
    (void)size;
    if (hak__symbols_segment(object, search->address) == NULL ||
        !hak__symbols_read_loaded(&symbols, object)) {
        return 0;
    }
    for (const ElfW(Dyn) *entry = symbols.dynamic; entry->d_tag != DT_NULL; entry++) {
        array = entry->d_tag == DT_INIT_ARRAY ? base + entry->d_un.d_ptr : array;
        bytes = entry->d_tag == DT_INIT_ARRAYSZ ? entry->d_un.d_val : bytes;
    }
    if (array == 0 || bytes == 0) {
        return 1;
    }
    search->last = (direct_constructor **)(array + bytes) - 1;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        search->sealed =
            search->sealed || (part->p_type == PT_GNU_RELRO &&
                               (uintptr_t)search->last - base - part->p_vaddr < part->p_memsz);
    }
    return 1;
}

/* Puts direct_ready in the place of the object's last constructor. The program's constructors, too,
 * run only after this one. */
static void direct_watch(const struct direct_search *search)
{
    uintptr_t page = (uintptr_t)search->last & ~(uintptr_t)(hak__os_page_size() - 1);
    size_t bytes = (uintptr_t)(search->last + 1) - page;
    if (search->sealed && !hak__os_write_protect((void *)page, bytes, false, false)) {
        return; /* it never learns of hakmem's mappings */
    }
    direct_last = *search->last;
    *search->last = direct_ready;
    if (search->sealed) {
        (void)hak__os_write_protect((void *)page, bytes, true, false);
    }
}

/* If two objects follow mappings, it watches the first that the loader knows: a program comes
 * before its libraries, and its constructors run after theirs. */
__attribute__((constructor(101))) static void direct_begin(void)
{
    for (size_t i = 0; bound_state() == BOUND_DIRECT && direct_last == NULL && i < DIRECT_FOLLOWED;
         i++) {
        struct direct_search search = {.address = direct_followers[i]};
        if (search.address == 0 || dl_iterate_phdr(direct_visit, &search) == 0) {
            continue;
        }
        if (search.last == NULL) { /* it needs no constructor */
            direct_set_bound(BOUND_FOLLOWED);
        } else {
            direct_watch(&search);
        }
    }
}
