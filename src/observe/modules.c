/* SPDX-License-Identifier: MIT */
/* modules.c: see modules.h. */
#include "observe/modules.h"

#include "core/limits.h"
#include "os/os.h"

#include <string.h>

static struct modules modules_kept; /* constant once the process has started */

/* False: the list cannot be read, or there is no memory. */
static bool modules_read(struct modules *modules)
{
    *modules = (struct modules){NULL, 0};
    /* Bytes of the list that are tried first: some 3,000 mappings. It doubles until all fit. Half:
     * a large program needs one attempt more. */
    for (size_t size = METADATA_CHUNK_SIZE;; size *= 2) {
        void *memory;
        if (hak__os_map(size, hak__os_page_size(), &memory) != 0) {
            return false;
        }
        long length = hak__os_read_file("/proc/thread-self/maps", memory, size - 1);
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

bool hak__modules_find(const struct modules *modules, uintptr_t address, struct module_place *place)
{
    *place = (struct module_place){.end = 0};
    for (const char *line = modules->text; line != NULL && *line != '\0';) {
        line = hak__modules_next(line, place);
        if (address - place->start < place->end - place->start) {
            place->offset += address - place->start;
            place->start = address;
            place->end = address + 1;
            return place->path_length != 0;
        }
    }
    return false;
}

static bool build_id_copy(uintptr_t from, void *to, size_t size)
{
    return hak__os_read_memory(from, to, size) == (long)size;
}

void hak__build_id_read(struct build_id *id, const struct module_place *place)
{
    static const struct mapped_reader reader = {build_id_copy, hak__os_read_file};
    hak__mapped_id(id, place, &reader);
}

uint64_t hak__module_address(const struct module_place *place)
{
    struct build_id id = {.head = 0};
    hak__build_id_read(&id, place);
    return id.is_elf ? place->start - id.bias : place->offset;
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
