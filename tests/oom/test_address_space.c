/* SPDX-License-Identifier: MIT */
/* test_address_space.c: `ulimit -v` of 64 MiB and 2 GiB from the start; limits of address space and
 * of data (RLIMIT_DATA, which counts private writable mappings, too) that come while running.
 *
 * ctest: no-qemu no-secure
 */
#include "exhaust.h"

static void set_limit(int resource, rlim_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};
    REQUIRE(setrlimit((__rlimit_resource_t)resource, &limit) == 0);
}

static void limit_address_space(void *argument)
{
    set_limit(RLIMIT_AS, *(size_t *)argument);
}

CHILD(start)
{
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
    exhaust_memory((size_t)limit.rlim_cur - address_space_bytes());
}

/* The library is in use when the limit comes. */
static void limited_while_running(int resource, size_t available)
{
    struct node *head = NULL;
    for (size_t i = 0; i < 10000; i++) {
        hak_free(hide(hak_malloc(1 + i % 3000)));
    }
    size_t data = support_proc_bytes("/proc/self/status", "\nVmData:");
    set_limit(resource, (resource == RLIMIT_AS ? address_space_bytes() : data) + available);
    exhaust_memory(available);
    fill_memory(8000, &head);
    set_limit(resource, RLIM_INFINITY); /* the limit goes: so must every trace of it */
    void *large = hak_malloc(GIB), *small = hak_malloc(8000);
    REQUIRE(large != NULL && small != NULL);
    hak_free(large);
    hak_free(small);
    free_memory(&head);
}

CHILD(running)
{
    limited_while_running(RLIMIT_AS, 256 * MIB);
}

CHILD(data)
{
    limited_while_running(RLIMIT_DATA, 64 * MIB);
}

/* What is far too large leaves nothing behind, and is refused as the kernel refuses it. */
CHILD(too_large)
{
    set_limit(RLIMIT_AS, address_space_bytes() + GIB);
    for (size_t i = 0; i < 3; i++) {
        errno = 0;
        REQUIRE(hak_malloc((500 + 200 * i) * GIB) == NULL && errno == ENOMEM);
    }
    void *large = hak_malloc(900 * MIB);
    REQUIRE(large != NULL);
    hak_free(large);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL && fgetc(file) == '0') { /* more than there is, and swap */
        size_t ram = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
        REQUIRE(hak_malloc(ram + 64 * GIB) == NULL);
    }
}

/* Not even the library's own tables fit: NULL, no crash, and better times later. */
CHILD(nothing)
{
    set_limit(RLIMIT_AS, address_space_bytes() + 64 * KIB);
    for (size_t i = 0; i < 2 * COUNT_OF(tier_sizes); i++) {
        size_t size = tier_sizes[i / 2];
        errno = 0;
        void *block = i % 2 == 0 ? hak_malloc(size) : hak_calloc(1, size);
        REQUIRE(block != NULL || errno == ENOMEM);
        hak_free(block);
    }
    hak_trim(0);
    REQUIRE(!hak_owns(&tier_sizes) && stats_now().objects_in_use_count == 0);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL);
        hak_free(block);
    }
}

TEST(limited_from_the_start)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    for (size_t limit = 64 * MIB; limit <= 2 * GIB; limit *= 32) {
        child_exec("start", limit_address_space, &limit, &end);
        REQUIRE_EXIT(&end, NULL);
    }
}

TEST(limited_later)
{
    static const char *const names[] = {"running", "data", "nothing", "too_large"};
    SKIP_IF(SUPPORT_SANITIZED);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        REQUIRE_CHILD(names[i], NULL, NULL);
    }
}

TESTS(NULL)
