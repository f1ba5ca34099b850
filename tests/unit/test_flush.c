/* SPDX-License-Identifier: MIT */
/* test_flush.c: cache/flush: how limits grow and fall, budgets, full bins, trimming, abandoning;
 * random use against a ledger. */
#include "../child.h"
#include "unit.h"

static struct cache *cache;

static int create_cache(void **state)
{
    unit_save_knobs(state);
    hak__knobs.bin_bytes_max = BIN_BYTES_MAX;
    hak__knobs.cache_bytes = UINT64_MAX / 2;
    hak__knobs.cache_bytes_total = UINT64_MAX / 2;
    cache = unit_cache_create();
    return 0;
}

static int destroy_cache(void **state)
{
    unit_restore_knobs(state);
    unit_cache_destroy(cache);
    return hak__cache_charged.word == 0 ? 0 : -1;
}

#define FLUSH_TEST(name) TEST_WITH(name, create_cache, destroy_cache)

static uint32_t limit_for(uint32_t class_index, uint32_t bytes)
{
    uint32_t limit = bytes / size_class_bytes(class_index);
    limit = limit < BIN_OBJECTS_MIN ? BIN_OBJECTS_MIN : limit;
    return limit > BIN_OBJECTS_MAX ? BIN_OBJECTS_MAX : limit;
}

/* What the limits may cost, by the definition in cache.h: their bytes and one slab each. */
static uint64_t charge_for(uint32_t class_index, uint32_t limit)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    uint64_t bytes = (uint64_t)limit * size_class->object_size;
    return limit == 0 ? 0 : bytes + size_class->slab_slices * SLICE_SIZE;
}

static void check_cache(void)
{
    uint64_t charged = 0;
    size_t bytes = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct bin *bin = &cache->bins[class_index];
        struct object_list list = {bin->head, bin_count(bin)};
        unit_list_tail(list);
        assert_int_equal(hak__cache_objects(cache, class_index), list.count);
        bytes += (size_t)list.count * size_class_bytes(class_index);
        charged += charge_for(class_index, bin->limit);
    }
    assert_int_equal(hak__cache_bytes(cache), bytes);
    assert_true(cache->charged == charged);
    assert_true(hak__cache_charged.word == cache->charged_told); /* the only cache here */
}

enum { OBJECTS_MAX = 128 * 1024 };
static void *objects[OBJECTS_MAX];

static void allocate_all(uint32_t class_index, uint32_t count)
{
    REQUIRE(count <= OBJECTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
        REQUIRE(objects[i] != NULL);
    }
}

static void free_all(uint32_t class_index, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        unit_cache_free(cache, class_index, objects[i]);
    }
}

/* The first frees of a class are slow: an object that was freed a few frees before is noticed. */
static void free_again(void *object)
{
    uint32_t class_index = unit_slab_of(object)->class_index;
    struct bin *bin = &cache->bins[class_index];
    object_set_free(object, bin->head, cache->mark);
    bin->head = object;
    if (--bin->room < 0) {
        hak__cache_overflow(cache, class_index);
    }
}

FLUSH_TEST(the_first_frees_are_checked)
{
    static const size_t sizes[] = {16, 64, 100}; /* bins of larger objects hold too few */
    static const uint32_t counts[] = {8, 300};   /* after these, refills leave more than a limit */
    SKIP_IF(HAK_TINY_LIMITS);
    for (size_t i = 0; i < COUNT_OF(counts) * COUNT_OF(sizes); i++) {
        uint32_t class_index = size_class_of(sizes[i / 2]), count = counts[i % 2];
        struct bin *bin = &cache->bins[class_index];
        allocate_all(class_index, count);
        uint32_t held = bin_count(bin);
        for (uint32_t j = 0; j < FREES_CHECKED; j++) {
            for (uint32_t k = 0; k < j; k++) {
                REQUIRE_DEATH(free_again, objects[k], "^hakmem: fatal: double free");
            }
            free_again(objects[j]);
            assert_int_equal(bin_count(bin), held + j + 1);
            assert_true(bin->room <= 0); /* so that the next free is slow */
            check_cache();
        }
        for (uint32_t j = FREES_CHECKED; j < count; j++) {
            free_again(objects[j]);
        }
        assert_true(bin->limit >= limit_for(class_index, BIN_BYTES_START));
        check_cache();
        hak__cache_flush(cache);
    }
}

