/* SPDX-License-Identifier: MIT */
/* test_site_table.c: observe/sites: the table's bounds, and the sums of a site. The test is the
 * only thread, so it needs no lock. */
#include "unit.h"

#include "observe/sites.h"

static void name_site(uintptr_t *id, const char *text)
{
    char name[SITE_NAME_SIZE] = "";
    strcpy(name, text);
    *id = hak__site_named(name);
    assert_int_not_equal(*id, 0);
}

static void require_name(const struct site *site, const char *wanted)
{
    char name[SITE_NAME_SIZE];
    hak__site_name(site, name);
    assert_string_equal(name, wanted);
}

TEST(kinds)
{
    uintptr_t id;
    name_site(&id, "parser");
    struct site *named = hak__site_of_id(id), *number = hak__site_of_id(0xabc);
    struct site *address = hak__site_of_address(0xabc), *other = hak__site_of_address(0);
    assert_true(named != number && number != address && address != other);
    assert_ptr_equal(hak__site_of_id(id), named);
    assert_ptr_equal(hak__site_of_address(0xabc), address);
    assert_ptr_equal(hak__site_of_id(SITE_ID_OTHER), other);
    require_name(named, "parser");
    require_name(number, "site 0xabc");
    require_name(address, "");
    require_name(other, "other");
    assert_true(hak__site_is_named(named) && !hak__site_is_named(number));
}

/* An id may be used before it has its name: another run of the program has stored it. */
TEST(number_gets_a_name)
{
    uintptr_t id, same;
    name_site(&id, "first"); /* the number of the next name is its hash, as that of this one */
    assert_true(id != 0);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = "second"; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    }
    struct site *site = hak__site_of_id(hash);
    assert_false(hak__site_is_named(site));
    name_site(&id, "second");
    assert_int_equal(id, hash);
    assert_true(hak__site_is_named(site));
    require_name(site, "second");
    name_site(&same, "second");
    assert_int_equal(same, id);
}

TEST(sums)
{
    static const struct {
        uint64_t lifetime_ms;
        uint32_t index;
    } lifetimes[] = {{0, 0},
                     {1, 1},
                     {3, 1},
                     {4, 2},
                     {15, 2},
                     {16, 3},
                     {63, 3},
                     {64, 4},
                     {1048575, 10},
                     {1048576, 11},
                     {UINT64_C(1) << 50, 11}};
    struct site *site = hak__site_of_id(0x5005);
    const struct site_sums *sums = &site->sums;
    for (size_t i = 0; i < COUNT_OF(lifetimes); i++) {
        hak__site_begin(site, 2, 100 + i, 112 + i, 1000 + i);
    }
    assert_int_equal(sums->began_ms, 1000);
    assert_int_equal(sums->size_min, 100);
    assert_int_equal(sums->size_max, 100 + COUNT_OF(lifetimes) - 1);
    assert_int_equal(sums->samples_live, COUNT_OF(lifetimes));
    assert_true(sums->live_usable_bytes - (sums->allocated_bytes - sums->freed_bytes) ==
                2.0 * 12 * COUNT_OF(lifetimes));
    for (size_t i = 0; i < COUNT_OF(lifetimes); i++) {
        double before = sums->lifetimes[lifetimes[i].index];
        hak__site_end(site, 2, 100 + i, 112 + i, lifetimes[i].lifetime_ms, i == 0);
        assert_true(sums->lifetimes[lifetimes[i].index] == before + 2);
    }
    assert_true(sums->freed_remote == 2 && sums->live_usable_bytes == 0);
    assert_true(sums->freed_count == sums->allocated_count);
    assert_true(sums->freed_bytes == sums->allocated_bytes);
    assert_int_equal(sums->samples_live, 0);
    assert_int_equal(sums->samples_count, COUNT_OF(lifetimes));
}

static size_t sites_count(void)
{
    size_t count = 0;
    for (const struct site *site = hak__site_first(); site != NULL; site = site->older) {
        count++;
    }
    return count;
}

/* Addresses and numbers fill their part, names theirs, and no further site is made. */
TEST(bounds)
{
    uintptr_t id = 0, last = 0;
    char text[32];
    struct site *other = hak__site_of_id(SITE_ID_OTHER), *site = NULL;
    for (uintptr_t i = 1; site != other; i++) {
        assert_true(i <= SITES_MAX);
        site = i % 2 == 0 ? hak__site_of_id(i << 40) : hak__site_of_address(i << 40);
    }
    assert_ptr_equal(hak__site_of_address(0x123456789), other);
    assert_ptr_not_equal(hak__site_of_id(0xabc), other); /* known sites keep their entries */
    for (uint32_t i = 0; last != SITE_ID_OTHER; i++) {
        assert_true(i <= SITES_NAMED_MAX);
        snprintf(text, sizeof text, "name %u", i);
        name_site(&last, text);
    }
    name_site(&id, "name 0");
    assert_int_not_equal(id, SITE_ID_OTHER);
    assert_int_equal(sites_count(), SITES_MAX);
}

TESTS(unit_start)
