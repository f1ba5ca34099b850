/* SPDX-License-Identifier: MIT */
/* test_modules.c: observe/modules: lines of /proc/self/maps, the program's own; base/symbols. */
#include "unit.h"

#include "base/symbols.h"
#include "observe/modules.h"

#include <dlfcn.h>
#include <elf.h>

static const char maps[] =
    "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/first program\n"
    "00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/first program (deleted)\n"
    "00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n"
    "35b1800000-35b1820000 r-xp 00000000 08:02 135522  /usr/lib64/ld-2.15.so\n"
    "35b1a21000-35b1a22000 rw-p 00000000 00:00 0 \n"
    "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0\n"
    "ffffffffff600000-ffffffffff601000 r-xp 00000000 00:00 0 [vsyscall]";

static void require_place(uintptr_t address, const char *path, uint64_t offset)
{
    char text[sizeof maps];
    memcpy(text, maps, sizeof maps);
    struct modules modules = {text, sizeof text};
    struct module_place place = {.offset = 0};
    bool found = hak__modules_find(&modules, address, &place);
    assert_int_equal(found, path != NULL);
    if (path != NULL) {
        assert_int_equal(place.path_length, strlen(path));
        assert_memory_equal(place.path, path, place.path_length);
        assert_int_equal(place.offset, offset);
    }
}

TEST(lines)
{
    require_place(0x400000, "/usr/bin/first program", 0x1000);
    require_place(0x451fff, "/usr/bin/first program", 0x52fff);
    require_place(0x651010, "/usr/bin/first program (deleted)", 0x51010);
    require_place(0x35b1812345, "/usr/lib64/ld-2.15.so", 0x12345);
    static const uintptr_t nowhere[] = {
        0,          0x3fffff, 0x452000, 0xe03000, 0x35b1a21008, 0x7ffffffde000, 0xffffffffff600010,
        UINTPTR_MAX};
    for (size_t i = 0; i < COUNT_OF(nowhere); i++) {
        require_place(nowhere[i], NULL, 0);
    }
}

/* A mapping of the first bytes of the file that holds the address, not of another file. Segments
 * that share a page map it again, and there may be memory between them. */
TEST(heads)
{
    static const char lines[] =
        "1000-2000 r--p 00000000 08:02 1 /a\n2000-3000 r-xp 00000000 08:02 1 /a\n"
        "4000-5000 r--p 00003000 08:02 2 /data\n5000-6000 rw-p 00000000 00:00 0\n"
        "6000-7000 r-xp 00000000 08:02 3 /b\n7000-8000 rw-p 00000000 00:00 0\n"
        "8000-9000 rw-p 00001000 08:02 3 /b\n";
    static const uintptr_t heads[][2] = {
        {0x2010, 0x1000}, {0x4010, 0}, {0x6010, 0x6000}, {0x8fff, 0x6000}};
    char text[sizeof lines];
    memcpy(text, lines, sizeof lines);
    struct modules modules = {text, sizeof text};
    struct module_place place;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        assert_true(hak__modules_find(&modules, heads[i][0], &place));
        assert_int_equal(place.head.start, heads[i][1]);
    }
}

/* --- segments --- */

static struct {
    _Alignas(64) char bytes[4096];
    bool is_mapped;
} image;

static void image_add(uint32_t flags, uint64_t offset, uint64_t address, uint64_t size)
{
    Elf64_Ehdr *head = (Elf64_Ehdr *)image.bytes;
    Elf64_Phdr *segments = (Elf64_Phdr *)(image.bytes + sizeof *head);
    memcpy(head->e_ident, ELFMAG, SELFMAG);
    head->e_ident[EI_CLASS] = ELFCLASS64;
    head->e_phoff = sizeof *head;
    head->e_phentsize = sizeof *segments;
    segments[head->e_phnum++] = (Elf64_Phdr){.p_type = PT_LOAD,
                                             .p_flags = flags,
                                             .p_offset = offset,
                                             .p_vaddr = address,
                                             .p_filesz = size,
                                             .p_memsz = size};
}

static bool image_memory(uintptr_t from, void *to, size_t size)
{
    if (!image.is_mapped || from != 0x7000) {
        return false;
    }
    memcpy(to, image.bytes, size);
    return true;
}

static long image_file(const char *path, char *to, size_t size)
{
    if (strcmp(path, "/image") != 0) {
        return -1;
    }
    memcpy(to, image.bytes, size);
    return (long)size;
}

/* The bias of code at this offset of the file, or of a mapping of `size` bytes. */
static uint64_t image_bias(uint64_t start, uint64_t offset, uint64_t size)
{
    static const struct mapped_reader reader = {image_memory, image_file};
    struct module_place place = {.start = start,
                                 .end = start + size,
                                 .offset = offset,
                                 .path = "/image (deleted)",
                                 .path_length = 6,
                                 .is_code = true,
                                 .head.start = image.is_mapped ? 0x7000 : 0};
    struct build_id id = {.head = 0};
    hak__mapped_id(&id, &place, &reader);
    return id.is_elf ? id.bias : UINT64_MAX;
}

