/* SPDX-License-Identifier: MIT */
/* mapped.c: see mapped.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/mapped.h"

#include "base/bits.h"
#include "base/text.h"

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

/* A line: start-end rights offset device inode   /path
 * A file's mappings follow each other, but memory without a file may lie between them. */
const char *hak__modules_next(const char *line, struct module_place *place)
{
    struct module_head *head = &place->head;
    const char *end = strchrnul(line, '\n'), *next = *end == '\n' ? end + 1 : end;
    const char *at = line;
    place->start = mapped_read_hex(&at);
    place->end = mapped_read_hex(&at);
    place->is_code = end - at > 2 && at[2] == 'x'; /* of "r-xp " */
    at += end - at > 5 ? 5 : 0;
    place->offset = mapped_read_hex(&at);
    const char *path = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
    place->path = path != NULL ? path : end;
    place->path_length = (size_t)(end - place->path);
    if (place->path_length != 0 && (place->path_length != head->path_length ||
                                    memcmp(place->path, head->path, head->path_length) != 0)) {
        *head = (struct module_head){place->path, place->path_length, 0};
    }
    if (place->path_length != 0 && place->offset == 0 && head->start == 0) {
        head->start = place->start;
    }
    return next;
}

/* --- build ids --- */

/* Bytes of a file that are read for its headers: 35 program headers. Programs have some 15. Half:
 * some are missed. */
#define BUILD_ID_HEADERS ((size_t)2048)

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

static void build_id_read_notes(struct build_id *id, const Elf64_Phdr *segment,
                                const struct mapped_reader *reader)
{
    /* Bytes of a segment of notes that are read. The id is among the first 100. Half: it may be
     * missed behind long notes of a distribution. */
    char notes[512];
    size_t size = segment->p_memsz < sizeof notes ? segment->p_memsz : sizeof notes;
    if (id->size == 0 && reader->memory((uintptr_t)(id->bias + segment->p_vaddr), notes, size)) {
        (void)build_id_take(id, notes, size, segment->p_align == 8 ? 8 : 4);
    }
}

/* The program headers among these first bytes of a file; 0: it is none of 64 bits, or they are
 * elsewhere. */
static size_t build_id_count(const char *bytes, size_t size, const Elf64_Phdr **segments)
{
    const Elf64_Ehdr *head = (const void *)bytes;
    if (size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof **segments ||
        head->e_phoff % sizeof(uint64_t) != 0 || head->e_phoff > size) {
        return 0;
    }
    size_t room = (size - head->e_phoff) / sizeof **segments;
    *segments = (const void *)(bytes + head->e_phoff);
    return head->e_phnum < room ? head->e_phnum : room;
}

static size_t build_id_read_head(const struct module_place *place, char *bytes,
                                 const Elf64_Phdr **segments, const struct mapped_reader *reader)
{
    char path[TEXT_LINE_SIZE];
    size_t count = 0;
    if (place->head.start != 0 && reader->memory(place->head.start, bytes, BUILD_ID_HEADERS)) {
        count = build_id_count(bytes, BUILD_ID_HEADERS, segments);
    }
    if (count == 0 && place->path_length < sizeof path) {
        memcpy(path, place->path, place->path_length);
        path[place->path_length] = '\0';
        long size = reader->file(path, bytes, BUILD_ID_HEADERS);
        count = size > 0 ? build_id_count(bytes, (size_t)size, segments) : 0;
    }
    return count;
}

/* Bytes that only one of the two has, the segment or the place. A segment that shares its pages
 * with others of the file is found by this; UINT64_MAX: it has nothing there. */
static uint64_t build_id_misfit(const Elf64_Phdr *segment, const struct module_place *place)
{
    uint64_t start = segment->p_offset, end = start + segment->p_filesz;
    uint64_t from = place->offset, to = from + (place->end - place->start);
    uint64_t low = start > from ? start : from, high = end < to ? end : to;
    if (segment->p_type != PT_LOAD || low >= high ||
        (place->is_code && (segment->p_flags & PF_X) == 0)) {
        return UINT64_MAX;
    }
    return (to - from) + (end - start) - 2 * (high - low);
}

void hak__mapped_id(struct build_id *id, const struct module_place *place,
                    const struct mapped_reader *reader)
{
    _Alignas(Elf64_Phdr) char bytes[BUILD_ID_HEADERS];
    const Elf64_Phdr *segments = NULL;
    uint64_t shift = place->start - place->offset, least = UINT64_MAX;
    if (place->path_length != 0 && id->head != 0 && id->head == place->head.start &&
        id->shift == shift) {
        return;
    }
    *id = (struct build_id){.head = place->head.start, .shift = shift};
    if (place->path_length == 0) {
        return;
    }
    size_t count = build_id_read_head(place, bytes, &segments, reader);
    for (size_t i = 0; i < count; i++) {
        uint64_t misfit = build_id_misfit(&segments[i], place);
        if (misfit < least) {
            least = misfit;
            id->bias = shift - (segments[i].p_vaddr - segments[i].p_offset);
            id->is_elf = true;
        }
    }
    for (size_t i = 0; i < count && id->is_elf; i++) {
        if (segments[i].p_type == PT_NOTE) {
            build_id_read_notes(id, &segments[i], reader);
        }
    }
}
