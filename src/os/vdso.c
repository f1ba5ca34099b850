/* SPDX-License-Identifier: MIT */
/* vdso.c: see vdso.h. The kernel gives the process the address of an ELF image that is mapped but
 * not relocated. */
#include "os/vdso.h"

#include <sys/auxv.h>

#include "base/symbols.h"
#include "base/text.h"

static bool vdso_open(struct symbols *vdso)
{
    uintptr_t image = getauxval(AT_SYSINFO_EHDR), bias = 0;
    if (image == 0) {
        return false;
    }
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Phdr) *parts = (const void *)(image + header->e_phoff);
    const ElfW(Phdr) *dynamic = NULL;
    bool loaded = false;
    for (size_t i = 0; i < header->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD && !loaded) {
            bias = image + parts[i].p_offset - parts[i].p_vaddr;
            loaded = true;
        } else if (parts[i].p_type == PT_DYNAMIC) {
            dynamic = &parts[i];
        }
    }
    return loaded && dynamic != NULL &&
           hak__symbols_read(vdso, bias, (const void *)(image + dynamic->p_offset), false);
}

void *hak__vdso_find(const char *name)
{
    struct symbols vdso;
    uint32_t count = vdso_open(&vdso) ? hak__symbols_count(&vdso) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const ElfW(Sym) *symbol = &vdso.table[i];
        if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            hak__text_equal(name, symbols_name(&vdso, i))) {
            return (void *)(vdso.base + symbol->st_value);
        }
    }
    return NULL;
}
