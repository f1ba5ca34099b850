/* SPDX-License-Identifier: MIT */
/* symbols.c: finds hakmem's functions in a process, see attach.h.
 *
 * A library's symbols are read from the process's memory: the file may be in a container, replaced
 * or deleted. A program that was linked with libhakmem.a does not export them, so its file is read,
 * which has them unless it is stripped. Nothing that is read is trusted: every size is bounded. */
#include "attach.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTER "hak_observe_enter"
#define STACK "hak_observe_stack"
#define PROGRAM_HEADERS_MAX 64
#define DYNAMIC_MAX 128
#define CHAIN_MAX 4096
#define STACK_MIN ((size_t)8192)
/* Of a program's file, which may say that it has any number: the largest programs have a few. */
#define FILE_SYMBOLS_MAX ((size_t)16 << 20)
/* How long the loader may need for a library whose first part is mapped already, or was when its
 * mappings were read. Doubled: a process on an older version of hakmem is refused later. Halved:
 * one that just starts is refused. */
#define LOAD_US 1000000u

struct reader {
    pid_t pid;
    uintptr_t base; /* what to add to addresses of the file */
    uintptr_t strings, symbols, hash;
};

static bool reader_read(const struct reader *reader, uintptr_t address, void *to, size_t size)
{
    return target_memory(reader->pid, address, to, size) == size;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

/* The loader adds the base to these entries in place, on most machines. */
static uintptr_t reader_address(const struct reader *reader, Elf64_Addr value)
{
    return value < reader->base ? reader->base + value : value;
}

/* Finds the tables of the object whose ELF header is at `start`. */
static bool reader_open(struct reader *reader, pid_t pid, uintptr_t start)
{
    Elf64_Ehdr header;
    Elf64_Phdr program[PROGRAM_HEADERS_MAX];
    Elf64_Dyn dynamic[DYNAMIC_MAX];
    const Elf64_Phdr *first = NULL, *found = NULL;
    *reader = (struct reader){.pid = pid};
    if (!reader_read(reader, start, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phnum == 0 || header.e_phnum > PROGRAM_HEADERS_MAX ||
        header.e_phentsize != sizeof program[0] ||
        !reader_read(reader, start + header.e_phoff, program, header.e_phnum * sizeof program[0])) {
        return false;
    }
    for (size_t i = 0; i < header.e_phnum; i++) {
        first = first == NULL && program[i].p_type == PT_LOAD ? &program[i] : first;
        found = program[i].p_type == PT_DYNAMIC ? &program[i] : found;
    }
    if (first == NULL || found == NULL) {
        return false;
    }
    reader->base = start - (first->p_vaddr & ~(Elf64_Addr)4095);
    size_t count = found->p_memsz / sizeof dynamic[0];
    count = count < DYNAMIC_MAX ? count : DYNAMIC_MAX;
    if (!reader_read(reader, reader->base + found->p_vaddr, dynamic, count * sizeof dynamic[0])) {
        return false;
    }
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        uintptr_t address = reader_address(reader, dynamic[i].d_un.d_ptr);
        switch (dynamic[i].d_tag) {
        case DT_STRTAB:
            reader->strings = address;
            break;
        case DT_SYMTAB:
            reader->symbols = address;
            break;
        case DT_GNU_HASH:
            reader->hash = address;
            break;
        default:
            break;
        }
    }
    return reader->strings != 0 && reader->symbols != 0 && reader->hash != 0;
}

static bool reader_is_named(const struct reader *reader, const Elf64_Sym *symbol, const char *name)
{
    char text[64] = "";
    size_t size = strlen(name) + 1;
    return symbol->st_shndx != SHN_UNDEF &&
           reader_read(reader, reader->strings + symbol->st_name, text, size) &&
           memcmp(text, name, size) == 0;
}

/* Looks a name up in the object's GNU hash table. */
static bool reader_find(const struct reader *reader, const char *name, Elf64_Sym *symbol)
{
    uint32_t head[4], index, link, hash = gnu_hash(name);
    if (!reader_read(reader, reader->hash, head, sizeof head) || head[0] == 0) {
        return false;
    }
    uintptr_t buckets = reader->hash + sizeof head + head[2] * sizeof(uint64_t);
    uintptr_t chains = buckets + head[0] * sizeof(uint32_t);
    if (!reader_read(reader, buckets + hash % head[0] * sizeof index, &index, sizeof index) ||
        index < head[1]) {
        return false;
    }
    for (size_t i = 0; i < CHAIN_MAX; i++, index++) {
        if (!reader_read(reader, chains + (index - head[1]) * sizeof link, &link, sizeof link)) {
            return false;
        }
        if ((link | 1) == (hash | 1) &&
            reader_read(reader, reader->symbols + index * sizeof *symbol, symbol, sizeof *symbol) &&
            reader_is_named(reader, symbol, name)) {
            return true;
        }
        if ((link & 1) != 0) {
            return false;
        }
    }
    return false;
}

static void symbols_note(struct symbols *symbols, uintptr_t base, const char *name,
                         const Elf64_Sym *symbol)
{
    if (strcmp(name, ENTER) == 0) {
        symbols->enter = base + symbol->st_value;
    } else {
        symbols->stack = base + symbol->st_value;
        symbols->stack_size = symbol->st_size;
    }
}

static bool symbols_are_found(const struct symbols *symbols)
{
    return symbols->enter != 0 && symbols->stack != 0 && symbols->stack_size >= STACK_MIN;
}

static bool symbols_in_memory(pid_t pid, const struct mapping *mapping, struct symbols *symbols)
{
    struct reader reader;
    Elf64_Sym symbol;
    *symbols = (struct symbols){.object = mapping->inode};
    if (!reader_open(&reader, pid, mapping->start)) {
        return false;
    }
    static const char *const names[] = {ENTER, STACK};
    for (size_t i = 0; i < 2; i++) {
        if (!reader_find(&reader, names[i], &symbol)) {
            return false;
        }
        symbols_note(symbols, reader.base, names[i], &symbol);
    }
    return symbols_are_found(symbols);
}

/* --- the program's file --- */

struct image {
    const unsigned char *bytes;
    size_t size;
};

/* `count` items of `size` bytes at `offset`; NULL: they are not all in the file. */
static const void *image_at(const struct image *image, uint64_t offset, uint64_t count, size_t size)
{
    bool inside = count < image->size && offset <= image->size &&
                  count * size <= image->size - offset && offset % sizeof(uint64_t) == 0;
    return inside ? image->bytes + offset : NULL;
}

static void image_symbols(const struct image *image, const Elf64_Shdr *table,
                          const Elf64_Shdr *strings, uintptr_t base, struct symbols *symbols)
{
    size_t count = table->sh_size / sizeof(Elf64_Sym);
    count = count < FILE_SYMBOLS_MAX ? count : FILE_SYMBOLS_MAX;
    const Elf64_Sym *all = image_at(image, table->sh_offset, count, sizeof *all);
    if (all == NULL || strings->sh_offset > image->size ||
        strings->sh_size > image->size - strings->sh_offset || strings->sh_size == 0 ||
        image->bytes[strings->sh_offset + strings->sh_size - 1] != '\0') {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].st_name >= strings->sh_size || all[i].st_shndx == SHN_UNDEF) {
            continue;
        }
        const char *name = (const char *)image->bytes + strings->sh_offset + all[i].st_name;
        if (strcmp(name, ENTER) == 0 || strcmp(name, STACK) == 0) {
            symbols_note(symbols, base, name, &all[i]);
        }
    }
}

