/* SPDX-License-Identifier: MIT */
/* unwind_index.c: the index of a static program's unwind tables. gcc links such programs without
 * .eh_frame_hdr, and nothing in memory says where .eh_frame is. The file's list of sections does.
 * See unwind.h. */
#include "observe/unwind.h"

#include "base/bits.h"
#include "base/text.h"
#include "os/os.h"

#include <link.h>

static bool index_read(uint64_t offset, void *to, size_t size)
{
    return hak__os_read_part("/proc/self/exe", offset, to, size) == (long)size;
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
    /* Sections that are looked at. Half: programs have 40. */
    if (!index_read(0, &file, sizeof file) || file.e_shentsize != sizeof *section ||
        file.e_shnum > 128 || !index_read_section(&file, file.e_shstrndx, &names)) {
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

/* Shellsort (D. L. Shell, 1959), by the starts of functions: the C library's sort may allocate. */
static void index_sort(int32_t (*pairs)[2], uint64_t count)
{
    for (uint64_t gap = count / 2; gap != 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (uint64_t i = gap; i < count; i++) {
            int32_t start = pairs[i][0], entry = pairs[i][1];
            uint64_t at = i;
            for (; at >= gap && pairs[at - gap][0] > start; at -= gap) {
                pairs[at][0] = pairs[at - gap][0];
                pairs[at][1] = pairs[at - gap][1];
            }
            pairs[at][0] = start;
            pairs[at][1] = entry;
        }
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
