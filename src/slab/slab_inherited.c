/* SPDX-License-Identifier: MIT */
/* slab_inherited.c: see slab_inherited.h. */
#include "slab/slab_inherited.h"

#include <string.h>

#include "base/bits.h"
#include "core/diagnose.h"
#include "core/gate.h"
#include "os/os.h"
#include "slab/slab_lists.h"
#include "slab/slab_remote.h"

/* Slabs that a take-over looks at. Doubled: a refill takes longer where most slabs are full.
 * Halved: more half-free slabs stay unused for a while. */
#define TAKE_OVER_LOOKS (HAK_TINY_LIMITS ? 2u : 16u)

/* A bit for each granule of a slice. */
#define SLICE_WORDS (SLICE_SIZE / OBJECT_ALIGNMENT / 64)

/* The bits of slices [first, end). A child maps them at its first free of an inherited object, and
 * a child of that child those of the slices that came since. They are never unmapped. */
struct counted_bits {
    struct counted_bits *older;
    size_t first;
    size_t end;
    uint64_t words[][SLICE_WORDS];
};

static struct counted_bits *shared_counted_bits; /* the newest */
static size_t shared_counted_bytes;
static struct object *shared_deferred;  /* objects that a later free counts */
static struct slab_set *inherited_sets; /* written in fork's child at its start */
static struct slab_set *shared_asked;   /* where the next take-over begins; a hint */

void hak__slab_inherit(struct slab_set *set, bool first)
{
    set->next_inherited = first ? NULL : inherited_sets;
    set->shared_drawn = false;
    inherited_sets = set;
    shared_asked = NULL;
}

/* Under ARENAS. Relaxed: a thread draws from an inherited set only while the child has no arena of
 * its own. A thread that takes slabs over has one, which was listed later under ARENAS. */
void hak__slab_draw(struct slab_set *set)
{
    atomic_store_relaxed(&set->shared_drawn, true);
}

/* Takes the lock of an arena of which slabs may be taken over. False: none may be, or the lock is
 * taken. */
static bool inherited_lock(const struct slab_set *from)
{
    if (!lock_try(from->lock)) {
        return false;
    }
    if (HAK_LIKELY(!atomic_load_relaxed(&from->shared_drawn))) {
        return true;
    }
    lock_release(from->lock);
    return false;
}

size_t hak__slab_bits_bytes(void)
{
    return atomic_load_relaxed(&shared_counted_bytes);
}

static size_t counted_size(size_t slices)
{
    return bits_align_up(sizeof(struct counted_bits) + slices * SLICE_WORDS * sizeof(uint64_t),
                         hak__os_page_size());
}

const void *hak__slab_bits_before(const void *bits, size_t *size)
{
    /* acquire: pairs with the release in counted_map */
    const struct counted_bits *found = bits == NULL ? atomic_load_acquire(&shared_counted_bits)
                                                    : ((const struct counted_bits *)bits)->older;
    *size = found == NULL ? 0 : counted_size(found->end - found->first);
    return found;
}

/* The words of a slice. NULL: they are not mapped. */
static uint64_t *counted_words(size_t slice)
{
    /* acquire: pairs with the release in counted_map */
    struct counted_bits *bits = atomic_load_acquire(&shared_counted_bits);
    if (bits == NULL || slice >= bits->end) {
        return NULL;
    }
    while (slice < bits->first) {
        bits = bits->older;
    }
    return bits->words[slice - bits->first];
}

/* Maps the words of all slices that have none, if those of this one are missing. Without memory
 * they stay missing. Any thread. */
static void counted_map(size_t slice)
{
    while (counted_words(slice) == NULL) {
        struct counted_bits *newest = atomic_load_acquire(&shared_counted_bits); /* as above */
        size_t first = newest == NULL ? 0 : newest->end;
        /* Whole superslabs, so that the words of a slab are neighbours. The acquire: see
         * window_contains_slice. */
        size_t end =
            bits_align_up(atomic_load_acquire(&hak__window.shared_limit), SUPERSLAB_SLICES);
        size_t size = counted_size(end - first);
        void *memory;
        if (hak__os_map(size, hak__os_page_size(), &memory) != 0) {
            return;
        }
        (void)hak__os_small(memory, size); /* a huge page would cost more than it saves */
        struct counted_bits *bits = memory;
        bits->older = newest;
        bits->first = first;
        bits->end = end;
        /* release: pairs with the acquire in counted_words */
        if (atomic_cas_weak_release(&shared_counted_bits, &newest, bits)) {
            atomic_add_relaxed(&shared_counted_bytes, size); /* pairs with nothing: a figure */
        } else {
            hak__os_discard(memory, size);
        }
    }
}