static bool symbols_in_image(const struct image *image, uintptr_t start, struct symbols *symbols)
{
    const Elf64_Ehdr *header = image_at(image, 0, 1, sizeof *header);
    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64) {
        return false;
    }
    const Elf64_Phdr *program =
        image_at(image, header->e_phoff, header->e_phnum, sizeof(Elf64_Phdr));
    const Elf64_Shdr *sections =
        image_at(image, header->e_shoff, header->e_shnum, sizeof(Elf64_Shdr));
    if (program == NULL || sections == NULL) {
        return false;
    }
    uintptr_t base = 0;
    for (size_t i = 0; i < header->e_phnum; i++) {
        if (program[i].p_type == PT_LOAD) {
            base = start - (program[i].p_vaddr & ~(Elf64_Addr)4095);
            break;
        }
    }
    for (size_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < header->e_shnum) {
            image_symbols(image, &sections[i], &sections[sections[i].sh_link], base, symbols);
            break; /* there is one */
        }
    }
    return symbols_are_found(symbols);
}

/* The file was cut while it was read. */
static void file_is_cut(int number)
{
    (void)number;
    static const char said[] = "hakmem: the file of the program is being changed; try again\n";
    ssize_t unused = write(2, said, sizeof said - 1);
    (void)unused;
    _exit(STATUS_CANNOT);
}

