/* SPDX-License-Identifier: MIT */
/* modules.c: see modules.h. A build id is read from memory, because the file of that path may be
 * another one by now, or lie in another root directory than the one of whoever reads the names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "observe/modules.h"

#include "base/bits.h"
#include "os/os.h"

#include <elf.h>
#include <string.h>

/* Bytes of the list that are tried first: some 3,000 mappings. It doubles until all fit. Half: a
 * large program needs one attempt more. */
#define MODULES_SIZE_START ((size_t)256 << 10)

static struct modules modules_kept; /* constant once the process has started */

/* False: the list cannot be read, or there is no memory. */
static bool modules_read(struct modules *modules)
{
    *modules = (struct modules){NULL, 0};
    for (size_t size = MODULES_SIZE_START;; size *= 2) {
        void *memory;
        if (hak__os_map(size, hak__os_page_size(), &memory) != 0) {
            return false;
        }
        long length = hak__os_read_file("/proc/self/maps", memory, size - 1);
        if (length >= 0 && (size_t)length < size - 1) {
            *modules = (struct modules){memory, size};
            return true;
        }
        hak__os_discard(memory, size);
        if (length < 0) {
            return false;
        }
    }
}

void hak__modules_keep(void)
{
    (void)modules_read(&modules_kept);
}

void hak__modules_open(struct modules *modules)
{
    void *memory;
    if (!modules_read(modules) && modules_kept.text != NULL &&
        hak__os_map(modules_kept.size, hak__os_page_size(), &memory) == 0) {
        memcpy(memory, modules_kept.text, modules_kept.size);
        *modules = (struct modules){memory, modules_kept.size};
    }
}

void hak__modules_close(struct modules *modules)
{
    if (modules->text != NULL) {
        hak__os_discard(modules->text, modules->size);
    }
}

/* Reads a hexadecimal number, and moves behind the character that follows it. */
static uint64_t modules_read_hex(const char **at)
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

static bool modules_are_same_file(const struct module_place *a, const struct module_place *b)
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
    range->start = modules_read_hex(&at);
    range->end = modules_read_hex(&at);
    range->is_code = end - at > 2 && at[2] == 'x'; /* of "r-xp " */
    at += end - at > 5 ? 5 : 0;
    place->offset = modules_read_hex(&at);
    const char *path = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
    place->path = path != NULL ? path : end;
    place->path_length = (size_t)(end - place->path);
    if (place->offset == 0) {
        place->base = range->start;
    } else if (!modules_are_same_file(place, &before)) { /* a file's mappings follow each other */
        place->base = 0;
    }
    return next;
}

bool hak__modules_find(const struct modules *modules, uintptr_t address, struct module_place *place)
{
    struct module_range range = {.end = 0};
    for (const char *line = modules->text; line != NULL && *line != '\0';) {
        line = hak__modules_next(line, &range);
        if (address - range.start < range.end - range.start) {
            range.place.offset += address - range.start;
            *place = range.place;
            return place->path_length != 0;
        }
    }
    return false;
}

/* --- build ids --- */

/* Program headers that are read of a file. Programs have some 15. Half: some are missed. */
#define BUILD_ID_HEADERS 32u
/* Bytes of a segment of notes that are read. The id is among the first 100. Half: it may be missed
 * behind long notes of a distribution. */
#define BUILD_ID_NOTES 512u

static bool build_id_copy(uintptr_t from, void *to, size_t size)
{
    return hak__os_read_memory(from, to, size) == (long)size;
}

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

static void build_id_read_notes(struct build_id *id, const Elf64_Phdr *segment)
{
    char notes[BUILD_ID_NOTES];
    size_t size = segment->p_memsz < sizeof notes ? segment->p_memsz : sizeof notes;
    if (id->size == 0 && build_id_copy((uintptr_t)(id->bias + segment->p_vaddr), notes, size)) {
        (void)build_id_take(id, notes, size, segment->p_align == 8 ? 8 : 4);
    }
}

void hak__build_id_read(struct build_id *id, uintptr_t base)
{
    Elf64_Ehdr head;
    Elf64_Phdr segments[BUILD_ID_HEADERS];
    if (id->base == base) {
        return;
    }
    *id = (struct build_id){.base = base};
    if (!build_id_copy(base, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof segments[0]) {
        return;
    }
    size_t count = head.e_phnum < BUILD_ID_HEADERS ? head.e_phnum : BUILD_ID_HEADERS;
    if (!build_id_copy(base + head.e_phoff, segments, count * sizeof segments[0])) {
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
            build_id_read_notes(id, &segments[i]);
        }
    }
}

const char *hak__build_id_text(const struct build_id *id, char text[BUILD_ID_TEXT_SIZE])
{
    struct text digits = {text, BUILD_ID_TEXT_SIZE - 1, 0};
    for (uint32_t i = 0; i < id->size; i++) {
        hak__text_format(&digits, "%02x", id->bytes[i]);
    }
    text[digits.length] = '\0';
    return text;
}

void hak__build_id_write(struct report_writer *writer, const struct build_id *id)
{
    char text[BUILD_ID_TEXT_SIZE];
    hak__report_string(writer, "build_id", hak__build_id_text(id, text), "");
    hak__report_hex(writer, "bias", id->bias, id->is_elf);
}
