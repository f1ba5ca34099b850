/* SPDX-License-Identifier: MIT */
/* slab.c: the slabs of one arena: refill, return, lend, and giving idle slabs back.
 *
 * slab.h has the words of a slab and the invariants; slab_remote.c has the operations on the remote
 * word and the notify stack. Calls: refill -> slab_take_objects, slab_new. Locks: the caller holds
 * the arena's lock, except for slab_is_object.
 */
#include "slab/slab.h"

#include "core/diagnose.h"
#include "os/os.h"
#include "region/superslab.h"
#include "slab/slab_lists.h"
#include "slab/slab_remote.h"

#include <string.h>

void hak__slab_not_object(const struct slab *slab, const void *pointer)
{
    hak__diagnose_fatal("invalid free (no object starts here)", pointer,
                        size_class_usable(slab->class_index), slab_arena_id(slab));
}

static struct object_list slab_take_remote(struct slab *slab)
{
    struct object_list list = hak__slab_take_remote(slab);
    if (HAK_UNLIKELY(slab->purged_count != 0)) {
        hak__slab_check_purged(slab, list);
    }
    return list;
}

/* Rule 2 of region/huge_pages.h. */
static enum slices_for slab_set_fills(const struct slab_set *set, uint32_t class_index)
{
    /* Slabs of objects up to this size have all their pages touched, because malloc links the
     * objects of a page (slab/slab.c). Twice: it need not link any, and a pool of which the program
     * uses little has all its pages resident. Half: programs with objects of 1 KiB get huge pages
     * later. An arena fills its slabs if at most this part of their bytes, a half, was never handed
     * out. Twice (a quarter): programs with objects of many sizes need twice the heap until they
     * get huge pages (docs/decisions/0111). */
    return size_class_bytes(class_index) <= 1024 &&
                   set->not_carved_bytes <= set->slices * SLICE_SIZE / 2
               ? FOR_FILLED_SLAB
               : FOR_SLAB;
}

/* Takes slices and makes them a new, listed slab of the class. NULL: no memory. */
static struct slab *slab_new(struct slab_set *set, uint32_t class_index)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    struct slice_run run = hak__superslab_take(set->part, size_class->slab_slices, 1,
                                               slab_set_fills(set, class_index));
    if (run.slice == SLICE_NONE) {
        return NULL;
    }
    counter_add(&set->counters, COUNTER_SLAB_FROM_REGION, 1);
    size_t slice = run.slice;
    struct slab *slab = window_slab_metadata(slice);
    slab->free_list = NULL;
    atomic_store_relaxed(&slab->shared_remote, UINT64_C(0)); /* nobody else knows the slab yet */
    slab->owner = set;
    slab->free_count = 0;
    slab->carved_count = 0;
    slab->purged_count = 0;
    slab->purge_seen = 0;
    slab->purge_passes = 0;
    slab->capacity = size_class->objects_per_slab;
    slab->class_index = (uint8_t)class_index;
    slab->slice_count = size_class->slab_slices;
    slab->slices_back = 0;
    slab->untouched = run.zeroed;
    slab->kept = false;
    slab->look_at = 0;
    slab->first = (uint16_t)window_slice_color(slice, size_class->colors);
    if (HAK_SECURE) {
        hak__slab_begin_secure(slab);
    }
    for (uint8_t i = 0; i < size_class->slab_slices; i++) {
        window_slab_metadata(slice + i)->slices_back = i;
        window_slab_metadata(slice + i)->purged_pages = 0;
        window_set_owner(slice + i, set->key | owner_code_of_class(class_index));
    }
    set->slices += slab->slice_count;
    slab_add_not_carved(set, slab, slab->capacity);
    slab_list(set, slab);
    return slab;
}

void hak__slab_give_back(struct slab_set *set, struct slab *slab)
{
    size_t slice = slab_slice(slab);
    uint32_t count = slab->slice_count;
    if (slab->listed) {
        slab_unlist(set, slab);
    }
    set->slices -= count;
    slab_add_not_carved(set, slab, (int32_t)slab_cut_count(slab) - slab->capacity);
    for (uint32_t i = 0; i < count; i++) {
        window_set_owner(slice + i, OWNER_NOBODY);
    }
    struct quarantined_slices slices = {(uint32_t)slice, count};
    if (HAK_SECURE) {
        slices = hak__slab_end_secure(set, slab);
    }
    if (slices.count != 0) {
        hak__superslab_give(slices.slice, slices.count);
    }
    counter_add(&set->counters, COUNTER_SLAB_TO_REGION, 1);
}

