/* SPDX-License-Identifier: MIT */
/* test_modules.c: observe/modules: lines of /proc/self/maps, and the program's own. */
#include "unit.h"

#include "observe/modules.h"

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

/* The start of the file that holds the address, not that of another file before it. */
TEST(bases)
{
    static const char lines[] =
        "1000-2000 r--p 00000000 08:02 1 /a\n2000-3000 r-xp 00001000 08:02 1 /a\n"
        "4000-5000 r--p 00003000 08:02 2 /data\n5000-6000 rw-p 00000000 00:00 0\n"
        "6000-7000 r-xp 00000000 08:02 3 /b\n7000-8000 rw-p 00001000 08:02 3 /b\n";
    static const uintptr_t bases[][2] = {
        {0x2010, 0x1000}, {0x4010, 0}, {0x6010, 0x6000}, {0x7fff, 0x6000}};
    char text[sizeof lines];
    memcpy(text, lines, sizeof lines);
    struct modules modules = {text, sizeof text};
    struct module_place place;
    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        assert_true(hak__modules_find(&modules, bases[i][0], &place));
        assert_int_equal(place.base, bases[i][1]);
    }
}

/* The program's own name and headers, nothing, memory without headers, and memory that is gone. */
TEST(build_ids)
{
    struct modules modules;
    struct module_place place;
    struct build_id id = {.base = 0};
    void *pages;
    size_t page = hak__os_page_size();
    hak__modules_open(&modules);
    assert_false(hak__modules_find(&modules, (uintptr_t)modules.text, &place));
    assert_true(hak__modules_find(&modules, (uintptr_t)test_build_ids, &place));
    assert_true(place.path_length > 13);
    assert_memory_equal(place.path + place.path_length - 13, "/test_modules", 13);
    hak__modules_close(&modules);
    hak__build_id_read(&id, place.base);
    assert_true(id.is_elf && id.bias <= place.base);
    assert_true(id.size >= 8); /* the linkers of the test forms write one */
    assert_int_equal(hak__os_map(2 * page, page, &pages), 0);
    hak__build_id_read(&id, (uintptr_t)pages);
    assert_true(!id.is_elf && id.size == 0);
    hak__build_id_read(&id, place.base);
    hak__build_id_read(&id, 0);
    assert_true(!id.is_elf && id.size == 0);
    hak__os_discard(pages, 2 * page);
    hak__build_id_read(&id, (uintptr_t)pages + page);
    assert_true(!id.is_elf && id.size == 0);
}

TESTS(unit_start)
