/* SPDX-License-Identifier: MIT */
/* test_whale_registry.c: large/whale_registry: a hash table against a model, above all where runs
 * of neighbours wrap around its end; growth; places promised. The whales here are only numbers: the
 * table never looks at what they name. */
#include "../threads/threads.h"
#include "unit.h"

#include "large/whale_registry.h"

enum { MODEL_MAX = 4096 };

struct model {
    struct whale whales[MODEL_MAX];
    size_t count;
    size_t bytes;
};

static struct model model;

static struct whale find(uintptr_t address)
{
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_find(address);
    lock_release(&hak__whale_lock);
    return whale;
}

static struct whale find_containing(uintptr_t address)
{
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_containing(address);
    lock_release(&hak__whale_lock);
    return whale;
}

static struct whale take_out(uintptr_t address)
{
    lock_acquire(&hak__whale_lock);
    struct whale whale = hak__whale_registry_remove(address);
    lock_release(&hak__whale_lock);
    return whale;
}

static struct whale_totals totals(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_totals now = hak__whale_registry_totals();
    lock_release(&hak__whale_lock);
    return now;
}

static void expect_whale(struct whale whale, struct whale expected)
{
    assert_int_equal(whale.address, expected.address);
    assert_int_equal(whale.size, expected.size);
}

static bool model_has(uintptr_t address)
{
    for (size_t i = 0; i < model.count; i++) {
        if (model.whales[i].address == address) {
            return true;
        }
    }
    return false;
}

static void insert(struct whale whale)
{
    assert_true(hak__whale_registry_insert(whale));
    assert_true(model.count < MODEL_MAX);
    model.whales[model.count++] = whale;
    model.bytes += whale.size;
}

static void remove_index(size_t index)
{
    struct whale whale = model.whales[index];
    expect_whale(take_out(whale.address), whale);
    model.whales[index] = model.whales[--model.count];
    model.bytes -= whale.size;
}

static void check_all(void)
{
    size_t small = 0;
    for (size_t i = 0; i < model.count; i++) {
        expect_whale(find(model.whales[i].address), model.whales[i]);
        small += model.whales[i].size <= SPAN_SIZE_MAX;
    }
    assert_int_equal(totals().live_count, model.count);
    assert_int_equal(totals().small_count, small);
    assert_int_equal(totals().live_bytes, model.bytes);
}

static void remove_all(void)
{
    while (model.count != 0) {
        remove_index(model.count - 1);
    }
    check_all();
}

/* Ends a test that loops for ever in a full table. */
static int set_alarm(void **state)
{
    alarm(280);
    return 0;
}

static int clear_alarm(void **state)
{
    alarm(0);
    return model.count == 0 ? 0 : -1;
}

#define REGISTRY_TEST(name) TEST_WITH(name, set_alarm, clear_alarm)

REGISTRY_TEST(nothing_is_found_in_an_empty_table)
{
    expect_whale(find(0), (struct whale){0});
    expect_whale(find(4096), (struct whale){0});
    expect_whale(take_out(0), (struct whale){0});
    expect_whale(find_containing(0), (struct whale){0});
    assert_int_equal(totals().live_count + totals().live_bytes, 0);
}

/* The place at which the search for an address starts, in a table of `capacity`. If the function
 * changes, the tests below still hold, they only collide less. */
static size_t home_of(uintptr_t address, size_t capacity)
{
    uint64_t hash = (uint64_t)(address >> 12) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20) & (capacity - 1);
}

/* A new address whose home is in the last or first two places of a table of 64, so that runs go
 * over the end of that table and of any smaller one, and crowd in larger ones. */
static uintptr_t crowded_address(uint64_t *random)
{
    for (;;) {
        uintptr_t address = (1 + random_below(random, (size_t)1 << 30)) << 12;
        if ((home_of(address, 64) + 2) % 64 < 4 && !model_has(address)) {
            return address;
        }
    }
}

static void random_operations(uint64_t *random, size_t steps, size_t most)
{
    for (size_t step = 0; step < steps; step++) {
        if (model.count == 0 || (model.count < most && random_below(random, 2) == 0)) {
            uintptr_t address = crowded_address(random);
            expect_whale(find(address), (struct whale){0});
            expect_whale(take_out(address), (struct whale){0});
            insert((struct whale)WHALE_OF(address, 4096 * (1 + random_below(random, 100)), 1));
        } else {
            remove_index(random_below(random, model.count));
        }
        if (step % 7 == 0 || model.count < 6) {
            check_all();
        }
    }
}

REGISTRY_TEST(random_operations_against_a_model)
{
    uint64_t random = 10;
    for (size_t most = 1; most <= 128; most *= 2) { /* grows at level 2 */
        random_operations(&random, SUPPORT_SLOW ? 1000 : 4000, most);
    }
    remove_all();
}

