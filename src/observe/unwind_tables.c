/* SPDX-License-Identifier: MIT */
/* unwind_tables.c: the unwind tables of modules: where they are, and what they say of an address
 * (sections .eh_frame_hdr and .eh_frame, Linux Standard Base 5.0, Core, 10.6). See unwind.h.
 *
 * A thread may come here out of malloc with any lock of the C library, as dlopen's. _dl_find_object
 * takes none (loaded.c). An older C library has dl_iterate_phdr alone, under the loader's lock, to
 * which a thread may come back that holds it. That function is looked for behind hakmem: a program
 * may have one of that name, which is not ready at any time. A static program has one module. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "observe/unwind.h"

#include "base/atomics.h"
#include "base/bits.h"
#include "observe/loaded.h"
#include "os/os.h"

#include <dlfcn.h>
#include <link.h>

#pragma weak dlsym

/* Encodings of addresses in tables (DW_EH_PE_*). */
enum table_encoding {
    TABLE_UNSIGNED_4 = 0x03,
    TABLE_SIGNED_4 = 0x0b,
    TABLE_TO_SELF = 0x10,
    TABLE_TO_HEADER = 0x30,
    TABLE_NONE = 0xff,
};

typedef int table_visit(struct dl_phdr_info *module, size_t size, void *argument);
typedef int table_iterate(table_visit *visit, void *argument);
/* NULL: there is none, or no need. Written before walks begin. */
static table_iterate *tables_iterate;
/* The program's, if there is no loader; start 0: no. Written before walks begin. */
static struct unwind_module tables_own HAK_SELDOM;

HAK_HIDDEN extern const ElfW(Ehdr) __ehdr_start;

/* --- reading --- */

/* Pages of tables that the kernel has found readable, each a word with the page's number and a part
 * of its module's key, at the index that follows from the number. Twice: 4 KiB more. Half: the
 * tables of a large program are asked for more often, a microsecond each time. */
static uint64_t shared_table_pages[512] HAK_SELDOM; /* relaxed: each word stands for itself */

/* False: not all of these bytes lie in the module and can be read. */
static bool table_can_read(const struct unwind_module *module, uintptr_t address, size_t size)
{
    if (module->pairs_own && address - module->pairs < module->pairs_count * 2 * sizeof(int32_t)) {
        return true;
    }
    if (address < module->start || address >= module->end || size > module->end - address) {
        return false;
    }
    uint64_t page = address / ARCH_PAGE_SIZE_MIN, last = (address + size - 1) / ARCH_PAGE_SIZE_MIN;
    for (; page <= last; page++) {
        uint64_t *known = &shared_table_pages[page % HAK_COUNT_OF(shared_table_pages)];
        uint64_t word = page << 28 | module->key >> (64 - 28);
        if (HAK_UNLIKELY(atomic_load_relaxed(known) != word)) {
            if (!hak__os_is_readable(page * ARCH_PAGE_SIZE_MIN)) {
                return false;
            }
            atomic_store_relaxed(known, word);
        }
    }
    return true;
}

/* A part of the module's tables. Without the right to read it: of no bytes. */
static struct cursor table_cursor(const struct unwind_module *module, uintptr_t at, size_t size)
{
    bool can = table_can_read(module, at, size);
    const unsigned char *start = (const unsigned char *)at;
    return (struct cursor){start, can ? start + size : start, !can};
}

/* An address that is encoded so: 8 bytes, or 4 with or without a sign. Linkers write no others. */
static uintptr_t table_address(struct cursor *cursor, uint8_t encoding, uintptr_t header)
{
    uintptr_t base = (encoding & 0x70) == TABLE_TO_SELF     ? (uintptr_t)cursor->at
                     : (encoding & 0x70) == TABLE_TO_HEADER ? header
                                                            : 0;
    uint32_t kind = encoding & 0x0f;
    bool is_short = kind == TABLE_UNSIGNED_4 || kind == TABLE_SIGNED_4;
    cursor->failed |= (encoding & 0x80) != 0 || ((encoding & 0x70) != 0 && base == 0) ||
                      !(is_short || kind == 0x00 || kind == 0x04 || kind == 0x0c);
    uint64_t value = cursor_take(cursor, is_short ? 4 : 8);
    return base + (kind == TABLE_SIGNED_4 ? (uintptr_t)cursor_sign(value, 32) : value);
}

/* --- modules --- */