void hak__slab_link_counted(struct slab *slab)
{
    uint64_t *words = counted_words(slab_slice(slab));
    uintptr_t mark = object_mark_of(slab->owner->key);
    unsigned char *at = slab_start(slab);
    for (size_t left = words == NULL ? 0 : slab->slice_count * SLICE_WORDS; left != 0; left--) {
        for (uint64_t word = *words; word != 0; word &= word - 1) {
            struct object *object =
                (struct object *)(void *)(at + bits_lowest(word) * OBJECT_ALIGNMENT);
            object_set_free(object, slab->free_list, mark);
            slab->free_list = object;
        }
        if (*words != 0) { /* else the page of words may be untouched */
            *words = 0;
        }
        words++;
        at += (size_t)64 * OBJECT_ALIGNMENT;
    }
}

void hak__slab_forget_counted(const struct slab *slab)
{
    uint64_t *words = counted_words(slab_slice(slab));
    for (size_t i = 0; words != NULL && i < slab->slice_count * SLICE_WORDS; i++) {
        if (words[i] != 0) {
            words[i] = 0;
        }
    }
}

uint32_t hak__slab_counted(const struct slab *slab)
{
    const uint64_t *words = counted_words(slab_slice(slab));
    uint32_t count = 0;
    for (size_t i = 0; words != NULL && i < slab->slice_count * SLICE_WORDS; i++) {
        count += bits_count(words[i]);
    }
    return count;
}

static uint32_t inherited_free_count(const struct slab *slab)
{
    return (uint32_t)slab->free_count + slab->remote_seen;
}

/* At least half of the slab is free, or was never handed out. */
static bool inherited_is_half_free(const struct slab *slab)
{
    return 2 * (slab_cut_count(slab) - inherited_free_count(slab)) <= slab->capacity;
}

/* Its bit, in *bit, and the word of it. NULL: there are no bits. */
static uint64_t *counted_word(const struct object *object, uint64_t *bit)
{
    uint64_t *words = counted_words(window_slice_of(object));
    size_t granule = (uintptr_t)object % SLICE_SIZE / OBJECT_ALIGNMENT;
    *bit = UINT64_C(1) << granule % 64;
    return words == NULL ? NULL : &words[granule / 64];
}

static bool inherited_is_counted(const struct object *object)
{
    uint64_t bit, *word = counted_word(object, &bit);
    return word != NULL && (*word & bit) != 0;
}

/* Under the lock of the set's arena. The object is not counted yet. */
static void inherited_count(struct slab_set *set, struct slab *slab, struct object *object)
{
    uint64_t bit, *word = counted_word(object, &bit);
    if (word == NULL) {
        object_set_free(object, slab->free_list, object_mark_of(set->key));
        slab->free_list = object;
    } else {
        *word |= bit;
        if (HAK_SECURE && !secure_state_is_free(secure_state_of(object))) {
            secure_set_state(object, SECURE_FREE);
        }
    }
    slab_set_free_count(set, slab, slab->free_count + 1);
    if (HAK_UNLIKELY(inherited_free_count(slab) > slab_cut_count(slab))) {
        hak__slab_freed_too_often(set, slab->class_index, object);
    }
    if (!slab->listed && inherited_is_half_free(slab)) {
        slab_list(set, slab);
    }
    if (inherited_free_count(slab) == slab_cut_count(slab) || HAK_LEVEL >= 2) {
        hak__slab_put_if_idle(set, slab);
    }
}

/* The list lies in the slab, unless the program has overwritten it. */
static bool inherited_list_has(const struct slab *slab, struct object_list list,
                               const struct object *object)
{
    const struct object *at = list.head;
    while (list.count-- != 0 && at != object && slab_is_object(slab, at)) {
        at = object_next(at);
    }
    return at == object;
}

/* True: the object was free at the fork, or was counted since. An object that is in use may have a
 * mark, if nobody has written to it since it was carved; so the slab's lists decide. Under the lock
 * of the slab's arena. */