REGISTRY_TEST(growth)
{
    uint64_t random = 11;
    size_t metadata = totals().metadata_bytes;
    for (size_t i = 0; i < 3000; i++) {
        uintptr_t address = (i * 3 + 1) << 22;
        insert((struct whale)WHALE_OF(address, (1 + random_below(&random, 1000)) << 12, 1));
        /* at most half full */
        assert_true(totals().metadata_bytes >= 2 * model.count * sizeof(struct whale));
        if ((i & (i - 1)) == 0) {
            check_all();
        }
    }
    check_all();
    assert_true(totals().metadata_bytes > metadata);
    for (size_t i = 0; i < 2000; i++) {
        remove_index(random_below(&random, model.count));
    }
    check_all();
    remove_all();
}

REGISTRY_TEST(containing)
{
    uint64_t random = 12;
    for (size_t i = 1; i <= 50; i++) { /* each followed by a gap */
        insert((struct whale)WHALE_OF(i << 24, 4096 * (1 + random_below(&random, 2000)), 1));
    }
    for (size_t i = 0; i < model.count; i++) {
        struct whale whale = model.whales[i];
        expect_whale(find_containing(whale.address), whale);
        expect_whale(find_containing(whale.address + 1), whale);
        expect_whale(find_containing(whale.address + whale.size / 2), whale);
        expect_whale(find_containing(whale.address + whale.size - 1), whale);
        expect_whale(find_containing(whale.address + whale.size), (struct whale){0});
        expect_whale(find_containing(whale.address - 1), (struct whale){0});
        expect_whale(find(whale.address + 4096), (struct whale){0});
    }
    expect_whale(find_containing(0), (struct whale){0});
    expect_whale(find_containing(UINTPTR_MAX), (struct whale){0});
    remove_all();
}

static void lift(size_t index)
{
    lock_acquire(&hak__whale_lock);
    expect_whale(hak__whale_registry_lift(model.whales[index].address), model.whales[index]);
    lock_release(&hak__whale_lock);
    expect_whale(find(model.whales[index].address), (struct whale){0});
}

static void put_back(size_t index, struct whale now)
{
    model.bytes += now.size - model.whales[index].size;
    model.whales[index] = now;
    lock_acquire(&hak__whale_lock);
    hak__whale_registry_put_back(now);
    lock_release(&hak__whale_lock);
}

REGISTRY_TEST(lifting)
{
    insert((struct whale)WHALE_OF(1 << 20, 4096, 1));
    insert((struct whale)WHALE_OF(2 << 20, 8192, 1));
    lift(0);
    assert_int_equal(totals().live_count, 1);
    assert_int_equal(totals().live_bytes, 8192);
    expect_whale(find(2 << 20), model.whales[1]);
    put_back(0, (struct whale)WHALE_OF(5 << 20, 12288, 1)); /* moved and grown */
    check_all();
    expect_whale(find(1 << 20), (struct whale){0});
    lock_acquire(&hak__whale_lock);
    expect_whale(hak__whale_registry_lift(7 << 20), (struct whale){0});
    lock_release(&hak__whale_lock);
    remove_all();
}

/* While many are out, as many come in: room must stay for all. `first` runs over every filling of
 * the table. */
REGISTRY_TEST(what_is_lifted_finds_its_place_again)
{
    for (size_t first = 1; first <= 600; first += 1 + first / 8) {
        for (size_t i = 0; i < first; i++) {
            insert((struct whale)WHALE_OF((i + 1) << 21, 4096, 1));
        }
        for (size_t i = 0; i < first; i++) {
            lift(i);
        }
        for (size_t i = 0; i < first; i++) {
            insert((struct whale)WHALE_OF((i + 5000) << 21, 4096, 1));
        }
        assert_true(totals().metadata_bytes >= 4 * first * sizeof(struct whale));
        for (size_t i = 0; i < first; i++) {
            put_back(i, (struct whale)WHALE_OF((i + 10000) << 21, 8192, 1));
        }
        check_all();
        expect_whale(find(UINT64_C(1) << 40), (struct whale){0}); /* ends at an empty place */
        remove_all();
    }
}

/* All want the table to grow at once. */
static void *insert_and_remove(void *argument)
{
    uintptr_t self = (uintptr_t)argument;
    for (uintptr_t round = 0; round < 20; round++) {
        for (uintptr_t i = 0; i < 300; i++) {
            REQUIRE(hak__whale_registry_insert(
                (struct whale)WHALE_OF(self << 40 | (i + 1) << 21, 4096, 1)));
        }
        for (uintptr_t i = 0; i < 300; i++) {
            uintptr_t address = self << 40 | (i + 1) << 21;
            REQUIRE(find(address).address == address);
            REQUIRE(take_out(address).address == address);
            REQUIRE(take_out(address).address == 0);
        }
    }
    return NULL;
}

/* Before the table has grown in other tests. */
REGISTRY_TEST(threads)
{
    pthread_t threads[6];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(insert_and_remove, (void *)(uintptr_t)(i + 1));
    }
    JOIN_ALL(threads, COUNT_OF(threads));
    check_all();
}

TESTS(unit_start)
