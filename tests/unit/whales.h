/* SPDX-License-Identifier: MIT */
/* whales.h: what the tests of large/whale share. */
#ifndef TESTS_UNIT_WHALES_H
#define TESTS_UNIT_WHALES_H

#include "unit.h"

#include "large/whale.h"

static size_t page;
static const size_t small_whale = 3 * MIB;

/* Each test starts with an empty cache that holds what was in use since, however long ago, at most
 * 64 MiB; and no whale has huge pages. */
static inline int whales_setup(void **state)
{
    page = hak__os_page_size();
    unit_save_knobs(state);
    hak__superslab_purge(true); /* free slices that are dirty count as well */
    hak__whale_cache_trim(0);
    hak__knobs.whale_cache_bytes = 64 * MIB;
    hak__knobs.purge_delay_ms = UINT32_MAX;
    hak__knobs.huge_threshold = UINT64_MAX;
    return 0;
}

static inline int whales_teardown(void **state)
{
    hak__whale_cache_trim(0);
    unit_restore_knobs(state);
    struct whale_totals totals = hak__whale_totals();
    return totals.live_count + totals.live_bytes + totals.cached_bytes == 0 ? 0 : -1;
}

#define WHALE_TEST(name) TEST_WITH(name, whales_setup, whales_teardown)

static inline char *allocate(size_t size)
{
    struct whale_result result = hak__whale_allocate(size, page, false);
    REQUIRE(result.pointer != NULL);
    return result.pointer;
}

#endif
