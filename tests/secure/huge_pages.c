/* SPDX-License-Identifier: MIT */
/* huge_pages.c: slabs that end in a closed page get huge pages, too. For the secure form,
 * preloaded. A machine may have no huge page at the moment, so a round counts only if blocks
 * without closed pages get some, and one round is enough. */
#include "child.h"

enum { ROUNDS = 20, BYTES = 64 << 20, PAGE = 4096, SMALL = 1000, CLOSED = 9000 };

/* Minor faults of each hundred pages that blocks of `size` bytes fill. They are never freed. */
static long faults_of(size_t size)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t done = 0; done < BYTES; done += size) {
        void *block = malloc(size);
        if (block == NULL) {
            exit(3);
        }
        memset(block, 1, size);
    }
    getrusage(RUSAGE_SELF, &after);
    return (after.ru_minflt - before.ru_minflt) * 100 / (BYTES / PAGE);
}

/* A process of its own: random numbers, which fork would copy, choose where slabs lie. */
static void run_again(const void *nothing)
{
    execl("/proc/self/exe", "huge_pages", "fill", (char *)NULL);
    perror("execl");
}

int main(int count, char **arguments)
{
    if (count > 1) {
        long small = faults_of(SMALL);
        printf("%ld %ld\n", small, faults_of(CLOSED));
        return 0;
    }
    size_t tried = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        struct child child = run_child(run_again, NULL);
        long small = 100, closed = 100;
        if (sscanf(child.text, "%ld %ld", &small, &closed) != 2) {
            fprintf(stderr, "no faults were counted: %s\n", child.text);
            return 1;
        }
        if (closed <= 100) {
            return 0;
        }
        tried += small <= 50;
        fprintf(stderr, "faults of 100 pages: %ld, beside closed pages %ld\n", small, closed);
    }
    if (tried == ROUNDS) {
        fputs("blocks beside closed pages got no huge pages\n", stderr);
        return 1;
    }
    fputs("huge pages are short here\n", stderr);
    return 0;
}
