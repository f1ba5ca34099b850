/* SPDX-License-Identifier: MIT */
/* build_id.c: see build_id.h. */
#include "observe/build_id.h"

#include "base/bits.h"
#include "os/os.h"

#include <elf.h>
#include <string.h>

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

void hak__build_id_put(struct text *text, const struct build_id *id)
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < id->size; i++) {
        const char pair[] = {digits[id->bytes[i] >> 4], digits[id->bytes[i] & 15]};
        hak__text_put_part(text, pair, sizeof pair);
    }
}

void hak__build_id_write(struct report_writer *writer, const struct build_id *id)
{
    char line[2 * BUILD_ID_MAX + 1], bias[24] = "";
    struct text text = {line, sizeof line - 1, 0};
    hak__build_id_put(&text, id);
    line[text.length] = '\0';
    hak__report_string(writer, "build_id", line, "");
    if (id->is_elf) {
        text = (struct text){bias, sizeof bias - 1, 0};
        hak__text_put_hex(&text, id->bias);
        bias[text.length] = '\0';
    }
    hak__report_string(writer, "bias", bias, "");
}
