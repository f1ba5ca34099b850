/* SPDX-License-Identifier: MIT */
/* symbols.c: finds hakmem's functions in a process, see attach.h.
 *
 * The note of src/observe/observer.c says where they are. It is read from the process's memory: the
 * file may be in a container, replaced, deleted or stripped. Nothing that is read is trusted: every
 * size is bounded. */
#include "attach.h"

#include "hakmem/observe.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PROGRAM_HEADERS_MAX 64
/* Bytes of notes that are read: linkers put a build id and a few properties there. */
#define NOTES_SIZE 4096
#define STACK_MIN ((size_t)8192)
/* How long the loader may need for a library whose first part is mapped already, or was when its
 * mappings were read. Doubled: a process on an older version of hakmem is refused later. Halved:
 * one that just starts is refused. */
#define LOAD_US 1000000u

/* Looks for the note among those of `size` bytes at `start`. */
static bool notes_find(pid_t pid, uintptr_t start, size_t size, size_t alignment,
                       struct symbols *symbols)
{
    static unsigned char notes[NOTES_SIZE];
    Elf64_Nhdr head;
    struct hak_observe_note note;
    size = size < NOTES_SIZE ? size : NOTES_SIZE;
    size = target_memory(pid, start, notes, size);
    for (size_t at = 0; at + sizeof head + sizeof HAK_OBSERVE_NOTE + sizeof note <= size;) {
        memcpy(&head, notes + at, sizeof head);
        size_t name = at + sizeof head, content = name + sizeof HAK_OBSERVE_NOTE;
        if (head.n_namesz > NOTES_SIZE || head.n_descsz > NOTES_SIZE) {
            return false;
        }
        if (head.n_namesz == sizeof HAK_OBSERVE_NOTE && head.n_descsz == sizeof note &&
            memcmp(notes + name, HAK_OBSERVE_NOTE, sizeof HAK_OBSERVE_NOTE) == 0) {
            memcpy(&note, notes + content, sizeof note);
            symbols->enter = start + content + (uintptr_t)note.enter;
            symbols->stack = start + content + (uintptr_t)note.stack;
            symbols->stack_size = note.stack_size;
            return note.stack_size >= STACK_MIN;
        }
        at = name + ((head.n_namesz + alignment - 1) & ~(alignment - 1));
        at += (head.n_descsz + alignment - 1) & ~(alignment - 1);
    }
    return false;
}

/* Looks in the object whose ELF header is where the mapping begins. */
static bool symbols_in_memory(const struct target *target, const struct mapping *mapping,
                              struct symbols *symbols)
{
    Elf64_Ehdr header;
    Elf64_Phdr program[PROGRAM_HEADERS_MAX];
    uintptr_t base = 0;
    pid_t pid = target->living;
    *symbols = (struct symbols){.object = mapping->inode};
    if (target_memory(pid, mapping->start, &header, sizeof header) != sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phnum > PROGRAM_HEADERS_MAX || header.e_phentsize != sizeof program[0]) {
        return false;
    }
    size_t size = header.e_phnum * sizeof program[0];
    if (target_memory(pid, mapping->start + header.e_phoff, program, size) != size) {
        return false;
    }
    for (size_t i = header.e_phnum; i-- > 0;) { /* the first one counts */
        base = program[i].p_type == PT_LOAD
                   ? mapping->start - (program[i].p_vaddr & ~(Elf64_Addr)4095)
                   : base;
    }
    for (size_t i = 0; i < header.e_phnum; i++) {
        if (program[i].p_type == PT_NOTE &&
            notes_find(pid, base + program[i].p_vaddr, program[i].p_memsz,
                       program[i].p_align == 8 ? 8 : 4, symbols)) {
            const struct mapping *code = target_mapping(target, symbols->enter);
            return code != NULL && code->executable && code->inode == mapping->inode;
        }
    }
    return false;
}

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
            if (symbols_in_memory(target, mapping, symbols)) {
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
        refuse(STATUS_CANNOT, "process %d does not run on hakmem", (int)target->pid);
    }
    return symbols;
}
