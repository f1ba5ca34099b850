/* SPDX-License-Identifier: MIT */
/* vdso.c: see vdso.h. The kernel gives the process the address of an ELF image that is mapped but
 * not relocated. The dynamic section of the image leads to its symbols (ELF gABI, chapter 5). */
#include "os/vdso.h"

#include <link.h>
#include <sys/auxv.h>

#include "base/text.h"

struct vdso {
    uintptr_t bias; /* add to an address in the image's tables to get a memory address */
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash;     /* DT_HASH: bucket count, symbol count, ... */
    const uint32_t *gnu_hash; /* DT_GNU_HASH, for images without DT_HASH */
};

static void vdso_read_dynamic(struct vdso *vdso, const ElfW(Dyn) * entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        const void *address = (const void *)(vdso->bias + entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            vdso->symbols = address;
            break;
        case DT_STRTAB:
            vdso->strings = address;
            break;
        case DT_HASH:
            vdso->hash = address;
            break;
        case DT_GNU_HASH:
            vdso->gnu_hash = address;
            break;
        default:
            break;
        }
    }
}

/* The number of symbols. DT_GNU_HASH does not contain it: each bucket names the first symbol of a
 * chain, the chain with the highest symbol is the last one, and an odd hash value ends a chain. */
static uint32_t vdso_symbol_count(const struct vdso *vdso)
{
    if (vdso->hash != NULL) {
        return vdso->hash[1];
    }
    if (vdso->gnu_hash == NULL) {
        return 0;
    }
    uint32_t bucket_count = vdso->gnu_hash[0];
    uint32_t first = vdso->gnu_hash[1];
    uint32_t bloom_words = vdso->gnu_hash[2] * (uint32_t)(sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *buckets = vdso->gnu_hash + 4 + bloom_words;
    const uint32_t *chains = buckets + bucket_count;
    uint32_t last = 0;
    for (uint32_t i = 0; i < bucket_count; i++) {
        last = buckets[i] > last ? buckets[i] : last;
    }
    if (last < first) {
        return 0;
    }
    while ((chains[last - first] & 1) == 0) {
        last++;
    }
    return last + 1;
}

static bool vdso_open(struct vdso *vdso)
{
    uintptr_t image = getauxval(AT_SYSINFO_EHDR);
    if (image == 0) {
        return false;
    }
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Phdr) *parts = (const void *)(image + header->e_phoff);
    const ElfW(Phdr) *dynamic = NULL;
    bool loaded = false;
    for (size_t i = 0; i < header->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD && !loaded) {
            vdso->bias = image + parts[i].p_offset - parts[i].p_vaddr;
            loaded = true;
        } else if (parts[i].p_type == PT_DYNAMIC) {
            dynamic = &parts[i];
        }
    }
    if (!loaded || dynamic == NULL) {
        return false;
    }
    vdso_read_dynamic(vdso, (const void *)(image + dynamic->p_offset));
    return vdso->symbols != NULL && vdso->strings != NULL;
}

void *hak__vdso_find(const char *name)
{
    struct vdso vdso = {.bias = 0};
    uint32_t count = vdso_open(&vdso) ? vdso_symbol_count(&vdso) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const ElfW(Sym) *symbol = &vdso.symbols[i];
        if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            hak__text_equal(name, vdso.strings + symbol->st_name)) {
            return (void *)(vdso.bias + symbol->st_value);
        }
    }
    return NULL;
}
