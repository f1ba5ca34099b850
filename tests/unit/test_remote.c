/* SPDX-License-Identifier: MIT */
/* test_remote.c: cache/remote: how many frees make a batch, what a collision sends, who is told. */
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

static bool free_remotely(void *object)
{
    return hak__remote_free(freer, window_slice_of(object), object);
}

static uint64_t batches(void)
{
    return freer->counters.values[COUNTER_REMOTE_BATCHES];
}

/* Frees that fill an entry of a class. */
static uint32_t batch_of(uint32_t class_index)
{
    uint32_t size = size_class_bytes(class_index);
    uint32_t by_bytes = (REMOTE_BYTES_MAX + size - 1) / size;
    return by_bytes < REMOTE_OBJECTS_MAX ? by_bytes : REMOTE_OBJECTS_MAX;
}

static uint32_t buffered_count(void)
{
    uint32_t count = 0, waiting = 0;
    for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
        const struct remote_entry *entry = &freer->remote[i];
        assert_true((entry->link != 0) == (remote_count(entry) != 0));
        if (entry->link != 0) {
            struct object_list list = {entry->head, remote_count(entry)};
            const char *start = window_slice_address(entry->link - 1);
            assert_ptr_equal(unit_list_tail(list), start + entry->tail * OBJECT_ALIGNMENT);
            assert_int_equal(window_slice_of(entry->head) + 1, entry->link);
        }
        count += remote_count(entry);
        waiting += entry->link != 0;
    }
    assert_int_equal(waiting, freer->remote_waiting);
    assert_true(waiting <= REMOTE_WAITING_MAX);
    return count;
}

REMOTE_TEST(a_full_entry_is_sent)
{
    static const size_t sizes[] = {16, 64, 256, 512, 1024, 4096, 32768, MID_SIZE_MAX};
    static void *objects[2 * REMOTE_OBJECTS_MAX];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t class_index = size_class_of(sizes[i]), batch = batch_of(class_index);
        uint32_t most = hak__size_classes[class_index].objects_per_slab;
        uint32_t count = 2 * batch < most ? 2 * batch : most;
        for (uint32_t j = 0; j < count; j++) {
            objects[j] = unit_cache_allocate(owner, class_index);
            assert_ptr_equal(unit_slab_of(objects[j]), unit_slab_of(objects[0]));
        }
        struct slab *slab = unit_slab_of(objects[0]);
        uint64_t before = batches();
        for (uint32_t j = 0; j < count; j++) {
            bool full = (j + 1) % batch == 0;
            assert_int_equal(free_remotely(objects[j]), full);
            assert_true(batches() - before == (j + 1) / batch);
            assert_int_equal(hak__slab_remote_count(slab), j + 1 - (j + 1) % batch);
            assert_int_equal(buffered_count(), (j + 1) % batch);
        }
        hak__remote_flush(freer);
        assert_int_equal(buffered_count(), 0);
        assert_int_equal(hak__slab_remote_count(slab), count);
        struct object_list list = hak__slab_take_remote(slab);
        assert_non_null(unit_list_tail(list));
        for (struct object *object = list.head, *next; object != NULL; object = next) {
            next = object->next;
            unit_cache_free(owner, class_index, object);
        }
        hak__slab_drain(owner->slabs);
    }
}

/* Slabs of one class, all their objects held; the first of each is for a remote free. */
enum {
    SLAB_CLASS_SIZE = 256,
    SLABS_MAX = REMOTE_ENTRIES + 1,
    IN_SLAB = SLICE_SIZE / SLAB_CLASS_SIZE
};
static void *slab_objects[SLABS_MAX][IN_SLAB];

static void fill_slabs(uint32_t slabs)
{
    REQUIRE(slabs <= SLABS_MAX);
    for (uint32_t i = 0; i < slabs * IN_SLAB; i++) {
        void **slot = &slab_objects[i / IN_SLAB][i % IN_SLAB];
        *slot = unit_cache_allocate(owner, size_class_of(SLAB_CLASS_SIZE));
        REQUIRE(unit_slab_of(*slot) == unit_slab_of(slab_objects[i / IN_SLAB][0]));
    }
}

