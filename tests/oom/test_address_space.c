/* SPDX-License-Identifier: MIT */
/* test_address_space.c: `ulimit -v` of 64 MiB, 512 MiB and 2 GiB from the start, and limits set
 * while running.
 *
 * ctest: no-qemu no-secure
 */
#include "exhaust.h"

static void limit_address_space(void *argument)
{
    rlim_t bytes = *(size_t *)argument;
    struct rlimit limit = {bytes, RLIM_INFINITY};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void limited_from_the_start(void *argument)
{
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
    size_t used = address_space_bytes();
    exhaust_memory((size_t)limit.rlim_cur - used, NULL);
}

/* The library is in use when the limit comes, and a thread waits. */
static void limited_while_running(void *argument)
{
    struct helper helper = {0};
    struct node *head = NULL;
    for (size_t i = 0; i < 10000; i++) {
        struct node *node = hak_malloc(1 + i % 3000);
        REQUIRE(node != NULL);
        hak_free(node);
    }
    helper_start(&helper);
    size_t available = 256 * MIB;
    size_t limit = address_space_bytes() + available;
    limit_address_space(&limit);
    exhaust_memory(available, &helper);
    fill_memory(8000, &head);
    limit = RLIM_INFINITY; /* the limit goes: so must every trace of it */
    limit_address_space(&limit);
    char *large = hak_malloc(GIB);
    REQUIRE(large != NULL);
    hak_free(large);
    for (size_t i = 0; i < 1000; i++) {
        struct node *node = hak_malloc(8000);
        REQUIRE(node != NULL);
        node->next = head;
        head = node;
    }
    free_memory(&head);
}

static size_t ram_bytes(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* What is far too large leaves nothing behind, and is refused as the kernel refuses it. */
static void far_too_large(void *argument)
{
    size_t limit = address_space_bytes() + GIB;
    limit_address_space(&limit);
    for (size_t i = 0; i < 3; i++) {
        errno = 0;
        REQUIRE(hak_malloc((500 + 200 * i) * GIB) == NULL && errno == ENOMEM);
    }
    char *large = hak_malloc(900 * MIB);
    REQUIRE(large != NULL);
    hak_free(large);
    limit = RLIM_INFINITY;
    limit_address_space(&limit);
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL && fgetc(file) == '0') {
        REQUIRE(hak_malloc(ram_bytes() + 64 * GIB) == NULL); /* more than there is, and swap */
    }
}

/* Not even the library's own tables fit: NULL, no crash, and better times later. */
static void nothing_from_the_start(void *argument)
{
    size_t limit = address_space_bytes() + 64 * KIB;
    limit_address_space(&limit);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        errno = 0;
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL || errno == ENOMEM);
        hak_free(block);
        block = hak_calloc(1, tier_sizes[i]);
        REQUIRE(block != NULL || errno == ENOMEM);
        hak_free(block);
    }
    hak_free(NULL);
    hak_trim(0);
    REQUIRE(!hak_owns(&limit));
    REQUIRE(stats_now().objects_in_use_count == 0);
    limit = RLIM_INFINITY;
    limit_address_space(&limit);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL);
        hak_free(block);
    }
}

static void run_limited(size_t limit)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    child_exec("start", limit_address_space, &limit, &end);
    REQUIRE_EXIT(&end, NULL);
}

TEST(64_mib)
{
    run_limited(64 * MIB);
}

TEST(512_mib)
{
    run_limited(512 * MIB);
}

TEST(2_gib)
{
    run_limited(2 * GIB);
}

static void run_case(const char *name)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    child_exec(name, NULL, NULL, &end);
    REQUIRE_EXIT(&end, NULL);
}

TEST(limit_while_running)
{
    run_case("running");
}

TEST(nothing_from_the_start)
{
    run_case("nothing");
}

TEST(far_too_large)
{
    run_case("too large");
}

int main(int count, char **arguments)
{
    const struct child_case cases[] = {{"start", limited_from_the_start, NULL},
                                       {"running", limited_while_running, NULL},
                                       {"nothing", nothing_from_the_start, NULL},
                                       {"too large", far_too_large, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
