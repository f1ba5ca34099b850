/* SPDX-License-Identifier: MIT */
/* kinds.c: secure form: can a block that malloc gave be one that new gave?
 *
 * A library may contain a C++ library of its own (-static-libstdc++, as Rust's LLVM), or bind new
 * to its own function (-Bsymbolic). Its new then calls malloc, its delete calls free, and others
 * delete what it has made by hakmem's delete. Such a process has no mismatch, so none is reported
 * once such a library is loaded. The question is asked only before a report.
 *
 * A library keeps its new or delete for itself if
 *   it defines it, and the loader does not bind its own calls of it; or
 *   it unwinds, but neither takes the C++ library of others nor new from them: its own may be
 *   hidden; or
 *   it is of C++ and takes malloc or free, but not both new and delete. A program may take one of
 *   them by mistake, so there it must be neither. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "region/secure.h"

#if HAK_SECURE

#include "base/atomics.h"
#include "base/symbols.h"
#include "base/text.h"

enum kinds_use {
    KINDS_MALLOC = 1 << 0, /* or free */
    KINDS_NEW = 1 << 1,    /* any form of it */
    KINDS_DELETE = 1 << 2,
    KINDS_UNWINDS = 1 << 3,
    KINDS_OWN_NEW = 1 << 4, /* defines one */
    KINDS_OWN_DELETE = 1 << 5,
    KINDS_BOUND_NEW = 1 << 6, /* the loader binds calls of its own one */
    KINDS_BOUND_DELETE = 1 << 7,
    KINDS_CXX = 1 << 8,      /* needs a C++ library */
    KINDS_UNWINDER = 1 << 9, /* unwinds for others */
    KINDS_PLAIN_NEW = 1 << 10,
    KINDS_PLAIN_DELETE = 1 << 11
};

/* What the use of a symbol of this name says. */
static unsigned kinds_of_name(const char *name)
{
    if (hak__text_after(name, "_Znw") != NULL || hak__text_after(name, "_Zna") != NULL) {
        return KINDS_NEW | (hak__text_equal(name, "_Znwm") ? KINDS_PLAIN_NEW : 0u);
    }
    if (hak__text_after(name, "_Zdl") != NULL || hak__text_after(name, "_Zda") != NULL) {
        bool plain = hak__text_equal(name, "_ZdlPv") || hak__text_equal(name, "_ZdlPvm");
        return KINDS_DELETE | (plain ? KINDS_PLAIN_DELETE : 0u);
    }
    static const struct {
        const char *name;
        unsigned use;
    } uses[] = {{"malloc", KINDS_MALLOC},           {"free", KINDS_MALLOC},
                {"_Unwind_Resume", KINDS_UNWINDS},  {"_Unwind_RaiseException", KINDS_UNWINDS},
                {"dl_iterate_phdr", KINDS_UNWINDS}, {"_dl_find_object", KINDS_UNWINDS}};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        if (hak__text_equal(name, uses[i].name)) {
            return uses[i].use;
        }
    }
    return 0;
}

static unsigned kinds_of_symbols(const struct symbols *symbols)
{
    unsigned uses = 0;
    uint32_t count = hak__symbols_count(symbols);
    for (uint32_t at = 1; at < count; at++) {
        unsigned use = kinds_of_name(symbols_name(symbols, at));
        if (symbols_is_defined(symbols, at)) {
            use = (use & KINDS_UNWINDS) != 0
                      ? KINDS_UNWINDER
                      : (use & (KINDS_NEW | KINDS_DELETE)) * (KINDS_OWN_NEW / KINDS_NEW);
        }
        uses |= use;
    }
    return uses;
}

/* The first bits of `uses` are right. */
static unsigned kinds_of_bindings(const struct symbols *symbols)
{
    unsigned uses = 0;
    for (int table = 0; table < 2; table++) {
        size_t count = symbols->relocation_bytes[table] / sizeof(ElfW(Rela));
        for (size_t i = 0; i < count; i++) {
            uint32_t at = (uint32_t)ELF64_R_SYM(symbols->relocations[table][i].r_info);
            if (at != 0 && symbols_is_defined(symbols, at)) {
                unsigned use = kinds_of_name(symbols_name(symbols, at));
                uses |= (use & (KINDS_NEW | KINDS_DELETE)) * (KINDS_BOUND_NEW / KINDS_NEW);
            }
        }
    }
    for (const ElfW(Dyn) *entry = symbols->dynamic; entry->d_tag != DT_NULL; entry++) {
        const char *needed = symbols->strings + entry->d_un.d_val;
        if (entry->d_tag == DT_NEEDED && (hak__text_after(needed, "libstdc++.so") != NULL ||
                                          hak__text_after(needed, "libc++") != NULL)) {
            uses |= KINDS_CXX;
        }
    }
    return uses;
}

static bool kinds_has(unsigned uses, unsigned wanted, unsigned unwanted)
{
    return (uses & wanted) == wanted && (uses & unwanted) == 0;
}

static bool kinds_is_apart(unsigned uses, bool program)
{
    const unsigned any = KINDS_NEW | KINDS_DELETE, own = KINDS_OWN_NEW | KINDS_OWN_DELETE;
    const unsigned plain = KINDS_PLAIN_NEW | KINDS_PLAIN_DELETE;
    bool takes_both = program ? (uses & any) != 0 : (uses & plain) == plain;
    return kinds_has(uses, KINDS_OWN_NEW, KINDS_BOUND_NEW) ||
           kinds_has(uses, KINDS_OWN_DELETE, KINDS_BOUND_DELETE) ||
           kinds_has(uses, KINDS_MALLOC | KINDS_UNWINDS, KINDS_CXX | KINDS_UNWINDER | any | own) ||
           ((uses & (KINDS_CXX | any)) != 0 && !takes_both && kinds_has(uses, KINDS_MALLOC, own));
}

/* Callback of dl_iterate_phdr: 1, which ends the walk, at such an object. */
static int kinds_visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct symbols symbols;
    (void)size;
    (void)argument;
    if (hak__symbols_segment(object, (uintptr_t)&kinds_visit) != NULL || /* hakmem's own */
        !hak__symbols_read_loaded(&symbols, object)) {
        return 0;
    }
    unsigned uses = kinds_of_symbols(&symbols) | kinds_of_bindings(&symbols);
    return kinds_is_apart(uses, object->dlpi_name[0] == '\0');
}

bool hak__secure_kinds_mix(void)
{
    static bool shared_mix; /* relaxed: a library that has gone may have left its blocks */
    bool mix = atomic_load_relaxed(&shared_mix);
    if (!mix && dl_iterate_phdr(kinds_visit, NULL) != 0) {
        mix = true;
        atomic_store_relaxed(&shared_mix, mix);
    }
    return mix;
}

#endif
