/* SPDX-License-Identifier: MIT */
/* symbols.h: the dynamic symbols of an ELF object that lies in memory, read without a call of the
 * loader's functions: these take locks, and a program may have its own (ELF gABI, chapter 5).
 *
 * State: none. The tables belong to the object, which must stay loaded. */
#ifndef HAK_BASE_SYMBOLS_H
#define HAK_BASE_SYMBOLS_H

#include "base/compiler.h"

#include <link.h>

struct symbols {
    uintptr_t base; /* of the object: the values of its symbols count from here */
    ElfW(Sym) * table;
    const char *strings;
    const uint32_t *hash;     /* DT_HASH: bucket count, symbol count, ...; or NULL */
    const uint32_t *gnu_hash; /* 4 numbers, the filter, the buckets, the chains; or NULL */
    const uint16_t *versions; /* one for each symbol, or NULL */
    /* What the loader binds at the start, and what it may bind at the first call. */
    const ElfW(Rela) * relocations[2];
    size_t relocation_bytes[2];
    const ElfW(Dyn) * dynamic;
};

/* Reads the object's dynamic section. `relocated`: the loader knows the object, and has changed
 * most addresses of the section to real ones. False: there are no symbols. */
HAK_HIDDEN bool hak__symbols_read(struct symbols *symbols, uintptr_t base,
                                  const ElfW(Dyn) * dynamic, bool relocated);

/* As hak__symbols_read, in a callback of dl_iterate_phdr. */
HAK_HIDDEN bool hak__symbols_read_loaded(struct symbols *symbols,
                                         const struct dl_phdr_info *object);

/* The segment of a loaded object that holds the address; NULL: none. */
HAK_HIDDEN const ElfW(Phdr) *
    hak__symbols_segment(const struct dl_phdr_info *object, uintptr_t address);

/* How many there are, with the empty first one. */
HAK_HIDDEN uint32_t hak__symbols_count(const struct symbols *symbols);

/* A defined symbol of this name behind `at` (0: the first); 0: none. Symbols of one name differ in
 * their versions. Only objects with a GNU hash table have an answer. */
HAK_HIDDEN uint32_t hak__symbols_next(const struct symbols *symbols, const char *name, uint32_t at);

HAK_INLINE const char *symbols_name(const struct symbols *symbols, uint32_t at)
{
    return symbols->strings + symbols->table[at].st_name;
}

HAK_INLINE bool symbols_is_defined(const struct symbols *symbols, uint32_t at)
{
    return symbols->table[at].st_shndx != SHN_UNDEF;
}

#endif
