/* SPDX-License-Identifier: MIT */
/* test_trim.c: hak_trim gives free memory back at once, keeps what it is told to, and says whether
 * it did.
 *
 * ctest: not-again no-qemu
 */
#include "../support.h"

#define TOTAL ((SUPPORT_SLOW ? 48 : 128) * MIB)
#define NEAR (4 * MIB) /* tables, one slab a class, and what /proc itself costs */

struct chain {
    struct chain *next;
};

/* Allocates and touches about TOTAL bytes of blocks of `smallest` .. 8 * `smallest` bytes, linked.
 */
static struct chain *chain_allocate(size_t smallest)
{
    struct chain *head = NULL;
    uint64_t random = smallest;
    for (size_t total = 0; total < TOTAL;) {
        size_t size = smallest + random_below(&random, smallest * 7 + 1);
        struct chain *block = hak_malloc(size);
        assert_non_null(block);
        memset(block, 0x11, size);
        block->next = head;
        head = block;
        total += size;
    }
    return head;
}

static void chain_free(struct chain *head)
{
    while (head != NULL) {
        struct chain *next = head->next;
        hak_free(head);
        head = next;
    }
}

TEST(rss_falls)
{
    static const size_t smallest[] = {16, 1000, 20000, 65665, 300 * KIB, 3 * MIB};
    SKIP_IF(SUPPORT_SANITIZED);
    hak_trim(0);
    size_t before = rss_bytes(), addresses = address_space_bytes();
    for (size_t i = 0; i < COUNT_OF(smallest); i++) {
        errno = ERRNO_UNTOUCHED;
        struct chain *head = chain_allocate(smallest[i]);
        REQUIRE_SIZE(rss_bytes(), >=, before + TOTAL / 10 * 9);
        chain_free(head);
        bool gave = hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, before + NEAR);
        REQUIRE_SIZE(address_space_bytes(), <=, addresses + 4 * NEAR);
        assert_true(gave || rss_bytes() <= before + NEAR);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
    }
}

/* A decaying allocator may have given some back before the call, but not everything at once. */
TEST(says_whether_it_gave)
{
    struct chain *head = chain_allocate(1000);
    chain_free(head);
    assert_true(hak_trim(0));
    bool gave = true;
    for (unsigned i = 0; gave && i < 3; i++) {
        gave = hak_trim(0);
    }
    assert_false(gave); /* nothing was freed since */
}

TEST(keeps_what_it_is_told)
{
    SKIP_IF(SUPPORT_SANITIZED);
    hak_trim(0);
    size_t before = rss_bytes();
    for (size_t keep = TOTAL / 2; keep >= TOTAL / 8; keep /= 2) {
        chain_free(chain_allocate(20000));
        hak_trim(keep);
        REQUIRE_SIZE(rss_bytes(), <=, before + keep + NEAR);
        hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, before + NEAR);
    }
}

TESTS(NULL)
