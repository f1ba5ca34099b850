/* SPDX-License-Identifier: MIT */
/* test_small_process.c: OS pages that a process which allocates once has of its own because of
 * hakmem: those of the library's variables and relocations, those of the tables, of the thread and
 * its arena, and the block's. Each takes 4 KiB in every process of a system that preloads hakmem.
 *
 * ctest: preload-only no-qemu
 */
#include "override.h"

#include <link.h>

/* Relocations and variables; another compiler may need a page more, and assertions some. */
#define LIBRARY_PAGES_MAX (HAK_LEVEL == 0 ? 3 : 9)
/* One for maps and owner words, for slab metadata, for the structs, and for the block. */
#define WINDOW_PAGES_MAX (HAK_LEVEL == 0 ? 4 : 9)
/* It starts between 32 and 80 TiB, and only its start is claimed; programs lie from 85 TiB on. */
#define WINDOW_LOW 0x200000000000u
#define WINDOW_HIGH 0x510000000000u

static int pages_file;
static size_t page_size;

/* The pages of [from, to) that are this process's own. Not those of a file, nor the page of zeros
 * that all have read. */
static size_t own_pages(uintptr_t from, uintptr_t to)
{
    const uint64_t present = UINT64_C(1) << 63, of_file = UINT64_C(1) << 61,
                   exclusive = UINT64_C(1) << 56;
    size_t count = 0;
    for (uintptr_t page = from / page_size; page < (to + page_size - 1) / page_size; page++) {
        uint64_t entry;
        if (pread(pages_file, &entry, sizeof entry, (off_t)(page * sizeof entry)) !=
            (ssize_t)sizeof entry) {
            dprintf(2, "skipped: /proc/self/pagemap cannot be read\n");
            _exit(TEST_SKIPPED);
        }
        count += (entry & (present | of_file | exclusive)) == (present | exclusive);
    }
    return count;
}

static int count_library(struct dl_phdr_info *module, size_t size, void *count)
{
    (void)size;
    for (size_t i = 0; strstr(module->dlpi_name, "libhakmem") != NULL && i < module->dlpi_phnum;
         i++) {
        const ElfW(Phdr) *part = &module->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) != 0) {
            uintptr_t start = module->dlpi_addr + part->p_vaddr;
            *(size_t *)count += own_pages(start, start + part->p_memsz);
        }
    }
    return 0;
}

int main(void)
{
    static char maps[64 << 10];
    char *block = get_memory(100);
    CHECK(block != NULL);
    *block = 1;
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    pages_file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t of_library = 0, of_window = 0;
    dl_iterate_phdr(count_library, &of_library);
    read_file("/proc/self/maps", maps, sizeof maps);
    for (const char *line = maps; *line != '\0'; line = strchr(line, '\n') + 1) {
        uintptr_t low = strtoul(line, NULL, 16), high = strtoul(strchr(line, '-') + 1, NULL, 16);
        if (low >= WINDOW_LOW && high <= WINDOW_HIGH) {
            of_window += own_pages(low, high);
        }
    }
    give_back(block);
    prove_preloaded();
    dprintf(2, "%zu pages of the library, %zu of the window\n", of_library, of_window);
    CHECK(of_library >= 1 && of_library <= LIBRARY_PAGES_MAX);
    CHECK(of_window >= 1 && of_window <= WINDOW_PAGES_MAX);
    return 0;
}
