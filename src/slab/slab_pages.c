/* SPDX-License-Identifier: MIT */
/* slab_pages.c: pages of a slab that hold only free objects go back to the OS while others live.
 *
 *   purge      Whole pages in which each byte belongs to a free object are purged. All objects
 *              that have a byte in them leave the free list, and the pages' bits in purged_pages
 *              are set. So a carved object is a purged one if the bit of one of its pages is set.
 *   cut again  When the slab has nothing else to give, the bits of its lowest purged object are
 *              cleared. That object, and its neighbours that have no byte in a purged page any
 *              more, are handed out as if they were carved.
 *
 * A purged object has lost its mark, so free cannot see that it is free already. The slab does when
 * the object comes back to it.
 *
 * A pass purges only a slab from whose free list nothing was taken since PAGES_PASSES passes
 * before. It walks such a list once, and again when more objects have come back. The slab goes to
 * the end of its class's list, so that refills touch purged pages last. What is left on the free
 * list keeps its links and marks. The secure form purges nothing here: the states of its objects
 * would have to agree. Nor does a system whose pages are not of 4 KiB.
 *
 * Locks: all of it is under the lock of the set's arena. */
#include "core/diagnose.h"
#include "core/gate.h"
#include "os/os.h"
#include "region/superslab.h"
#include "slab/slab_lists.h"

#define SLICE_PAGES (SLICE_SIZE / ARCH_PAGE_SIZE_MIN)
HAK_STATIC_ASSERT(SLICE_PAGES <= 8, "a slice's pages have a byte of bits");

/* Bits of objects, by number; 1: free. */
struct object_bits {
    uint64_t words[SLICE_SIZE / OBJECT_ALIGNMENT / 64];
};

static uint8_t *page_bits(const struct slab *slab, uint32_t page, uint8_t *bit)
{
    *bit = (uint8_t)(1u << page % SLICE_PAGES);
    return &window_slab_metadata(slab_slice(slab) + page / SLICE_PAGES)->purged_pages;
}

static bool page_is_purged(const struct slab *slab, uint32_t page)
{
    uint8_t bit, *bits = page_bits(slab, page, &bit);
    return (*bits & bit) != 0;
}

static uint32_t object_first_page(const struct slab *slab, uint32_t number)
{
    size_t size = size_class_bytes(slab->class_index);
    return (uint32_t)((slab->first + number * size) / ARCH_PAGE_SIZE_MIN);
}

static uint32_t object_last_page(const struct slab *slab, uint32_t number)
{
    size_t size = size_class_bytes(slab->class_index);
    return (uint32_t)((slab->first + (number + 1) * size - 1) / ARCH_PAGE_SIZE_MIN);
}

static bool object_is_purged(const struct slab *slab, uint32_t number)
{
    uint32_t page = object_first_page(slab, number), last = object_last_page(slab, number);
    while (page < last && !page_is_purged(slab, page)) {
        page++;
    }
    return page_is_purged(slab, page);
}

/* The object that has the byte `offset` bytes behind the slab's start. */
static uint32_t object_at(const struct slab *slab, size_t offset)
{
    return offset < slab->first ? 0 : size_class_quotient(offset - slab->first, slab->class_index);
}

static uint32_t object_number(const struct slab *slab, const struct object *object)
{
    return object_at(slab, (size_t)((const unsigned char *)object - slab_start(slab)));
}

/* The next object of the free list. Aborts if the program has overwritten `object`. */
static struct object *list_follow(const struct slab *slab, const struct object *object)
{
    if (HAK_UNLIKELY(!slab_is_object(slab, object) ||
                     !object_is_marked(object, object_mark_of(slab->owner->key)))) {
        hak__object_is_wrong(object);
    }
    return object_next(object);
}

static void list_note(const struct slab *slab, struct object_bits *bits)
{
    const struct object *object = slab->free_list;
    for (uint32_t left = slab->free_count; left != 0; left--) {
        uint32_t number = object_number(slab, object);
        object = list_follow(slab, object); /* before the number is used */
        bits->words[number / 64] |= UINT64_C(1) << number % 64;
    }
}

