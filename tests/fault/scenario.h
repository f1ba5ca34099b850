/* SPDX-License-Identifier: MIT */
/* scenario.h: what is done while system calls fail, and what must be true afterwards.
 *
 * A scenario is played in a process of its own for every plan: first without faults, to count its
 * calls, then with the first, second, third ... of each kind failing with each errno, alone or with
 * all after it. While it plays, what cannot be had is NULL with ENOMEM, blocks keep their contents
 * and a free keeps errno. Afterwards everything works again, and nothing is missing: rest_check.
 */
#ifndef TESTS_FAULT_SCENARIO_H
#define TESTS_FAULT_SCENARIO_H

#include "../unit/unit.h"
#include "fault.h"

/* --- blocks --- */

struct held {
    unsigned char *block; /* NULL: none */
    size_t size;
};

enum { HELD_MAX = 4096 };
static struct held held_blocks[HELD_MAX];
static size_t held_failures; /* allocations that got NULL */

/* Whole small blocks, of larger ones a word every so often: faulting in all their pages costs more
 * than all else. */
#define HELD_WHOLE (4 * KIB)
#define HELD_STEP (256 * KIB)

static inline uint64_t held_word(size_t index, size_t at)
{
    return (index + 1) * PATTERN_STEP + at;
}

static inline void held_write(size_t index)
{
    struct held *held = &held_blocks[index];
    if (held->size <= HELD_WHOLE) {
        pattern_fill(held->block, held->size, index);
        return;
    }
    for (size_t at = 0; at + 8 < held->size; at += HELD_STEP) {
        uint64_t word = held_word(index, at);
        memcpy(held->block + at, &word, 8);
    }
    held->block[held->size - 1] = (unsigned char)index; /* no word reaches it */
}

/* The first `size` bytes of what was written when it had `written` bytes. */
static inline void held_check(size_t index, const unsigned char *block, size_t written, size_t size)
{
    if (written <= HELD_WHOLE) {
        REQUIRE(pattern_mismatch(block, size & ~(size_t)7, index) == SIZE_MAX);
        return;
    }
    for (size_t at = 0; at + 8 < size; at += HELD_STEP) {
        uint64_t word;
        memcpy(&word, block + at, 8);
        REQUIRE(word == held_word(index, at));
    }
    REQUIRE(size < written || block[written - 1] == (unsigned char)index);
}

static inline void held_check_zero(const unsigned char *block, size_t size)
{
    if (size <= 64 * KIB) {
        REQUIRE(nonzero_offset(block, size) == SIZE_MAX);
        return;
    }
    for (size_t at = 0; at < size; at += HELD_STEP / 8) {
        REQUIRE(block[at] == 0);
    }
    REQUIRE(block[size - 1] == 0);
}

/* Takes the answer of an allocation: a block, or NULL and ENOMEM. */
static inline bool held_put(size_t index, void *block, size_t size)
{
    int error = errno;
    REQUIRE_SIZE(index, <, HELD_MAX);
    REQUIRE(held_blocks[index].block == NULL);
    if (block == NULL) {
        REQUIRE(error == ENOMEM);
        held_failures++;
        return false;
    }
    REQUIRE_SIZE(hak_usable_size(block), >=, size);
    held_blocks[index] = (struct held){block, size};
    held_write(index);
    return true;
}

static inline bool try_malloc(size_t index, size_t size)
{
    errno = 0;
    return held_put(index, hak_malloc(size), size);
}

static inline bool try_calloc(size_t index, size_t size)
{
    errno = 0;
    unsigned char *block = hak_calloc(1, size);
    if (block != NULL && size != 0) {
        held_check_zero(block, size);
    }
    return held_put(index, block, size);
}

static inline bool try_aligned(size_t index, size_t alignment, size_t size)
{
    void *block = NULL;
    if (index % 2 == 0) {
        errno = 0;
        block = hak_aligned_alloc(alignment, size);
    } else {
        errno = ERRNO_UNTOUCHED;
        int result = hak_posix_memalign(&block, alignment, size);
        REQUIRE(errno == ERRNO_UNTOUCHED && (result == 0 || result == ENOMEM));
        REQUIRE((result == 0) == (block != NULL));
        errno = result;
    }
    REQUIRE(is_aligned(block, alignment));
    return held_put(index, block, size);
}

static inline void drop(size_t index)
{
    struct held *held = &held_blocks[index];
    if (held->block != NULL) {
        held_check(index, held->block, held->size, held->size);
        errno = ERRNO_UNTOUCHED;
        hak_free(held->block);
        REQUIRE(errno == ERRNO_UNTOUCHED);
        held->block = NULL;
    }
}

