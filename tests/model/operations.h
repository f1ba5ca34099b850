/* SPDX-License-Identifier: MIT */
/* operations.h: each operation of the model: what it asks of the allocator, and everything promised
 * of the answer.
 *
 * An operation works on one slot of its lane: `block->pointer` is NULL for those that fill it and
 * not NULL for those that change or empty it.
 */
#ifndef TESTS_MODEL_OPERATIONS_H
#define TESTS_MODEL_OPERATIONS_H

#include "block.h"
#include "draw.h"
#include "shadow.h"

enum { LANE_SLOTS = 1024, SHARED_SLOTS = 256, LANES_MAX = 256 };

#define SIZE_BITS 23 /* ordinary sizes, unless told otherwise: below 8 MiB */

struct lane {
    uint64_t number;
    uint64_t shared_operation; /* the watchdog reads it */
    uint64_t generation;
    struct draws draws;
    const char *doing;
    bool tight; /* --max-live is reached: only small sizes */
    size_t slots_count;
    struct block *blocks;
};

struct shared_slot {
    pthread_mutex_t lock;
    struct block block;
};

static struct shared_slot shared_slots[SHARED_SLOTS];
static struct lane lanes[LANES_MAX];
static uint64_t option_seed, option_max_live, option_threads, option_size_bits = SIZE_BITS;
static size_t shared_live_bytes;
static __thread struct lane *lane_current;

__attribute__((noreturn, format(printf, 2, 3))) static void model_fail(const struct lane *lane,
                                                                       const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    support_fail("model: FAILED: seed %llu, threads %llu, lane %llu, generation %llu, operation "
                 "%llu (%s): %s\n",
                 (unsigned long long)option_seed, (unsigned long long)option_threads,
                 (unsigned long long)lane->number, (unsigned long long)lane->generation,
                 (unsigned long long)lane->shared_operation, lane->doing, what);
}

static size_t draw(struct lane *lane, size_t bound)
{
    return draws_below(&lane->draws, bound);
}

static size_t draw_size(struct lane *lane)
{
    unsigned bits = (unsigned)option_size_bits;
    size_t roll = draw(lane, 4000);
    if (lane->tight) {
        return draws_size(&lane->draws, 12);
    }
    if (roll == 0) {
        return draws_size(&lane->draws, bits + 7);
    }
    size_t size = draws_size(&lane->draws, bits);
    if (size > DENSE_MAX &&
        roll % 2 == 0) { /* half of the large ones suffice: they take most of the time */
        size = draws_size(&lane->draws, 16);
    }
    if (roll < 400) { /* at and beside powers of two and multiples of the OS page */
        size_t pages = bits < 16 ? 1 : (size_t)1 << (bits - 15);
        size_t unit = roll < 200 ? (size_t)1 << draw(lane, bits) : (draw(lane, pages) + 1) * 4096;
        size = unit + draw(lane, 3) - 1;
    }
    return size;
}

static size_t draw_impossible(struct lane *lane)
{
    size_t below = draws_size(&lane->draws, 40);
    return draw(lane, 2) == 0 ? SIZE_MAX - below : (size_t)PTRDIFF_MAX + below % 4096;
}

static bool draw_dense(struct lane *lane, size_t size)
{
    bool often = draw(lane, 8) == 0;
    return size <= DENSE_MAX || (often && size <= 8 * MIB);
}

/* Blocks in and out of the model */

static void block_verify(struct lane *lane, const struct block *block, const char *when)
{
    size_t usable = hak_usable_size(block->pointer);
    if (usable != block->usable) {
        model_fail(lane, "%s: usable size of %p (%zu asked) was %zu, is %zu", when,
                   (void *)block->pointer, block->size, block->usable, usable);
    }
    size_t at = block_compare(block, block->written);
    if (at != SIZE_MAX) {
        model_fail(lane, "%s: contents of %p (%zu asked, %zu usable) differ at offset %zu", when,
                   (void *)block->pointer, block->size, block->usable, at);
    }
}

static void block_release(struct lane *lane, const struct block *block)
{
    size_t missing = shadow_change(block->pointer, block->usable, false);
    if (missing != 0) {
        model_fail(lane, "%p: %zu units of 16 bytes were not marked in use", (void *)block->pointer,
                   missing);
    }
    __atomic_fetch_sub(&shared_live_bytes, block->usable, __ATOMIC_RELAXED);
}

static void block_claim(struct lane *lane, const struct block *block)
{
    size_t twice = shadow_change(block->pointer, block->usable, true);
    if (twice != 0) {
        model_fail(lane, "%p of %zu usable bytes overlaps another block in %zu units of 16 bytes",
                   (void *)block->pointer, block->usable, twice);
    }
    __atomic_fetch_add(&shared_live_bytes, block->usable, __ATOMIC_RELAXED);
}

/* A pointer just got for `size` bytes: everything promised of it, then into the model with a fresh
 * pattern. */
