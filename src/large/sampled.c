/* SPDX-License-Identifier: MIT */
/* sampled.c: see sampled.h. */
#include "large/sampled.h"

#include "base/atomics.h"
#include "base/list.h"
#include "core/diagnose.h"
#include "core/lock.h"
#include "region/numa.h"
#include "region/object.h"
#include "region/superslab.h"
#include "region/window.h"

struct sampled_object {
    struct sampled_object *next;
};

/* The metadata of a slice with sampled objects. */
struct sampled_slice {
    struct sampled_object *free_list;
    struct sampled_slice *previous; /* in the list of the class's slices with room */
    struct sampled_slice *next;
    uint32_t class_index; /* constant while the slice holds objects */
    uint32_t used_count;
    uint32_t carved_count;
    uint32_t capacity;
};
HAK_STATIC_ASSERT(sizeof(struct sampled_slice) <= SLAB_METADATA_SIZE,
                  "stored in a slab's metadata");

static struct lock HAK_LOCK_LINE sampled_lock = LOCK_INITIAL(LOCK_RANK_SAMPLED);
static struct sampled_slice *sampled_partial[CLASS_COUNT]; /* under SAMPLED */
static struct sampled_totals shared_sampled_totals;        /* written under SAMPLED, read relaxed */

static struct sampled_slice *sampled_slice(size_t slice)
{
    return (struct sampled_slice *)(void *)window_slab_metadata(slice);
}

static size_t sampled_number(const struct sampled_slice *slice)
{
    return (size_t)((const unsigned char *)slice - hak__window.slabs) / SLAB_METADATA_SIZE;
}

static uint32_t sampled_class(const void *pointer)
{
    return atomic_load_relaxed(&sampled_slice(window_slice_of(pointer))->class_index);
}

size_t hak__sampled_usable(const void *pointer)
{
    return object_usable(pointer, sampled_class(pointer));
}

void hak__sampled_shrink(void *object, size_t size)
{
    if (HAK_SECURE) {
        hak__secure_resize(object, size_class_bytes(sampled_class(object)), size);
    }
}

/* Secure form: looks at the canary of an object that is freed, and clears the object. The first
 * object of a slice has no word before it. */
static void sampled_take_back(void *object)
{
    uint32_t class_index = sampled_class(object);
    size_t bytes = size_class_bytes(class_index);
    size_t slack =
        secure_slack(object, secure_check_state(object, class_index, SECURE_MALLOC), bytes);
    if (HAK_UNLIKELY((uintptr_t)object % SLICE_SIZE == 0
                         ? secure_changed(object, bytes, slack) != 0
                         : !secure_is_whole(object, bytes, slack))) {
        hak__secure_overrun(object, bytes, slack);
    }
    secure_set_state(object, SECURE_FREE);
    secure_clear(object, bytes);
}

/* Slices that one object needs at least. */
static uint32_t sampled_slices(size_t bytes)
{
    return (uint32_t)((bytes + SLICE_SIZE - 1) >> SLICE_SHIFT);
}

HAK_RACY_READER uint32_t hak__sampled_slices(size_t slice)
{
    uint32_t class_index = atomic_load_relaxed(&sampled_slice(slice)->class_index);
    return class_index < CLASS_COUNT ? sampled_slices(size_class_bytes(class_index)) : 1;
}

/* Under SAMPLED. */
static void sampled_account(uint64_t objects, uint64_t bytes, uint64_t slices)
{
    struct sampled_totals *totals = &shared_sampled_totals;
    atomic_store_relaxed(&totals->objects_count, totals->objects_count + objects);
    atomic_store_relaxed(&totals->objects_bytes, totals->objects_bytes + bytes);
    atomic_store_relaxed(&totals->slices_count, totals->slices_count + slices);
}

