/* SPDX-License-Identifier: MIT */
/* test_thread_bytes.c: hak_thread_bytes_read against what a thread has really asked for, got and
 * freed: by every function, over all tiers, between threads, while samples are taken, in a fork. */
#include "../child.h"
#include "../threads/threads.h"

#include "hakmem/profile.h"

static struct hak_thread_bytes bytes_now(void)
{
    struct hak_thread_bytes bytes;
    hak_thread_bytes_read(&bytes, sizeof bytes);
    REQUIRE(bytes.version == HAK_STATS_VERSION && bytes.size == sizeof bytes);
    return bytes;
}

static int64_t net_of(struct hak_thread_bytes bytes)
{
    return (int64_t)(bytes.allocated - bytes.freed);
}

/* Usable bytes of what this thread allocated and freed, and the bytes that it asked for. */
struct model {
    int64_t net;
    uint64_t asked;
    uint64_t got;
};

static void *model_got(struct model *model, void *block, size_t size)
{
    REQUIRE(block != NULL);
    model->asked += size;
    model->got += hak_usable_size(block);
    model->net += (int64_t)hak_usable_size(block);
    return block;
}

static void model_free(struct model *model, void *block)
{
    model->net -= (int64_t)hak_usable_size(block);
    hak_free(block);
}

static void *model_allocate(struct model *model, uint64_t *random)
{
    size_t size = random_size(random, random_below(random, 50) == 0 ? 23 : 14);
    switch (random_below(random, 5)) {
    case 0:
        return model_got(model, hak_calloc(1, size), size);
    case 1:
        return model_got(model, hak_aligned_alloc((size_t)16 << random_below(random, 9), size),
                         size);
    case 2:
        return model_got(model, hak_alloc_at(size, 7), size);
    default:
        return model_got(model, hak_malloc(size), size);
    }
}

static __thread struct hak_thread_bytes last;

/* What was read lies where it may. `start`: of the model. */
static void check(const struct model *model, struct hak_thread_bytes start)
{
    struct hak_thread_bytes now = bytes_now();
#ifdef HAK_SECURE /* objects count with what the form adds */
    int64_t net = net_of(now) - net_of(start);
    REQUIRE(model->net < 0 ? net <= model->net : net >= model->net);
#else
    REQUIRE(net_of(now) - net_of(start) == model->net);
    REQUIRE_SIZE(now.allocated - start.allocated, >=, model->asked);
    REQUIRE_SIZE(now.allocated - start.allocated, <=, model->got);
#endif
    REQUIRE(now.allocated >= last.allocated && now.freed >= last.freed);
    last = now;
}

enum { BLOCKS = 500 };

static void work(uint64_t seed, size_t steps)
{
    struct model model = {0, 0, 0};
    void **blocks = support_map(BLOCKS * sizeof *blocks);
    struct hak_thread_bytes start = bytes_now();
    for (size_t i = 0; i < steps; i++) {
        void **block = &blocks[random_below(&seed, BLOCKS)];
        if (*block != NULL) {
            model_free(&model, *block);
            *block = NULL;
        } else {
            *block = model_allocate(&model, &seed);
        }
        if (random_below(&seed, 100) == 0) {
            check(&model, start);
        } else if (random_below(&seed, 5000) == 0) {
            hak_trim(0);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL) {
            model_free(&model, blocks[i]);
        }
    }
    check(&model, start);
    REQUIRE(net_of(bytes_now()) == net_of(start));
    munmap(blocks, BLOCKS * sizeof *blocks);
}

TEST(one_thread)
{
    work(1, SUPPORT_SLOW ? 20000 : 300000);
}

TEST(samples)
{
    assert_int_equal(hak_profile_start(2000), 0);
    work(2, 20000);
    hak_profile_stop();
    work(3, 20000);
}

/* A resized block counts by its growth, a moved one as a new one. */
TEST(resized)
{
    uint64_t random = 4;
    struct hak_thread_bytes start = bytes_now();
    for (size_t i = 0; i < (SUPPORT_SLOW ? 300 : 3000); i++) {
        void *block = NULL;
        for (size_t j = 0; j < 10; j++) {
            size_t size = 1 + random_size(&random, 23);
            bool ours = j % 3 == 2 && hak_resize(block, size);
            block = ours                            ? block
                    : random_below(&random, 2) == 0 ? hak_realloc(block, size)
                                                    : hak_aligned_realloc(block, 64, size);
            assert_non_null(block);
#ifndef HAK_SECURE
            assert_int_equal(net_of(bytes_now()) - net_of(start), hak_usable_size(block));
#endif
        }
        hak_free(block);
        assert_int_equal(net_of(bytes_now()), net_of(start));
    }
}

/* --- threads --- */

enum { GIVEN = 3000 };
static void *given[GIVEN];

static void *give(void *argument)
{
    struct model model = {0, 0, 0};
    uint64_t random = 5;
    struct hak_thread_bytes start = bytes_now();
    REQUIRE(start.allocated == 0 && start.freed == 0); /* also if another had its struct before */
    for (size_t i = 0; i < GIVEN; i++) {
        given[i] = model_allocate(&model, &random);
    }
    check(&model, start);
    return argument;
}

static void *take(void *argument)
{
    struct model model = {0, 0, 0};
    struct hak_thread_bytes start = bytes_now();
    for (size_t i = 0; i < GIVEN; i++) {
        model_free(&model, given[i]);
        if (i % 100 == 0) {
            check(&model, start);
        }
    }
    check(&model, start);
    REQUIRE(net_of(bytes_now()) < 0 && bytes_now().freed != 0);
    return argument;
}

TEST(blocks_that_change_hands)
{
    for (size_t round = 0; round < (SUPPORT_SLOW ? 3 : 20); round++) {
        thread_join(thread_start(give, NULL));
        thread_join(thread_start(take, NULL));
    }
}

static void *work_beside(void *seed)
{
    work((uintptr_t)seed, SUPPORT_SLOW ? 5000 : 50000);
    return NULL;
}

/* More threads than processors, so that some move to other arenas. */
TEST(threads_side_by_side)
{
    threads_run(12, work_beside, 100);
}

/* --- others --- */

static void in_child(void *argument)
{
    void **blocks = argument;
    struct model model = {0, 0, 0};
    struct hak_thread_bytes start = last = bytes_now();
    REQUIRE(start.allocated == 0 && start.freed == 0);
    model_free(&model, model_got(&model, hak_malloc(100), 100));
    for (size_t i = 0; i < BLOCKS; i++) {
        model_free(&model, blocks[i]);
    }
    check(&model, start);
}

TEST(forked_child)
{
    struct model model = {0, 0, 0};
    uint64_t random = 6;
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = model_allocate(&model, &random);
    }
    REQUIRE_LIFE(in_child, blocks, NULL);
    FREE_ALL(blocks, BLOCKS);
}

/* A struct of an older version is filled as far as it goes. */
TEST(older_structs)
{
    struct hak_thread_bytes bytes;
    memset(&bytes, 0x5a, sizeof bytes);
    hak_thread_bytes_read(&bytes, offsetof(struct hak_thread_bytes, freed));
    assert_int_equal(bytes.size, offsetof(struct hak_thread_bytes, freed));
    assert_int_equal(((unsigned char *)&bytes.freed)[0], 0x5a);
}

TESTS(NULL)
