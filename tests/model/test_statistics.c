/* SPDX-License-Identifier: MIT */
/* test_statistics.c: the statistics equal a shadow model's at rest, after each of 1,000 random
 * workloads: threads that allocate, resize and free, blocks that one thread allocates and another
 * frees, objects, spans, huge blocks, alignments. Some threads have ended then, others sleep with
 * what they have cached.
 *
 * ctest: no-secure */
#include "../report.h"

enum {
    WORKLOADS = SUPPORT_SLOW ? 60 : 1000,
    THREADS = 4,
    SLOTS = 96,
    STEPS = SUPPORT_SLOW ? 250 : 1000
};

static struct block {
    unsigned char *pointer;
    size_t size;
} slots[THREADS][SLOTS];

static struct worker {
    uint64_t random;
    unsigned index;
    unsigned largest; /* sizes are below 2 to this power */
    bool sleeps;      /* it stays alive while the figures are compared */
} workers[THREADS];
static pthread_barrier_t barrier;
static pthread_mutex_t locks[THREADS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                         PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static size_t draw_size(struct worker *worker)
{
    unsigned bits = random_below(&worker->random, 16) == 0 ? worker->largest : 13;
    return random_size(&worker->random, bits);
}

static void *draw_block(struct worker *worker, size_t size)
{
    size_t power = random_below(&worker->random, 14);
    switch (random_below(&worker->random, 6)) {
    case 0:
        return hak_calloc(1, size);
    case 1:
        return hak_memalign((size_t)16 << power, size);
    default:
        return hak_malloc(size);
    }
}

/* One step with a block, which may be another thread's. */
static void step(struct worker *worker)
{
    unsigned owner = random_below(&worker->random, 4) == 0
                         ? (unsigned)random_below(&worker->random, THREADS)
                         : worker->index;
    pthread_mutex_lock(&locks[owner]);
    struct block *block = &slots[owner][random_below(&worker->random, SLOTS)];
    size_t size = draw_size(worker);
    if (block->pointer == NULL) {
        *block = (struct block){draw_block(worker, size), size};
        REQUIRE(block->pointer != NULL);
        memset(block->pointer, 1, size < 100 ? size : 100);
    } else if (random_below(&worker->random, 3) == 0) {
        size += 1;
        *block = (struct block){hak_realloc(block->pointer, size), size};
        REQUIRE(block->pointer != NULL);
    } else {
        hak_free(block->pointer);
        block->pointer = NULL;
    }
    pthread_mutex_unlock(&locks[owner]);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (unsigned i = 0; i < STEPS; i++) {
        step(worker);
    }
    if (worker->sleeps) {
        pthread_barrier_wait(&barrier); /* at rest */
        pthread_barrier_wait(&barrier); /* the figures were compared */
    }
    return NULL;
}

struct model {
    size_t count;
    size_t bytes;
    size_t huge;
};

static struct model model_take(void)
{
    struct model model = {0, 0, 0};
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < SLOTS; j++) {
            if (slots[i][j].pointer != NULL) {
                size_t usable = hak_usable_size(slots[i][j].pointer);
                REQUIRE_SIZE(usable, >=, slots[i][j].size);
                model.count++;
                model.bytes += usable;
                model.huge += usable > 2 * MIB;
            }
        }
    }
    return model;
}

static void compare_totals(struct model model)
{
    struct hak_stats stats = stats_now();
    REQUIRE_SIZE(stats.objects_in_use_count, ==, model.count);
    REQUIRE_SIZE(stats.bytes_in_use, ==, model.bytes);
    REQUIRE_SIZE(stats.huge_count, >=, model.huge); /* small ones have large alignments */
    REQUIRE_SIZE(stats.bytes_mapped, ==,
                 stats.bytes_in_use + stats.bytes_cached + stats.bytes_free_in_slabs +
                     stats.bytes_free_dirty + stats.bytes_free_clean + stats.bytes_discarded);
    REQUIRE_SIZE(stats.peak_bytes_mapped, >=, stats.bytes_mapped + stats.bytes_metadata);
    REQUIRE_SIZE(stats.peak_bytes_taken, >=, stats.bytes_in_use);
}

