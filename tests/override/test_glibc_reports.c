/* SPDX-License-Identifier: MIT */
/* test_glibc_reports.c: malloc_info, mallinfo, mallinfo2, malloc_stats, mallopt, malloc_trim: what
 * monitoring code and tuned programs do with them works and the figures mean what they say. */
#include "override.h"

#include <dlfcn.h>
#include <malloc.h>

#define MIB ((size_t)1 << 20)

/* --- malloc_info writes XML ---------------------------------------------------------------- */

/* qemu-user does not start programs. */
static void check_well_formed(const char *text)
{
    CHECK(strncmp(text, "<malloc", 7) == 0);
#ifndef SUPPORT_EMULATED
    FILE *reader = popen("python3 -c 'import sys, xml.etree.ElementTree as xml; "
                         "xml.parse(sys.stdin)'",
                         "w");
    CHECK(reader != NULL && fputs(text, reader) >= 0);
    CHECK_EQUAL(pclose(reader), 0);
#endif
}

/* <size from="16" to="32" .../>, of free objects. */
static void check_sizes(const char *text)
{
    const char *tag = "<size from=\"";
    unsigned sizes_count = 0;
    for (const char *at = strstr(text, tag); at != NULL; at = strstr(at, tag), sizes_count++) {
        char *end;
        unsigned long from = strtoul(at + strlen(tag), &end, 10);
        CHECK(strncmp(end, "\" to=\"", 6) == 0);
        unsigned long to = strtoul(end + 6, &end, 10);
        CHECK(from <= to && *end == '"');
        at = end;
    }
    CHECK(sizes_count > 0);
}

static void test_malloc_info(void)
{
    free(aligned_alloc(4096, 4096));
    for (int round = 0; round < 3; round++) {
        char *text = NULL;
        size_t length = 0;
        FILE *stream = open_memstream(&text, &length);
        CHECK(stream != NULL);
        CHECK_EQUAL(malloc_info(0, stream), 0);
        CHECK_EQUAL(fclose(stream), 0);
        CHECK(length > 20 && strlen(text) == length);
        check_well_formed(text);
        check_sizes(text);
        free(text);
    }
    /* The only option is 0. */
    FILE *null = fopen("/dev/null", "w");
    CHECK(null != NULL);
    CHECK(malloc_info(1, null) != 0);
    CHECK_EQUAL(fclose(null), 0);
}

/* --- figures ------------------------------------------------------------------------------- */

static size_t used_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    CHECK(info.uordblks <= info.arena + info.hblkhd);
    CHECK(info.fordblks <= info.arena + info.hblkhd);
    return info.uordblks + info.hblkhd;
}

static void test_mallinfo(void)
{
    enum { COUNT = 20000, SIZE = 400 };
    static void *blocks[COUNT];
    size_t before = used_bytes();
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = get_memory(SIZE);
        CHECK(blocks[i] != NULL);
    }
    size_t small = used_bytes();
    CHECK(small >= before + (size_t)COUNT * SIZE);
    CHECK(small <= before + (size_t)COUNT * SIZE * 3 / 2 + MIB);
    void *whale = get_memory(64 * MIB);
    size_t large = used_bytes();
    CHECK(large >= small + 64 * MIB);
    CHECK(large <= small + 130 * MIB); /* glibc's arena and hblkhd tell it apart; others sum it */
    give_back(whale);
    CHECK(used_bytes() <= large - 60 * MIB);
    for (size_t i = 0; i < COUNT; i++) {
        give_back(blocks[i]);
    }
    CHECK(used_bytes() <= before + 2 * MIB);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    CHECK(old.uordblks >= 0 && old.arena >= 0);
    CHECK((size_t)old.uordblks <= (size_t)old.arena + (size_t)old.hblkhd);
}

typedef bool stats_value(const char *name, uint64_t *value);