/* Assertion level 2. It also finds a free list that the program has overwritten after a free. */
static void slab_check(const struct slab_set *set, const struct slab *slab)
{
    size_t slice = slab_slice(slab);
    HAK_ASSERT_FULL(slab->owner == set && (slab->listed || slab->kept) && slab->slices_back == 0);
    HAK_ASSERT_FULL(slab->carved_count <= slab->capacity);
    HAK_ASSERT_FULL(slab->purged_count <= slab->carved_count);
    if (HAK_UNLIKELY(slab_free_objects(slab) > slab_cut_count(slab))) {
        hak__diagnose_fatal("double free (more objects freed than were handed out)",
                            slab_start(slab), size_class_usable(slab->class_index),
                            set->key >> OWNER_CODE_BITS);
    }
    for (uint8_t i = 0; i < slab->slice_count; i++) {
        HAK_ASSERT_FULL(window_owner(slice + i) ==
                        (set->key | owner_code_of_class(slab->class_index)));
    }
    uint32_t count = 0;
    const struct object *object = slab->free_list, *last = object;
    for (; object != NULL; object = object_next(object)) {
        size_t offset = (size_t)((const unsigned char *)object - slab_start(slab));
        last = object;
        if (count++ == slab->free_count || offset >= slab->slice_count * SLICE_SIZE ||
            !slab_is_object(slab, object)) {
            break;
        }
    }
    if (HAK_UNLIKELY(object != NULL || count != slab->free_count)) {
        hak__diagnose_fatal("corrupted free list (written after free?)", last,
                            size_class_usable(slab->class_index), set->key >> OWNER_CODE_BITS);
    }
}

static void slab_check_class(const struct slab_set *set, uint32_t class_index)
{
    for (const struct slab *slab = set->partial[class_index]; slab != NULL; slab = slab->next) {
        HAK_ASSERT_FULL(slab->class_index == class_index);
        const struct slab *next = slab->next != NULL ? slab->next : set->partial[class_index];
        HAK_ASSERT_FULL(next->previous == slab);
        slab_check(set, slab);
    }
    const struct slab *slab = set->kept[class_index];
    for (; slab != NULL; slab = slab->next) {
        HAK_ASSERT_FULL(slab->kept && !slab->listed && hak__slab_is_idle(slab));
        slab_check(set, slab);
    }
}

void hak__slab_put_if_idle(struct slab_set *set, struct slab *slab)
{
    if (HAK_LEVEL >= 2) {
        slab_check(set, slab);
    }
    if (hak__slab_is_idle(slab)) {
        hak__slab_keep(set, slab);
    }
}

void hak__slab_list_is_wrong(const struct slab *slab)
{
    hak__diagnose_fatal("the tables of slabs were overwritten (by a write outside of a block)",
                        slab, 0, 0);
}

static HAK_COLD void slab_freed_too_often(const struct slab_set *set, uint32_t class_index,
                                          const struct object *object)
{
    hak__diagnose_fatal("double free (more objects freed than the slab holds)", object,
                        size_class_usable(class_index), set->key >> OWNER_CODE_BITS);
}

/* The most objects to carve, from `first` on. In an untouched slab the program should touch each
 * page before malloc does, so that no malloc pays for the page fault. So the first object that
 * starts in a page is carved alone. The next refill carves the page's other objects, and linking
 * touches them. In other slabs twice as many bytes are carved, and at least two objects. All bytes:
 * larger peaks (docs/decisions/0095). The secure form carves 4 KiB of each slab and shuffles them:
 * alone, the first object of a slab would always have the same place. */
static uint32_t slab_carve_count(const struct slab *slab, const unsigned char *first, size_t size)
{
    size_t bytes = size < CARVE_BYTES ? 2 * CARVE_BYTES : 2 * size;
    if (HAK_SECURE) {
        bytes = CARVE_BYTES;
    } else if (slab->untouched) {
        size_t offset = (uintptr_t)first % CARVE_BYTES;
        /* offset < size: no object starts before `first` in its page. Otherwise carve all that
         * start in the rest of the page. */
        bytes = offset < size ? size : CARVE_BYTES - offset + size - 1;
    }
    uint32_t count = size_class_quotient(bytes, slab->class_index);
    return count == 0 ? 1 : count;
}

