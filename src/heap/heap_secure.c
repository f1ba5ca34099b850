/* SPDX-License-Identifier: MIT */
/* heap_secure.c: see heap_secure.h. */
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

static uint64_t head_check(const char *pointer, uint64_t code)
{
    return bits_mix(code ^ secure_mark(pointer));
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

static void head_put(char *pointer, size_t lead, size_t size)
{
    uint64_t code = (uint64_t)size << CODE_SHIFT | lead / HEAP_LEAD;
    *head_of(pointer) = (struct heap_head){code, head_check(pointer, code)};
}

static void guard_put(char *object, size_t bytes, size_t lead, size_t size)
{
    head_put(object + HEAP_LEAD, lead, size); /* the same place, if the lead is that */
    head_put(object + lead, lead, size);
    hak__secure_put_gap(object + lead, size, bytes - lead);
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

/* Reports it if somebody has written behind it, or before it. */
static void guarded_check(const char *object, size_t bytes, const struct heap_guarded *guarded)
{
    const char *pointer = object + guarded->lead;
    if (HAK_UNLIKELY(!hak__secure_gap_is_whole(pointer, guarded->size, bytes - guarded->lead))) {
        hak__secure_overflow(pointer, guarded->size);
    }
    if (HAK_UNLIKELY(!head_is_whole(pointer))) {
        hak__secure_underflow(pointer, guarded->size);
    }
}

/* What the head before `pointer`, which is whole, says of an object of `bytes` bytes there. */
static struct heap_guarded guarded_of(const char *pointer, void *object, size_t lead, size_t bytes)
{
    size_t size = head_of(pointer)->code >> CODE_SHIFT;
    return (struct heap_guarded){object, lead, size, bytes - lead, false};
}

static size_t lead_of(const char *pointer)
{
    return (head_of(pointer)->code & ((1u << CODE_SHIFT) - 1)) * HEAP_LEAD;
}

/* True: it is in a list, by its mark, which is the process's in all but 48 bits. */
static bool object_is_listed(const struct object *object)
{
    return (object->mark ^ heap_link_sum(object->next) ^ hak__window.mark) >> 48 == 0;
}

/* The start of the object in which `pointer` lies, if it does; else NULL, or anything in the heap.
 * A block may begin some pages before, for its alignment. */
static char *object_around(struct hak_heap *heap, const char *pointer)
{
    const struct heap_chunk *chunk = hak__heap_chunk_of(heap, pointer);
    size_t index = chunk != NULL ? heap_page_index(chunk, pointer) : 0;
    while (chunk != NULL && index != 0 && chunk->pages[index].kind == 0) {
        index--;
    }
    if (chunk == NULL || chunk->pages[index].kind == 0) {
        return NULL;
    }
    uint32_t kind = chunk->pages[index].kind;
    char *start = (char *)heap_run_start(&chunk->runs[index - chunk->pages[index].back]);
    size_t bytes = kind == PAGE_BLOCK ? SIZE_MAX : size_class_bytes(kind);
    return start + (size_t)(pointer - start) / bytes * bytes;
}

/* The head before `pointer` is not whole. Finds out why, and reports it. */
static HAK_COLD void guarded_report(struct hak_heap *heap, const char *pointer)
{
    char *object = object_around(heap, pointer);
    struct heap_place place = hak__heap_locate(heap, object);
    if (place.run == NULL) {
        hak__heap_no_object(heap, pointer);
        return;
    }
    const char *first = object + HEAP_LEAD;
    if (pointer == first && object_is_listed((struct object *)object)) {
        hak__heap_bad_pointer(heap, pointer, "double free");
        return;
    }
    if (pointer == first || (head_is_whole(first) && object + lead_of(first) == pointer)) {
        hak__secure_underflow(pointer, place.bytes - (size_t)(pointer - object) - HEAP_CANARY);
    }
    hak__heap_no_object(heap, pointer);
}

struct heap_guarded hak__heap_guarded(struct hak_heap *heap, const void *pointer)
{
    static const struct heap_guarded none;
    const char *start = pointer;
    hak__heap_check_alive(heap);
    if (HAK_UNLIKELY(hak__heap_chunk_of(heap, start - HEAP_LEAD) == NULL ||
                     (uintptr_t)pointer % OBJECT_ALIGNMENT != 0)) {
        hak__heap_no_object(heap, pointer);
        return none;
    }
    if (HAK_UNLIKELY(!head_is_whole(start))) {
        guarded_report(heap, start);
        return none;
    }
    size_t lead = lead_of(start);
    char *object = (char *)(uintptr_t)start - lead;
    struct heap_place place = hak__heap_locate(heap, object);
    if (HAK_UNLIKELY(place.run == NULL)) { /* the head of an object that starts behind this one's */
        hak__heap_no_object(heap, pointer);
        return none;
    }
    struct heap_guarded guarded = guarded_of(start, object, lead, place.bytes);
    guarded.in_slab = place.run->class_index != 0;
    guarded_check(object, place.bytes, &guarded);
    return guarded;
}

struct heap_guarded hak__heap_guarded_object(void *object, size_t bytes, bool lost)
{
    const char *first = (const char *)object + HEAP_LEAD;
    if (!head_is_whole(first)) {
        if (lost || object_is_listed(object)) {
            return (struct heap_guarded){NULL, 0, 0, 0, false};
        }
        hak__secure_underflow(first, bytes - HEAP_LEAD - HEAP_CANARY);
    }
    struct heap_guarded guarded = guarded_of(first, object, lead_of(first), bytes);
    if (!lost) {
        guarded_check(object, bytes, &guarded);
    }
    return guarded;
}

void hak__heap_guard_resize(const struct heap_guarded *guarded, size_t size)
{
    char *pointer = (char *)guarded->object + guarded->lead;
    hak__secure_clear_gap(pointer, guarded->size, guarded->room);
    guard_put(guarded->object, guarded->lead + guarded->room, guarded->lead, size);
}

void hak__heap_unguard(const struct hak_heap *heap, const struct heap_guarded *guarded)
{
    size_t bytes = guarded->lead + guarded->room;
    if (!guarded->in_slab && heap->own_pages) {
        hak__os_clear(guarded->object, bytes);
    } else {
        memset(guarded->object, 0, bytes);
    }
}