/* They say the same as hakmem's own functions. */
static void test_agreement(void)
{
    stats_value *value_of = (stats_value *)(uintptr_t)dlsym(RTLD_DEFAULT, "hak_stats_value");
    uint64_t in_use = 0, mapped = 0, whales = 0, whale_bytes = 0, dirty = 0;
    char text[100];
    if (value_of == NULL) {
        return; /* another allocator */
    }
    void *blocks[] = {get_memory(100), get_memory(100000), get_memory(3 * MIB)};
    CHECK(value_of("totals.bytes_in_use", &in_use) && value_of("tiers.superslab_bytes", &mapped));
    CHECK(value_of("totals.whales_count", &whales) && value_of("tiers.whale_bytes", &whale_bytes));
    CHECK(value_of("totals.bytes_free_dirty", &dirty));
    struct mallinfo2 info = mallinfo2();
    CHECK_EQUAL(info.uordblks + info.hblkhd, in_use);
    CHECK_EQUAL(info.arena, mapped);
    CHECK_EQUAL(info.hblks, whales);
    CHECK_EQUAL(info.hblkhd, whale_bytes);
    CHECK_EQUAL(info.keepcost, dirty);
    char *xml = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&xml, &length);
    CHECK(stream != NULL);
    CHECK_EQUAL(malloc_info(0, stream), 0);
    CHECK_EQUAL(fclose(stream), 0);
    snprintf(text, sizeof text, "<total type=\"mmap\" count=\"%llu\" size=\"%llu\"/>",
             (unsigned long long)whales, (unsigned long long)whale_bytes);
    CHECK(strstr(xml, text) != NULL);
    free(xml);
    for (size_t i = 0; i < 3; i++) {
        give_back(blocks[i]);
    }
}

static void test_malloc_stats(void)
{
    /* Writes to standard error: look into it. */
    FILE *file = tmpfile();
    CHECK(file != NULL);
    int kept = dup(2);
    CHECK(kept >= 0);
    CHECK(dup2(fileno(file), 2) == 2);
    malloc_stats();
    fflush(stderr);
    CHECK(dup2(kept, 2) == 2);
    close(kept);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    CHECK(ftell(file) > 20);
    CHECK_EQUAL(fclose(file), 0);
}

/* --- mallopt ------------------------------------------------------------------------------- */

static void test_mallopt(enum served served)
{
    /* What programs set to tune glibc: accepted, so that their error path is not taken. */
    const int accepted[][2] = {{M_TRIM_THRESHOLD, 1 << 20},
                               {M_TOP_PAD, 1 << 16},
                               {M_MMAP_THRESHOLD, 1 << 20},
                               {M_ARENA_MAX, 1},
                               {M_ARENA_TEST, 1}};
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        CHECK_EQUAL(mallopt(accepted[i][0], accepted[i][1]), 1);
        give_back(get_memory(100));
    }
    /* Taken or refused, but nothing breaks. */
    const int either[][2] = {{M_MXFAST, 0},        {M_MXFAST, 64},      {M_MMAP_MAX, 0},
                             {M_PERTURB, 0},       {M_CHECK_ACTION, 3}, {M_TRIM_THRESHOLD, -1},
                             {M_TRIM_THRESHOLD, 0}};
    for (size_t i = 0; i < sizeof either / sizeof either[0]; i++) {
        int result = mallopt(either[i][0], either[i][1]);
        CHECK(result == 0 || result == 1);
        give_back(get_memory(5000000));
    }
    CHECK_EQUAL(mallopt(M_MXFAST, 100000), 0); /* malloc(3): at most 80 * sizeof(size_t) / 4 */
    if (served != SERVED_BY_OTHER) {
        CHECK_EQUAL(mallopt(12345, 1), 0);
        CHECK_EQUAL(mallopt(-12345, 1), 0);
    }
}

/* --- malloc_trim --------------------------------------------------------------------------- */

static void test_malloc_trim(void)
{
    enum { COUNT = 200000, SIZE = 500 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = get_memory(SIZE);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, SIZE);
    }
    size_t full = resident_bytes();
    for (size_t i = 0; i < COUNT; i++) {
        give_back(blocks[i]);
    }
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    size_t after = resident_bytes();
    if (after > full - (size_t)COUNT * SIZE * 8 / 10) {
        dprintf(2, "resident: %zu KiB full, %zu KiB after malloc_trim\n", full >> 10, after >> 10);
        FAIL("malloc_trim gives at least 80 % of what was freed back at once");
    }
    CHECK(malloc_trim(0) >= 0);
    CHECK(malloc_trim(SIZE_MAX) >= 0);
    give_back(get_memory(1000));
}

int main(void)
{
    enum served served = prove_served();
    test_malloc_trim();
    test_malloc_info();
    test_mallinfo();
    test_malloc_stats();
    test_agreement();
    test_mallopt(served);
    return 0;
}