static void block_accept(struct lane *lane, struct block *block, void *pointer, size_t size,
                         size_t alignment)
{
    if (pointer == NULL) {
        model_fail(lane, "NULL for %zu bytes, alignment %zu, errno %d", size, alignment, errno);
    }
    if (errno != ERRNO_UNTOUCHED) {
        model_fail(lane, "success with %zu bytes changed errno to %d", size, errno);
    }
    if (!is_aligned(pointer, alignment < 16 ? 16 : alignment)) {
        model_fail(lane, "%p of %zu bytes is not aligned to %zu", pointer, size, alignment);
    }
    block->pointer = pointer;
    block->size = size;
    block->alignment = alignment;
    block->usable = hak_usable_size(pointer);
    block->seed = random_next(&lane->draws.random);
    if (block->usable < size || block->usable > 2 * size + 2 * MIB + alignment) {
        model_fail(lane, "%p: %zu usable bytes for %zu", pointer, block->usable, size);
    }
    if (draw(lane, 16) == 0 &&
        !(hak_owns(pointer) && hak_owns(block->pointer + block->usable - 1))) {
        model_fail(lane, "%p of %zu bytes is not owned", pointer, size);
    }
    block_claim(lane, block);
    block->written = draw(lane, 2) == 0 ? size : block->usable;
    block->dense = draw_dense(lane, block->written);
    block_write(block);
}

/* A reused span or huge block may be longer than a new one; a class is a class. */
static void check_good_size(struct lane *lane, const void *pointer, size_t size)
{
    size_t usable = hak_usable_size(pointer);
    size_t good = hak_good_size(size);
    if (pointer != NULL && (usable < good || (size <= DENSE_MAX && usable != good))) {
        model_fail(lane, "%p of %zu bytes: usable size %zu, good size %zu", pointer, size, usable,
                   good);
    }
}

static void do_malloc(struct lane *lane, struct block *block)
{
    size_t size = draw_size(lane);
    bool sited = draw(lane, 4) == 0;
    uintptr_t site = draw(lane, 5000) + 1;
    errno = ERRNO_UNTOUCHED;
    void *pointer = sited ? hak_alloc_at(size, site) : hak_malloc(size);
    check_good_size(lane, pointer, size);
    block_accept(lane, block, pointer, size, 0);
}

static void do_calloc(struct lane *lane, struct block *block)
{
    size_t unit = (size_t)1 << draw(lane, 7);
    size_t count = (draw_size(lane) + unit - 1) / unit;
    errno = ERRNO_UNTOUCHED;
    char *pointer = draw(lane, 2) == 0 ? hak_calloc(count, unit) : hak_calloc(unit, count);
    check_good_size(lane, pointer, count * unit);
    if (pointer != NULL) {
        size_t at = block_nonzero(pointer, count * unit, draw_dense(lane, count * unit));
        if (at != SIZE_MAX) {
            model_fail(lane, "%p of %zu bytes is not zero at offset %zu", (void *)pointer,
                       count * unit, at);
        }
    }
    block_accept(lane, block, pointer, count * unit, 0);
}

static void do_aligned(struct lane *lane, struct block *block)
{
    size_t alignment = (size_t)1 << draw(lane, option_size_bits);
    size_t size = draw_size(lane);
    size_t odd =
        alignment > 2 ? alignment - draw(lane, alignment / 2) : alignment; /* rounds up to it */
    size_t way = draw(lane, 4);
    void *pointer = NULL;
    errno = ERRNO_UNTOUCHED;
    if (way == 0) {
        pointer = hak_aligned_alloc(alignment, size);
    } else if (way == 1) {
        pointer = hak_memalign(odd, size);
    } else if (way == 2) {
        alignment = alignment < sizeof(void *) ? sizeof(void *) : alignment;
        int error = hak_posix_memalign(&pointer, alignment, size);
        if (error != 0) {
            model_fail(lane, "posix_memalign(%zu, %zu) returned %d", alignment, size, error);
        }
    } else {
        bool whole = draw(lane, 2) == 0;
        alignment = (size_t)sysconf(_SC_PAGESIZE);
        pointer = whole ? hak_pvalloc(size) : hak_valloc(size);
        size = whole ? (size + alignment - 1) / alignment * alignment : size;
    }
    block_accept(lane, block, pointer, size, alignment);
}

static void do_realloc_null(struct lane *lane, struct block *block)
{
    size_t size = draw_size(lane);
    errno = ERRNO_UNTOUCHED;
    void *pointer = draw(lane, 2) == 0 ? hak_realloc(NULL, size) : hak_reallocarray(NULL, 1, size);
    block_accept(lane, block, pointer, size, 0);
}