/* The learner lowers the option while the program runs: limits above it fall at once, the objects
 * go back at the next frees. */
FLUSH_TEST(a_lower_bound_lowers_limits)
{
    uint32_t class_index = size_class_of(16);
    struct bin *bin = &cache->bins[class_index];
    for (int round = 0; round < 5; round++) {
        allocate_all(class_index, 2000);
        free_all(class_index, 2000);
    }
    uint32_t freed = 0, count = 100;
    allocate_all(class_index, count);
    while (freed < count && (freed == 0 || bin_count(bin) <= 3)) { /* a flush leaves half of few */
        unit_cache_free(cache, class_index, objects[freed++]);
    }
    uint32_t limit = bin->limit;
    assert_true(limit > 3 && bin_count(bin) > 3);
    hak__cache_lower_limits(cache); /* the option stands where it was */
    assert_int_equal(bin->limit, limit);
    hak__knobs.bin_bytes_max = 48;
    hak__cache_lower_limits(cache);
    assert_int_equal(bin->limit, 3);
    check_cache();
    for (int round = 0; round < 100 && bin_count(bin) > 3; round++) {
        unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    }
    assert_in_range(bin_count(bin), 0, 3);
    while (freed < count) {
        unit_cache_free(cache, class_index, objects[freed++]);
    }
    check_cache();
}

static void fill_and_empty(uint32_t class_index)
{
    allocate_all(class_index, 2 * BIN_OBJECTS_MAX);
    free_all(class_index, 2 * BIN_OBJECTS_MAX);
}

FLUSH_TEST(the_budget_of_a_thread)
{
    SKIP_IF(HAK_TINY_LIMITS); /* a refill brings more than the first limit */
    uint32_t first = size_class_of(32), second = size_class_of(48);
    uint64_t first_step = charge_for(first, limit_for(first, BIN_BYTES_START));
    uint64_t second_step = charge_for(second, limit_for(second, BIN_BYTES_START));
    hak__knobs.cache_bytes = first_step + second_step - 1; /* a byte too little for both */
    for (int round = 0; round < 4; round++) {
        fill_and_empty(first);
        fill_and_empty(second);
        assert_true(cache->charged <= hak__knobs.cache_bytes);
        assert_true(cache->charged >= first_step);
        assert_int_equal(cache->bins[second].limit, 0);
        check_cache();
    }
    hak__knobs.cache_bytes++;
    hak__cache_flush(cache);
    for (uint32_t class_index = first; class_index <= second; class_index++) { /* just a step */
        unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    }
    assert_true(cache->charged == first_step + second_step);
    fill_and_empty(first); /* which leaves nothing for another, either way */
    fill_and_empty(second);
    assert_true(cache->charged == first_step + second_step);
}

FLUSH_TEST(the_budget_of_all_threads)
{
    SKIP_IF(HAK_TINY_LIMITS); /* a refill brings more than the first limit */
    uint32_t class_index = size_class_of(64);
    uint64_t step = charge_for(class_index, limit_for(class_index, BIN_BYTES_START));
    hak__knobs.cache_bytes_total = step + 1000;
    hak__cache_charged.word += 1001; /* somebody else's */
    unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    assert_int_equal(cache->bins[class_index].limit, 0);
    hak__cache_charged.word -= 1;
    unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    assert_int_equal(cache->bins[class_index].limit, limit_for(class_index, BIN_BYTES_START));
    hak__cache_charged.word -= 1000;
    check_cache();
}

