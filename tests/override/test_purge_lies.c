/* SPDX-License-Identifier: MIT */
/* test_purge_lies.c: where madvise answers 0 and does nothing, as qemu-user before 7.1 and some
 * sandboxes do, calloc gives zeroed memory all the same, and no block counts as written after its
 * free. madvise is this program's own function here; hakmem calls it by its name.
 *
 * ctest: exports no-qemu
 */
#include "override.h"

#include <malloc.h>
#include <sys/mman.h>

__attribute__((visibility("default"))) int madvise(void *address, size_t size, int advice);

static size_t purges_count; /* any thread; there is one */

int madvise(void *address, size_t size, int advice)
{
    (void)address;
    (void)size;
    purges_count += advice == MADV_DONTNEED;
    return 0;
}

static void check_zeroed(size_t size)
{
    unsigned char *block = opaque_pointer(calloc(opaque_size(1), size));
    CHECK(block != NULL && block[0] == 0 && memcmp(block, block + 1, size - 1) == 0);
    give_back(block);
}

int main(int argc, char **argv)
{
    enum { TOTAL = 24 << 20, COUNT_MAX = 100000 };
    static const size_t sizes[] = {300,    3000,   20000,   60000,   100000,
                                   400000, 777777, 1500000, 3000000, 12000000};
    static unsigned char *blocks[COUNT_MAX];
    prove_served();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t count = TOTAL / sizes[i];
        for (size_t j = 0; j < count; j++) {
            blocks[j] = get_memory(sizes[i]);
            CHECK(blocks[j] != NULL);
            memset(blocks[j], 0x5a, sizes[i]);
        }
        for (size_t j = 0; j < count; j++) {
            give_back(blocks[j]);
        }
        malloc_trim(0);
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            check_zeroed(sizes[j]);
        }
        for (size_t j = 0; j < count; j++) {
            blocks[j] = opaque_pointer(calloc(opaque_size(1), sizes[i]));
            CHECK(blocks[j] != NULL && blocks[j][0] == 0 &&
                  memcmp(blocks[j], blocks[j] + 1, sizes[i] - 1) == 0);
        }
        for (size_t j = 0; j < count; j++) {
            give_back(blocks[j]);
        }
    }
    CHECK(purges_count != 0); /* else nothing was tried */
    if (argc == 1) {          /* once more, with guarded blocks */
        char self[TEST_PATH_SIZE];
        own_path(self);
        setenv("HAKMEM_GUARD", "20", 1);
        execl(self, argv[0], "guarded", (char *)NULL);
        FAIL("exec");
    }
    return 0;
}