/* Cuts the next objects and does not touch them. The slab has at least one object left to carve. */
static struct refill slab_carve(struct slab_set *set, struct slab *slab, uint32_t most)
{
    size_t size = size_class_bytes(slab->class_index);
    unsigned char *first = slab_start(slab) + slab->first + slab->carved_count * size;
    uint32_t count = slab_carve_count(slab, first, size);
    uint32_t left = slab->capacity - slab->carved_count;
    count = count > left ? left : count;
    count = count > most ? most : count;
    atomic_store_relaxed(&slab->carved_count, (uint16_t)(slab->carved_count + count));
    slab_add_not_carved(set, slab, -(int32_t)count);
    if (HAK_SECURE) { /* another thread may get the next objects, and looks before the first */
        secure_put_last(first + (count - 1) * size, size);
    }
    return (struct refill){
        {(struct object *)(void *)first, count}, (uint32_t)size, !slab->untouched};
}

/* The object that `object` links to; both are in a list of the slab, and `object` is not its last.
 * Aborts if the program has overwritten `object`. */
static struct object *slab_follow(const struct slab *slab, const struct object *object)
{
    struct object *next = object_next(object);
    uintptr_t distance = (uintptr_t)next - (uintptr_t)slab_start(slab);
    if (HAK_UNLIKELY(distance >= slab->slice_count * SLICE_SIZE ||
                     !object_is_marked(object, object_mark_of(slab->owner->key)))) {
        hak__object_is_wrong(object);
    }
    return next;
}

/* Splits a list taken from the slab: the result has the first `most` objects, and the rest becomes
 * the slab's free list. The arena's other threads can use the rest (docs/decisions/0015), and a
 * thread that needs few objects has fewer to give back (docs/decisions/0022). */
static struct object_list slab_take_part(struct slab *slab, struct object_list list, uint32_t most)
{
    slab->purge_seen = 0;
    slab->free_list = NULL;
    slab->free_count = 0;
    if (list.count > most) {
        slab->free_count = (uint16_t)(list.count - most);
        struct object *last = list.head;
        for (uint32_t i = 1; i < most; i++) {
            last = slab_follow(slab, last);
        }
        slab->free_list = slab_follow(slab, last);
        object_link(last, NULL);
        list.count = most;
    }
    return list;
}

/* Unlists a slab that has nothing more to give. Its remote count must be 0, too: an unlisted slab
 * with remote objects and a clear N would never be found again (slab.h, invariant 2). */
HAK_INLINE void slab_unlist_used_up(struct slab_set *set, struct slab *slab)
{
    if (slab_cut_count(slab) == slab->capacity && slab_free_objects(slab) == 0) {
        slab_unlist(set, slab); /* the next return or drain lists it again */
    }
}

/* Takes up to `most` objects from the slab's cheapest source that has some; count 0: none has. */
static struct refill slab_take_objects(struct slab_set *set, struct slab *slab, uint32_t most)
{
    struct refill refill = {{slab->free_list, slab->free_count}, 0, false};
    if (refill.list.count != 0) {
        refill.list = slab_take_part(slab, refill.list, most);
        counter_add(&set->counters, COUNTER_REFILL_FREE_LIST, 1);
    } else if ((refill.list = slab_take_remote(slab)).count != 0) {
        refill.list = slab_take_part(slab, refill.list, most);
        counter_add(&set->counters, COUNTER_REFILL_REMOTE, 1);
    } else if (slab->carved_count < slab->capacity) {
        refill = slab_carve(set, slab, most);
        counter_add(&set->counters, COUNTER_REFILL_CARVE, 1);
    } else if (slab->purged_count != 0) {
        refill = hak__slab_cut_again(set, slab, most);
        counter_add(&set->counters, COUNTER_REFILL_CARVE, 1);
    }
    return refill;
}

/* Lists a kept slab of the class, which is kept no longer. False: none is kept. */
static bool slab_list_kept(struct slab_set *set, uint32_t class_index)
{
    struct slab *slab = hak__slab_take_kept(set, class_index);
    if (slab != NULL) {
        slab_list(set, slab);
    }
    return slab != NULL;
}

