/* window.c: choosing the window's addresses, and its tables. See window.h. */
#include "region/window.h"

#include <errno.h>

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"
#include "region/superslab.h"

struct window hak__window;

/* One table: `claimed` bytes of it exist. */
struct table {
    unsigned char *address;
    size_t claimed;
};

enum { TABLE_OWNERS, TABLE_SUPERSLABS, TABLE_HAS_FREE, TABLE_SLABS, TABLE_COUNT };
static struct table window_tables[TABLE_COUNT];

/* Bytes of a table per superslab, times 8. */
static const size_t window_table_bits[TABLE_COUNT] = {
    [TABLE_OWNERS] = SUPERSLAB_SLICES * sizeof(uint32_t) * 8,
    [TABLE_SUPERSLABS] = sizeof(struct superslab) * 8,
    [TABLE_HAS_FREE] = 1,
    [TABLE_SLABS] = SUPERSLAB_SLICES * SLAB_METADATA_SIZE * 8,
};

static int table_extend(struct table *table, size_t needed)
{
    if (needed <= table->claimed) {
        return 0;
    }
    size_t end = bits_align_up(needed, hak__os_page_size());
    int error = hak__os_map_at(table->address + table->claimed, end - table->claimed);
    if (error == 0) {
        atomic_store_relaxed(&table->claimed, end); /* reports read it */
    }
    return error;
}

int hak__window_grow_tables(size_t slice_count)
{
    size_t superslabs = (slice_count + SUPERSLAB_SLICES - 1) / SUPERSLAB_SLICES;
    superslabs = bits_align_up(superslabs, TABLE_STEP_SUPERSLABS);
    for (int i = 0; i < TABLE_COUNT; i++) {
        int error = table_extend(&window_tables[i], (superslabs * window_table_bits[i] + 7) / 8);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

size_t hak__window_table_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < TABLE_COUNT; i++) {
        bytes += atomic_load_relaxed(&window_tables[i].claimed); /* a report's read */
    }
    return bytes;
}

static void window_drop_tables(void)
{
    for (int i = 0; i < TABLE_COUNT; i++) {
        if (window_tables[i].claimed != 0) {
            hak__os_discard(window_tables[i].address, window_tables[i].claimed);
        }
        window_tables[i] = (struct table){NULL, 0};
    }
}

/* Lays the tables out from `low`, an OS page or more free after each, and claims their first step.
 */
static int window_try(uintptr_t low, size_t size)
{
    size_t superslabs = size / SUPERSLAB_SIZE;
    uintptr_t at = low;
    for (int i = 0; i < TABLE_COUNT; i++) {
        window_tables[i] = (struct table){(unsigned char *)at, 0};
        at += bits_align_up((superslabs * window_table_bits[i] + 7) / 8, OS_PAGE_SIZE_MAX) +
              OS_PAGE_SIZE_MAX;
    }
    int error = hak__window_grow_tables(1);
    if (error != 0) {
        window_drop_tables();
        return error;
    }
    hak__window.owners = (uint32_t *)(void *)window_tables[TABLE_OWNERS].address;
    hak__window.slabs = window_tables[TABLE_SLABS].address;
    hak__window.base = bits_align_up(at, SUPERSLAB_SIZE);
    hak__window.size = size;
    hak__superslab_tables((struct superslab *)(void *)window_tables[TABLE_SUPERSLABS].address,
                          (uint64_t *)(void *)window_tables[TABLE_HAS_FREE].address);
    return 0;
}

/* Where a candidate starts: somewhere in [low, high), at a superslab. */
static uintptr_t window_candidate(uint64_t seed, uint64_t low, uint64_t high)
{
    uint64_t places = (high - low) / SUPERSLAB_SIZE;
    return (uintptr_t)(low + (seed % places) * SUPERSLAB_SIZE);
}

int hak__window_start(void)
{
    uint64_t size = hak__os_ram_size() * WINDOW_RAM_FACTOR;
    size = size < WINDOW_SIZE_MIN   ? WINDOW_SIZE_MIN
           : size > WINDOW_SIZE_MAX ? WINDOW_SIZE_MAX
                                    : size;
    size = bits_align_up(size, SUPERSLAB_SIZE);
    uint64_t seed = hak__os_random_seed();
    int error = -ENOMEM;
    for (uint32_t try = 0; try < WINDOW_BASE_TRIES; try++) {
        /* The later half of the tries assumes a small address space. */
        bool small = try >= WINDOW_BASE_TRIES / 2;
        uintptr_t low = small
                            ? window_candidate(seed, WINDOW_SMALL_BASE_LOW, WINDOW_SMALL_BASE_HIGH)
                            : window_candidate(seed, WINDOW_BASE_LOW, WINDOW_BASE_HIGH);
        error = window_try(low, small ? WINDOW_SMALL_SIZE : size);
        if (error == 0) {
            return 0;
        }
        seed = seed * UINT64_C(6364136223846793005) +
               UINT64_C(1442695040888963407); /* Knuth's MMIX generator */
    }
    return error;
}
