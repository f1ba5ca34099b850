/* SPDX-License-Identifier: MIT */
/* secure.c: see secure.h. */
#include "region/secure.h"

#include <string.h>

#include "base/bits.h"
#include "core/diagnose.h"
#include "core/seal.h"
#include "os/os.h"

/* It fills its page (core/seal.h). */
static _Alignas(SEAL_ALIGNMENT) union {
    struct secure secure;
    char pages[SEAL_BYTES(sizeof(struct secure))];
} secure_sealed;
extern struct secure hak__secure __attribute__((alias("secure_sealed")));

bool hak__secure_forked;

static uint64_t shared_secure_number; /* for hak__secure_draw; relaxed */

/* Bytes of the object, in the slab in which it lies. */
static size_t secure_bytes(const void *object)
{
    return size_class_bytes(owner_class(window_owner(window_slice_of(object))));
}

void hak__secure_written(const void *object)
{
    hak__diagnose_fatal("use after free: a freed object was written", object,
                        secure_bytes(object) - OBJECT_TAIL, 0);
}

void hak__secure_overflow(const void *block, size_t size)
{
    hak__diagnose_fatal("overflow: the bytes behind the allocation were written", block, size, 0);
}

/* Says which of two neighbours in use was overrun, if only one can be: the word between them has
 * changed, and the one in front has further bytes of canary before it, or not. */
static const char *secure_overrun_between(const void *object, size_t bytes)
{
    const char *front = (const char *)object - bytes;
    bool used = window_contains_slice(window_slice_of(front)) && secure_is_used(front);
    return used && secure_size(front, owner_class(window_owner(window_slice_of(object)))) ==
                       bytes - OBJECT_TAIL
               ? "underflow, or overflow of the block in front: the bytes between them were written"
               : "underflow: the bytes before the allocation were written";
}

void hak__secure_overrun(const void *object, size_t bytes, size_t slack)
{
    if (secure_changed(object, bytes, slack) != 0) {
        hak__secure_overflow(object, bytes - slack);
    }
    hak__diagnose_fatal(secure_overrun_between(object, bytes), object, bytes - slack, 0);
}

void hak__secure_underflow(const void *block, size_t size)
{
    hak__diagnose_fatal("underflow: the bytes before the allocation were written", block, size, 0);
}

/* State bytes behind the first that hold slack: all of a short object. It needs no more, because
 * each is for 16 bytes. */
static size_t secure_far_bytes(size_t bytes)
{
    size_t further = bytes / OBJECT_ALIGNMENT - 1;
    return further < SECURE_FAR_BYTES_MAX ? further : SECURE_FAR_BYTES_MAX;
}

HAK_STATIC_ASSERT(MID_SIZE_MAX < 1u << 4 * SECURE_FAR_BYTES_MAX, "they hold all slack");

size_t hak__secure_far_slack(const void *object, size_t bytes)
{
    const unsigned char *at = secure_state_at(object);
    size_t slack = 0;
    for (size_t i = secure_far_bytes(bytes); i != 0; i--) {
        slack = slack << 4 | atomic_load_relaxed(at + i) >> 4;
    }
    return slack + SECURE_NEAR_MAX;
}

void hak__secure_put_far(void *object, size_t bytes, size_t slack, enum secure_state state)
{
    unsigned char *at = secure_state_at(object);
    size_t count = secure_far_bytes(bytes), left = slack - SECURE_NEAR_MAX;
    hak__secure_put_gap(object, bytes - slack, bytes, secure_mark(object));
    for (size_t i = 1; i <= count; i++, left >>= 4) {
        atomic_store_relaxed(at + i, (unsigned char)(left << 4));
    }
    atomic_fence_signal();
    unsigned code = SECURE_SLACK_FAR << SECURE_STATE_BITS;
    atomic_store_relaxed(at, (unsigned char)(code | (unsigned)state));
}

static size_t secure_gap(size_t size, size_t room)
{
    /* Bytes of a canary at most. Half: a write that skips more than 32 bytes is not noticed. Twice:
     * two cache lines more in malloc and free of classes above 1 KiB. */
    return room - size < 64 ? room - size : 64;
}