struct sampled_totals hak__sampled_totals(void)
{
    return (struct sampled_totals){atomic_load_relaxed(&shared_sampled_totals.objects_count),
                                   atomic_load_relaxed(&shared_sampled_totals.objects_bytes),
                                   atomic_load_relaxed(&shared_sampled_totals.slices_count)};
}

/* Under SAMPLED. NULL: no memory. */
static struct sampled_slice *sampled_add_slice(uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    struct slice_run run =
        hak__superslab_take(hak__superslab_part_near(numa_node()), sampled_slices(bytes), 1, false);
    if (run.slice == SLICE_NONE) {
        return NULL;
    }
    struct sampled_slice *slice = sampled_slice(run.slice);
    slice->free_list = NULL;
    atomic_store_relaxed(&slice->class_index, class_index);
    slice->used_count = 0;
    slice->carved_count = 0;
    slice->capacity = bytes < SLICE_SIZE ? (uint32_t)(SLICE_SIZE / bytes) : 1;
    LIST_PUSH(sampled_partial[slice->class_index], slice);
    sampled_account(0, 0, sampled_slices(bytes));
    window_set_owner(run.slice, OWNER_SAMPLED);
    return slice;
}

static void sampled_unlist(struct sampled_slice *slice)
{
    if (HAK_UNLIKELY(!LIST_HOLDS(sampled_partial[slice->class_index], slice))) {
        hak__diagnose_fatal("the tables of slices were overwritten (by a write outside of a block)",
                            slice, 0, 0);
    }
    LIST_REMOVE(sampled_partial[slice->class_index], slice);
}

/* Under SAMPLED. The slice is not full. */
static void *sampled_pop(struct sampled_slice *slice)
{
    struct sampled_object *object = slice->free_list;
    size_t bytes = size_class_bytes(slice->class_index);
    if (object != NULL) {
        slice->free_list = object->next;
    } else {
        unsigned char *start = window_slice_address(sampled_number(slice));
        object = (struct sampled_object *)(void *)(start + slice->carved_count++ * bytes);
    }
    if (++slice->used_count == slice->capacity) {
        sampled_unlist(slice);
    }
    sampled_account(1, bytes, 0);
    return object;
}

void *hak__sampled_allocate(uint32_t class_index, size_t size)
{
    lock_acquire(&sampled_lock);
    struct sampled_slice *slice = sampled_partial[class_index];
    if (slice == NULL) {
        slice = sampled_add_slice(class_index);
    }
    void *object = slice != NULL ? sampled_pop(slice) : NULL;
    lock_release(&sampled_lock);
    if (HAK_SECURE && object != NULL) {
        size_t bytes = size_class_bytes(class_index);
        secure_clear(object, bytes);
        secure_put_last(object, bytes);
        secure_begin_use(object, bytes, bytes - size, SECURE_MALLOC, secure_mark(object));
    }
    return object;
}

void hak__sampled_free(void *pointer)
{
    size_t number = window_slice_of(pointer);
    struct sampled_slice *slice = sampled_slice(number);
    struct sampled_object *object = pointer;
    if (HAK_SECURE) {
        sampled_take_back(object);
    }
    lock_acquire(&sampled_lock);
    if (slice->used_count == slice->capacity) {
        LIST_PUSH(sampled_partial[slice->class_index], slice);
    }
    object->next = slice->free_list;
    slice->free_list = object;
    slice->used_count--;
    size_t bytes = size_class_bytes(slice->class_index);
    sampled_account(UINT64_MAX, 0 - (uint64_t)bytes, 0); /* subtracts */
    if (slice->used_count == 0) {
        uint32_t slices = sampled_slices(bytes);
        sampled_unlist(slice);
        sampled_account(0, 0, 0 - (uint64_t)slices);
        window_set_owner(number, OWNER_NOBODY);
        if (HAK_SECURE) {
            hak__secure_forget(number, slices);
        }
        hak__superslab_give(number, slices);
    }
    lock_release(&sampled_lock);
}
