/* SPDX-License-Identifier: MIT */
/* heaps.c: the secure form, preloaded, reports overflows, underflows, double frees and uses after
 * free of objects of heaps (hakmem/heap.h), and reports nothing else.
 *
 * Each case is a child process. The bytes that it writes differ from those that stand there. */

#include "child.h"

#include <hakmem/heap.h>

/* The preloaded library has them. */
#define HAS(name) extern __typeof__(name) name __attribute__((weak));
HAS(hak_heap_create)
HAS(hak_heap_destroy)
HAS(hak_heap_malloc)
HAS(hak_heap_calloc)
HAS(hak_heap_aligned_alloc)
HAS(hak_heap_realloc)
HAS(hak_heap_free)
HAS(hak_heap_free_sized)
HAS(hak_heap_usable_size)
HAS(hak_heap_walk)
HAS(hak_heap_trim)
HAS(hak_heap_move)

static void require(bool right, const char *what, size_t size)
{
    if (!right) {
        printf("size %zu: %s\n", size, what);
        fflush(stdout);
        exit(1);
    }
}

enum kind { OWN_CHUNKS, OWN_MEMORY, PROVIDER, KINDS };
enum { MEMORY_SIZE = 16 << 20 };

static void *provide(void *argument, size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

static void take_back(void *argument, void *address, size_t size)
{
    free(address);
}

static hak_heap *new_heap(enum kind kind)
{
    static const struct hak_heap_pages pages = {provide, take_back, NULL, NULL};
    struct hak_heap_options options = {.size = sizeof options};
    if (kind == OWN_MEMORY) {
        options.memory =
            mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        options.memory_size = MEMORY_SIZE;
        memset(options.memory, 0x5a, MEMORY_SIZE); /* its contents do not matter */
    }
    options.pages = kind == PROVIDER ? &pages : NULL;
    return hak_heap_create(&options);
}

/* --- bugs --- */

enum end { BY_FREE, BY_FREE_SIZED, BY_ANY_FREE, BY_REALLOC, BY_DESTROY, ENDS };

struct bug {
    size_t size, alignment;
    int at;    /* the first byte that is changed: from the start if below 0, else from the end */
    int count; /* bytes that are changed */
    enum kind kind;
    enum end end;
};

static void overrun(const void *argument)
{
    const struct bug *bug = argument;
    hak_heap *heap = new_heap(bug->kind);
    for (size_t i = 0; i < 3; i++) { /* it has neighbours */
        memset(hak_heap_malloc(heap, bug->size), 'x', bug->size);
    }
    unsigned char *object = hak_heap_aligned_alloc(heap, bug->alignment, bug->size);
    require(object != NULL, "no memory", bug->size);
    memset(object, 'x', bug->size);
    for (int i = 0; i < bug->count; i++) {
        object[bug->at < 0 ? (ptrdiff_t)bug->at + i : (ptrdiff_t)bug->size + bug->at + i] ^= 0x40;
    }
    switch (bug->end) {
    case BY_FREE:
        hak_heap_free(heap, object);
        break;
    case BY_FREE_SIZED:
        hak_heap_free_sized(heap, object, bug->alignment, bug->size);
        break;
    case BY_ANY_FREE:
        free(object);
        break;
    case BY_REALLOC:
        object = hak_heap_realloc(heap, object, bug->size + 1);
        break;
    case BY_DESTROY:
    case ENDS:
        hak_heap_destroy(heap);
        break;
    }
}

static const size_t sizes[] = {1,    8,    16,   24,    40,    100,    1000,   1024,
                               4072, 8000, 9999, 30000, 65000, 100000, 700000, 3000000};
static const size_t alignments[] = {16, 64, 4096, 65536};

static void check_overruns(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (unsigned j = 0; j < 24; j++) {
            static const int counts[] = {1, 8, 16};
            int count = counts[j % 3];
            bool before = j % 2 != 0;
            struct bug bug = {.size = sizes[i],
                              .alignment = j < 12 ? 16 : alignments[j % 4],
                              .at = before ? -count : 0,
                              .count = count,
                              .kind = (enum kind)((i + j / 2) % KINDS),
                              .end = (enum end)((i + j) % ENDS)};
            if (bug.kind != OWN_CHUNKS && bug.end == BY_ANY_FREE) {
                bug.end = BY_FREE; /* free knows only the default provider's */
            }
            if (bug.kind == OWN_MEMORY && bug.end == BY_DESTROY) {
                bug.end = BY_FREE; /* destroy does not look at the program's own memory */
            }
            struct child child = run_child(overrun, &bug);
            /* Destroy may first meet the link of a free neighbour that was hit, too. */
            const char *report = bug.end == BY_DESTROY && count > 8 ? "hakmem: fatal: "
                                 : before                           ? "hakmem: fatal: underflow: "
                                                                    : "hakmem: fatal: overflow: ";
            char name[32];
            snprintf(name, sizeof name, "size %zu, bug %u", sizes[i], j);
            require_case(name, &child, report, "");
        }
    }
}

