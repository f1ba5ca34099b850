/* SPDX-License-Identifier: MIT */
/* heap_map.h: the heap map, a JSON document that says what each slice of the heap is.
 * include/hakmem/stats.h has the function, and docs/observability/heap-picture.md the format. */
#ifndef HAK_OBSERVE_HEAP_MAP_H
#define HAK_OBSERVE_HEAP_MAP_H

#include "base/text.h"
#include "observe/heap_look.h"

/* The format's version. It changes when a reader of the earlier one would misread the document. */
#define HEAP_MAP_VERSION 1

/* Bytes of the longest description of a superslab's slices: 64 slabs, each of another heap and
 * class, take 30 bytes each. */
#define HEAP_MAP_SLICES_SIZE 2048

/* Appends the description of the slices, such as "h1z4u512x3u100f7s12d4". */
HAK_HIDDEN void hak__heap_map_put_slices(struct text *text, const struct heap_look *look);

#endif