/* Finds the pairs by the header. All linkers write them in this form. */
static void module_open(struct unwind_module *module)
{
    struct cursor cursor = table_cursor(module, module->header, 4);
    module->pairs_count = 0;
    module->pairs_own = false;
    if (module->header == 0 || cursor.failed || cursor_take(&cursor, 1) != 1) {
        return;
    }
    uint8_t table = (uint8_t)cursor_take(&cursor, 1), count = (uint8_t)cursor_take(&cursor, 1);
    bool known = cursor_take(&cursor, 1) == (TABLE_TO_HEADER | TABLE_SIGNED_4);
    cursor = table_cursor(module, module->header + 4, 16);
    (void)table_address(&cursor, table, module->header);
    uint64_t pairs_count = count != TABLE_NONE ? table_address(&cursor, count, module->header) : 0;
    uint64_t most = (module->end - module->header) / (2 * sizeof(int32_t));
    if (known && !cursor.failed && pairs_count <= most) {
        module->pairs = (uintptr_t)cursor.at;
        module->pairs_base = module->header;
        module->pairs_count = pairs_count;
    }
}

struct module_search {
    uintptr_t address;
    struct unwind_module *module;
};

/* table_visit: 1, which ends the search, for the module that has the address. The keys of modules
 * that lie at one place one after the other differ, because each change is counted. */
static int module_match(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct module_search *search = argument;
    struct unwind_module *module = search->module;
    bool has = false, counts = size >= offsetof(struct dl_phdr_info, dlpi_tls_modid);
    *module = (struct unwind_module){.start = UINTPTR_MAX};
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        if (segment->p_type == PT_GNU_EH_FRAME) {
            module->header = start;
        } else if (segment->p_type == PT_LOAD) {
            module->start = start < module->start ? start : module->start;
            module->end = end > module->end ? end : module->end;
            has |= search->address - start < segment->p_memsz;
        }
    }
    module->key = bits_mix(module->header ^ bits_mix(counts ? object->dlpi_adds : 0));
    return has;
}

bool hak__unwind_module_of(uintptr_t address, struct unwind_module *module)
{
    struct loader_answer answer;
    struct module_search search = {address, module};
    if (hak__loaded_ask(address, &answer)) {
        *module = (struct unwind_module){.start = (uintptr_t)answer.start,
                                         .end = (uintptr_t)answer.end,
                                         .header = (uintptr_t)answer.tables};
        module->key = bits_mix(module->header ^ bits_mix((uintptr_t)answer.link_map));
    } else if (tables_iterate != NULL) {
        if (tables_iterate(module_match, &search) != 1) {
            return false;
        }
    } else {
        *module = tables_own;
        return address - tables_own.start < tables_own.end - tables_own.start;
    }
    module_open(module);
    return true;
}

/* A program without a loader. */
static void tables_find_own(void)
{
    uintptr_t base = (uintptr_t)&__ehdr_start, bias = base;
    struct dl_phdr_info object = {.dlpi_phdr = (const void *)(base + __ehdr_start.e_phoff),
                                  .dlpi_phnum = __ehdr_start.e_phnum};
    struct unwind_module module;
    struct module_search search = {base, &module};
    for (size_t i = 0; i < object.dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object.dlpi_phdr[i];
        bias =
            segment->p_type == PT_LOAD && segment->p_offset == 0 ? base - segment->p_vaddr : bias;
    }
    object.dlpi_addr = bias;
    (void)module_match(&object, 0, &search);
    module_open(&module);
    if (module.pairs_count != 0 || hak__unwind_index(&module, bias)) {
        tables_own = module;
    }
}

bool hak__unwind_start(bool *locks)
{
    struct unwind_module module;
    struct unwind_entry entry;
    if (!hak__loaded_start()) {
        if (dlsym != NULL) {
            *(void **)&tables_iterate = dlsym(RTLD_NEXT, "dl_iterate_phdr");
        }
        if (tables_iterate == NULL) {
            tables_find_own();
        }
    }
    *locks = tables_iterate != NULL;
    uintptr_t here = (uintptr_t)hak__unwind_start;
    return hak__unwind_module_of(here, &module) && hak__unwind_find(&module, here, &entry);
}

/* --- entries --- */

/* The contents of an entry, behind its length. */
static struct cursor entry_open(const struct unwind_module *module, uintptr_t at)
{
    struct cursor cursor = table_cursor(module, at, sizeof(uint32_t));
    size_t size = (size_t)cursor_take(&cursor, sizeof(uint32_t));
    /* The longest entry, bytes: a function of some 100,000 instructions. Half: larger ones count as
     * without tables. */
    if (cursor.failed || size < 2 * sizeof(uint32_t) || size > (size_t)64 << 10) {
        return (struct cursor){cursor.at, cursor.at, true};
    }
    return table_cursor(module, at + sizeof(uint32_t), size);
}