static void do_realloc(struct lane *lane, struct block *block)
{
    size_t size = draw_size(lane);
    size_t style = draw(lane, 8);
    if (style < 3) { /* a little more or less, as growing arrays do */
        size = block->size + block->size / 8 * draw(lane, 8) / (style + 1);
        size += draw(lane, 64);
    }
    size = size > GIB ? GIB : size;
    block_verify(lane, block, "before realloc");
    block_release(lane, block);
    errno = ERRNO_UNTOUCHED;
    char *pointer =
        style == 7 ? hak_reallocarray(block->pointer, size, 1) : hak_realloc(block->pointer, size);
    if (size == 0) {
        if (pointer != NULL || errno != ERRNO_UNTOUCHED) {
            model_fail(lane, "size 0 gave %p, errno %d", (void *)pointer, errno);
        }
        block->pointer = NULL;
        return;
    }
    struct block old = *block;
    old.pointer = pointer;
    if (pointer != NULL) { /* a NULL is refused below */
        size_t at = block_compare(&old, size < old.written ? size : old.written);
        if (at != SIZE_MAX) {
            model_fail(
                lane,
                "from %p (%zu asked, %zu usable, %zu written) to %p (%zu): lost at offset %zu",
                (void *)block->pointer, old.size, old.usable, old.written, (void *)pointer, size,
                at);
        }
    }
    block_accept(lane, block, pointer, size, 0);
}

static void do_free(struct lane *lane, struct block *block)
{
    size_t style = draw(lane, 8);
    block_verify(lane, block, "before free");
    block_release(lane, block);
    errno = ERRNO_UNTOUCHED;
    if (style < 4) {
        hak_free(block->pointer);
    } else if (style == 4) {
        hak_free_at(block->pointer, block->alignment == 0 ? block->size : 0, draw(lane, 100) + 1);
    } else if (block->alignment == 0) {
        hak_free_sized(block->pointer, block->size);
    } else {
        hak_free_aligned_sized(block->pointer, block->alignment, block->size);
    }
    if (errno != ERRNO_UNTOUCHED) {
        model_fail(lane, "free changed errno to %d", errno);
    }
    block->pointer = NULL;
}

static void do_verify(struct lane *lane, struct block *block)
{
    block_verify(lane, block, "at rest");
}

/* What cannot be had, with and without a block to lose. */
static void do_impossible(struct lane *lane, struct block *block)
{
    size_t size = draw_impossible(lane);
    size_t alignment = (size_t)16 << draw(lane, 18);
    size_t way = draw(lane, 7);
    int expected = way == 6 ? EINVAL : ENOMEM;
    void *pointer = NULL;
    errno = 0;
    switch (way) {
    case 0:
        pointer = hak_malloc(hide_size(size));
        break;
    case 1:
        pointer = hak_calloc(hide_size(size / 2 + 1), 2 + draw(lane, 100));
        break;
    case 2:
        pointer = hak_realloc(block->pointer, hide_size(size));
        break;
    case 3:
        pointer = hak_reallocarray(block->pointer, hide_size(size / 3 + 1), 3 + draw(lane, 100));
        break;
    case 4:
        pointer = hak_aligned_alloc(alignment, hide_size(size));
        break;
    case 5:
        errno = hak_posix_memalign(&pointer, alignment, hide_size(size));
        break;
    default:
        pointer = hak_aligned_alloc(alignment + 1, 100);
        break;
    }
    if (hide(pointer) != NULL || errno != expected) {
        model_fail(lane, "impossible way %zu, size %zu, alignment %zu: gave %p, errno %d", way,
                   size, alignment, pointer, errno);
    }
    if (block->pointer != NULL) {
        block_verify(lane, block, "after a failure");
    }
}

static void do_exchange(struct lane *lane, struct block *block)
{
    struct shared_slot *slot = &shared_slots[draw(lane, SHARED_SLOTS)];
    pthread_mutex_lock(&slot->lock);
    struct block got = slot->block;
    slot->block = *block;
    *block = got;
    pthread_mutex_unlock(&slot->lock);
    if (block->pointer != NULL && draw(lane, 2) == 0) {
        block_verify(lane, block, "after an exchange");
    }
}

static void report_count(void *argument, const char *text, size_t size)
{
    (void)text;
    *(size_t *)argument += size;
}

static void do_control(struct lane *lane)
{
    size_t roll = draw(lane, 16);
    size_t length = 0;
    errno = ERRNO_UNTOUCHED;
    if (roll == 0) {
        lane->doing = "trim";
        hak_trim(draw(lane, 2) == 0 ? 0 : 16 * MIB);
    } else if (roll < 4) {
        lane->doing = "report";
        hak_report(roll == 1 ? HAK_REPORT_TEXT : HAK_REPORT_JSON, report_count, &length);
        if (length == 0) {
            model_fail(lane, "empty report");
        }
    } else {
        lane->doing = "stats";
        struct hak_stats stats = stats_now();
        if (stats.arenas_parked_count > stats.arenas_count) {
            model_fail(lane, "%zu of %zu arenas parked", stats.arenas_parked_count,
                       stats.arenas_count);
        }
    }
    hak_free(NULL);
    if (errno != ERRNO_UNTOUCHED) {
        model_fail(lane, "errno became %d", errno);
    }
}

#endif