/* A slab for a set that has none of the class with objects to give, listed. NULL: no memory. */
static struct slab *slab_more(struct slab_set *set, uint32_t class_index)
{
    if (slab_list_kept(set, class_index)) {
        return set->partial[class_index];
    }
    (void)hak__slab_would_grow(set, hak__size_classes[class_index].slab_slices);
    return slab_new(set, class_index);
}

struct refill hak__slab_refill(struct slab_set *set, uint32_t class_index, uint32_t most)
{
    hak__slab_drain(set);
    if (HAK_LEVEL >= 2) {
        /* Checked before slab_take_part walks a free list, which the program may have overwritten.
         * Only one class: checking all classes at each refill would take too long. */
        slab_check_class(set, class_index);
    }
    struct refill refill = {{NULL, 0}, 0, false};
    while (refill.list.count == 0) {
        struct slab *slab = set->partial[class_index];
        if (slab == NULL) {
            slab = slab_more(set, class_index);
            if (slab == NULL) {
                break;
            }
        }
        refill = slab_take_objects(set, slab, most);
        slab_unlist_used_up(set, slab);
    }
    return refill;
}

bool hak__slab_refill_grows(struct slab_set *set, uint32_t class_index)
{
    hak__slab_drain(set);
    uint32_t slices = hak__size_classes[class_index].slab_slices;
    return set->partial[class_index] == NULL && !slab_list_kept(set, class_index) &&
           hak__slab_would_grow(set, slices);
}

struct object_list hak__slab_lend(struct slab_set *set, uint32_t class_index, uint32_t most)
{
    struct object_list list = {NULL, 0};
    hak__slab_drain(set);
    struct slab *slab = set->partial[class_index], *next;
    for (; list.count == 0 && slab != NULL; slab = next) {
        next = slab->next;
        list = (struct object_list){slab->free_list, slab->free_count};
        if (list.count == 0) {
            list = slab_take_remote(slab);
        }
        if (list.count != 0) {
            list = slab_take_part(slab, list, most);
        } else if (slab->purged_count != 0) { /* the process was that large before */
            list = refill_link(hak__slab_cut_again(set, slab, most), object_mark_of(set->key));
        }
        slab_unlist_used_up(set, slab); /* one with uncarved memory alone stays */
    }
    return list;
}

void hak__slab_check_return(struct slab *slab, struct object_list list)
{
    if (HAK_UNLIKELY(slab->free_count + list.count > slab_cut_count(slab))) {
        slab_freed_too_often(slab->owner, slab->class_index, list.head);
    }
    if (HAK_UNLIKELY(slab->purged_count != 0)) {
        hak__slab_check_purged(slab, list);
    }
    if (HAK_UNLIKELY(list.head == slab->free_list)) { /* freed and returned, twice in a row */
        hak__diagnose_fatal("double free", list.head, size_class_usable(slab->class_index),
                            slab_arena_id(slab));
    }
    if (!slab->listed) {
        slab_list(slab->owner, slab);
    }
    bool always = slab->purged_count != 0 || HAK_LEVEL >= 2;
    uint32_t remote_count = slab_remote_count(slab);
    slab->look_at = always ? 0 : (uint16_t)(slab->carved_count - remote_count);
}

uint32_t hak__slab_drain(struct slab_set *set)
{
    uint32_t drained = 0;
    for (struct slab *slab = hak__slab_take_notified(set); slab != NULL; drained++) {
        struct slab *next = hak__slab_next_notified(slab);
        hak__slab_clear_notified(slab);
        slab->look_at = 0; /* some objects more may be in the remote word */
        if (HAK_UNLIKELY(slab->kept)) {
            slab_freed_too_often(set, slab->class_index, NULL);
        }
        if (!slab->listed) {
            slab_list(set, slab);
        }
        hak__slab_put_if_idle(set, slab);
        slab = next;
    }
    if (drained != 0) {
        counter_add(&set->counters, COUNTER_REMOTE_NOTIFIED, drained);
    }
    return drained;
}

void hak__slab_set_check(const struct slab_set *set)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        slab_check_class(set, class_index);
    }
}