static bool inherited_is_free(const struct slab *slab, const struct object *object)
{
    if (inherited_is_counted(object)) {
        return true;
    }
    struct object_list list = {slab->free_list, slab->free_count};
    return HAK_UNLIKELY(object_is_marked(object, object_mark_of(slab->owner->key))) &&
           (inherited_list_has(slab, list, object) ||
            inherited_list_has(slab, hak__slab_see_remote(slab), object));
}

static HAK_COLD void inherited_freed_twice(const struct object *object, uint32_t class_index)
{
    hak__diagnose_fatal("double free", object, size_class_usable(class_index), 0);
}

/* Frees an object of the class. Under the lock of `set`, the arena that owned its slab when the
 * caller looked. */
static void inherited_free(struct slab_set *set, struct object *object, uint32_t class_index)
{
    size_t slice = window_slice_of(object);
    uint32_t word = window_owner(slice);
    if (HAK_UNLIKELY(owner_class(word) != class_index)) { /* its slab was given back */
        inherited_freed_twice(object, class_index);
    }
    struct slab *slab = slab_of_slice(slice);
    if (!window_is_inherited(word)) { /* taken over meanwhile */
        object_set_free(object, NULL, object_mark_of(word));
        (void)hak__slab_return_remote(slab, (struct object_list){object, 1}, object);
        return;
    }
    if (HAK_UNLIKELY(inherited_is_free(slab, object))) {
        inherited_freed_twice(object, class_index);
    }
    inherited_count(set, slab, object);
}

/* Writes to the object's first word only. */
static void inherited_defer(struct object *object)
{
    struct object *first = atomic_load_relaxed(&shared_deferred);
    do {
        object_link(object, first);
        /* release: pairs with the acquire in inherited_end_deferred */
    } while (!atomic_cas_weak_release(&shared_deferred, &first, object));
}

/* Frees what was deferred. */
static HAK_NOINLINE void inherited_end_deferred(void)
{
    if (!hak__gate_enter()) {
        return;
    }
    /* acquire: pairs with the release in inherited_defer */
    struct object *object = atomic_exchange_acquire(&shared_deferred, NULL);
    while (object != NULL) {
        struct object *next = object_next(object);
        size_t slice = window_slice_of(object);
        uint32_t class_index = owner_class(window_owner(slice));
        if (HAK_UNLIKELY(class_index - 1 >= CLASS_COUNT - 1)) { /* it was deferred twice */
            inherited_freed_twice(object, 1);
        }
        struct slab_set *set = atomic_load_relaxed(&slab_of_slice(slice)->owner);
        if (lock_acquire_soon(set->lock)) {
            inherited_free(set, object, class_index);
            lock_release(set->lock);
        } else {
            inherited_defer(object);
        }
        object = next;
    }
    hak__gate_leave();
}

void hak__slab_free_inherited(size_t slice, void *pointer)
{
    struct slab *slab = slab_of_slice(slice);
    uint32_t class_index = slab->class_index;
    slab_check_object(slab, pointer);
    if (HAK_UNLIKELY(atomic_load_relaxed(&shared_deferred) != NULL)) {
        inherited_end_deferred();
    }
    counted_map(slice);
    struct slab_set *set = atomic_load_relaxed(&slab->owner);
    if (!gate_lock(set->lock)) {
        inherited_defer(pointer);
        return;
    }
    inherited_free(set, pointer, class_index);
    lock_release(set->lock);
    gate_end();
}

bool hak__slab_count_inherited(struct object *object, uint32_t class_index, uintptr_t mark,
                               struct object **next)
{
    size_t slice = window_slice_of(object);
    uint32_t word = window_contains_slice(slice) ? window_owner(slice) : OWNER_NOBODY;
    if (!window_is_inherited(word) || owner_class(word) != class_index) {
        return false;
    }
    struct slab *slab = slab_of_slice(slice);
    if (!slab_is_object(slab, object) || !object_is_marked(object, mark)) {
        return false;
    }
    *next = object_next(object);
    counted_map(slice);
    struct slab_set *set = atomic_load_relaxed(&slab->owner);
    if (!lock_acquire_soon(set->lock)) {
        inherited_defer(object);
        return true;
    }
    if (!inherited_is_counted(object)) { /* else it was freed twice */
        inherited_free(set, object, class_index);
    }
    lock_release(set->lock);
    return true;
}

/* Gives the objects of a slab's list the mark of the slab's new arena. Aborts if one does not have
 * that of the old one. */