/* On failure the old block is as it was. */
static inline bool try_realloc(size_t index, size_t size)
{
    struct held *held = &held_blocks[index];
    if (held->block == NULL) {
        return try_malloc(index, size);
    }
    size_t old_size = held->size;
    errno = 0;
    unsigned char *block = hak_realloc(held->block, size);
    if (block == NULL) {
        REQUIRE(errno == ENOMEM && size > old_size);
        held_failures++;
        held_check(index, held->block, old_size, old_size);
        return false;
    }
    held_check(index, block, old_size, size < old_size ? size : old_size);
    *held = (struct held){block, size};
    held_write(index);
    return true;
}

static inline void drop_all(void)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        drop(i);
    }
}

/* What is allocated now stays to the process's end, and as it is. */
static struct held kept_blocks[HELD_MAX];

static inline void keep_all(void)
{
    memcpy(kept_blocks, held_blocks, sizeof held_blocks);
    memset(held_blocks, 0, sizeof held_blocks);
}

static inline void kept_check(void)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        const struct held *kept = &kept_blocks[i];
        if (kept->block != NULL) {
            held_check(i, kept->block, kept->size, kept->size);
        }
    }
}

/* --- rest --- */

struct rest {
    size_t objects_in_use;
    size_t bytes_in_use;
    size_t region_bytes_taken;
};

/* Bytes of the window that /proc/self/maps knows. */
static inline size_t rest_window_bytes_mapped(void)
{
    static char text[1 << 19];
    size_t bytes = 0;
    size_t length = support_read_file("/proc/self/maps", text, sizeof text);
    REQUIRE_SIZE(length, <, sizeof text - 1);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        char *end_text;
        uintptr_t start = strtoull(line, &end_text, 16);
        uintptr_t end = strtoull(end_text + 1, NULL, 16);
        uintptr_t low = hak__window.base, high = hak__window.base + hak__window.size;
        start = start < low ? low : start;
        end = end > high ? high : end;
        bytes += start < end ? end - start : 0;
    }
    return bytes;
}

/* The library says of every byte that it has mapped what it is for, but for `lost_most` bytes, and
 * of no byte more. */
static inline void rest_check_mapped(size_t lost_most)
{
    struct hak_stats stats = stats_now();
    REQUIRE_SIZE((size_t)fault_ledger - (stats.bytes_mapped + stats.bytes_metadata), <=, lost_most);
    REQUIRE_SIZE(rest_window_bytes_mapped(), ==, hak__superslab_bytes_claimed());
}

/* A process that has not begun is left so. */
static inline struct rest rest_now(void)
{
    if (hak__window.shared_limit != 0) {
        hak__arena_reclaim(true); /* at level 2 walks every slab */
        hak__arena_reclaim(true); /* what the first one's own work left */
    }
    REQUIRE(hak__own.held == 0);
    rest_check_mapped(0);
    struct hak_stats stats = stats_now();
    return (struct rest){stats.objects_in_use_count, stats.bytes_in_use,
                         hak__superslab_bytes_claimed() - hak__superslab_bytes_free()};
}

/* As before, all that was allocated since is freed: nothing is lost. */
static inline void rest_check(const struct rest *before)
{
    struct rest now = rest_now();
    REQUIRE_SIZE(now.objects_in_use, ==, before->objects_in_use);
    REQUIRE_SIZE(now.bytes_in_use, ==, before->bytes_in_use);
    REQUIRE_SIZE(now.region_bytes_taken, <=, before->region_bytes_taken);
}

/* --- afterwards --- */

enum { HELD_SPARE = HELD_MAX - 64 }; /* scenarios use less */

static inline void recover_all_sizes(void)
{
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        REQUIRE(try_malloc(HELD_SPARE + i, tier_sizes[i]));
    }
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        size_t more = tier_sizes[i] < 128 * KIB ? tier_sizes[i] / 2 + 1 : 5000;
        REQUIRE(try_realloc(HELD_SPARE + i, tier_sizes[i] + more));
    }
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        drop(HELD_SPARE + i);
        REQUIRE(try_calloc(HELD_SPARE + i, tier_sizes[i]));
        drop(HELD_SPARE + i);
    }
}

/* A lock that was left behind would stop it, and SIGALRM then the process. */
static inline void *recover_other_thread(void *argument)
{
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL);
        hak_free(block);
    }
    return NULL;
}

