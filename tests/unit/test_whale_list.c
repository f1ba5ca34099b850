/* SPDX-License-Identifier: MIT */
/* test_whale_list.c: large/whale_registry: fills list all whales and kept ranges once, by rising
 * address. */
#include "whales.h"

#include "large/whale.h"

enum { COUNT = 200 };

static size_t list_all(struct whale_view *views)
{
    struct whale_list list = {.after = 0};
    size_t count = 0;
    while (hak__whale_list_next(&list)) {
        assert_in_range(list.count, 1, WHALE_LIST_MAX);
        for (uint32_t i = 0; i < list.count; i++) {
            assert_true(count < COUNT);
            views[count++] = list.views[i];
        }
    }
    assert_int_equal(list.count, 0);
    return count;
}

static const struct whale_view *find(const struct whale_view *views, size_t count, void *pointer)
{
    for (size_t i = 0; i < count; i++) {
        if (views[i].address == (uintptr_t)pointer) {
            return &views[i];
        }
    }
    return NULL;
}

WHALE_TEST(no_whales)
{
    struct whale_view views[COUNT];
    assert_int_equal(list_all(views), 0);
}

WHALE_TEST(live_and_kept)
{
    static char *whales[COUNT / 2];
    struct whale_view views[COUNT];
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        whales[i] = allocate(small_whale + i * page);
    }
    hak__whale_free(whales[3]);
    hak__whale_free(whales[50]);
    size_t count = list_all(views), live_bytes = 0, kept_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || views[i].address > views[i - 1].address);
        assert_true(views[i].kept || views[i].age_ms == 0);
        *(views[i].kept ? &kept_bytes : &live_bytes) += views[i].size;
    }
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        const struct whale_view *view = find(views, count, whales[i]);
        if (i != 3 && i != 50) {
            assert_non_null(view);
            assert_true(!view->kept && view->size == small_whale + i * page);
        }
    }
    struct whale_totals totals = hak__whale_totals();
    assert_int_equal(live_bytes, totals.live_bytes);
    assert_int_equal(kept_bytes, totals.cached_bytes);
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        if (i != 3 && i != 50) {
            hak__whale_free(whales[i]);
        }
    }
}

TESTS(unit_start)