/* Reads what several entries have in common. False: it is not understood. */
static bool entry_read_common(struct unwind_entry *entry, uint8_t *encoding, bool *sized)
{
    struct cursor *cursor = &entry->common;
    uint64_t id = cursor_take(cursor, 4), version = cursor_take(cursor, 1);
    const unsigned char *letters = cursor->at;
    while (cursor_take(cursor, 1) != 0) {
    }
    entry->code_factor = (uint64_t)hak__cursor_number(cursor, false);
    entry->data_factor = hak__cursor_number(cursor, true);
    entry->return_register =
        version == 1 ? cursor_take(cursor, 1) : (uint64_t)hak__cursor_number(cursor, false);
    entry->is_signal = false;
    *encoding = 0;
    *sized = !cursor->failed && *letters == 'z';
    if (cursor->failed || id != 0 || (version != 1 && version != 3)) {
        return false;
    }
    if (!*sized) {
        return *letters == '\0';
    }
    uint64_t size = (uint64_t)hak__cursor_number(cursor, false);
    const unsigned char *end = cursor->at + size;
    if (size > (size_t)(cursor->end - cursor->at)) {
        return false;
    }
    for (letters++; *letters != '\0' && !cursor->failed; letters++) {
        switch (*letters) {
        case 'R': /* of the addresses of functions */
            *encoding = (uint8_t)cursor_take(cursor, 1);
            break;
        case 'L': /* of data for exceptions */
            (void)cursor_take(cursor, 1);
            break;
        case 'P': /* a function for exceptions: read as if it were no address of one */
            (void)table_address(cursor, (uint8_t)cursor_take(cursor, 1) & 0x0f, 0);
            break;
        case 'S':
            entry->is_signal = true;
            break;
        case 'B': /* of signatures on aarch64 */
        case 'G': /* of tags on aarch64 */
            break;
        default:
            return false;
        }
    }
    cursor->at = end;
    return !cursor->failed;
}

/* Reads the entry at `at`. False: it is not understood, or describes no function. `size`: of the
 * function. */
static bool entry_read(const struct unwind_module *module, uintptr_t at, struct unwind_entry *entry,
                       uint64_t *size)
{
    uint8_t encoding;
    bool sized;
    struct cursor *own = &entry->own;
    *own = entry_open(module, at);
    uintptr_t back = (uintptr_t)own->at;
    back -= (uintptr_t)cursor_take(own, 4);
    if (own->failed) {
        return false;
    }
    entry->common = entry_open(module, back);
    if (!entry_read_common(entry, &encoding, &sized)) {
        return false;
    }
    entry->start = table_address(own, encoding, module->header);
    *size = table_address(own, encoding & 0x0f, 0);
    if (sized) {
        uint64_t passed = (uint64_t)hak__cursor_number(own, false);
        own->failed |= passed > (size_t)(own->end - own->at);
        own->at += own->failed ? 0 : passed;
    }
    return !own->failed;
}

static int64_t pair_value(const struct unwind_module *module, uint64_t index, uint32_t which)
{
    int32_t value;
    uintptr_t at = module->pairs + (2 * index + which) * sizeof value;
    if (!table_can_read(module, at, sizeof value)) {
        return INT64_MAX; /* goes on before it, where there is an end, too */
    }
    memcpy(&value, (const void *)at, sizeof value);
    return value;
}

bool hak__unwind_find(const struct unwind_module *module, uintptr_t address,
                      struct unwind_entry *entry)
{
    int64_t wanted = (int64_t)(address - module->pairs_base);
    uint64_t low = 0, high = module->pairs_count, size;
    while (low < high) { /* the first one behind the address */
        uint64_t middle = low + (high - low) / 2;
        if (pair_value(module, middle, 0) <= wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return false;
    }
    uintptr_t at = module->pairs_base + (uintptr_t)pair_value(module, low - 1, 1);
    return entry_read(module, at, entry, &size) && address - entry->start < size;
}

uint64_t hak__unwind_list(struct unwind_module *module, uintptr_t at, size_t size)
{
    uint64_t count = 0, bytes;
    struct unwind_entry entry;
    int32_t(*pairs)[2] = (int32_t(*)[2])module->pairs;
    for (uintptr_t end = at + size; at < end;) {
        struct cursor cursor = table_cursor(module, at, sizeof(uint32_t));
        uintptr_t next = at + sizeof(uint32_t) + (uintptr_t)cursor_take(&cursor, sizeof(uint32_t));
        if (cursor.failed || next == at + sizeof(uint32_t)) {
            break;
        }
        if (entry_read(module, at, &entry, &bytes)) {
            if (count < module->pairs_count) {
                pairs[count][0] = (int32_t)(entry.start - module->pairs_base);
                pairs[count][1] = (int32_t)(at - module->pairs_base);
            }
            count++;
        }
        at = next;
    }
    return count;
}
