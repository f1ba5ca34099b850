/* SPDX-License-Identifier: MIT */
/* symbols.c: see symbols.h. */
#include "base/symbols.h"

#include "base/text.h"

/* Not on each machine are the addresses of the section real ones. */
static const void *symbols_address(uintptr_t base, const ElfW(Dyn) * entry, bool relocated)
{
    bool real = relocated && entry->d_un.d_ptr >= base;
    return (const void *)(real ? entry->d_un.d_ptr : base + entry->d_un.d_ptr);
}

static void symbols_note(struct symbols *symbols, const ElfW(Dyn) * entry, const void *address)
{
    switch (entry->d_tag) {
    case DT_SYMTAB:
        symbols->table = (ElfW(Sym) *)(uintptr_t)address;
        break;
    case DT_STRTAB:
        symbols->strings = address;
        break;
    case DT_HASH:
        symbols->hash = address;
        break;
    case DT_GNU_HASH:
        symbols->gnu_hash = address;
        break;
    case DT_VERSYM:
        symbols->versions = address;
        break;
    case DT_RELA:
        symbols->relocations[0] = address;
        break;
    case DT_JMPREL:
        symbols->relocations[1] = address;
        break;
    case DT_RELASZ:
        symbols->relocation_bytes[0] = entry->d_un.d_val;
        break;
    case DT_PLTRELSZ:
        symbols->relocation_bytes[1] = entry->d_un.d_val;
        break;
    default:
        break;
    }
}

bool hak__symbols_read(struct symbols *symbols, uintptr_t base, const ElfW(Dyn) * dynamic,
                       bool relocated)
{
    *symbols = (struct symbols){.base = base, .dynamic = dynamic};
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
        symbols_note(symbols, entry, symbols_address(base, entry, relocated));
    }
    return symbols->table != NULL && symbols->strings != NULL;
}

bool hak__symbols_read_loaded(struct symbols *symbols, const struct dl_phdr_info *object)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            uintptr_t dynamic = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            return hak__symbols_read(symbols, object->dlpi_addr, (const void *)dynamic, true);
        }
    }
    return false;
}

const ElfW(Phdr) * hak__symbols_segment(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            address - object->dlpi_addr - header->p_vaddr < header->p_memsz) {
            return header;
        }
    }
    return NULL;
}

/* The GNU hash table's parts. */
static const uint32_t *symbols_buckets(const struct symbols *symbols)
{
    return symbols->gnu_hash + 4 +
           symbols->gnu_hash[2] * (uint32_t)(sizeof(ElfW(Addr)) / sizeof(uint32_t));
}

static const uint32_t *symbols_chains(const struct symbols *symbols)
{
    return symbols_buckets(symbols) + symbols->gnu_hash[0];
}

/* A GNU hash table does not contain it: each bucket names the first symbol of a chain, the chain
 * with the highest symbol is the last one, and an odd hash value ends a chain. */
uint32_t hak__symbols_count(const struct symbols *symbols)
{
    if (symbols->hash != NULL) {
        return symbols->hash[1];
    }
    if (symbols->gnu_hash == NULL) {
        return 0;
    }
    uint32_t bucket_count = symbols->gnu_hash[0], first = symbols->gnu_hash[1], last = 0;
    const uint32_t *buckets = symbols_buckets(symbols), *chains = symbols_chains(symbols);
    for (uint32_t i = 0; i < bucket_count; i++) {
        last = buckets[i] > last ? buckets[i] : last;
    }
    if (last < first) {
        return first;
    }
    while ((chains[last - first] & 1) == 0) {
        last++;
    }
    return last + 1;
}

static uint32_t symbols_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

uint32_t hak__symbols_next(const struct symbols *symbols, const char *name, uint32_t at)
{
    if (symbols->gnu_hash == NULL || symbols->gnu_hash[0] == 0) {
        return 0;
    }
    uint32_t hash = symbols_hash_of(name), first = symbols->gnu_hash[1];
    const uint32_t *chain = symbols_chains(symbols);
    if (at == 0) {
        at = symbols_buckets(symbols)[hash % symbols->gnu_hash[0]];
    } else if ((chain[at++ - first] & 1) != 0) { /* the last one of its chain */
        return 0;
    }
    for (; at >= first; at++) {
        if ((chain[at - first] | 1) == (hash | 1) && symbols_is_defined(symbols, at) &&
            hak__text_equal(symbols_name(symbols, at), name)) {
            return at;
        }
        if ((chain[at - first] & 1) != 0) {
            break;
        }
    }
    return 0;
}
