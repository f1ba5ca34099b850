/* SPDX-License-Identifier: MIT */
/* test_glibc_reports.c: malloc_info, mallinfo, mallinfo2, malloc_stats, mallopt, malloc_trim: what
 * monitoring code and tuned programs do with them works and the figures mean what they say. That
 * malloc_trim gives memory back is asked by api/test_trim. */
#include "override.h"

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

/* The caller frees it. */
static char *malloc_info_now(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream != NULL && malloc_info(0, stream) == 0 && fclose(stream) == 0);
    CHECK(length > 20 && strlen(text) == length);
    return text;
}

static void test_malloc_info(void)
{
    free(aligned_alloc(4096, 4096));
    char *text = malloc_info_now();
    check_well_formed(text);
    check_sizes(text);
    free(text);
    FILE *null = fopen("/dev/null", "w");
    CHECK(null != NULL && malloc_info(1, null) != 0); /* the only option is 0 */
    CHECK_EQUAL(fclose(null), 0);
}

/* --- figures: the same as hakmem's own functions say ---------------------------------------- */

typedef bool stats_value(const char *name, uint64_t *value);

static void test_agreement(void)
{
    stats_value *value_of = (stats_value *)find_in(RTLD_DEFAULT, "hak_stats_value");
    uint64_t in_use = 0, mapped = 0, huge = 0, huge_bytes = 0, dirty = 0;
    char text[100];
    void *blocks[] = {get_memory(100), get_memory(100000), get_memory(3 << 20)};
    CHECK(value_of("totals.bytes_in_use", &in_use) && value_of("tiers.superslab_bytes", &mapped));
    CHECK(value_of("totals.huge_count", &huge) && value_of("tiers.huge_bytes", &huge_bytes));
    CHECK(value_of("totals.bytes_free_dirty", &dirty));
    struct mallinfo2 info = mallinfo2();
    CHECK_EQUAL(info.uordblks + info.hblkhd, in_use);
    CHECK_EQUAL(info.arena, mapped);
    CHECK_EQUAL(info.hblks, huge);
    CHECK_EQUAL(info.hblkhd, huge_bytes);
    CHECK_EQUAL(info.keepcost, dirty);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    CHECK_EQUAL((size_t)old.uordblks + (size_t)old.hblkhd, in_use);
    char *xml = malloc_info_now();
    snprintf(text, sizeof text, "<total type=\"mmap\" count=\"%llu\" size=\"%llu\"/>",
             (unsigned long long)huge, (unsigned long long)huge_bytes);
    CHECK(strstr(xml, text) != NULL);
    free(xml);
    for (size_t i = 0; i < 3; i++) {
        give_back(blocks[i]);
    }
}

static void test_malloc_stats(void)
{
    FILE *file = tmpfile(); /* in place of standard error */
    int kept = dup(2);
    CHECK(file != NULL && kept >= 0 && dup2(fileno(file), 2) == 2);
    malloc_stats();
    CHECK(dup2(kept, 2) == 2 && close(kept) == 0);
    CHECK(fseek(file, 0, SEEK_END) == 0 && ftell(file) > 20);
    CHECK_EQUAL(fclose(file), 0);
}

/* --- mallopt ------------------------------------------------------------------------------- */

static void test_mallopt(void)
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
    CHECK_EQUAL(mallopt(M_MXFAST, 100000), 0); /* malloc(3): at most 80 * sizeof(size_t) / 4 */
    CHECK_EQUAL(mallopt(12345, 1), 0);
    CHECK_EQUAL(mallopt(-12345, 1), 0);
}

int main(void)
{
    prove_served();
    test_malloc_info();
    test_malloc_stats();
    test_agreement();
    test_mallopt();
    give_back(get_memory(100000));
    CHECK(malloc_trim(0) >= 0 && malloc_trim(SIZE_MAX) >= 0);
    return 0;
}
