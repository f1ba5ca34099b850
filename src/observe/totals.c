/* SPDX-License-Identifier: MIT */
/* totals.c: hak_stats_read, hak_summary_read and hak_stats_reset_peaks. */
#include "observe/totals.h"

#include "observe/summary.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"
#include "slab/slab_inherited.h"

#include <string.h>

/* Takes up to `*left` bytes off `*left` for a part, and returns them. */
static size_t totals_take(size_t *left, size_t part)
{
    part = part < *left ? part : *left;
    *left -= part;
    return part;
}

void hak__stats_from_census(struct hak_stats *stats, const struct census *census)
{
    size_t free = hak__superslab_bytes_free(), dirty = hak__superslab_bytes_dirty();
    *stats = (struct hak_stats){.version = HAK_STATS_VERSION, .size = sizeof *stats};
    stats->bytes_discarded = hak__os_discarded_bytes();
    stats->bytes_mapped = hak__superslab_bytes_claimed() + census->whales.live_bytes +
                          census->whales.cached_bytes + stats->bytes_discarded;
    stats->bytes_metadata = hak__window_table_bytes() + hak__metadata_bytes() +
                            hak__slab_bits_bytes() + census->whales.metadata_bytes;
    /* The parts of a running program are of different moments. One that does not fit into what the
     * others leave is cut, so that the sum is exact. */
    size_t left = stats->bytes_mapped - stats->bytes_discarded;
    stats->bytes_in_use = totals_take(&left, hak__census_bytes_in_use(census));
    stats->bytes_cached = totals_take(&left, hak__census_bytes_cached(census));
    stats->bytes_free_dirty = totals_take(&left, dirty);
    stats->bytes_free_clean = totals_take(&left, free > dirty ? free - dirty : 0);
    stats->bytes_free_in_slabs = left;
    stats->objects_in_use_count = hak__census_objects_in_use(census);
    stats->heaps_count = census->heaps_count;
    stats->heaps_parked_count = census->heaps_parked_count;
    stats->threads_count = census->threads_count;
    stats->superslabs_count = census->superslabs_count;
    stats->whales_count = census->whales.live_count;
    stats->peak_bytes_mapped = hak__os_mapped_peak();
    stats->peak_bytes_taken = hak__superslab_peak_bytes();
}

/* Copies the filled struct to a caller whose struct has `size` bytes. */
static void totals_copy(void *to, size_t size, const void *filled, size_t filled_size)
{
    memcpy(to, filled, size < filled_size ? size : filled_size);
}

void hak_stats_read(struct hak_stats *stats, size_t size)
{
    struct census census;
    struct hak_stats filled;
    hak__census_take(&census);
    hak__stats_from_census(&filled, &census);
    filled.size = (uint32_t)(size < sizeof filled ? size : sizeof filled);
    totals_copy(stats, size, &filled, sizeof filled);
}

bool hak_summary_read(struct hak_summary *summary, size_t size)
{
    struct census census;
    struct summary taken;
    uint64_t shown[SUMMARY_PARTS];
    hak__census_take(&census);
    hak__summary_take(&taken, &census);
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        bool known = taken.known && (part != SUMMARY_NOT_HAKMEM || summary_has_rss(&taken));
        shown[part] = known ? taken.parts[part] : UINT64_MAX;
    }
    struct hak_summary filled = {
        .version = HAK_STATS_VERSION,
        .size = (uint32_t)(size < sizeof filled ? size : sizeof filled),
        .rss = taken.memory.rss,
        .in_use = shown[SUMMARY_IN_USE],
        .rounding = shown[SUMMARY_ROUNDING],
        .thread_caches = shown[SUMMARY_THREAD_CACHES],
        .free_in_slabs = shown[SUMMARY_FREE_IN_SLABS],
        .kept = shown[SUMMARY_KEPT],
        .tables = shown[SUMMARY_TABLES],
        .not_hakmem = shown[SUMMARY_NOT_HAKMEM],
        .peak_rss = taken.memory.peak_rss,
        .swapped = taken.memory.swapped,
        .rounding_requests_count = taken.requests_count,
        .fragmentation_permille = taken.known ? taken.fragmentation : UINT64_MAX,
    };
    totals_copy(summary, size, &filled, sizeof filled);
    return taken.known && summary_has_rss(&taken);
}

void hak_stats_reset_peaks(void)
{
    hak__os_reset_mapped_peak();
    hak__superslab_reset_peak();
}
