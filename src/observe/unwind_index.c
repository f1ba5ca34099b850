/* SPDX-License-Identifier: MIT */
/* unwind_index.c: the index of a static program's unwind tables. gcc links such programs without
 * .eh_frame_hdr, and nothing in memory says where .eh_frame is. The file's list of sections does.
 * See unwind.h. */
#include "observe/unwind.h"

#include "base/bits.h"
#include "base/text.h"
#include "os/os.h"

#include <link.h>

#define INDEX_FILE "/proc/self/exe"
/* Sections that are looked at. Half: programs have 40. */
#define INDEX_SECTIONS_MAX 128u

static bool index_read(uint64_t offset, void *to, size_t size)
{
    return hak__os_read_part(INDEX_FILE, offset, to, size) == (long)size;
}

static bool index_read_section(const ElfW(Ehdr) * file, uint32_t number, ElfW(Shdr) * section)
{
    return index_read(file->e_shoff + number * sizeof *section, section, sizeof *section);
}

/* False: the file does not name its section .eh_frame. */
static bool index_find_section(ElfW(Shdr) * section)
{
    static const char wanted[] = ".eh_frame";
    char name[sizeof wanted];
    ElfW(Ehdr) file;
    ElfW(Shdr) names;
    if (!index_read(0, &file, sizeof file) || file.e_shentsize != sizeof *section ||
        file.e_shnum > INDEX_SECTIONS_MAX || !index_read_section(&file, file.e_shstrndx, &names)) {
        return false;
    }
    for (uint32_t i = 1; i < file.e_shnum; i++) {
        if (!index_read_section(&file, i, section)) {
            return false;
        }
        if (section->sh_addr != 0 &&
            index_read(names.sh_offset + section->sh_name, name, sizeof name) &&
            memcmp(name, wanted, sizeof wanted) == 0) {
            return true;
        }
    }
    return false;
}

/* A pair as one number, which is sorted by its upper half. */
static int64_t index_get(const int32_t (*pairs)[2], uint64_t i)
{
    return (int64_t)((uint64_t)(uint32_t)pairs[i][0] << 32 | (uint32_t)pairs[i][1]);
}

static void index_put(int32_t (*pairs)[2], uint64_t i, int64_t pair)
{
    pairs[i][0] = (int32_t)(pair >> 32);
    pairs[i][1] = (int32_t)pair;
}

/* Puts the pair at the root into its place among the first `count`. */
static void index_sink(int32_t (*pairs)[2], uint64_t root, uint64_t count)
{
    int64_t pair = index_get(pairs, root);
    for (uint64_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        child += child + 1 < count && index_get(pairs, child) < index_get(pairs, child + 1);
        if (index_get(pairs, child) <= pair) {
            break;
        }
        index_put(pairs, root, index_get(pairs, child));
        root = child;
    }
    index_put(pairs, root, pair);
}

/* Heapsort (J. W. J. Williams, 1964): the C library's sort may allocate. */
static void index_sort(int32_t (*pairs)[2], uint64_t count)
{
    for (uint64_t root = count / 2; root-- > 0;) {
        index_sink(pairs, root, count);
    }
    for (uint64_t end = count; end-- > 1;) {
        int64_t greatest = index_get(pairs, 0);
        index_put(pairs, 0, index_get(pairs, end));
        index_put(pairs, end, greatest);
        index_sink(pairs, 0, end);
    }
}

bool hak__unwind_index(struct unwind_module *module, uintptr_t bias)
{
    ElfW(Shdr) section;
    void *pairs;
    if (!index_find_section(&section)) {
        return false;
    }
    uintptr_t start = bias + section.sh_addr, page = hak__os_page_size();
    module->pairs_base = start;
    module->pairs_count = 0; /* it is only counted at first */
    uint64_t count = hak__unwind_list(module, start, section.sh_size);
    if (count == 0 ||
        hak__os_map(bits_align_up(count * 2 * sizeof(int32_t), page), page, &pairs) != 0) {
        return false;
    }
    module->pairs = (uintptr_t)pairs;
    module->pairs_own = true;
    module->pairs_count = count;
    (void)hak__unwind_list(module, start, section.sh_size);
    index_sort(pairs, count);
    return true;
}