static void free_slabs_but_first_objects(uint32_t slabs)
{
    for (uint32_t i = 0; i < slabs * IN_SLAB; i++) {
        if (i % IN_SLAB != 0) {
            unit_cache_free(owner, size_class_of(SLAB_CLASS_SIZE),
                            slab_objects[i / IN_SLAB][i % IN_SLAB]);
        }
    }
}

/* More slabs than entries: the object that displaces another slab's sends that one's. */
REMOTE_TEST(collisions_send)
{
    enum { SLABS = REMOTE_ENTRIES + 1 };
    uint32_t sent = 0, in_words = 0;
    fill_slabs(SLABS);
    for (size_t i = 0; i < SLABS; i++) {
        uint32_t before = buffered_count();
        bool displaced = free_remotely(slab_objects[i][0]);
        assert_int_equal(buffered_count(), displaced ? before : before + 1);
        assert_int_equal(hak__slab_remote_count(unit_slab_of(slab_objects[i][0])), 0);
        sent += displaced;
    }
    assert_true(sent >= 1 && batches() == sent);
    for (size_t i = 0; i < SLABS; i++) {
        in_words += hak__slab_remote_count(unit_slab_of(slab_objects[i][0]));
    }
    assert_int_equal(in_words, sent);
    hak__remote_flush(freer);
    assert_true(batches() == SLABS);
    for (size_t i = 0; i < SLABS; i++) {
        assert_int_equal(hak__slab_remote_count(unit_slab_of(slab_objects[i][0])), 1);
    }
    free_slabs_but_first_objects(SLABS);
}

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
        assert_int_equal(buffered_count(), 0);
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

REMOTE_TEST(a_lagging_owner_is_remembered)
{
    enum { PATIENCE = 3, SLABS = PATIENCE + 1 };
    owner->slabs->shared_patience = PATIENCE;
    fill_slabs(SLABS);
    for (size_t i = 0; i < SLABS; i++) {
        assert_ptr_equal(freer->lagging, i < PATIENCE ? NULL : owner->slabs);
        free_remotely(slab_objects[i][0]);
        hak__remote_flush(freer);
    }
    assert_ptr_equal(freer->lagging, owner->slabs);
    freer->lagging = NULL;
    assert_int_equal(hak__slab_drain(owner->slabs), SLABS);
    free_remotely(slab_objects[0][1]);
    hak__remote_flush(freer);
    assert_null(freer->lagging);
    slab_objects[0][1] = unit_cache_allocate(owner, size_class_of(SLAB_CLASS_SIZE));
    free_slabs_but_first_objects(SLABS);
}

static void free_remote_body(void *object)
{
    free_remotely(object);
}

/* Another thread has freed it, too, and its slab went back meanwhile. */
REMOTE_TEST(its_slab_is_gone)
{
    void *object = unit_slab_refill(owner->slabs, size_class_of(40000), 1).head;
    unit_return(&object, 1);
    assert_int_equal(window_owner(window_slice_of(object)), OWNER_NOBODY);
    REQUIRE_DEATH(free_remote_body, object, "double free");
}

/* Neighbouring slabs, as a program that walks its memory frees them, hardly displace each other.
 * (Of 256 chosen by a hash 94 did.) */
REMOTE_TEST(neighbours_share_the_buffer)
{
    enum { SLABS = REMOTE_ENTRIES / 2 };
    uint32_t sent = 0;
    fill_slabs(SLABS);
    for (size_t i = 0; i < SLABS; i++) {
        sent += free_remotely(slab_objects[i][0]);
    }
    assert_true(sent <= SLABS / 16);
    hak__remote_flush(freer);
    free_slabs_but_first_objects(SLABS);
}

TESTS(unit_start)