static inline void recover(void)
{
    pthread_t thread;
    hak__knobs.purge_delay_ms = UINT32_MAX; /* the same again and again costs time */
    recover_all_sizes();
    REQUIRE(pthread_create(&thread, NULL, recover_other_thread, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* --- the driver --- */

struct scenario {
    const char *name;
    void (*prepare)(void); /* NULL: the library has not begun */
    void (*play)(void);
    bool has_threads; /* or may differ from run to run: a plan's call may not come */
};

struct scenario_run {
    const struct scenario *scenario;
    struct fault_plan plan;
    struct rest before;
};

/* What a process that played tells the one that sent it. */
struct scenario_counts {
    uint64_t counts[FAULT_CALLS];
    uint64_t firsts[FAULT_CALLS][FAULT_FIRSTS_MAX]; /* where a call site came first; 0: none */
    uint64_t fired;
    uint64_t failures;
};
static struct scenario_counts *scenario_counts;

static inline void scenario_play(void *argument)
{
    struct scenario_run *run = argument;
    const struct scenario *scenario = run->scenario;
    alarm(240); /* against a hang */
    fault_arm(run->plan, 0);
    scenario->play();
    fault_disarm();
    memcpy(scenario_counts->counts, fault_counts, sizeof fault_counts);
    for (uint32_t call = 0; run->plan.calls == 0 && call < FAULT_CALLS; call++) {
        for (size_t i = 0; i < FAULT_FIRSTS_MAX; i++) {
            scenario_counts->firsts[call][i] = fault_firsts[call][i].nth;
        }
    }
    scenario_counts->fired = fault_fired_count;
    scenario_counts->failures = held_failures;
    drop_all();
    rest_check(&run->before);
    recover();
    drop_all();
    rest_check(&run->before);
    kept_check();
}

/* True when the plan's calls came. */
static inline bool scenario_try(struct scenario_run *run)
{
    struct child_end end;
    child_fork(scenario_play, run, &end);
    if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0 || end.length != 0) {
        support_fail("%s: calls %#x, number %u%s, errno %d: status %#x\n%s", run->scenario->name,
                     run->plan.calls, run->plan.nth, run->plan.on ? " and all after it" : "",
                     run->plan.error, (unsigned)end.status, end.text);
    }
    return scenario_counts->fired != 0;
}

static inline bool scenario_is_first(const uint64_t *firsts, uint64_t nth)
{
    for (size_t i = 0; firsts != NULL && i < FAULT_FIRSTS_MAX; i++) {
        if (firsts[i] == nth) {
            return true;
        }
    }
    return false;
}

static inline void scenario_vary_one(struct scenario_run *run, uint32_t calls, uint64_t nth,
                                     const int *errors, bool everything, bool once_only)
{
    size_t errors_count = 1;
    while (everything && errors_count < FAULT_ERRORS_MAX && errors[errors_count] != 0) {
        errors_count++;
    }
    for (size_t i = 0; i < errors_count; i++) {
        for (int on = 0; on < (once_only || !everything ? 1 : 2); on++) {
            run->plan = (struct fault_plan){calls, (uint32_t)nth, errors[i], on != 0, 0};
            bool fired = scenario_try(run);
            if (!fired && !run->scenario->has_threads) {
                support_fail("%s: calls %#x, number %u: it did not come\n", run->scenario->name,
                             calls, (unsigned)nth);
            }
        }
    }
}

/* The first occurrence of each call site (`firsts`, or NULL) fails in all ways, and now and then
 * another one in the likeliest: more where more is checked than the answers. */
static inline void scenario_vary(struct scenario_run run, uint32_t calls, uint64_t count,
                                 const uint64_t *firsts, const int *errors, bool once_only)
{
    uint64_t step = count / (HAK_LEVEL == 0 ? 2 : 4) + 1;
    for (uint64_t nth = 1; nth <= count; nth++) {
        bool first = nth == 1 || scenario_is_first(firsts, nth);
        if (first || nth % step == 0) {
            scenario_vary_one(&run, calls, nth, errors, first, once_only);
        }
    }
}

static inline void scenario_all_plans(void *argument)
{
    struct scenario_run run = {.scenario = argument};
    alarm(0);
    if (run.scenario->prepare != NULL) {
        run.scenario->prepare();
    }
    run.before = rest_now();
    REQUIRE(!scenario_try(&run));
    REQUIRE(scenario_counts->failures == 0);
    const struct scenario_counts whole = *scenario_counts;
    const uint64_t *counts = whole.counts;
    uint64_t memory_count = 0;
    for (uint32_t call = 0; call < FAULT_CALLS; call++) {
        const struct fault_kind *kind = &fault_kinds[call];
        if (kind->errors[0] != 0) {
            scenario_vary(run, FAULT_SET(call), counts[call], whole.firsts[call], kind->errors,
                          kind->once_only);
        }
        memory_count += (FAULT_MEMORY_SET & FAULT_SET(call)) != 0 ? counts[call] : 0;
    }
    /* the kernel refuses everything */
    static const int each_its_own[FAULT_ERRORS_MAX] = {0};
    scenario_vary(run, FAULT_MEMORY_SET, memory_count, NULL, each_its_own, false);
}

static inline void scenario_require_all(const struct scenario *scenarios, size_t count)
{
    scenario_counts = __real_mmap(NULL, sizeof *scenario_counts, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(scenario_counts != MAP_FAILED);
    for (size_t i = 0; i < count; i++) {
        REQUIRE_LIFE(scenario_all_plans, (void *)(uintptr_t)&scenarios[i], NULL);
    }
}

#endif
