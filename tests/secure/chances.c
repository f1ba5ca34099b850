/* SPDX-License-Identifier: MIT */
/* chances.c: how many mistakes of each kind the secure form, preloaded, reports (docs/security.md).
 *
 * Prints a table, and fails unless all are reported. Each mistake is made in a child process, which
 * must end by a report to count. Counts are of all places or all values, not of random ones: each
 * run gives the same. */

#include "child.h"
#include "hakmem/heap.h"

enum { NOTHING_CHANGED = 77, FREES = 4000, BLOCKS = 300 };

/* The preloaded library has them. */
extern __typeof__(hak_heap_create) hak_heap_create __attribute__((weak));
extern __typeof__(hak_heap_malloc) hak_heap_malloc __attribute__((weak));
extern __typeof__(hak_heap_free) hak_heap_free __attribute__((weak));
static hak_heap *heap;

struct column {
    size_t size;
    bool in_heap;
    const char *title;
};
static const struct column columns[] = {
    {24, false, "24"},          {1000, false, "1,000"},        {60000, false, "60,000"},
    {200001, false, "200,001"}, {3000001, false, "3,000,001"}, {100, true, "100 in a heap"}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static unsigned char *get(const struct column *column)
{
    unsigned char *block =
        hide(column->in_heap ? hak_heap_malloc(heap, column->size) : malloc(column->size));
    if (block == NULL) {
        exit(4);
    }
    return block;
}

static void give(const struct column *column, void *block)
{
    if (column->in_heap) {
        hak_heap_free(heap, hide(block));
    } else {
        free(hide(block));
    }
}

/* Makes the mistake number `number` of the kind. */
typedef void mistake(const struct column *column, size_t number);

static void change(unsigned char *byte, size_t value)
{
    if (*byte == value) {
        _exit(NOTHING_CHANGED);
    }
    *byte = (unsigned char)value;
}

static void behind(const struct column *column, size_t number)
{
    unsigned char *block = get(column);
    change(block + column->size, number);
    give(column, block);
}

static void before(const struct column *column, size_t number)
{
    unsigned char *block = get(column);
    change(block - 1, number);
    give(column, block);
}

static void twice(const struct column *column, size_t number)
{
    unsigned char *block = get(column), *other = get(column);
    give(column, block);
    for (size_t i = 0; i < number; i++) { /* of other sizes */
        free(hide(malloc(i * 40)));
    }
    give(column, block);
    give(column, other);
}

static void inside(const struct column *column, size_t number)
{
    give(column, get(column) + 1 + number);
}

static void write_freed(const struct column *column, size_t number)
{
    unsigned char *block = get(column), *other = get(column);
    give(column, block);
    block[number * (column->size / 24)] = 'n';
    for (size_t i = 0; i < FREES; i++) { /* ends its rest */
        give(column, get(column));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        get(column);
    }
    give(column, other);
}

/* Reads what it wrote itself: counts as found if it does not. */
static void read_freed(const struct column *column, size_t number)
{
    unsigned char *block = get(column);
    memset(block, 0xa5, column->size);
    give(column, block);
    size_t seen = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        const unsigned char *next = get(column);
        for (size_t at = 0; at < column->size && column->size < 100000; at++) {
            seen += next[at] == 0xa5;
        }
        seen += next[column->size / 2] == 0xa5 && next[column->size / 3] == 0xa5;
    }
    if (seen == 0) {
        fputs("hakmem: fatal: not a report, but nothing is left\n", stderr);
        abort();
    }
}

static const struct row {
    mistake *make;
    size_t count;
    const char *title;
} rows[] = {
    {behind, 256, "the byte after it changes, to each value"},
    {before, 256, "the byte before it changes, to each value"},
    {twice, 20, "it is freed twice, with 0 to 19 others between"},
    {inside, 23, "an address inside is freed, the first 23"},
    {write_freed, 24, "it is written to when free, at 24 places"},
    {read_freed, 1, "300 new blocks hold nothing of it"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

struct task {
    const struct row *row;
    const struct column *column;
    size_t number;
};

static void run_task(const void *argument)
{
    const struct task *task = argument;
    task->row->make(task->column, task->number);
}

/* Whether as many were found as docs/security.md says. */
static bool count_cell(const struct row *row, const struct column *column)
{
    size_t tried = 0, found = 0;
    for (size_t i = 0; i < row->count; i++) {
        struct task task = {row, column, i};
        struct child child = run_child(run_task, &task);
        bool ended = WIFSIGNALED(child.status) && strstr(child.text, "hakmem: fatal: ") != NULL;
        if (!ended &&
            (!WIFEXITED(child.status) ||
             (WEXITSTATUS(child.status) != 0 && WEXITSTATUS(child.status) != NOTHING_CHANGED))) {
            fprintf(stderr, "%s, %s, %zu: status %#x\n%s", row->title, column->title, i,
                    (unsigned)child.status, child.text);
            exit(1);
        }
        found += ended;
        tried += !WIFEXITED(child.status) || WEXITSTATUS(child.status) != NOTHING_CHANGED;
    }
    printf(" %zu of %zu |", found, tried);
    /* A byte changes to its own value in one of 128 children: each has canaries of its own. More
     * than 16 of 256 are not seen in 10^13 runs. */
    return tried + 16 >= row->count && found == tried;
}

int main(void)
{
    if (hak_heap_free == NULL) {
        fputs("chances: hakmem does not serve this process\n", stderr);
        return 2;
    }
    heap = hak_heap_create(NULL);
    printf("| mistakes noticed with a block of bytes |");
    for (size_t i = 0; i < COLUMNS; i++) {
        printf(" %s |", columns[i].title);
    }
    bool right = true;
    for (size_t i = 0; i < ROWS; i++) {
        printf("\n| %s |", rows[i].title);
        for (size_t j = 0; j < COLUMNS; j++) {
            right = count_cell(&rows[i], &columns[j]) && right;
        }
    }
    puts(right ? "" : "\nchances: docs/security.md says otherwise");
    return right ? 0 : 1;
}