void hak__slab_check_purged(const struct slab *slab, struct object_list list)
{
    const struct object *object = list.head;
    for (uint32_t left = list.count; left != 0; left--) {
        if (HAK_UNLIKELY(!slab_is_object(slab, object))) {
            hak__object_is_wrong(object);
        }
        if (HAK_UNLIKELY(object_is_purged(slab, object_number(slab, object)))) {
            hak__diagnose_fatal("double free", object, size_class_usable(slab->class_index),
                                slab_arena_id(slab));
        }
        object = object_next(object);
    }
}

/* True: all objects that have a byte in the page, at least one, are free or purged. Those that are
 * not carved are neither. */
static bool page_is_free(const struct slab *slab, uint32_t page, const struct object_bits *bits)
{
    size_t start = (size_t)page * ARCH_PAGE_SIZE_MIN;
    uint32_t number = object_at(slab, start),
             end = object_at(slab, start + ARCH_PAGE_SIZE_MIN - 1) + 1;
    end = end < slab->capacity ? end : slab->capacity;
    if (number >= end) {
        return false;
    }
    while (number < end &&
           ((bits->words[number / 64] >> number % 64 & 1) != 0 || object_is_purged(slab, number))) {
        number++;
    }
    return number == end;
}

/* Takes the objects that have a byte in a purged page off the free list. */
static void list_drop_purged(struct slab_set *set, struct slab *slab)
{
    struct object *object = slab->free_list, *last = NULL;
    uint32_t stay_count = 0;
    bool gap = false;
    for (uint32_t left = slab->free_count; left != 0; left--) {
        struct object *next = object_next(object);
        if (object_is_purged(slab, object_number(slab, object))) {
            gap = true;
        } else {
            if (last == NULL) {
                slab->free_list = object;
            } else if (gap) {
                object_link(last, object);
            }
            last = object;
            gap = false;
            stay_count++;
        }
        object = next;
    }
    if (last == NULL) {
        slab->free_list = NULL;
    } else if (gap) {
        object_link(last, NULL);
    }
    uint32_t gone = slab->free_count - stay_count;
    slab->purged_count = (uint16_t)(slab->purged_count + gone);
    slab_add_not_carved(set, slab, (int32_t)gone);
    slab->free_count = (uint16_t)stay_count;
    slab->look_at = 0;
}

/* Sets the bits of the pages that may go, in the slab and in `pages`. */
static uint32_t pages_choose(const struct slab *slab, uint8_t pages[SLAB_SLICES_MAX])
{
    struct object_bits bits = {{0}};
    uint32_t count = 0;
    list_note(slab, &bits);
    for (uint32_t page = 0; page < slab->slice_count * SLICE_PAGES; page++) {
        if (!page_is_purged(slab, page) && page_is_free(slab, page, &bits)) {
            pages[page / SLICE_PAGES] |= (uint8_t)(1u << page % SLICE_PAGES);
            count++;
        }
    }
    return count;
}

/* If the kernel refuses, the pages stay as they are; their objects are cut again as well. */
static void pages_purge(const struct slab *slab, const uint8_t pages[SLAB_SLICES_MAX])
{
    uint32_t end = slab->slice_count * SLICE_PAGES, first = end;
    hak__gate_let_ending_signals(true);
    for (uint32_t page = 0; page <= end; page++) {
        bool goes = page < end && (pages[page / SLICE_PAGES] >> page % SLICE_PAGES & 1) != 0;
        if (goes && first == end) {
            first = page;
        } else if (!goes && first != end) {
            (void)hak__os_purge(slab_start(slab) + ((size_t)first * ARCH_PAGE_SIZE_MIN),
                                (size_t)(page - first) * ARCH_PAGE_SIZE_MIN);
            first = end;
        }
    }
    hak__gate_let_ending_signals(false);
}

