/* SPDX-License-Identifier: MIT */
/* heap_secure.c: see heap_secure.h. Only in the secure form. */
#include "heap/heap_secure.h"

#include <string.h>

#include "base/bits.h"
#include "core/diagnose.h"
#include "os/os.h"

struct heap_head {
    uint64_t code; /* the size, and the lead in the lower bits */
    uint64_t check;
};

#define CODE_SHIFT 16u
HAK_STATIC_ASSERT(HAK_HEAP_ALIGNMENT_MAX / HEAP_LEAD < 1u << CODE_SHIFT, "the lead fits");

/* The mark of an object of a heap, which may lie outside the window. Two secrets, so that nobody
 * can compute another mark from one. */
static uint64_t head_mark(const void *block)
{
    uint64_t mixed = bits_mix((uintptr_t)block ^ hak__secure.secret);
    return secure_mark_by(bits_mix(mixed + hak__secure.apart), block);
}

static uint64_t head_check(const char *pointer, uint64_t code)
{
    return bits_mix(code ^ head_mark(pointer));
}

static struct heap_head *head_of(const char *pointer)
{
    return (struct heap_head *)(uintptr_t)(pointer - sizeof(struct heap_head));
}

static bool head_is_whole(const char *pointer)
{
    const struct heap_head *head = head_of(pointer);
    return head->check == head_check(pointer, head->code);
}

static size_t lead_of(const char *pointer)
{
    return (head_of(pointer)->code & ((1u << CODE_SHIFT) - 1)) * HEAP_LEAD;
}

static void head_put(char *pointer, size_t lead, size_t size)
{
    uint64_t code = (uint64_t)size << CODE_SHIFT | lead / HEAP_LEAD;
    *head_of(pointer) = (struct heap_head){code, head_check(pointer, code)};
}

static void guard_put(char *object, size_t bytes, size_t lead, size_t size)
{
    head_put(object + HEAP_LEAD, lead, size); /* the same place, if the lead is that */
    head_put(object + lead, lead, size);
    hak__secure_put_gap(object + lead, size, bytes - lead, head_mark(object + lead));
}

/* Looks whether a free object is clear behind its link. */
static void guard_look(const char *object, size_t bytes)
{
    size_t end = bytes < SECURE_LOOK_MAX ? bytes : SECURE_LOOK_MAX;
    uint64_t sum = 0;
    for (size_t at = HEAP_LEAD; at < end; at += sizeof sum) {
        sum |= *(const secure_word *)(const void *)(object + at);
    }
    if (HAK_UNLIKELY(sum != 0)) {
        hak__diagnose_fatal("use after free: a freed object was written", object + HEAP_LEAD,
                            bytes - HEAP_LEAD - HEAP_CANARY, 0);
    }
}

void *hak__heap_guard(struct hak_heap *heap, void *object, size_t alignment, size_t size)
{
    char *start = object;
    struct heap_place place = hak__heap_locate(heap, object);
    if (HAK_UNLIKELY(place.run == NULL)) {
        hak__object_is_wrong(object);
    }
    size_t lead = HEAP_LEAD;
    if (alignment > HEAP_LEAD) {
        lead = bits_align_up((uintptr_t)object + HEAP_LEAD, alignment) - (uintptr_t)object;
    }
    if (place.run->class_index != 0) {
        guard_look(start, place.bytes);
    }
    guard_put(start, place.bytes, lead, size);
    return start + lead;
}

/* True: it is in a list, by its mark, which is the process's in all but 48 bits. */
static bool object_is_listed(const struct object *object)
{
    return (object->mark ^ heap_link_sum(object->next) ^ hak__window.mark) >> 48 == 0;
}

/* What the program has of an object whose first head is whole. Reports it, if `checks`, if somebody
 * has written behind it. */
static struct heap_owned owned_of(char *object, size_t bytes, size_t lead, bool checks)
{
    const char *pointer = object + lead;
    size_t size = head_of(object + HEAP_LEAD)->code >> CODE_SHIFT;
    if (checks &&
        HAK_UNLIKELY(!hak__secure_gap_is_whole(pointer, size, bytes - lead, head_mark(pointer)))) {
        hak__secure_overflow(pointer, size);
    }
    return (struct heap_owned){object, lead, size, bytes - lead - HEAP_CANARY};
}

struct heap_owned hak__heap_find_guarded(struct hak_heap *heap, const void *pointer)
{
    hak__heap_check_alive(heap);
    struct heap_place place = hak__heap_around(heap, pointer);
    char *object = place.object;
    size_t lead = HEAP_LEAD;
    if (object != NULL && head_is_whole(object + HEAP_LEAD)) {
        lead = lead_of(object + HEAP_LEAD);
    }
    if (HAK_UNLIKELY(object == NULL || object + lead != pointer)) {
        hak__heap_no_object(heap, pointer);
        return (struct heap_owned){NULL, 0, 0, 0};
    }
    if (HAK_UNLIKELY(!head_is_whole(pointer))) {
        if (!object_is_listed((struct object *)(void *)object)) {
            hak__secure_underflow(pointer, place.bytes - lead - HEAP_CANARY);
        }
        hak__heap_bad_pointer(heap, pointer, "double free");
        return (struct heap_owned){NULL, 0, 0, 0};
    }
    return owned_of(object, place.bytes, lead, true);
}

struct heap_owned hak__heap_look_at(void *object, size_t bytes, bool lost)
{
    const char *first = (const char *)object + HEAP_LEAD;
    if (head_is_whole(first)) {
        size_t lead = lead_of(first);
        if (!lost && HAK_UNLIKELY(!head_is_whole((const char *)object + lead))) {
            hak__secure_underflow((const char *)object + lead, bytes - lead - HEAP_CANARY);
        }
        return owned_of(object, bytes, lead, !lost);
    }
    if (!lost && !object_is_listed(object)) {
        hak__secure_underflow(first, bytes - HEAP_LEAD - HEAP_CANARY);
    }
    return (struct heap_owned){NULL, 0, 0, 0};
}

/* Bytes of the object. */
static size_t owned_bytes(const struct heap_owned *owned)
{
    return owned->lead + owned->room + HEAP_CANARY;
}

void hak__heap_resize_guarded(const struct heap_owned *owned, size_t size)
{
    char *pointer = (char *)owned->object + owned->lead;
    hak__secure_clear_gap(pointer, owned->size, owned->room + HEAP_CANARY);
    guard_put(owned->object, owned_bytes(owned), owned->lead, size);
}

void *hak__heap_unguard(struct hak_heap *heap, void *pointer)
{
    struct heap_owned owned = hak__heap_find_guarded(heap, pointer);
    size_t bytes = owned_bytes(&owned);
    if (owned.object != NULL && heap->own_pages && bytes > MID_SIZE_MAX) {
        hak__os_clear(owned.object, bytes);
    } else if (owned.object != NULL) {
        memset(owned.object, 0, bytes);
    }
    return owned.object;
}
