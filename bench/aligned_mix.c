/* SPDX-License-Identifier: MIT */
/* aligned_mix.c: blocks that must be aligned, among others that need not.
 *
 * Imitates: vector code (16 to 64 bytes), data of several threads padded to cache lines (64 and
 * 128), direct input and output and DMA buffers (512 and 4096), tables that want an alignment of
 * their own (64 KiB). Each step frees what is in a random one of WS slots and puts a new block
 * there: half of them by malloc, the other half aligned by a power of two, half of these by
 * posix_memalign with any size and half by aligned_alloc with a multiple of the alignment. The
 * smaller alignments are the more frequent; the size is the alignment and up to 1023 bytes more.
 * First and last byte are written, and the alignment is checked. The mix is the project's own.
 *
 * Does not show: large aligned blocks (beyond 64 KiB), memalign and C++'s aligned new, which
 * allocators serve the same way. Choosing the kind of call is a branch nobody can predict, the same
 * for all allocators. --threads N: WS slots of each thread, nothing is shared.
 */
#include "harness.h"

enum { STEPS, WS, SEED, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(STEPS, "steps of each thread", 15000000, 50000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WS, "slots of each thread", 1000, 1000, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("aligned_mix",
               "Replaces the block of a random slot by a plain or an aligned one, each step.");

/* Of 64 aligned blocks. Those of 64 KiB are rare: they are a hundred times the others' size. */
static const struct {
    uint32_t alignment;
    uint32_t weight;
} alignment_weights[] = {{16, 20}, {32, 14}, {64, 14}, {128, 6}, {512, 4}, {4096, 5}, {65536, 1}};

enum { ALIGNMENT_COUNT = 64 };
static uint32_t alignments[ALIGNMENT_COUNT];

static void alignments_fill(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof alignment_weights / sizeof alignment_weights[0]; i++) {
        for (uint32_t j = 0; j < alignment_weights[i].weight && count < ALIGNMENT_COUNT; j++) {
            alignments[count++] = alignment_weights[i].alignment;
        }
    }
}

static void *block_allocate(size_t alignment, size_t size, bool is_posix)
{
    void *block = NULL;
    if (is_posix) {
        return posix_memalign(&block, alignment, size) == 0 ? block : NULL;
    }
    return aligned_alloc(alignment, size);
}

BENCH_INLINE unsigned char *block_new_aligned(struct bench_latency *latency, size_t alignment,
                                              size_t size, bool is_posix)
{
    uint64_t start_ns = latency == NULL ? 0 : bench_now_ns();
    unsigned char *block = block_allocate(alignment, size, is_posix);
    if (latency != NULL) {
        bench_histogram_record(&latency->allocate, bench_now_ns() - start_ns);
    }
    if (block == NULL) {
        bench_fail_memory(size);
    }
    if (((uintptr_t)block & (alignment - 1)) != 0) {
        bench_fail_run("a block is not aligned as asked.");
    }
    return block;
}

BENCH_INLINE void slots_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **slots = thread->data;
    uint64_t step_count = arguments[STEPS].value;
    uint32_t slot_count = (uint32_t)arguments[WS].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < step_count; step++) {
        unsigned char **slot = &slots[bench_random_below(&state, slot_count)];
        uint32_t r = bench_random(&state);
        size_t extra = (r >> 8) & 1023;
        size_t size = 1 + extra;
        bench_free(latency, *slot);
        if ((r & 64) != 0) {
            size_t alignment = alignments[r % ALIGNMENT_COUNT];
            bool is_posix = (r & 128) != 0;
            size = alignment + (is_posix ? extra : extra & ~(alignment - 1));
            *slot = block_new_aligned(latency, alignment, size, is_posix);
        } else {
            *slot = bench_malloc(latency, size);
        }
        (*slot)[0] = (unsigned char)r;
        (*slot)[size - 1] = (unsigned char)r;
    }
    thread->operations = 2 * step_count;
}

/* Every slot starts with a small block, so that no step is without a free. */
static void slots_fill(struct bench_thread *thread)
{
    uint64_t slot_count = arguments[WS].value;
    unsigned char **slots = bench_map(slot_count * sizeof *slots);
    for (uint64_t i = 0; i < slot_count; i++) {
        slots[i] = bench_malloc(NULL, 16);
        slots[i][0] = 1;
    }
    thread->data = slots;
}

BENCH_MEASURE(slots_measure, slots_run)

static void slots_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    for (uint64_t i = 0; i < arguments[WS].value; i++) {
        free(slots[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slots_fill, slots_measure, slots_drain};
    bench_start(&workload, argc, argv);
    alignments_fill();
    bench_run(&phases);
    bench_report();
    return 0;
}