static size_t slab_purge_pages(struct slab_set *set, struct slab *slab)
{
    uint8_t pages[SLAB_SLICES_MAX] = {0};
    size_t slice = slab_slice(slab);
    /* What a pass counts for the walk beside the bytes purged, and in arena/pages.c for a
     * superslab. Half: a tick takes up to twice as long. Twice: a pass takes twice as many
     * ticks. */
    size_t cost = SLICE_SIZE / 2 + slab->free_count * 128;
    uint32_t count = pages_choose(slab, pages);
    if (count == 0 || !hak__superslab_split(slice / SUPERSLAB_SLICES)) {
        return cost;
    }
    for (uint32_t i = 0; i < slab->slice_count; i++) {
        window_slab_metadata(slice + i)->purged_pages |= pages[i];
    }
    list_drop_purged(set, slab);
    slab_list_last(set, slab);
    pages_purge(slab, pages);
    return cost + ((size_t)count * ARCH_PAGE_SIZE_MIN);
}

/* True: survivors at random leave at most an eighth of the pages free, so a walk hardly pays. */
static bool slab_is_dense(const struct slab *slab)
{
    uint32_t live = (uint32_t)slab->carved_count - slab->free_count - slab->purged_count;
    return live > 2 * slab->slice_count * SLICE_PAGES;
}

size_t hak__slab_purge(struct slab_set *set, struct slab *slab, uint32_t passes)
{
    if (HAK_SECURE || slab->free_count == 0 || slab->kept ||
        hak__os_page_size() != ARCH_PAGE_SIZE_MIN || (passes == 1 && slab_is_dense(slab))) {
        return 0;
    }
    if (slab->purge_seen == 0) {
        slab->purge_passes = 0;
    } else if (slab->purge_passes < PAGES_PASSES) {
        slab->purge_passes++;
    } else if (slab->free_count > slab->purge_seen) {
        slab->purge_passes = PAGES_PASSES;
    }
    slab->purge_seen = slab->free_count;
    if (slab->purge_passes > PAGES_PASSES || slab->purge_passes < passes) {
        return 0;
    }
    size_t cost = slab_purge_pages(set, slab);
    slab->purge_seen = slab->free_count;
    slab->purge_passes = PAGES_PASSES + 1;
    return cost;
}

/* Clears the bits of the object's pages. Returns the last one that was set. */
static uint32_t object_clear_pages(const struct slab *slab, uint32_t number)
{
    uint32_t last_set = 0;
    for (uint32_t page = object_first_page(slab, number); page <= object_last_page(slab, number);
         page++) {
        uint8_t bit, *bits = page_bits(slab, page, &bit);
        last_set = (*bits & bit) != 0 ? page : last_set;
        *bits &= (uint8_t)~bit;
    }
    return last_set;
}

struct refill hak__slab_cut_again(struct slab_set *set, struct slab *slab, uint32_t most)
{
    size_t size = size_class_bytes(slab->class_index);
    uint32_t page = 0;
    while (!page_is_purged(slab, page)) {
        page++;
        HAK_ASSERT(page < slab->slice_count * SLICE_PAGES);
    }
    uint32_t number = object_at(slab, (size_t)page * ARCH_PAGE_SIZE_MIN), end = number + 1;
    page = object_clear_pages(slab, number);
    while (end < slab->carved_count && object_first_page(slab, end) == page &&
           !object_is_purged(slab, end)) {
        end++;
    }
    slab->purged_count = (uint16_t)(slab->purged_count - (end - number));
    slab_add_not_carved(set, slab, (int32_t)number - (int32_t)end);
    unsigned char *first = slab_start(slab) + slab->first + number * size;
    uint32_t count = end - number;
    for (; count > most; count--) { /* they share a page with those that are handed out */
        struct object *object = (struct object *)(void *)(first + (count - 1) * size);
        object_set_free(object, slab->free_list, object_mark_of(set->key));
        slab->free_list = object;
        slab->free_count++;
    }
    return (struct refill){{(struct object *)(void *)first, count}, (uint32_t)size, true};
}
