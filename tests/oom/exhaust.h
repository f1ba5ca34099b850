/* SPDX-License-Identifier: MIT */
/* exhaust.h: uses up all memory a limit leaves, again and again in other shapes, and watches every
 * answer. */
#ifndef TESTS_OOM_EXHAUST_H
#define TESTS_OOM_EXHAUST_H

#include "../child.h"

struct node {
    struct node *next;
    size_t size;
};

/* Allocates objects of `size` bytes until there are no more, touching the first bytes of each; the
 * usable total. */
static inline size_t fill_memory(size_t size, struct node **head)
{
    size_t total = 0;
    for (;;) {
        errno = 0;
        struct node *node = hak_malloc(size);
        if (node == NULL) {
            REQUIRE(errno == ENOMEM);
            return total;
        }
        node->next = *head;
        node->size = size;
        *head = node;
        total += hak_usable_size(node);
        REQUIRE_SIZE(total, <, 64 * GIB); /* there is a limit, and it holds */
    }
}

static inline void free_memory(struct node **head)
{
    while (*head != NULL) {
        struct node *next = (*head)->next;
        errno = ERRNO_UNTOUCHED;
        hak_free(*head);
        REQUIRE(errno == ERRNO_UNTOUCHED);
        *head = next;
    }
}

/* With nothing left, every function fails cleanly; a block in hand stays as it is. */
static inline void check_failures(struct node *block, size_t too_large)
{
    void *result = (void *)0x1234;
    size_t usable = hak_usable_size(block);
    struct node before = *block;
    errno = 0;
    REQUIRE(hide(hak_realloc(block, too_large)) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(hide(hak_reallocarray(block, too_large / 16, 16)) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(hide(hak_malloc(too_large)) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(hide(hak_calloc(1, too_large)) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(hide(hak_aligned_alloc(4096, too_large)) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(hide(hak_memalign(too_large & ~(too_large - 1), 1)) != block);
    errno = ERRNO_UNTOUCHED;
    REQUIRE(hak_posix_memalign(&result, 64, too_large) == ENOMEM);
    REQUIRE(result == (void *)0x1234 && errno == ERRNO_UNTOUCHED);
    errno = 0;
    REQUIRE(hide(hak_pvalloc(too_large)) == NULL && errno == ENOMEM);
    REQUIRE(hak_usable_size(block) == usable);
    REQUIRE(memcmp(&before, block, sizeof before) == 0);
}

/* `available` bytes are left under the limit. Small, one large, small of another size, spans,
 * huge blocks, small again: each time nearly all of it can be had. */
static inline void exhaust_memory(size_t available)
{
    struct node *head = NULL;
    size_t small =
        available > 300 * MIB || SUPPORT_SLOW ? 16000 : 250; /* limits the number of objects */
    size_t first = fill_memory(small, &head);
    REQUIRE_SIZE(first, >=, available / 100 * 65);
    REQUIRE_SIZE(first, <=,
                 available + 32 * MIB); /* some was the library's before the limit came */
    check_failures(head, available * 2);
    check_failures(head, available * 2 + 4097);
    free_memory(&head);

    char *half = hak_malloc(available / 2);
    REQUIRE(half != NULL);
    half[0] = half[available / 2 - 1] = 1;
    hak_free(half);
    static const size_t sizes[] = {3008, 16000, 72000, 300 * KIB, 1500 * KIB, 3 * MIB, 100000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t total = fill_memory(sizes[i], &head);
        if (total < available / 100 * 60) {
            support_fail("only %zu of %zu KiB could be had as blocks of %zu bytes\n", total / KIB,
                         available / KIB, sizes[i]);
        }
        check_failures(head, available * 2);
        free_memory(&head);
    }
    half = hak_calloc(1, available / 2);
    REQUIRE(half != NULL);
    REQUIRE(nonzero_offset(half, available / 2) == SIZE_MAX);
    hak_free(half);
    size_t last = fill_memory(small, &head);
    REQUIRE_SIZE(last, >=, first / 100 * 90);
    free_memory(&head);
}

#endif
