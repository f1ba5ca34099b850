/* SPDX-License-Identifier: MIT */
/* callers.c: see callers.h.
 *
 * Symbols tell which functions these are (caller_names.h). The symbols of a module are read when it
 * calls for the first time, out of its file, with system calls alone. Stacks are walked by hakmem's
 * own unwinder (unwinding.c).
 *
 * Locks: `shared_reading`, by the thread that adds a module. Entries are constant once they are
 * counted. _dl_find_object takes no lock; without it (before glibc 2.35) each caller is a
 * site. */
#define _GNU_SOURCE
#include "callers.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "caller_names.h"
#include "lock.h"
#include "observe/loaded.h"
#include "observe/unwind.h"

#define CALLERS_MODULES_MAX 256u
/* Bytes of a module's symbols and their names. Twice: a large browser's first call waits for
 * seconds. */
#define CALLERS_TABLE_MAX (UINT64_C(128) << 20)
/* Frames that are looked at, first and at most. Half: those of maps of strings, not optimised, are
 * more. */
#define CALLERS_FRAMES_FIRST 16u
#define CALLERS_FRAMES_MAX 64u

struct range {
    uint64_t start, end;
};

struct module {
    const void *start, *end, *link_map;
    struct range *passing; /* functions of the libraries; NULL: none */
    size_t count;
    bool is_library; /* all are */
};

static struct module modules[CALLERS_MODULES_MAX];
static _Atomic uint32_t shared_modules;
static _Atomic uint32_t shared_reading;
static bool can_walk; /* written before the process has a second thread */

void callers_start(void)
{
    bool locks;
    can_walk = hak__loaded_start() && hak__unwind_start(&locks);
}

void callers_forked(void)
{
    atomic_store(&shared_reading, 0);
}

/* --- the symbols of a module --- */

static bool is_library_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "libstdc++.so", 12) == 0 || strncmp(name, "libc++.so", 9) == 0 ||
           strncmp(name, "libc++abi.so", 12) == 0;
}

static void *map_pages(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Not mapped: somebody may cut the file meanwhile. NULL: it has not so many bytes there. */
static void *read_part(int file, uint64_t offset, uint64_t size)
{
    char *part = size != 0 && size <= CALLERS_TABLE_MAX ? map_pages(size) : NULL;
    uint64_t done = 0;
    while (part != NULL && done < size) {
        long got = syscall(SYS_pread64, file, part + done, size - done, offset + done);
        if (got <= 0) {
            munmap(part, size);
            return NULL;
        }
        done += (uint64_t)got;
    }
    return part;
}

static void sort_ranges(struct range *ranges, size_t count)
{
    for (size_t gap = count / 2; gap != 0; gap /= 2) {
        for (size_t i = gap; i < count; i++) {
            struct range one = ranges[i];
            size_t at = i;
            for (; at >= gap && ranges[at - gap].start > one.start; at -= gap) {
                ranges[at] = ranges[at - gap];
            }
            ranges[at] = one;
        }
    }
}

/* Of the functions, keeps those that pass calls on, in order. There is room for all; pages that are
 * not written cost nothing. */
static void take_symbols(struct module *module, uint64_t bias, const Elf64_Sym *symbols,
                         size_t count, const char *names, uint64_t names_size)
{
    module->passing = count != 0 ? map_pages(count * sizeof *module->passing) : NULL;
    for (size_t i = 0; module->passing != NULL && i < count; i++) {
        const Elf64_Sym *symbol = &symbols[i];
        uint64_t start = bias + symbol->st_value;
        if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_size != 0 &&
            symbol->st_name < names_size && caller_name_passes(names + symbol->st_name)) {
            module->passing[module->count++] = (struct range){start, start + symbol->st_size};
        }
    }
    sort_ranges(module->passing, module->count);
}

static void read_table(struct module *module, uint64_t bias, int file, const Elf64_Shdr *table,
                       const Elf64_Shdr *strings)
{
    Elf64_Sym *symbols = read_part(file, table->sh_offset, table->sh_size);
    char *names = symbols != NULL ? read_part(file, strings->sh_offset, strings->sh_size) : NULL;
    if (names != NULL) {
        names[strings->sh_size - 1] = 0;
        take_symbols(module, bias, symbols, table->sh_size / sizeof *symbols, names,
                     strings->sh_size);
        munmap(names, strings->sh_size);
    }
    if (symbols != NULL) {
        munmap(symbols, table->sh_size);
    }
}

