/* SPDX-License-Identifier: MIT */
/* test_remote.c: cache/remote: what stays with the thread that frees it; a slab that is gone. */
#include "../child.h"
#include "unit.h"

#include "slab/slab_remote.h"

static struct cache *owner, *freer;

static int create_caches(void **state)
{
    owner = unit_cache_create();
    freer = unit_cache_create();
    return 0;
}

static int destroy_caches(void **state)
{
    hak__remote_flush(freer);
    unit_cache_destroy(owner);
    unit_cache_destroy(freer);
    return 0;
}

#define REMOTE_TEST(name) TEST_WITH(name, create_caches, destroy_caches)

/* An object that shares no cache line stays with the thread that freed it while its bin has room,
 * is its next allocation, and goes to its slab's remote word with the rest of the bin. */
REMOTE_TEST(whole_lines_are_kept)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct bin *bin = &freer->bins[class_index];
        void *own[BIN_OBJECTS_MAX + 1], *objects[BIN_OBJECTS_MAX + 1];
        uint32_t own_count = 0;
        own[own_count++] = unit_cache_allocate(freer, class_index);
        unit_cache_free(freer, class_index, own[--own_count]); /* the limit is not 0 from here on */
        while (bin->head != NULL) {
            own[own_count++] = unit_cache_allocate(freer, class_index);
        }
        uint32_t most = size_class_bytes(class_index) <= TINY_SIZE_MAX ? 0 : bin->limit;
        for (uint32_t i = 0; i <= most; i++) {
            objects[i] = unit_cache_allocate(owner, class_index);
            assert_int_equal(remote_keep(freer, class_index, objects[i]), i < most);
        }
        assert_int_equal(bin_count(bin), most);
        if (most != 0) {
            assert_ptr_equal(unit_cache_allocate(freer, class_index), objects[most - 1]);
            unit_cache_free(freer, class_index, objects[most - 1]);
        }
        uint64_t remote = freer->counters.values[COUNTER_FREE_REMOTE];
        hak__cache_flush(freer);
        hak__remote_flush(freer);
        assert_true(freer->counters.values[COUNTER_FREE_REMOTE] - remote == most);
        assert_int_equal(freer->remote_waiting, 0);
        for (uint32_t i = 0; i < most; i++) {
            assert_true(hak__slab_remote_count(unit_slab_of(objects[i])) != 0);
        }
        unit_cache_free(owner, class_index, objects[most]);
        while (own_count != 0) {
            unit_cache_free(freer, class_index, own[--own_count]);
        }
        hak__cache_flush(freer);
        hak__cache_flush(owner);
        hak__slab_drain(owner->slabs);
    }
}

static void free_remote_body(void *object)
{
    hak__remote_free(freer, window_slice_of(object), object);
}

/* Another thread has freed it, too, and its slab went back meanwhile. */
REMOTE_TEST(its_slab_is_gone)
{
    void *object = unit_slab_refill(owner->slabs, size_class_of(40000), 1).head;
    unit_return(&object, 1);
    assert_int_equal(window_owner(window_slice_of(object)), OWNER_NOBODY);
    REQUIRE_DEATH(free_remote_body, object, "double free");
}

TESTS(unit_start)
