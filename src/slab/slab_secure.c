/* SPDX-License-Identifier: MIT */
/* slab_secure.c: what is different in the slabs of the secure form (region/secure.h): links with a
 * key, room before the first object, a closed last page, a rest for emptied slabs, and objects that
 * are handed out in random order. Only in the secure form. */
#include "os/os.h"
#include "region/superslab.h"
#include "slab/slab_lists.h"

static void *slab_end_page(const struct slab *slab)
{
    return slab_start(slab) + slab->slice_count * SLICE_SIZE - hak__os_page_size();
}

/* Bytes from a slab's start to its first object: room for the word before that object. The objects
 * keep their alignment: the largest power of two that divides their size, or a cache line in
 * classes that may have colors (core/size_class.h). */
static uint32_t slab_first(size_t slice, uint32_t class_index)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    if (class_index > TINY_CLASS_COUNT && class_index < ROUND_CLASS_FIRST) {
        uint32_t colors = size_class->colors;
        return HAK_CACHE_LINE + window_slice_color(slice, colors - (colors > 1));
    }
    uint32_t room = size_class->object_size & (~size_class->object_size + 1);
    return room < SLICE_SIZE ? room : SLICE_SIZE;
}

void hak__slab_begin_secure(struct slab *slab)
{
    size_t page = hak__os_page_size(), size = size_class_bytes(slab->class_index);
    size_t slice = slab_slice(slab);
    hak__secure_new_keys(slice, slab->slice_count);
    slab->first = (uint16_t)slab_first(slice, slab->class_index);
    slab->closed_end = false;
    bool limited = atomic_load_relaxed(&hak__superslabs.limited) != 0;
    /* Larger pages would take half of a small object's slab, and these an eighth of a limit. */
    if (page <= size || (page <= SLICE_SIZE / 8 && !limited)) {
        os_touch((char *)slab_start(slab));
        /* Slabs of small objects are many, and with locked memory the page would stay there. */
        slab->closed_end = page <= size ? hak__os_close_pages(slab_end_page(slab), page)
                                        : hak__os_mark_pages(slab_end_page(slab), page);
    }
    size_t bytes = slab->slice_count * SLICE_SIZE - slab->first - (slab->closed_end ? page : 0);
    if (slab->capacity > bytes / size) {
        slab->capacity = (uint16_t)(bytes / size);
    }
}

/* Looks whether the objects of an idle slab are as free has left them: nobody looks later. */
static void slab_look(const struct slab *slab)
{
    size_t size = size_class_bytes(slab->class_index);
    for (uint32_t i = 0; i < slab->carved_count; i++) {
        const unsigned char *object = slab_start(slab) + slab->first + i * size;
        bool all = secure_state_of(object) != SECURE_FRESH; /* else its pages are untouched */
        if (HAK_UNLIKELY(!secure_is_clean(object, size, secure_mark(object), all))) {
            hak__secure_written(object);
        }
    }
}

struct quarantined_slices hak__slab_end_secure(struct slab_set *set, const struct slab *slab)
{
    struct quarantined_slices slices = {(uint32_t)slab_slice(slab), slab->slice_count};
    slab_look(slab);
    hak__secure_forget(slices.slice, slices.count);
    if (slab->closed_end && !hak__os_open_pages(slab_end_page(slab), hak__os_page_size())) {
        return (struct quarantined_slices){0, 0}; /* no other slab or span could use that page */
    }
    struct quarantined_slices *place =
        &set->quarantine->slabs[set->quarantine->next++ % HAK_COUNT_OF(set->quarantine->slabs)];
    struct quarantined_slices oldest = *place;
    *place = slices;
    return oldest;
}

void hak__slab_end_quarantine(struct slab_set *set)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(set->quarantine->slabs); i++) {
        struct quarantined_slices *place = &set->quarantine->slabs[i];
        if (place->count != 0) {
            hak__superslab_give(place->slice, place->count);
        }
        place->count = 0;
    }
}

struct object_list hak__refill_shuffle(struct refill refill)
{
    unsigned char *first = (unsigned char *)refill.list.head;
    unsigned char order[CARVE_BYTES / OBJECT_ALIGNMENT];
    uint32_t count = refill.list.count;
    uint64_t random = secure_key(first) ^ (uintptr_t)first;
    HAK_STATIC_ASSERT(sizeof order <= 256, "a number of an object is a byte");
    const struct slab *slab = slab_of_slice(window_slice_of(first));
    if (first == slab_start(slab) + slab->first) {
        uint64_t mark = secure_mark_before(first, refill.stride);
        atomic_store_relaxed(secure_last(first - refill.stride, refill.stride), mark);
    }
    struct object_list list = {NULL, count};
    for (uint32_t i = 0; i < count; i++) { /* R. Fisher, F. Yates; in the form of R. Durstenfeld */
        /* Secure form: neighbours of a page that are handed out in random order, before the next so
         * many. A whole page: a program that walks along what it has allocated waits for memory at
         * each step; cppcheck took 3.2 times as long, now 2.1 (docs/decisions/0093). Half: an
         * attacker guesses the block behind the last one in one of four tries instead of eight. */
        uint32_t group = i - i % 8;
        uint32_t place =
            group + (uint32_t)((uint64_t)secure_random(&random) * (i - group + 1) >> 32);
        order[i] = order[place];
        order[place] = (unsigned char)i;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct object *object = (struct object *)(void *)(first + order[i] * (size_t)refill.stride);
        if (refill.used) {
            secure_clear(object, refill.stride);
        }
        object_set_free(object, list.head, 0);
        secure_put_last(object, refill.stride);
        secure_set_state(object, SECURE_FRESH);
        list.head = object;
    }
    return list;
}