static void read_symbols(struct module *module, uint64_t bias, int file)
{
    Elf64_Ehdr head;
    const Elf64_Shdr *table = NULL;
    if (syscall(SYS_pread64, file, &head, sizeof head, 0) != sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof(Elf64_Shdr)) {
        return;
    }
    uint64_t size = (uint64_t)head.e_shnum * sizeof(Elf64_Shdr);
    Elf64_Shdr *sections = read_part(file, head.e_shoff, size);
    for (uint32_t i = 0; sections != NULL && i < head.e_shnum; i++) {
        if (sections[i].sh_type == SHT_SYMTAB ||
            (sections[i].sh_type == SHT_DYNSYM && table == NULL)) {
            table = &sections[i];
        }
    }
    if (table != NULL && table->sh_link < head.e_shnum) {
        read_table(module, bias, file, table, &sections[table->sh_link]);
    }
    if (sections != NULL) {
        munmap(sections, size);
    }
}

/* Under `shared_reading`. */
static void add_module(const struct loader_answer *answer)
{
    uint32_t count = atomic_load(&shared_modules);
    const char *path = answer->link_map->l_name;
    struct module *module = &modules[count];
    if (count == CALLERS_MODULES_MAX) {
        return;
    }
    *module = (struct module){answer->start, answer->end, answer->link_map, NULL, 0, false};
    module->is_library = is_library_name(path);
    if (!module->is_library) {
        path = path[0] != 0 ? path : "/proc/self/exe";
        int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file >= 0) {
            read_symbols(module, answer->link_map->l_addr, file);
            syscall(SYS_close, file);
        }
    }
    atomic_store_explicit(&shared_modules, count + 1, memory_order_release);
}

/* NULL: it was not added yet. Of two at one place the newer one is there. */
static const struct module *find_module(const struct loader_answer *answer)
{
    for (uint32_t i = atomic_load_explicit(&shared_modules, memory_order_acquire); i-- > 0;) {
        if (modules[i].start == answer->start && modules[i].end == answer->end &&
            modules[i].link_map == answer->link_map) {
            return &modules[i];
        }
    }
    return NULL;
}

/* --- stacks --- */

/* Whether the call came from a function of the libraries. */
static bool is_passing(uint64_t caller)
{
    struct loader_answer answer;
    const struct module *module;
    if (!hak__loaded_ask((uintptr_t)caller, &answer)) {
        return false;
    }
    module = find_module(&answer);
    if (module == NULL && lock_take(&shared_reading)) {
        if (find_module(&answer) == NULL) {
            add_module(&answer);
        }
        lock_give(&shared_reading);
        module = find_module(&answer);
    }
    if (module == NULL || module->is_library) {
        return module != NULL;
    }
    size_t low = 0, high = module->count;
    while (low < high) { /* the last that begins before the end of the call */
        size_t middle = (low + high) / 2;
        if (module->passing[middle].start < caller) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low != 0 && caller <= module->passing[low - 1].end;
}

static bool is_known(struct lane *lane, uint64_t caller)
{
    return lane->callers[(caller ^ caller >> 10) % LANE_CALLERS] == caller;
}

/* The first of the callers outside the libraries, from the one with this address on; 0: none. */
static uint64_t first_outside(struct lane *lane, uint64_t caller, const uintptr_t *frames,
                              uint32_t depth)
{
    uint32_t i = 0;
    while (i < depth && frames[i] != caller) {
        i++;
    }
    while (i < depth && !is_known(lane, frames[i]) && is_passing(frames[i])) {
        i++;
    }
    return i < depth ? frames[i] : 0;
}

uint64_t callers_find(struct lane *lane, uint64_t caller)
{
    uintptr_t frames[CALLERS_FRAMES_MAX];
    int error = errno;
    uint64_t site = caller;
    if (!can_walk) {
        return caller;
    }
    if (is_passing(caller)) {
        bool more;
        uint32_t depth = hak__unwind(frames, CALLERS_FRAMES_FIRST, &more);
        site = first_outside(lane, caller, frames, depth);
        if (site == 0 && more) {
            depth = hak__unwind(frames, CALLERS_FRAMES_MAX, &more);
            site = first_outside(lane, caller, frames, depth);
        }
        site = site != 0 ? site : caller;
    } else {
        lane->callers[(caller ^ caller >> 10) % LANE_CALLERS] = caller;
    }
    errno = error;
    return site;
}