static hak_heap *heap;
static char *object;

CASE(free_twice, "hakmem: fatal: double free")
{
    hak_heap_free(heap, object);
    hak_heap_free(heap, object);
}

CASE(realloc_freed, "hakmem: fatal: double free")
{
    hak_heap_free(heap, object);
    object = hak_heap_realloc(heap, object, 400);
}

CASE(write_after_free, "hakmem: fatal: use after free")
{
    hak_heap_free(heap, object);
    object[40] = 1;
    hide(hak_heap_malloc(heap, 200));
}

BUG_CASE(free_wrong_size, "hakmem: fatal: free with another size",
         hak_heap_free_sized(heap, object, 1, 199))

CASE(free_right_size, NULL)
{
    hak_heap_free_sized(heap, object, 1, 200);
    hide(hak_heap_malloc(heap, 200));
}

/* --- no false reports --- */

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 32) * below >> 32);
}

struct owned {
    unsigned char *start;
    size_t size, alignment;
};

static bool visit(void *start, size_t size, void *argument)
{
    struct owned *sum = argument;
    require(((unsigned char *)start)[size - 1] == (unsigned char)size, "visited", size);
    sum->size++;
    return true;
}

static void use_heap(enum kind kind)
{
    static struct owned owned[200];
    hak_heap *used = new_heap(kind);
    memset(owned, 0, sizeof owned);
    for (size_t i = 0; i < 6000; i++) {
        struct owned *place = &owned[draw(200)];
        size_t size = draw(8) != 0    ? 1 + draw(600)
                      : draw(20) != 0 ? 1 + draw(9000)
                                      : 1 + draw(400000);
        size_t old = place->size, kept = size < old ? size : old;
        size_t alignment = draw(4) == 0 ? (size_t)16 << draw(13) : 1;
        if (place->start == NULL) {
            place->start = hak_heap_aligned_alloc(used, alignment, size);
            place->alignment = alignment;
        } else if (draw(3) == 0) {
            place->start = hak_heap_realloc(used, place->start, size);
            place->alignment = 1;
            require(kept < 2 || place->start[kept / 2] == (unsigned char)old || kept / 2 + 1 == old,
                    "contents", size);
        } else if (draw(3) == 0) {
            place->start = hak_heap_move(used, place->start);
            require(place->start[old - 1] == (unsigned char)old, "moved", old);
            require((uintptr_t)place->start % place->alignment == 0, "moved, not aligned", old);
            continue;
        } else {
            hak_heap_free(used, place->start);
            *place = (struct owned){NULL, 0, 0};
            continue;
        }
        require(place->start != NULL || kind == OWN_MEMORY, "no memory", size);
        if (place->start != NULL) {
            place->size = size;
            require(hak_heap_usable_size(used, place->start) == size, "usable size", size);
            memset(place->start, (int)(unsigned char)size, size);
        }
    }
    struct owned seen = {NULL, 0, 0};
    size_t count = 0;
    for (size_t i = 0; i < 200; i++) {
        count += owned[i].start != NULL;
    }
    require(hak_heap_walk(used, visit, &seen) && seen.size == count, "objects seen", seen.size);
    hak_heap_trim(used);
    hak_heap_destroy(used);
}

/* Where no other object would fit, the object is resized at its place. */
static void resize_in_full_heap(void)
{
    static const size_t lengths[] = {1, 40, 200, 500, 800};
    hak_heap *full = new_heap(OWN_MEMORY);
    char *last = NULL, *next;
    while ((next = hak_heap_malloc(full, 900)) != NULL) {
        last = next;
    }
    while (hak_heap_malloc(full, 1) != NULL) {
    }
    memset(last, 'b', 900);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        require(hak_heap_realloc(full, last, lengths[i]) == last, "resized", lengths[i]);
        require(hak_heap_usable_size(full, last) == lengths[i], "exact", lengths[i]);
        require(*last == 'b', "contents", lengths[i]);
    }
    require(hak_heap_realloc(full, last, 9000) == NULL, "full", 9000);
    hak_heap_destroy(full);
}

int main(void)
{
    if (hak_heap_create == NULL) {
        fputs("heaps: hakmem does not serve this process\n", stderr);
        return 2;
    }
    for (enum kind kind = OWN_CHUNKS; kind < KINDS; kind++) {
        use_heap(kind);
    }
    resize_in_full_heap();
    check_overruns();
    heap = hak_heap_create(NULL);
    object = hak_heap_calloc(heap, 1, 200);
    hide(hak_heap_malloc(heap, 200)); /* keeps the slab */
    require_cases(run_case, "");
    return 0;
}
