/* SPDX-License-Identifier: MIT */
/* test_locked_limit.c: limits that count each mapping in full from its first moment: mlockall with
 * MCL_FUTURE under RLIMIT_MEMLOCK, and RLIMIT_DATA. Set before the first malloc or after it, they
 * leave malloc nearly all of the memory that they allow. Needs the right to lock 8 MiB; skipped
 * without.
 *
 * ctest: secure-too no-qemu
 */
#include "override.h"

#define MIB ((size_t)1 << 20)

struct node {
    struct node *next;
};

/* Bytes of blocks of `size` that can be had; all of them are freed again. */
static size_t fill(size_t size)
{
    size_t total = 0;
    struct node *head = NULL, *node;
    while ((node = get_memory(size)) != NULL) {
        node->next = head;
        head = node;
        total += size;
    }
    CHECK_EQUAL(errno, ENOMEM);
    while (head != NULL) {
        node = head->next;
        give_back(head);
        head = node;
    }
    return total;
}

/* Makes no allocation. */
static void set_limit(int kind, size_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    CHECK(setrlimit((__rlimit_resource_t)kind, &limit) == 0);
    if (kind != RLIMIT_MEMLOCK) {
        return;
    }
    if (geteuid() == 0) {
        CHECK(setresuid(65534, 65534, 65534) == 0); /* the right to lock more goes, too */
    }
    CHECK(mlockall(MCL_FUTURE) == 0);
}

static void run_fill(int kind, size_t bytes, bool late)
{
    if (late) {
        give_back(get_memory(1));
    }
    set_limit(kind, bytes);
    static const size_t sizes[] = {1000, 40, 16000, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (bytes < 2 * MIB && sizes[i] > 1000) {
            continue; /* a slab of them takes a quarter of it */
        }
        /* Less tables, the first arena and thread, and rests: these adapt, and do not take all. */
        size_t least = bytes < 2 * MIB ? bytes / 4 : bytes - bytes / 8 - MIB;
        least = HAK_LEVEL >= 2 ? least / 4 * 3 : least; /* more is mapped for the checks */
        size_t total = fill(sizes[i]);
        /* Slabs of 16,000 bytes take what lies between objects of the phases before that rest; the
         * secure form draws these: at 4 MiB 2,234 KiB in half of the runs, 1,890 in one of 100. */
        size_t large = is_secure() ? least / 2 : least * 3 / 4;
        if (total < (sizes[i] == 1000 ? least : sizes[i] == 16000 ? large : least * 3 / 4)) {
            dprintf(2, "limit %zu KiB: only %zu KiB of blocks of %zu bytes\n", bytes >> 10,
                    total >> 10, sizes[i]);
            _exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    static const char *const kib[] = {"512", "2048", "4096", "8192"};
    struct rlimit limit;
    if (argc > 1) { /* anew, so that the limit can come before the first malloc */
        int kind = strcmp(getenv("TEST_KIND"), "memlock") == 0 ? RLIMIT_MEMLOCK : RLIMIT_DATA;
        run_fill(kind, strtoul(getenv("TEST_KIB"), NULL, 10) << 10, strcmp(argv[1], "late") == 0);
        prove_served();
        return 0;
    }
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_max < 8 * MIB) {
        dprintf(2, "skipped: RLIMIT_MEMLOCK is below 8 MiB\n");
        return TEST_SKIPPED;
    }
    for (size_t i = 0; i < 2 * COUNT_OF(kib); i++) {
        const char *kind = i % 2 == 0 ? "memlock" : "data";
        const char *const variables[] = {"TEST_KIND", kind, "TEST_KIB", kib[i / 2], NULL};
        if (i != 1) { /* the program's own data takes more */
            run_again("early", variables);
            run_again("late", variables);
        }
    }
    return 0;
}
