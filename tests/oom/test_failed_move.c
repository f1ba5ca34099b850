/* SPDX-License-Identifier: MIT */
/* test_failed_move.c: realloc of a large block under a limit on the address space, in a process
 * with two threads: whether it grows or not, the addresses it tried are free again afterwards.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"

#include <sys/resource.h>

static void *wait_for_end(void *argument)
{
    while (!__atomic_load_n((bool *)argument, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    return NULL;
}

/* The process may map so many bytes more. */
static void limit_address_space(size_t more)
{
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = (rlim_t)(address_space_bytes() + more);
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

TEST(addresses_come_back)
{
    bool shared_end = false;
    hak_free(hak_malloc(3 * MIB)); /* the library has what it needs */
    hak_trim(0);
    pthread_t thread = thread_start(wait_for_end, &shared_end);
    limit_address_space(64 * MIB);
    size_t mapped = stats_now().bytes_mapped;
    for (size_t size = 30 * MIB; size <= 60 * MIB; size += 3 * MIB) {
        char *block = hak_malloc(20 * MIB);
        assert_non_null(block);
        memset(block, 'x', 20 * MIB);
        /* so that it has to move */
        void *neighbour =
            mmap(block + 20 * MIB, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(neighbour, MAP_FAILED);
        char *moved = hak_realloc(block, size);
        block = moved != NULL ? moved : block;
        assert_int_equal(block[0], 'x');
        assert_int_equal(block[20 * MIB - 1], 'x');
        hak_free(block);
        hak_trim(0);
        assert_true(stats_now().bytes_mapped <= mapped);
        munmap(neighbour, 4096);
        char *large = hak_malloc(48 * MIB); /* had again each time */
        assert_non_null(large);
        hak_free(large);
        hak_trim(0);
    }
    __atomic_store_n(&shared_end, true, __ATOMIC_RELEASE);
    thread_join(thread);
}

TESTS(NULL)