/* As lld lays out small programs: all segments begin in the file's first page. */
TEST(segments_share_a_page)
{
    memset(&image, 0, sizeof image);
    for (int mapped = 1; mapped >= 0; mapped--) {
        memset(image.bytes, 0, sizeof image.bytes);
        image.is_mapped = mapped;
        image_add(PF_R, 0, 0, 0x500);
        image_add(PF_R | PF_X, 0x500, 0x1500, 0x60);
        image_add(PF_R | PF_X, 0x560, 0x2560, 0x2000);
        image_add(PF_R | PF_W, 0x2560, 0x5560, 0x100);
        assert_int_equal(image_bias(0x8000, 0, 0x1000), 0x7000);
        assert_int_equal(image_bias(0x9000, 0, 0x3000), 0x7000);
        assert_int_equal(image_bias(0x8510, 0x510, 1), 0x7000);
        assert_int_equal(image_bias(0x9570, 0x570, 1), 0x7000);
        assert_int_equal(image_bias(0xa570, 0x1570, 1), 0x7000);
    }
}

/* The image's own base, a first segment behind the headers, and bytes of no segment with code. */
TEST(segments_elsewhere)
{
    memset(&image, 0, sizeof image);
    assert_int_equal(image_bias(0x8000, 0, 0x1000), UINT64_MAX);
    image_add(PF_R | PF_X, 0x2158, 0x402158, 0x700);
    image_add(PF_R, 0x2858, 0x403858, 0x700);
    assert_int_equal(image_bias(0x402000, 0x2000, 0x1000), 0);
    assert_int_equal(image_bias(0x502158, 0x2158, 1), 0x100000);
    assert_int_equal(image_bias(0x403860, 0x2860, 1), UINT64_MAX);
}

/* The program's own name and headers, nothing, memory without headers, and memory that is gone. */
TEST(build_ids)
{
    struct modules modules;
    struct module_place place;
    struct build_id id = {.head = 0};
    void *pages;
    size_t page = hak__os_page_size();
    hak__modules_open(&modules);
    assert_false(hak__modules_find(&modules, (uintptr_t)modules.text, &place));
    assert_true(hak__modules_find(&modules, (uintptr_t)test_build_ids, &place));
    assert_true(place.path_length > 13);
    assert_memory_equal(place.path + place.path_length - 13, "/test_modules", 13);
    hak__build_id_read(&id, &place);
    assert_true(id.is_elf && id.bias <= place.head.start);
    assert_true(id.size >= 8); /* the linkers of the test forms write one */
    assert_int_equal(hak__module_address(&place), (uintptr_t)test_build_ids - id.bias);
    assert_int_equal(hak__os_map(2 * page, page, &pages), 0);
    struct module_place other = {.start = (uintptr_t)pages,
                                 .end = (uintptr_t)pages + page,
                                 .path = "/none",
                                 .path_length = 5};
    other.head.start = other.start;
    hak__build_id_read(&id, &other);
    assert_true(!id.is_elf && id.size == 0);
    hak__build_id_read(&id, &place);
    other.path_length = 0;
    hak__build_id_read(&id, &other);
    assert_true(!id.is_elf && id.size == 0);
    hak__os_discard(pages, 2 * page);
    hak__build_id_read(&id, &place);
    other.path_length = 5;
    hak__build_id_read(&id, &other);
    assert_true(!id.is_elf && id.size == 0);
    hak__modules_close(&modules);
}

/* --- dynamic symbols of the objects of this process, against what the loader finds --- */

static unsigned objects_count, symbols_count;

/* Each name that the table defines is found by its hash, at a place of that name. */
static int visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct symbols symbols;
    (void)size;
    (void)argument;
    if (!hak__symbols_read_loaded(&symbols, object) || symbols.gnu_hash == NULL) {
        return 0;
    }
    objects_count++;
    uint32_t count = hak__symbols_count(&symbols);
    for (uint32_t at = symbols.gnu_hash[1]; at < count; at++) {
        if (!symbols_is_defined(&symbols, at)) { /* a program's stub of another's function */
            continue;
        }
        const char *name = symbols_name(&symbols, at);
        uint32_t found = hak__symbols_next(&symbols, name, 0);
        while (found != 0 && found != at) { /* another version of it */
            assert_string_equal(symbols_name(&symbols, found), name);
            found = hak__symbols_next(&symbols, name, found);
        }
        assert_int_equal(found, at);
        symbols_count++;
    }
    assert_int_equal(hak__symbols_next(&symbols, "no_such_name", 0), 0);
    return 0;
}

TEST(all_names_are_found)
{
    dl_iterate_phdr(visit, NULL);
    SKIP_IF(objects_count == 0); /* a static program */
    assert_true(symbols_count > 1000);
}

static int visit_library(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct symbols symbols;
    (void)size;
    if (!hak__symbols_read_loaded(&symbols, object) || symbols.gnu_hash == NULL) {
        return 0;
    }
    uint32_t at = hak__symbols_next(&symbols, "getpid", 0);
    if (at != 0) {
        *(uintptr_t *)argument = symbols.base + symbols.table[at].st_value;
    }
    return at != 0;
}

TEST(an_address_is_the_loaders)
{
    uintptr_t address = 0;
    SKIP_IF(dl_iterate_phdr(visit_library, &address) == 0);
    assert_int_equal(address, (uintptr_t)dlsym(RTLD_DEFAULT, "getpid"));
}

TESTS(unit_start)
