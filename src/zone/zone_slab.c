/* SPDX-License-Identifier: MIT */
/* zone_slab.c: slabs of a zone: runs of pages that hold objects of one class. See zone.h.
 *
 * A slab with room is in its class's list. An empty one becomes a free run, unless it is the last
 * of its list: then the next refill of the class would have to make it again. */
#include "zone/zone_secure.h"

#include "base/bits.h"
#include "base/list.h"

/* Ends the process unless the slab, an item of its class's list, is one. Returns its pages. */
static size_t zone_slab_check(const struct hak_heap *zone, const struct zone_page *slab)
{
    const struct zone_chunk *chunk = zone_chunk_of(zone, slab);
    zone_check_chunk(zone, chunk);
    size_t pages = hak__zone_pages(zone, chunk, slab);
    if (HAK_UNLIKELY(slab->kind != PAGE_SLAB)) {
        hak__zone_corrupt(zone, slab);
    }
    return pages;
}

static void zone_slab_unlist(struct hak_heap *zone, struct zone_page *slab)
{
    struct zone_class *zone_class = &zone->classes[slab->class_index];
    hak__zone_check_links(zone, zone_class->first, slab);
    LIST_REMOVE(zone_class->first, slab);
}

/* Objects that a new slab should hold. */
static size_t zone_slab_objects(const struct hak_heap *zone, size_t bytes)
{
    if (zone->slab_bytes < ZONE_SLAB_BYTES) { /* a small zone: its pages are scarce */
        return bytes < zone->slab_bytes ? zone->slab_bytes / bytes : 1;
    }
    size_t least = bytes <= ZONE_SLAB_MANY_SIZE ? ZONE_SLAB_MANY : ZONE_SLAB_FEW;
    return bytes * least < zone->slab_bytes ? zone->slab_bytes / bytes : least;
}

/* Makes a slab of the class, if need be of a single object. NULL: no run of pages fits. */
static struct zone_page *zone_slab_make(struct hak_heap *zone, uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    size_t pages = zone_pages_for(zone_slab_objects(zone, bytes) * bytes);
    struct zone_page *slab = hak__zone_run_take(zone, pages, 1);
    if (slab == NULL) {
        pages = zone_pages_for(bytes);
        slab = hak__zone_run_take(zone, pages, 1);
        if (slab == NULL) {
            return NULL;
        }
    }
    for (size_t i = 1; i < pages; i++) {
        slab[i].kind = PAGE_INSIDE;
        slab[i].class_index = (uint8_t)class_index;
        slab[i].back = (uint32_t)i;
    }
    struct zone_class *zone_class = &zone->classes[class_index];
    slab->kind = PAGE_SLAB;
    slab->class_index = (uint8_t)class_index;
    slab->capacity = (uint16_t)((pages << ZONE_PAGE_SHIFT) / bytes);
    slab->free_list = NULL;
    slab->used_count = 0;
    slab->carved_count = 0;
    LIST_PUSH(zone_class->first, slab);
    zone_class->slabs_count++;
    zone_class->slab_bytes += pages << ZONE_PAGE_SHIFT;
    return slab;
}

/* Makes an empty slab's pages free. */
static void zone_slab_release(struct hak_heap *zone, struct zone_page *slab)
{
    size_t pages = zone_slab_check(zone, slab);
    struct zone_class *zone_class = &zone->classes[slab->class_index];
    zone_slab_unlist(zone, slab);
    for (size_t i = 1; i < pages; i++) {
        slab[i].class_index = 0;
    }
    zone_class->slabs_count--;
    zone_class->slab_bytes -= pages << ZONE_PAGE_SHIFT;
    hak__zone_run_give(zone, slab, pages);
}

/* Takes up to `most` free objects of the slab's list, before those of `list`, and gives them
 * `mark`. */
static void zone_slab_cut(const struct hak_heap *zone, struct zone_page *slab, uint32_t most,
                          struct object_list *list, uintptr_t mark)
{
    struct object *first = slab->free_list, *last = NULL, *object = first;
    uintptr_t start = (uintptr_t)zone_page_start(zone_chunk_of(zone, slab), slab);
    size_t length = slab->carved_count * size_class_bytes(slab->class_index);
    uint32_t count = 0;
    for (; object != NULL && count < most; count++) {
        if (HAK_UNLIKELY((uintptr_t)object - start >= length ||
                         !zone_object_is_marked(object, hak__window.mark))) {
            hak__object_is_wrong(object);
        }
        zone_object_set_free(object, object->next, mark);
        last = object;
        object = object->next;
    }
    if (last != NULL) {
        slab->free_list = object;
        zone_object_set_free(last, list->head, mark);
        *list = (struct object_list){first, list->count + count};
    }
}

/* Carves up to `most` objects, before those of `list`, and gives them `mark`. Their order is that
 * of their addresses. */
