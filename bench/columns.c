/* SPDX-License-Identifier: MIT */
/* columns.c: a matrix whose rows are allocations of their own is read down its columns.
 *
 * Imitates: images, grids, tables and matrices of programs that keep an array of pointers to rows,
 * or a vector of vectors. Each round allocates ROWS rows of ROW bytes, fills them with doubles and
 * WALKS times adds up all columns, one after another; then the rows are freed. A step down a column
 * is a read of each row at the same distance from its start: where an allocator starts all rows at
 * the same places of a page (multiples of 4 KiB, say), these reads share one set of the first-level
 * cache, whatever its size, and often of the second, too.
 *
 * Does not show: the cost of malloc and free, although an operation is one of them, as everywhere;
 * nearly all of the time is the reads. Rows of other lengths, rows that are read along. Threads
 * (--threads N) have a matrix each.
 */
#include "harness.h"

enum { ROWS, ROW, ROUNDS, WALKS, SEED, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROWS, "rows of the matrix", 200, 50, 1, 1000000),
    BENCH_COUNT(ROW, "bytes of a row; whole doubles are used", 80000, 8000, sizeof(double),
                1000000000),
    BENCH_COUNT(ROUNDS, "matrices, one after another", 10, 2, 1, 1000000000),
    BENCH_COUNT(WALKS, "times that a matrix is read", 20, 2, 1, 1000000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("columns", "Reads a matrix, whose rows are allocations, down its columns.");

static void rows_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[ROWS].value * sizeof(double *));
}

/* Small whole numbers, so that any order of adding gives the same sum. Returns that. */
BENCH_INLINE double row_fill(double *row, size_t count, uint32_t *state)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        row[i] = (double)(bench_random(state) & 0xFF);
        sum += row[i];
    }
    return sum;
}

static void columns_run(struct bench_thread *thread)
{
    double **rows = thread->data;
    size_t row_count = arguments[ROWS].value;
    size_t column_count = arguments[ROW].value / sizeof **rows;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
        double expected = 0;
        for (size_t i = 0; i < row_count; i++) {
            rows[i] = bench_malloc(thread->latency, column_count * sizeof **rows);
            expected += row_fill(rows[i], column_count, &state);
        }
        for (uint64_t walk = 0; walk < arguments[WALKS].value; walk++) {
            double sum = 0;
            for (size_t column = 0; column < column_count; column++) {
                for (size_t i = 0; i < row_count; i++) {
                    sum += rows[i][column];
                }
            }
            if (!(sum >= expected && sum <= expected)) { /* not a number is a loss, too */
                bench_fail_run("a matrix has lost its contents.");
            }
        }
        for (size_t i = 0; i < row_count; i++) {
            bench_free(thread->latency, rows[i]);
        }
    }
    thread->operations = 2 * row_count * arguments[ROUNDS].value;
}

BENCH_MAIN(rows_map, columns_run, NULL)
