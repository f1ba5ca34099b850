/* SPDX-License-Identifier: MIT */
/* list.h: lists of structs with links to the next and the previous one, NULL at the ends. `first`
 * points to the first item, and is evaluated several times. The caller holds what guards them. */
#ifndef HAK_BASE_LIST_H
#define HAK_BASE_LIST_H

/* The links are the fields `next` and `previous`. */
#define LIST_PUSH(first, item) LIST_PUSH_BY(first, item, next, previous)
#define LIST_REMOVE(first, item) LIST_REMOVE_BY(first, item, next, previous)

#define LIST_PUSH_BY(first, item, next_field, previous_field)                                      \
    do {                                                                                           \
        (item)->previous_field = NULL;                                                             \
        (item)->next_field = (first);                                                              \
        if ((first) != NULL) {                                                                     \
            (first)->previous_field = (item);                                                      \
        }                                                                                          \
        (first) = (item);                                                                          \
    } while (0)

#define LIST_REMOVE_BY(first, item, next_field, previous_field)                                    \
    do {                                                                                           \
        if ((item)->previous_field != NULL) {                                                      \
            (item)->previous_field->next_field = (item)->next_field;                               \
        } else {                                                                                   \
            (first) = (item)->next_field;                                                          \
        }                                                                                          \
        if ((item)->next_field != NULL) {                                                          \
            (item)->next_field->previous_field = (item)->previous_field;                           \
        }                                                                                          \
    } while (0)

#endif