/* Without any budget all that the bin holds goes back at the next free: what stayed would hold
 * slabs that nobody is charged for. The next refill is then the first again. */
FLUSH_TEST(no_budget)
{
    uint32_t class_index = size_class_of(256);
    const struct bin *bin = &cache->bins[class_index];
    hak__knobs.cache_bytes = 0;
    uint32_t most = limit_for(class_index, REFILL_BYTES_START);
    assert_int_equal(hak__cache_refill_most(cache, class_index), most);
    for (uint32_t i = 0; i < 4; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
        assert_non_null(objects[i]);
        assert_true(bin_count(bin) < most);
    }
    struct slab *slab = unit_slab_of(objects[0]);
    for (uint32_t i = 0; i < 3; i++) {
        unit_cache_free(cache, class_index, objects[i]);
        assert_int_equal(bin_count(bin), 0);
        assert_int_equal(slab->free_count, slab->carved_count - 3 + i);
    }
    assert_int_equal(window_owner(slab_slice(slab)), cache->key | owner_code_of_class(class_index));
    unit_cache_free(cache, class_index, objects[3]);
    assert_int_equal(hak__cache_objects(cache, class_index), 0);
    assert_int_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    assert_int_equal(bin->limit, 0);
    assert_true(cache->charged == 0);
    assert_int_equal(hak__cache_refill_most(cache, class_index), most);
    check_cache();
}

/* The bin holds these, the last first. */
static void check_order(uint32_t class_index, void *const *kept, uint32_t kept_count)
{
    for (const struct object *object = cache->bins[class_index].head; object != NULL;
         object = object->next) {
        REQUIRE(kept_count != 0);
        REQUIRE(object == kept[--kept_count]);
    }
    assert_int_equal(kept_count, 0);
}

/* The last freed go back, all of the bin but no more than `most`, unless it grows. */
static void check_a_full_bin(uint32_t class_index, uint32_t count, uint32_t most)
{
    static void *kept[OBJECTS_MAX];
    uint32_t flushes = 0, of_most = 0, kept_count = 0;
    const struct bin *bin = &cache->bins[class_index];
    const uint64_t *flushed = &cache->counters.values[COUNTER_FREE_FLUSHED_OBJECTS];
    allocate_all(class_index, count);
    while (bin->head != NULL) { /* nothing shall be in it but what is freed below */
        assert_true(count < OBJECTS_MAX);
        objects[count++] = unit_cache_allocate(cache, class_index);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t limit = bin->limit, back = 0;
        bool full = limit != 0 && bin_count(bin) == limit;
        uint64_t flushed_before = *flushed;
        unit_cache_free(cache, class_index, objects[i]);
        kept[kept_count++] = objects[i];
        if (full && bin->limit == limit) {
            flushes++;
            back = limit + 1 < most ? limit + 1 : most;
            of_most += back == most;
            kept_count -= back;
        }
        assert_true(*flushed == flushed_before + back);
        assert_int_equal(bin_count(bin), kept_count);
        assert_true(bin_count(bin) <= bin->limit);
        check_order(class_index, kept, kept_count);
    }
    assert_true(flushes > 3 && of_most != 0);
    check_cache();
}

FLUSH_TEST(a_full_bin)
{
    check_a_full_bin(size_class_of(32), 6000, FLUSH_OBJECTS_MAX);
}

FLUSH_TEST(flush)
{
    uint32_t tiny = size_class_of(16), mid = size_class_of(5000);
    size_t taken = unit_region_bytes_taken();
    allocate_all(tiny, 600);
    free_all(tiny, 600);
    allocate_all(mid, 60);
    free_all(mid, 59);
    struct slab *kept = unit_slab_of(objects[59]);
    const uint64_t *flushed = &cache->counters.values[COUNTER_FREE_FLUSHED_OBJECTS];
    uint64_t before = *flushed;
    uint32_t count = bin_count(&cache->bins[tiny]) + bin_count(&cache->bins[mid]);
    hak__cache_flush(cache);
    assert_true(*flushed == before + count);
    assert_int_equal(hak__cache_bytes(cache), 0);
    assert_true(cache->charged == 0);
    assert_int_equal(hak__slab_free_objects(kept), kept->carved_count - 1);
    /* only the slab of the last object is left */
    assert_int_equal(unit_region_bytes_taken() - taken, kept->slice_count * SLICE_SIZE);
    check_cache();
    unit_cache_free(cache, mid, objects[59]);
}