void hak__secure_put_gap(void *block, size_t size, size_t room, uint64_t mark)
{
    unsigned char *at = (unsigned char *)block + size, *end = at + secure_gap(size, room);
    uint64_t word = secure_mark_at(mark, size);
    for (; end - at >= 8; at += 8) {
        *(secure_word *)(void *)at = word;
    }
    for (; at != end; at++, word >>= 8) {
        *at = (unsigned char)word;
    }
}

bool hak__secure_gap_is_whole(const void *block, size_t size, size_t room, uint64_t mark)
{
    const unsigned char *at = (const unsigned char *)block + size;
    const unsigned char *end = at + secure_gap(size, room);
    uint64_t word = secure_mark_at(mark, size), changed = 0;
    for (; end - at >= 8; at += 8) {
        changed |= *(const secure_word *)(const void *)at ^ word;
    }
    for (; at != end; at++, word >>= 8) {
        changed |= (unsigned char)(*at ^ word);
    }
    return changed == 0;
}

uint64_t hak__secure_changed_page(const uint64_t *word, uint64_t mark)
{
    bool missing =
        atomic_load_relaxed(&hak__secure_forked) && !hak__os_is_readable((uintptr_t)word);
    return missing ? 0 : atomic_load_relaxed(word) ^ mark;
}

void hak__secure_put_front(void *block, size_t bytes)
{
    uint64_t mark = secure_mark(block), *words = block;
    for (size_t i = bytes / sizeof mark; i != 0; i--) {
        *--words = mark;
    }
}

bool hak__secure_front_is_whole(const void *block, size_t bytes)
{
    uint64_t mark = secure_mark(block), changed = 0;
    const uint64_t *words = block;
    for (size_t i = bytes / sizeof mark; i != 0; i--) {
        changed |= *--words ^ mark;
    }
    return changed == 0;
}

void hak__secure_clear_gap(void *block, size_t size, size_t room)
{
    memset((char *)block + size, 0, secure_gap(size, room));
}

void *hak__secure_tag(void *object, size_t bytes)
{
    const char *start = (const char *)object, *end = start + bytes;
    uint64_t excluded = 1; /* 0: the tag of free objects */
    if ((uintptr_t)start % SLICE_SIZE != 0) {
        excluded = tag_exclude(tag_of_memory(start - OBJECT_ALIGNMENT), excluded);
    }
    if ((uintptr_t)end % SLICE_SIZE != 0) {
        excluded = tag_exclude(tag_of_memory(end), excluded);
    }
    void *tagged = tag_random(object, excluded);
    tag_memory(tagged, bytes);
    return tagged;
}

void hak__secure_resize(void *object, size_t bytes, size_t size)
{
    unsigned char byte = atomic_load_relaxed(secure_state_at(object));
    size_t before = bytes - secure_slack(object, byte, bytes);
    secure_set_state(object, SECURE_CHANGING);
    atomic_fence_signal(); /* as in secure_take_back */
    hak__secure_clear_gap(object, before, bytes - OBJECT_TAIL);
    enum secure_state state = (enum secure_state)(byte & SECURE_STATE_MASK);
    secure_begin_use(object, bytes, bytes - size, state, secure_mark(object));
}

static const char *secure_what(enum secure_state state, enum secure_state wanted)
{
    static const char *const mismatches[][3] = {
        /* freed by: free, delete, delete[] */
        {"", "delete of memory from malloc", "delete[] of memory from malloc"},
        {"free or realloc of memory from new", "", "delete[] of memory from new"},
        {"free or realloc of memory from new[]", "delete of memory from new[]", ""}};
    switch (state) {
    case SECURE_NOTHING:
        return "invalid free (no object starts here)";
    case SECURE_FRESH:
        return "invalid free (never allocated)";
    case SECURE_FREE:
    case SECURE_QUARANTINED:
    case SECURE_CHANGING:
        return "double free";
    case SECURE_MALLOC:
    case SECURE_NEW:
    case SECURE_NEW_ARRAY:
        break;
    }
    return mismatches[state - SECURE_MALLOC][wanted - SECURE_MALLOC];
}

