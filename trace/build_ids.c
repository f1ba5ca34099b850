/* SPDX-License-Identifier: MIT */
/* build_ids.c: see build_ids.h. */
#define _GNU_SOURCE
#include "build_ids.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HEADERS_MAX 32u
#define NOTES_MAX 512u
#define ID_MAX 32u

static long os_open(const char *name)
{
    return syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
}

static bool read_memory(int memory, uint64_t from, void *to, size_t size)
{
    return syscall(SYS_pread64, memory, to, size, from) == (long)size;
}

static size_t aligned(size_t value, size_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* The bytes of the id; NULL: it is not among the notes. */
static const char *find_note(const char *notes, size_t size, size_t align, size_t *id_size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, said = aligned(name + note.n_namesz, align);
        if (note.n_namesz > size || note.n_descsz > size || said + note.n_descsz > size) {
            return NULL;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            *id_size = note.n_descsz;
            return note.n_descsz <= ID_MAX ? notes + said : NULL;
        }
        at = aligned(said + note.n_descsz, align);
    }
    return NULL;
}

/* Writes the hexadecimal digits of the file's id, whose start is mapped at `head`; returns their
 * end. */
static char *put_id(char *to, int memory, uint64_t head)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[HEADERS_MAX];
    char notes[NOTES_MAX];
    uint64_t bias = head;
    if (!read_memory(memory, head, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phnum > HEADERS_MAX ||
        !read_memory(memory, head + header.e_phoff, segments, header.e_phnum * sizeof *segments)) {
        return to;
    }
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0) {
            bias = head - segments[i].p_vaddr;
        }
    }
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        size_t size = segments[i].p_memsz < sizeof notes ? segments[i].p_memsz : sizeof notes;
        size_t id_size = 0;
        if (segments[i].p_type != PT_NOTE ||
            !read_memory(memory, bias + segments[i].p_vaddr, notes, size)) {
            continue;
        }
        const char *id = find_note(notes, size, segments[i].p_align == 8 ? 8 : 4, &id_size);
        for (size_t byte = 0; id != NULL && byte < id_size; byte++) {
            *to++ = "0123456789abcdef"[(unsigned char)id[byte] >> 4];
            *to++ = "0123456789abcdef"[id[byte] & 15];
        }
        if (id != NULL) {
            break;
        }
    }
    return to;
}

static uint64_t read_hex(const char *at, const char **end)
{
    uint64_t value = 0;
    for (;; at++) {
        unsigned digit = (unsigned char)*at;
        digit = digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : digit - '0';
        if (digit > 15) {
            *end = at;
            return value;
        }
        value = value << 4 | digit;
    }
}

/* A mapped file. */
struct mapped {
    uint64_t head; /* where its start is mapped; 0: unknown */
    const char *path;
    size_t path_length;
    bool is_code, is_listed;
};

/* Reads a line of /proc/self/maps behind that of `file`; returns its end. */
static const char *read_mapping(const char *line, struct mapped *file)
{
    size_t length = strcspn(line, "\n");
    const char *at, *path = memchr(line, '/', length);
    uint64_t start = read_hex(line, &at);
    const char *rights = at + strcspn(at, " \n");
    size_t path_length = path != NULL ? (size_t)(line + length - path) : 0;
    bool is_same = path != NULL && file->path_length == path_length &&
                   memcmp(path, file->path, path_length) == 0;
    bool is_start = false;
    file->is_code = false;
    if (*rights == ' ' && line + length - rights > 6) { /* " r-xp " and the offset */
        file->is_code = rights[3] == 'x';
        is_start = read_hex(rights + 6, &at) == 0;
    }
    if (is_start || !is_same) {
        file->head = is_start && path != NULL ? start : 0;
        file->is_listed = false;
    }
    file->path = path;
    file->path_length = path_length;
    return line + length;
}

static char *append(char *to, const char *end, const char *maps, int memory)
{
    static const char word[] = "build-id ";
    struct mapped file = {.head = 0};
    for (const char *line = maps; *line != 0; line += *line == '\n') {
        line = read_mapping(line, &file);
        size_t most = sizeof word + 2 * ID_MAX + 1 + file.path_length + 1;
        if (!file.is_code || file.head == 0 || file.is_listed || (size_t)(end - to) < most) {
            continue;
        }
        file.is_listed = true;
        char *id = to + sizeof word - 1, *behind = put_id(id, memory, file.head);
        if (behind != id) {
            memcpy(to, word, sizeof word - 1);
            *behind++ = ' ';
            memcpy(behind, file.path, file.path_length);
            to = behind + file.path_length;
            *to++ = '\n';
        }
    }
    return to;
}

uint32_t build_ids_append(char *text, uint32_t length, uint32_t room)
{
    char *maps = text + room / 2, *to = text + length;
    size_t got = 0;
    long descriptor = os_open("/proc/self/maps"), memory = os_open("/proc/self/mem"), piece = 1;
    while (descriptor >= 0 && piece > 0 && got + 1 < room / 2) {
        piece = syscall(SYS_read, descriptor, maps + got, room / 2 - 1 - got);
        got += piece > 0 ? (size_t)piece : 0;
    }
    maps[got] = 0;
    if (memory >= 0 && to < maps) {
        to = append(to, maps, maps, (int)memory);
    }
    if (descriptor >= 0) {
        syscall(SYS_close, descriptor);
    }
    if (memory >= 0) {
        syscall(SYS_close, memory);
    }
    return (uint32_t)(to - text);
}