static size_t value_of(const char *name)
{
    uint64_t value = 0;
    if (!hak_stats_value(name, &value)) {
        support_fail("there is no %s\n", name);
    }
    return (size_t)value;
}

/* Slabs, spans and huge blocks make up the mapped bytes; the classes make up the slabs. */
static void compare_parts(struct model model)
{
    struct collected *report = report_now();
    size_t in_use = report_number_in(report, "span_bytes") + report_number_in(report, "huge_bytes");
    size_t count = report_number_in(report, "spans_count") + report_number_in(report, "huge_count");
    size_t slab_bytes = 0;
    const char *at = strstr(report->text, "\"classes\": [");
    const char *end = strchr(at, ']');
    while ((at = strstr(at, "{\"object_bytes\": ")) != NULL && at < end) {
        size_t size = report_number_at(at, "object_bytes"),
               of_class = report_number_at(at, "in_use");
        size_t others = report_number_at(at, "cached") + report_number_at(at, "in_slabs") +
                        report_number_at(at, "not_carved");
        REQUIRE_SIZE((of_class + others) * size, <=, report_number_at(at, "slab_bytes"));
        slab_bytes += report_number_at(at, "slab_bytes");
        in_use += of_class * size;
        count += of_class;
        at++;
    }
    REQUIRE_SIZE(in_use, ==, model.bytes);
    REQUIRE_SIZE(count, ==, model.count);
    REQUIRE_SIZE(slab_bytes, ==, report_number_in(report, "slab_bytes"));
    REQUIRE_SIZE(value_of("totals.bytes_in_use"), ==, model.bytes);
}

static void compare_summary(void)
{
    struct hak_summary summary;
    if (hak_summary_read(&summary, sizeof summary)) {
        REQUIRE_SIZE(summary.rss, ==,
                     summary.in_use + summary.rounding + summary.thread_caches +
                         summary.free_in_slabs + summary.kept + summary.tables +
                         summary.not_hakmem);
        REQUIRE_SIZE(summary.in_use + summary.rounding, <=, stats_now().bytes_in_use + 64 * MIB);
    }
}

static void free_some(uint64_t *random)
{
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < SLOTS; j++) {
            if (random_below(random, 3) == 0) {
                hak_free(slots[i][j].pointer);
                slots[i][j].pointer = NULL;
            }
        }
    }
}

static void run_workload(uint64_t *random, unsigned number)
{
    pthread_t threads[THREADS];
    unsigned count = 1 + (unsigned)random_below(random, THREADS), sleeping = 0;
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){random_next(random), i, number % 8 == 0 ? 24 : 18,
                                     random_below(random, 2) == 0};
        sleeping += workers[i].sleeps;
    }
    REQUIRE(pthread_barrier_init(&barrier, NULL, sleeping + 1) == 0);
    for (unsigned i = 0; i < count; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!workers[i].sleeps) {
            REQUIRE(pthread_join(threads[i], NULL) == 0);
        }
    }
    pthread_barrier_wait(&barrier);
    struct model model = model_take();
    compare_totals(model);
    if (number % 10 == 0) {
        compare_parts(model);
        compare_summary();
    }
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < count; i++) {
        if (workers[i].sleeps) {
            REQUIRE(pthread_join(threads[i], NULL) == 0);
        }
    }
    pthread_barrier_destroy(&barrier);
    compare_totals(model);
    free_some(random);
    compare_totals(model_take());
}

TEST(statistics_are_the_models)
{
    uint64_t random = 20;
    for (unsigned number = 0; number < WORKLOADS; number++) {
        run_workload(&random, number);
        if (number % 100 == 99) {
            hak_trim(0);
            hak_stats_reset_peaks();
            compare_totals(model_take());
        }
    }
}

TESTS(NULL)
