/* SPDX-License-Identifier: MIT */
/* mapped.c: see mapped.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/mapped.h"

#include "base/bits.h"

#include <elf.h>
#include <string.h>

/* Reads a hexadecimal number, and moves behind the character that follows it. */
static uint64_t mapped_read_hex(const char **at)
{
    uint64_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9') {
            value = value * 16 + (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (uint64_t)(c - 'a' + 10);
        } else {
            *at += c != '\0';
            return value;
        }
    }
}

static bool mapped_is_same_file(const struct module_place *a, const struct module_place *b)
{
    return a->path_length != 0 && a->path_length == b->path_length &&
           memcmp(a->path, b->path, a->path_length) == 0;
}

/* A line: start-end rights offset device inode   /path */
const char *hak__modules_next(const char *line, struct module_range *range)
{
    struct module_place *place = &range->place, before = *place;
    const char *end = strchrnul(line, '\n'), *next = *end == '\n' ? end + 1 : end;
    const char *at = line;
    range->start = mapped_read_hex(&at);
    range->end = mapped_read_hex(&at);
    range->is_code = end - at > 2 && at[2] == 'x'; /* of "r-xp " */
    at += end - at > 5 ? 5 : 0;
    place->offset = mapped_read_hex(&at);
    const char *path = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
    place->path = path != NULL ? path : end;
    place->path_length = (size_t)(end - place->path);
    if (place->offset == 0) {
        place->base = range->start;
    } else if (!mapped_is_same_file(place, &before)) { /* a file's mappings follow each other */
        place->base = 0;
    }
    return next;
}

/* --- build ids --- */

/* Program headers that are read of a file. Programs have some 15. Half: some are missed. */
#define BUILD_ID_HEADERS 32u
/* Bytes of a segment of notes that are read. The id is among the first 100. Half: it may be missed
 * behind long notes of a distribution. */
#define BUILD_ID_NOTES 512u

/* A note of the segment: its head, the name with its zero, and what it says. */
static bool build_id_take(struct build_id *id, const char *notes, size_t size, size_t align)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, said = bits_align_up(name + note.n_namesz, align);
        if (note.n_namesz > size || note.n_descsz > size || said + note.n_descsz > size) {
            return false;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            id->size = note.n_descsz <= BUILD_ID_MAX ? (uint8_t)note.n_descsz : 0;
            memcpy(id->bytes, notes + said, id->size);
            return true;
        }
        at = bits_align_up(said + note.n_descsz, align);
    }
    return false;
}

static void build_id_read_notes(struct build_id *id, const Elf64_Phdr *segment, mapped_read *reader)
{
    char notes[BUILD_ID_NOTES];
    size_t size = segment->p_memsz < sizeof notes ? segment->p_memsz : sizeof notes;
    if (id->size == 0 && reader((uintptr_t)(id->bias + segment->p_vaddr), notes, size)) {
        (void)build_id_take(id, notes, size, segment->p_align == 8 ? 8 : 4);
    }
}

void hak__mapped_id(struct build_id *id, uintptr_t base, mapped_read *reader)
{
    Elf64_Ehdr head;
    Elf64_Phdr segments[BUILD_ID_HEADERS];
    if (id->base == base) {
        return;
    }
    *id = (struct build_id){.base = base};
    if (!reader(base, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof segments[0]) {
        return;
    }
    size_t count = head.e_phnum < BUILD_ID_HEADERS ? head.e_phnum : BUILD_ID_HEADERS;
    if (!reader(base + head.e_phoff, segments, count * sizeof segments[0])) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0) {
            id->bias = base - segments[i].p_vaddr;
            id->is_elf = true;
        }
    }
    for (size_t i = 0; i < count && id->is_elf; i++) {
        if (segments[i].p_type == PT_NOTE) {
            build_id_read_notes(id, &segments[i], reader);
        }
    }
}