void hak__secure_set_kind(const void *pointer, enum secure_state state)
{
    unsigned char *at = secure_state_at(pointer);
    unsigned slack = atomic_load_relaxed(at) & ~SECURE_STATE_MASK;
    atomic_store_relaxed(at, (unsigned char)(slack | (unsigned)state));
}

unsigned char hak__secure_judge(const void *pointer, uint32_t class_index, enum secure_state wanted)
{
    enum secure_state state =
        (uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ? SECURE_NOTHING : secure_state_of(pointer);
    if (!secure_state_is_used(state) || hak__secure_kinds_mix == NULL || !hak__secure_kinds_mix()) {
        hak__diagnose_fatal(secure_what(state, wanted), pointer, secure_size(pointer, class_index),
                            0);
    }
    hak__secure_set_kind(pointer, wanted);
    return atomic_load_relaxed(secure_state_at(pointer));
}

void hak__secure_bad_query(const void *pointer, uint32_t class_index)
{
    enum secure_state state =
        (uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ? SECURE_NOTHING : secure_state_of(pointer);
    hak__diagnose_fatal(state == SECURE_NOTHING || state == SECURE_FRESH
                            ? "malloc_usable_size of a pointer at which no block starts"
                            : "use after free: malloc_usable_size of a freed block",
                        pointer, size_class_usable(class_index), 0);
}

void hak__secure_bad_quarantine(const void *object)
{
    if (secure_state_of(object) == SECURE_QUARANTINED) {
        hak__secure_written(object);
    }
    /* Two threads have freed it at the same moment. */
    hak__diagnose_fatal("double free", object, secure_bytes(object) - OBJECT_TAIL, 0);
}

void hak__secure_bad_tag(const void *pointer, uint32_t class_index)
{
    hak__diagnose_fatal("invalid free (the block has a new owner: its memory tag has changed)",
                        pointer, secure_size(pointer, class_index), 0);
}

void hak__secure_begin(uintptr_t meet, uint64_t seed)
{
    hak__secure.states = (unsigned char *)(meet - hak__window.base / OBJECT_ALIGNMENT);
    hak__secure.keys = (struct secure_keys *)meet;
    hak__secure.secret = bits_mix(seed ^ UINT64_C(0xd1b54a32d192ed03));
    hak__secure.apart = bits_mix(bits_mix(seed + 2) ^ UINT64_C(0x9e3779b97f4a7c15));
    shared_secure_number = bits_mix(hak__secure.secret ^ bits_mix(seed + 1));
    hak__secure.tags = HAK_TAGS && hak__os_start_tags();
    hak__secure.kinds = hak__secure_kinds != NULL && hak__secure_kinds();
    /* If the kernel refuses, the page stays open. */
    (void)hak__os_write_protect(&secure_sealed, sizeof secure_sealed, true, false);
}

uint64_t hak__secure_draw(void)
{
    /* relaxed: a counter */
    uint64_t number = atomic_add_relaxed(&shared_secure_number, UINT64_C(0x9e3779b97f4a7c15));
    return bits_mix(bits_mix(number) ^ hak__secure.secret);
}

/* The parent draws a number before each fork (arena/fork.c), so each child begins elsewhere. */
void hak__secure_renew(void)
{
    shared_secure_number = hak__secure_draw();
}

void hak__secure_new_keys(size_t slice, uint32_t count)
{
    struct secure_keys keys = {hak__secure_draw(), hak__secure_draw()};
    for (uint32_t i = 0; i < count; i++) {
        hak__secure.keys[~(slice + i)] = keys;
    }
}

void hak__secure_forget(size_t slice, uint32_t count)
{
    memset(secure_state_at(window_slice_address(slice)), SECURE_NOTHING,
           count * SECURE_STATES_SIZE);
}