static void zone_slab_carve(const struct hak_heap *zone, struct zone_page *slab, uint32_t most,
                            struct object_list *list, uintptr_t mark)
{
    size_t bytes = size_class_bytes(slab->class_index);
    uint32_t left = (uint32_t)slab->capacity - slab->carved_count;
    uint32_t count = left < most ? left : most;
    unsigned char *start = zone_page_start(zone_chunk_of(zone, slab), slab);
    unsigned char *first = start + slab->carved_count * bytes, *last = first + (count - 1) * bytes;
    for (uint32_t i = 0; HAK_SECURE && i < count; i++) {
        *zone_last_word(first + i * bytes, bytes) = 0; /* not one that was freed and is clear */
    }
    for (unsigned char *at = first; at != last; at += bytes) {
        zone_object_set_free((struct object *)(void *)at, (struct object *)(void *)(at + bytes),
                             mark);
    }
    zone_object_set_free((struct object *)(void *)last, list->head, mark);
    list->head = (struct object *)(void *)first;
    slab->carved_count = (uint16_t)(slab->carved_count + count);
    list->count += count;
}

/* Takes up to `most` objects of a slab with room, at least one, before those of `list`. */
static void zone_slab_pop(struct hak_heap *zone, struct zone_page *slab, uint32_t most,
                          struct object_list *list, uintptr_t mark)
{
    struct zone_class *zone_class = &zone->classes[slab->class_index];
    uint32_t before = list->count;
    if (slab->free_list != NULL) {
        zone_slab_cut(zone, slab, most, list, mark);
    } else if (HAK_UNLIKELY(slab->carved_count == slab->capacity)) { /* it has no room */
        hak__zone_corrupt(zone, slab);
    } else {
        zone_slab_carve(zone, slab, most, list, mark);
    }
    zone_class->out_count += list->count - before;
    slab->used_count = (uint16_t)(slab->used_count + list->count - before);
    if (slab->used_count == slab->capacity) {
        zone_slab_unlist(zone, slab);
    }
}

struct object_list hak__zone_slab_take(struct hak_heap *zone, uint32_t class_index, uint32_t most,
                                       uintptr_t mark)
{
    struct object_list list = {NULL, 0};
    struct zone_class *zone_class = &zone->classes[class_index];
    if (zone_class->first == NULL) { /* a refill may be short, and makes no second slab */
        (void)zone_slab_make(zone, class_index);
    }
    while (zone_class->first != NULL && list.count < most) {
        struct zone_page *slab = zone_class->first;
        (void)zone_slab_check(zone, slab);
        if (HAK_UNLIKELY(slab->class_index != class_index)) {
            hak__zone_corrupt(zone, slab);
        }
        zone_slab_pop(zone, slab, most - list.count, &list, mark);
    }
    return list;
}

void hak__zone_slab_return(struct hak_heap *zone, struct zone_page *slab, struct object_list list,
                           struct object *last)
{
    struct zone_class *zone_class = &zone->classes[slab->class_index];
    HAK_ASSERT(slab->kind == PAGE_SLAB && slab->used_count >= list.count);
    zone_object_set_free(last, slab->free_list, hak__window.mark);
    slab->free_list = list.head;
    zone_class->out_count -= list.count;
    if (slab->used_count == slab->capacity) {
        LIST_PUSH(zone_class->first, slab);
    }
    slab->used_count = (uint16_t)(slab->used_count - list.count);
    if (slab->used_count == 0 && (slab->next != NULL || slab->previous != NULL)) {
        zone_slab_release(zone, slab);
    }
}

void hak__zone_slab_gather(struct hak_heap *zone)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct zone_page *slab = zone->classes[class_index].first;
        while (slab != NULL) {
            struct zone_page *next = hak__zone_next(zone, slab);
            if (slab->used_count == 0) {
                zone_slab_release(zone, slab);
            }
            slab = next;
        }
    }
}

struct object *hak__zone_slab_take_fuller(struct hak_heap *zone, struct zone_page *slab,
                                          bool really)
{
    struct zone_page *best = NULL, *other = zone->classes[slab->class_index].first;
    for (uint32_t looks = 0; other != NULL && looks < ZONE_MOVE_LOOKS; looks++) {
        bool fuller = other != slab && other->used_count >= slab->used_count;
        if (fuller && (best == NULL || other->used_count > best->used_count)) {
            best = other;
        }
        other = hak__zone_next(zone, other);
    }
    if (best == NULL) {
        return NULL;
    }
    struct object_list list = {NULL, 0};
    if (really) {
        (void)zone_slab_check(zone, best);
        if (HAK_UNLIKELY(best->class_index != slab->class_index)) {
            hak__zone_corrupt(zone, best);
        }
        zone_slab_pop(zone, best, 1, &list, hak__window.mark);
    }
    return really ? list.head : (struct object *)(void *)best;
}
