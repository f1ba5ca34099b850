/* SPDX-License-Identifier: MIT */
/* rings.c: the quarantine of the secure form, preloaded (cache/cache.h): no block is back before
 * half of its ring was freed, and each comes back; a thread's end, fork and trim lose none. */
#include "child.h"

#include "hakmem/hakmem.h"

/* The preloaded library has it. */
extern __typeof__(hak_trim) hak_trim __attribute__((weak));

enum { RING_BYTES = HAK_LEVEL >= 2 ? 4096 : 32768, ROUNDS = 200, BLOCKS = 200, PAGE = 4096 };

static size_t ring_places(size_t bytes)
{
    size_t power = 16;
    while (2 * power <= bytes) {
        power *= 2;
    }
    return RING_BYTES / power > 8 ? RING_BYTES / power : 8;
}

static void fail(const char *what, size_t size, size_t number)
{
    fprintf(stderr, "rings: %s: size %zu, %zu\n", what, size, number);
    exit(1);
}

static void none_is_back_early(size_t size)
{
    size_t places = ring_places(size + 8), back = 0;
    for (size_t round = 0; round < 20; round++) {
        void *block = hide(malloc(size));
        uintptr_t address = (uintptr_t)block;
        free(block);
        for (size_t i = 1; i < 40 * places; i++) {
            void *other = hide(malloc(size));
            bool is_back = (uintptr_t)other == address;
            free(other);
            if (is_back) {
                back++;
                if (i < places / 2) {
                    fail("back too early", size, i);
                }
                break;
            }
        }
    }
    if (back < 15) { /* the others lie in a slab, behind those that the bin holds */
        fail("blocks that came back, of 20", size, back);
    }
}

static void *use(void *unused)
{
    void *blocks[BLOCKS];
    (void)unused;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hide(malloc(PAGE / 2 + i * 16));
        memset(blocks[i], 'u', PAGE / 2);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    return NULL;
}

/* In pages. */
static size_t resident(void)
{
    size_t all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu %zu", &all, &pages) != 2) {
        exit(3);
    }
    fclose(file);
    return pages;
}

/* What each thread used is less than a tenth of what all would lose. */
static void threads_lose_nothing(void)
{
    use(NULL);
    size_t before = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, use, NULL) != 0 || pthread_join(thread, NULL) != 0) {
            exit(3);
        }
        before = i == ROUNDS / 10 ? resident() : before;
    }
    size_t lost = resident() - before;
    if (resident() > before && lost > ROUNDS * BLOCKS / 10) {
        fail("pages lost by threads", PAGE, lost);
    }
}

/* Double frees are noticed also in a child, whose own blocks come back. */
static void child_works(const void *unused)
{
    (void)unused;
    none_is_back_early(40);
    use(NULL);
}

int main(void)
{
    if (hak_trim == NULL) {
        fputs("rings: hakmem does not serve this process\n", stderr);
        return 2;
    }
    static const size_t sizes[] = {8, 24, 56, 100, 600, 1000, 2500, 5000, 30000, 60000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        none_is_back_early(sizes[i]);
    }
    threads_lose_nothing();
    struct child child = run_child(child_works, NULL);
    if (child.status != 0) {
        fprintf(stderr, "rings: child: status %#x\n%s", (unsigned)child.status, child.text);
        return 1;
    }
    hak_trim(0);
    use(NULL);
    hak_trim(0);
    none_is_back_early(24);
    return 0;
}