static bool symbols_in_program(pid_t pid, const struct mapping *mapping, struct symbols *symbols)
{
    char path[64];
    struct stat about;
    bool found = false;
    *symbols = (struct symbols){.object = mapping->inode};
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        struct image image = {NULL, (size_t)about.st_size};
        signal(SIGBUS, file_is_cut);
        void *bytes = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, file, 0);
        image.bytes = bytes;
        found = bytes != MAP_FAILED && symbols_in_image(&image, mapping->start, symbols);
    }
    if (file >= 0) {
        close(file);
    }
    return found;
}

/* --- both --- */

/* True: the mapping begins a file that holds code. */
static bool may_hold(const struct mapping *mapping)
{
    return mapping->offset == 0 && mapping->inode != 0 && mapping->object == OBJECT_OTHER;
}

static uint64_t program_inode(pid_t pid)
{
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

enum found { FOUND_NOTHING, FOUND_SYMBOLS, FOUND_ANOTHER_VERSION, FOUND_CHANGE };

static enum found symbols_look(const struct target *target, struct symbols *symbols)
{
    uint64_t program = program_inode(target->living);
    for (int pass = 0; pass < 3; pass++) { /* by name, the program, any other library */
        uint64_t tried = 0;
        for (size_t i = 0; i < target->mappings_count; i++) {
            const struct mapping *mapping = &target->mappings[i];
            bool named = strstr(mapping->path, "libhakmem") != NULL;
            int wanted = named ? 0 : mapping->inode == program ? 1 : 2;
            if (!may_hold(mapping) || wanted != pass || mapping->inode == tried) {
                continue;
            }
            tried = mapping->inode;
            if (symbols_in_memory(target->living, mapping, symbols) ||
                (pass == 1 && symbols_in_program(target->living, mapping, symbols))) {
                symbols->is_program = mapping->inode == program;
                return FOUND_SYMBOLS;
            }
            char byte;
            if (target_memory(target->living, mapping->start, &byte, 1) == 0) {
                if (errno == EPERM || errno == ENOSYS) { /* mappings may be read, memory not */
                    target_refused(target->pid, errno);
                }
                return FOUND_CHANGE; /* unmapped since the mappings were read */
            }
            if (named) {
                return FOUND_ANOTHER_VERSION;
            }
        }
    }
    return FOUND_NOTHING;
}

struct symbols symbols_find(struct target *target)
{
    struct symbols symbols = {0};
    uint64_t until_us = clock_us() + LOAD_US;
    enum found found = symbols_look(target, &symbols);
    bool is_loading = found != FOUND_NOTHING; /* between two mappings there may be none */
    while (is_loading && found != FOUND_SYMBOLS && clock_us() < until_us) {
        sleep_us(5000);
        if (!target_read(target)) {
            target_ended(target->pid);
        }
        found = symbols_look(target, &symbols);
    }
    if (found == FOUND_CHANGE) {
        target_changed(target->pid);
    }
    if (found == FOUND_ANOTHER_VERSION) {
        refuse(STATUS_CANNOT, "process %d runs on a version of hakmem that cannot be observed",
               (int)target->pid);
    }
    if (found == FOUND_NOTHING) {
        refuse(STATUS_CANNOT,
               "process %d does not run on hakmem (or its program is linked with libhakmem.a and "
               "stripped: start that with HAKMEM_OBSERVE=1)",
               (int)target->pid);
    }
    return symbols;
}