FLUSH_TEST(trim)
{
    uint32_t busy = size_class_of(32), idle = size_class_of(64);
    const uint64_t *trimmed = &cache->counters.values[COUNTER_BINS_TRIMMED];
    fill_and_empty(busy);
    fill_and_empty(idle);
    hak__cache_trim(cache); /* both had slow operations */
    assert_true(cache->bins[busy].limit != 0 && cache->bins[idle].limit != 0);
    assert_true(*trimmed == 0);
    fill_and_empty(busy);
    hak__cache_trim(cache);
    assert_true(cache->bins[busy].limit != 0 && hak__cache_objects(cache, busy) != 0);
    assert_int_equal(cache->bins[idle].limit, 0);
    assert_int_equal(hak__cache_objects(cache, idle), 0);
    assert_true(*trimmed == 1);
    hak__cache_trim(cache);
    assert_int_equal(hak__cache_bytes(cache), 0);
    assert_true(cache->charged == 0 && *trimmed == 2);
    hak__cache_trim(cache);
    assert_true(*trimmed == 2);
    /* what a refill brought, without any free, goes too */
    allocate_all(busy, 1);
    hak__cache_trim(cache);
    hak__cache_trim(cache);
    assert_int_equal(hak__cache_objects(cache, busy), 0);
    unit_cache_free(cache, busy, objects[0]);
    check_cache();
}

/* After fork: nothing is looked at, everything counts as empty; the cache can be used again. */
FLUSH_TEST(abandon)
{
    uint32_t class_index = size_class_of(1024);
    uint32_t capacity = hak__size_classes[class_index].objects_per_slab;
    struct cache *other = unit_cache_create();
    void *foreign[2] = {unit_cache_allocate(other, 1), unit_cache_allocate(other, 1)};
    struct slab *foreign_slab = unit_slab_of(foreign[0]);
    allocate_all(class_index, capacity);
    struct slab *slab = unit_slab_of(objects[0]);
    free_all(class_index, capacity - 1);
    hak__remote_free(cache, window_slice_of(foreign[0]), foreign[0]);
    hak__cache_charged.word -= cache->charged_told; /* as fork's child counts anew */
    hak__cache_abandon(cache);
    assert_int_equal(hak__cache_bytes(cache), 0);
    assert_true(cache->charged == 0);
    for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
        assert_int_equal(cache->remote[i].link, 0);
        assert_int_equal(remote_count(&cache->remote[i]), 0);
    }
    hak__remote_flush(cache);
    assert_int_equal(foreign_slab->shared_remote, 0);
    hak__remote_free(cache, window_slice_of(foreign[1]), foreign[1]);
    hak__remote_flush(cache);
    assert_int_equal(hak__slab_free_objects(foreign_slab), 1);
    /* by hand what is lost in a child: the objects that were in the bins */
    unit_cache_free(other, 1, foreign[0]);
    uint32_t lost = 0;
    for (uint32_t i = 0; i < capacity; i++) {
        const struct object *object = slab->free_list;
        while (object != NULL && object != objects[i]) {
            object = object->next;
        }
        if (object == NULL) {
            objects[lost++] = objects[i];
        }
    }
    assert_int_equal(lost, capacity - hak__slab_free_objects(slab));
    unit_return(objects, lost);
    unit_cache_destroy(other);
    check_cache();
}

TESTS(unit_start)
