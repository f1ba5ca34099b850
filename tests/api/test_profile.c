/* SPDX-License-Identifier: MIT */
/* test_profile.c: hak_profile_start, _stop and _write; profiles of processes with threads and
 * forks. */
#include "../child.h"
#include "../collect.h"
#include "../threads/threads.h"

#include <hakmem/profile.h>
#include <hakmem/site.h>

static struct collected taken;

static void take(void *argument, const char *piece, size_t size)
{
    hak_free(hak_malloc(size)); /* a sink may allocate */
    collect(argument, piece, size);
}

static const char *profile_now(void)
{
    taken.length = 0;
    hak_profile_write(take, &taken);
    return taken.text;
}

/* Sum of all fields `"key": number`. */
static uint64_t sum_of(const char *text, const char *key)
{
    uint64_t sum = 0;
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    for (const char *at = text; (at = strstr(at, quoted)) != NULL;) {
        at += strlen(quoted);
        sum += strtoull(at, NULL, 10);
    }
    return sum;
}

/* One thread's notice of a start takes some allocations. */
static void start(size_t period)
{
    assert_int_equal(hak_profile_start(period), 0);
    assert_int_equal(hak_profile_start(period), 0); /* again */
    for (size_t i = 0; i < 10000; i++) {
        hak_free(hak_malloc(100));
    }
}

TEST(write)
{
    enum { COUNT = 20000, SIZE = 1000 };
    static void *blocks[COUNT];
    start(10000);
    uint64_t live = sum_of(profile_now(), "live_bytes");
    ALLOCATE_ALL(blocks, COUNT, SIZE);
    const char *text = profile_now();
    assert_int_equal(text[0], '{');
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    assert_int_equal(sum_of(text, "period"), 10000);
    assert_true(strstr(text, "r-xp") != NULL);
    /* 2,000 samples: a standard deviation is 2.2 %. */
    assert_in_range(sum_of(text, "live_bytes") - live, COUNT * SIZE * 0.8, COUNT * SIZE * 1.2);
    FREE_ALL(blocks, COUNT);
    assert_in_range(sum_of(profile_now(), "live_bytes"), 0, live + 1);
    hak_profile_stop();
    assert_int_equal(sum_of(profile_now(), "period"), 0);
    assert_true((double)sum_of(profile_now(), "allocated_bytes") >
                COUNT * SIZE * 0.8); /* it keeps sums */
    assert_int_equal(hak_profile_start(0), 0);
    assert_int_equal(sum_of(profile_now(), "period"), HAK_PROFILE_PERIOD);
    hak_profile_stop();
}

/* --- threads and forks --- */

/* --- misuse --- */

static char *sampled_block(void)
{
    static void *blocks[100];
    hak_profile_start(1); /* every block */
    for (size_t i = 0; i < 10000; i++) {
        hak_free(hak_malloc(100));
    }
    ALLOCATE_ALL(blocks, COUNT_OF(blocks), 200);
    return blocks[50];
}

static void free_twice(void *argument)
{
    char *block = hide(sampled_block());
    hak_free(block);
    hak_free(hide(block));
}

static void free_inside(void *argument)
{
    hak_free((char *)hide(sampled_block()) + 16);
}

TEST(misuse_of_sampled_blocks)
{
    REQUIRE_DEATH(free_twice, NULL, "^hakmem: fatal: .*double free.*pointer 0x[0-9a-f]+");
    REQUIRE_DEATH(free_inside, NULL,
                  "^hakmem: fatal: .*no object starts here.*pointer 0x[0-9a-f]+");
}

TESTS(NULL)
