/* SPDX-License-Identifier: MIT */
/* test_symbols.c: the dynamic symbols of the objects of this process, against what the loader
 * finds. */
#include "unit.h"

#include <dlfcn.h>

#include "base/symbols.h"

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

TESTS(NULL)
