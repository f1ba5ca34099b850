/* SPDX-License-Identifier: MIT */
/* test_cgroup.c: os/cgroup: limits and pressure of a made-up cgroup tree (flink-docker #266: arenas
 * sized by the host's processors, not by the container's quota). */
#include "unit.h"

#include <sys/stat.h>

static char root[] = "/tmp/hakmem-cgroup-XXXXXX";
static const char *const groups[] = {"", "/outer", "/outer/inner"};

static const char *path_of(const char *group, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "%s%s%s", root, group, file);
    return path;
}

static void write_file(const char *group, const char *name, const char *text)
{
    int file = open(path_of(group, name), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    REQUIRE(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
}

static char membership[64]; /* the file */

static int make_tree(void **state)
{
    REQUIRE(mkdtemp(root) != NULL);
    strcpy(membership, path_of("", "/membership"));
    for (size_t i = 1; i < COUNT_OF(groups); i++) {
        REQUIRE(mkdir(path_of(groups[i], ""), 0700) == 0);
    }
    return unit_start(state);
}

static int remove_tree(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Quotas of the three groups, NULL: no file. */
static uint32_t processors(const char *groups_of, const char *of_root, const char *of_outer,
                           const char *of_inner)
{
    const char *quotas[] = {of_root, of_outer, of_inner};
    for (size_t i = 0; i < COUNT_OF(groups); i++) {
        unlink(path_of(groups[i], "/cpu.max"));
        if (quotas[i] != NULL) {
            write_file(groups[i], "/cpu.max", quotas[i]);
        }
    }
    write_file("", "/membership", groups_of);
    return hak__os_container(membership, root).processors;
}

TEST(quotas)
{
    static const char *const inner = "0::/outer/inner\n", *const outer = "0::/outer\n";
    const struct {
        const char *membership, *of_root, *of_outer, *of_inner;
        uint32_t processors;
    } cases[] = {
        {inner, NULL, NULL, NULL, UINT32_MAX},
        {inner, "max 100000\n", "max 100000\n", "max 100000\n", UINT32_MAX},
        {inner, NULL, NULL, "200000 100000\n", 2},
        {inner, NULL, NULL, "150000 100000\n", 2},
        {inner, NULL, NULL, "1000 100000\n", 1},
        /* the least of all above counts */
        {inner, NULL, "300000 100000\n", "max 100000\n", 3},
        {inner, "100000 50000\n", "300000 100000\n", "900000 100000\n", 2},
        /* the group of a container that has a name space of its own */
        {"0::/\n", "400000 100000\n", "100000 100000\n", NULL, 4},
        {outer, NULL, "500000 100000\n", "100000 100000\n", 5},
        /* version 1 beside version 2, in any order */
        {"4:cpu,cpuacct:/x\n0::/outer\n1:name=y:/\n", NULL, "300000 100000\n", NULL, 3},
        {"4:cpu,cpuacct:/x\n", "300000 100000\n", NULL, NULL, UINT32_MAX},
        {"0::/gone\n", NULL, NULL, NULL, UINT32_MAX},
        {"0::/outer", NULL, "300000 100000\n", NULL, 3},
        {outer, NULL, "", NULL, UINT32_MAX},
        {outer, NULL, "0 100000\n", NULL, UINT32_MAX},
        {outer, NULL, "100000 0\n", NULL, UINT32_MAX},
        {outer, NULL, "-1 5", NULL, UINT32_MAX},
        {outer, NULL, " 100000 100000", NULL, UINT32_MAX},
        {outer, NULL, "99999999999999999999999999 1x", NULL, UINT32_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(
            processors(cases[i].membership, cases[i].of_root, cases[i].of_outer, cases[i].of_inner),
            cases[i].processors);
    }
    assert_int_equal(hak__os_container("/nonexistent", root).processors, UINT32_MAX);
    assert_int_equal(hak__os_container(root, root).processors, UINT32_MAX); /* a directory */
}

/* What "/outer" with these limits gives a process in "/outer/inner". */
static uint64_t memory(const char *of_outer, const char *of_inner)
{
    write_file("/outer", "/memory.max", of_outer);
    write_file("/outer/inner", "/memory.max", of_inner);
    write_file("", "/membership", "0::/outer/inner\n");
    return hak__os_container(membership, root).memory;
}

TEST(memory)
{
    assert_true(memory("max\n", "max\n") == UINT64_MAX);
    assert_true(memory("max\n", "536870912\n") == 512 * MIB);
    assert_true(memory("1073741824\n", "max\n") == GIB);
    assert_true(memory("1073741824\n", "536870912\n") == 512 * MIB);
    assert_true(memory("536870912\n", "1073741824\n") == 512 * MIB);
    assert_true(memory("", "0\n") == UINT64_MAX);
    assert_true(memory("-1\n", "99999999999999999999999\n") == UINT64_MAX);
}

/* How full the groups of the last call of memory() are. */
static uint32_t fullness(const char *outer, const char *inner, const char *stat, uint32_t least)
{
    write_file("/outer", "/memory.current", outer);
    write_file("/outer/inner", "/memory.current", inner);
    write_file("/outer/inner", "/memory.stat", stat);
    return hak__os_memory_percent(membership, root, least);
}

TEST(fullness)
{
    const char *files = "anon 1000\nfile 600\ninactive_file 400\nactive_file 100\n";
    memory("1000000\n", "10000\n");
    assert_int_equal(fullness("100000", "9000", "", 80), 90);
    assert_int_equal(fullness("100000", "9000", files, 80), 85);
    assert_int_equal(fullness("100000", "9000", files, 86), 0);
    assert_int_equal(fullness("100000", "9000", files, 91), 0);
    assert_int_equal(fullness("990000", "9000", files, 80), 99); /* the outer one is fuller */
    assert_int_equal(fullness("100000", "20000", "", 80), 100);
    assert_int_equal(fullness("", "", files, 80), 0);
    assert_int_equal(fullness("100000", "9000", "inactive_file 10000\n", 1), 10);
    memory("max\n", "max\n");
    assert_int_equal(fullness("100000", "9000", files, 1), 0);
    assert_int_equal(hak__os_memory_percent("/nonexistent", root, 1), 0);
}

TEST(pressure)
{
    char path[256];
    write_file("", "/membership", "0::/outer/inner\n");
    assert_true(hak__os_pressure_path(membership, root, path, sizeof path));
    assert_true(hak__os_pressure_stalled_us(path) == UINT64_MAX); /* the group has none */
    write_file("/outer/inner", "/memory.pressure",
               "some avg10=1.50 avg60=0.00 avg300=0.00 total=123456789\n"
               "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
    assert_true(hak__os_pressure_path(membership, root, path, sizeof path));
    assert_string_equal(path, path_of("/outer/inner", "/memory.pressure"));
    assert_true(hak__os_pressure_stalled_us(path) == 123456789);
    static const char *const odd[] = {"", "some", "total", "full x\nsome total=7\n"};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        write_file("/outer/inner", "/memory.pressure", odd[i]);
        assert_true(hak__os_pressure_stalled_us(path) == UINT64_MAX);
    }
    assert_true(hak__os_pressure_stalled_us("/nonexistent") == UINT64_MAX);
    assert_true(hak__os_pressure_stalled_us(root) == UINT64_MAX); /* a directory */
    assert_false(hak__os_pressure_path("/nonexistent", root, path, sizeof path));
}

TESTS_WITH(make_tree, remove_tree)