static void inherited_mark(const struct slab *slab, struct object_list list, uintptr_t old)
{
    uintptr_t mark = object_mark_of(slab->owner->key);
    for (struct object *at = list.head; at != NULL; at = object_next(at)) {
        if (HAK_UNLIKELY(list.count-- == 0 || !slab_is_object(slab, at) ||
                         !object_is_marked(at, old))) {
            hak__object_is_wrong(at);
        }
        object_set_mark(at, mark);
    }
}

/* Makes an inherited slab one of `to`. Under the locks of both arenas. */
static struct slab *inherited_take(struct slab_set *from, struct slab *slab, struct slab_set *to)
{
    struct slab_totals *lost = slab_totals(from, slab), *gained = slab_totals(to, slab);
    uint32_t free_count = inherited_free_count(slab);
    int32_t not_carved_count = (int32_t)(slab->capacity - slab_cut_count(slab));
    if (slab->listed) {
        slab_unlist(from, slab);
    }
    atomic_store_relaxed(&slab->owner, to); /* window_pass_on orders it */
    uintptr_t old = object_mark_of(from->key);
    inherited_mark(slab, (struct object_list){slab->free_list, slab->free_count}, old);
    inherited_mark(slab, hak__slab_see_remote(slab), old);
    hak__slab_link_counted(slab);
    lost->slabs_count--;
    gained->slabs_count++;
    lost->free_count -= free_count;
    gained->free_count += free_count;
    from->slices -= slab->slice_count;
    to->slices += slab->slice_count;
    slab_add_not_carved(from, slab, -not_carved_count);
    slab_add_not_carved(to, slab, not_carved_count);
    if (HAK_SECURE) {
        *lost->lost_count -= slab_lost(slab);
        *gained->lost_count += slab_lost(slab);
    }
    for (uint32_t i = 0; i < slab->slice_count; i++) {
        window_pass_on(slab_slice(slab) + i, to->key | owner_code_of_class(slab->class_index));
    }
    slab_list(to, slab);
    return slab;
}

/* Looks for a slab of which half is free. One with N set stays: a thread of the parent may have
 * stopped between the two steps of its remote free. Under the lock of the set's arena. */
static struct slab *inherited_find(struct slab_set *from, uint32_t class_index)
{
    (void)hak__slab_drain(from);
    for (uint32_t looks = 0; looks < TAKE_OVER_LOOKS; looks++) {
        struct slab *slab = from->partial[class_index];
        if (slab == NULL) {
            break;
        }
        slab_unlist(from, slab);
        if (inherited_is_half_free(slab) && !hak__slab_is_notified(slab)) {
            return slab;
        }
    }
    return NULL;
}

struct slab *hak__slab_take_over(struct slab_set *set, uint32_t class_index)
{
    struct slab_set *start = atomic_load_relaxed(&shared_asked), *from;
    struct slab *slab = NULL;
    start = from = start != NULL ? start : inherited_sets;
    for (uint32_t asked = 0; asked < LENDERS_MAX; asked++) {
        if (from != set && slab_may_lend(from, class_index) && inherited_lock(from)) {
            slab = inherited_find(from, class_index);
            if (slab != NULL) {
                slab = inherited_take(from, slab, set);
            }
            lock_release(from->lock);
        }
        if (slab != NULL) {
            break;
        }
        from = from->next_inherited != NULL ? from->next_inherited : inherited_sets;
        if (from == start) {
            break;
        }
    }
    atomic_store_relaxed(&shared_asked, from);
    return slab;
}

struct slab *hak__slab_take_over_any(struct slab_set *set, uint32_t class_index)
{
    size_t end = atomic_load_acquire(&hak__window.shared_limit); /* window_contains_slice */
    struct slab *taken = NULL;
    for (size_t slice = 0; slice < end && taken == NULL; slice++) {
        uint32_t word = window_owner_first(slice);
        if (!window_is_inherited(word) || owner_class(word) != class_index) {
            continue;
        }
        struct slab *slab = slab_of_slice(slice);
        struct slab_set *from = atomic_load_relaxed(&slab->owner);
        if (from == set || !inherited_lock(from)) {
            continue;
        }
        if (window_owner(slice) == word && !hak__slab_is_notified(slab) && !slab->kept &&
            (inherited_free_count(slab) != 0 || slab_cut_count(slab) != slab->capacity)) {
            taken = inherited_take(from, slab, set);
        }
        lock_release(from->lock);
    }
    return taken;
}
