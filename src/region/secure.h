/* secure.h: what libhakmem-secure.so knows of each object, out of the program's reach.
 *
 * The secure form of the library is built from the same sources with HAK_SECURE. It has two more
 * tables, which grow with the window (window.h):
 *
 *   states   one byte for each 16 bytes of the window. The byte of an object's first 16 bytes says
 *            what the object is now; all other bytes are 0.
 *   keys     one random number for each slice; all slices of a slab have the same one. Links of
 *            free objects are XORed with it.
 *
 *   carved --> FRESH --malloc--> MALLOC, NEW or NEW_ARRAY --free--> RESTING --> FREE
 *                                            ^-------------malloc-------------------'
 *
 *   malloc  hands out an object only if it is FREE or FRESH, starts in a slab of its class, and
 *           begins with SECURE_LOOK_MAX zeroes. So no object ever has two owners, and a link that
 *           the program has overwritten leads to a free object of the class, or ends in a report.
 *   free    takes an object only in one of the three states of use. So it reports every double
 *           free and every pointer at which no object starts, however long ago the object was
 *           freed. It looks at the canary, the last OBJECT_TAIL bytes, and clears the object.
 *
 * The states are plain bytes, without locked operations: two threads that free one object at the
 * same moment may both succeed. Then the second one to end the object's rest, or to hand it out,
 * finds a state that cannot be, and reports that.
 *
 * Memory tags: on aarch64, if the processor has them, an object in use has a random tag that its
 * neighbours do not have, and so has its pointer. A free object has tag 0. An access through a
 * dangling pointer, or beyond the object, then faults. hakmem itself uses pointers without a tag.
 *
 * Sources: metadata apart from the objects, zero on free, canaries and quarantine are from
 * OpenBSD's malloc and hardened_malloc; links with a key are from glibc 2.32 (safe linking) and
 * snmalloc. */
#ifndef HAK_REGION_SECURE_H
#define HAK_REGION_SECURE_H

#include "core/size_class.h"
#include "region/window.h"

enum secure_state {
    SECURE_NOTHING, /* no object starts here, or it was not carved yet */
    SECURE_FRESH,   /* free, and never handed out: its pages may be untouched */
    SECURE_FREE,
    SECURE_RESTING, /* freed a short time ago (cache/cache.h) */
    SECURE_MALLOC,  /* in use; from malloc and its relatives */
    SECURE_NEW,
    SECURE_NEW_ARRAY
};

/* Constant once the process has started: hak__secure_seal makes it read-only. */
struct secure {
    unsigned char *states; /* the byte of `address` is states[address / OBJECT_ALIGNMENT] */
    uint64_t *keys;        /* [~slice] */
    uint64_t canary;       /* random; XORed with an object's address it is the object's canary */
    bool tags;             /* objects get memory tags (base/tags.h) */
};
HAK_HIDDEN extern struct secure hak__secure;

/* The sizes of the tables' entries, in bytes for each slice. */
#define SECURE_STATES_SIZE (SLICE_SIZE / OBJECT_ALIGNMENT)
#define SECURE_KEY_SIZE sizeof(uint64_t)

/* Report an object and abort. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_written(const void *object,
                                                                       uint32_t class_index);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_overflow(const void *object,
                                                                        uint32_t class_index);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__secure_bad_free(const void *pointer, uint32_t class_index, enum secure_state wanted);

HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_bad_rest(const void *object);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_bad_tag(const void *pointer,
                                                                       uint32_t class_index);

/* Called by the window when the tables exist. */
HAK_HIDDEN void hak__secure_tables(uintptr_t meet, uint64_t seed);

/* Called once, when the window stands. */
HAK_HIDDEN void hak__secure_seal(void);

/* A new random number. Any thread. */
HAK_HIDDEN uint64_t hak__secure_draw(void);

/* Gives the slices of a new slab a key. Under the heap's lock. */
HAK_HIDDEN void hak__secure_new_key(size_t slice, uint32_t count);

/* Forgets all objects of a slab that is given back. Under the heap's lock. */
HAK_HIDDEN void hak__secure_forget(size_t slice, uint32_t count);

/* The next number of a simple generator (Knuth's MMIX), of which the upper bits are good. */
HAK_INLINE uint32_t secure_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

/* The pointer lies in the window. Accesses are relaxed: see above. */
HAK_INLINE unsigned char *secure_state_at(const void *pointer)
{
    return &hak__secure
                .states[(uintptr_t)(HAK_TAGS ? tag_strip(pointer) : pointer) / OBJECT_ALIGNMENT];
}

HAK_INLINE enum secure_state secure_state_of(const void *pointer)
{
    return (enum secure_state)atomic_load_relaxed(secure_state_at(pointer));
}

HAK_INLINE bool secure_state_is_free(enum secure_state state)
{
    return (unsigned)state - SECURE_FRESH <= SECURE_FREE - SECURE_FRESH;
}

HAK_INLINE void secure_set_state(const void *pointer, enum secure_state state)
{
    atomic_store_relaxed(secure_state_at(pointer), (unsigned char)state);
}

HAK_INLINE uintptr_t secure_key(const void *object)
{
    return hak__secure.keys[~window_slice_of(object)];
}

HAK_INLINE uint64_t *secure_canary(const void *object, size_t bytes)
{
    return (uint64_t *)(void *)((unsigned char *)(uintptr_t)object + bytes - sizeof(uint64_t));
}

/* Two words at once; every object is a multiple of them. */
typedef uint64_t secure_pair __attribute__((vector_size(16), may_alias));

/* malloc looks whether the first bytes of an object are still zero; so many at most. Twice as many:
 * a malloc of a large object takes up to 60 ns longer. Half: a write after free is noticed in half
 * of the places. */
#define SECURE_LOOK_MAX 1024u
/* The length from which the C library's memset is faster. */
#define SECURE_CLEAR_MIN 512u

/* Four pairs, the length of a step. */
#define SECURE_STEP (4 * sizeof(secure_pair))

HAK_INLINE secure_pair secure_or_step(const secure_pair *at)
{
    return (at[0] | at[1]) | (at[2] | at[3]);
}

/* True if all but the first word, a link, is zero. The second word is read by itself: a processor
 * waits for a store to finish if a load needs it and more. The last step may overlap the one before
 * it, so there is one loop only. */
HAK_INLINE bool secure_is_zero(const void *object, size_t bytes)
{
    const secure_pair *at = (const secure_pair *)object + 1;
    const secure_pair *end = (const secure_pair *)(const void *)((const char *)object + bytes);
    secure_pair all = {((const uint64_t *)object)[1], 0};
    if (HAK_LIKELY(bytes >= sizeof(secure_pair) + SECURE_STEP)) {
        for (; at + 4 < end; at += 4) {
            all |= secure_or_step(at);
        }
        all |= secure_or_step(end - 4);
    } else {
        for (; at != end; at++) {
            all |= *at;
        }
    }
    return (all[0] | all[1]) == 0;
}

HAK_INLINE void secure_clear_step(secure_pair *at)
{
    at[0] = at[1] = at[2] = at[3] = (secure_pair){0, 0};
}

HAK_INLINE void secure_clear(void *object, size_t bytes)
{
    secure_pair *at = (secure_pair *)object;
    secure_pair *end = (secure_pair *)(void *)((char *)object + bytes);
    if (HAK_UNLIKELY(bytes >= SECURE_CLEAR_MIN)) {
        __builtin_memset(object, 0, bytes);
    } else if (HAK_LIKELY(bytes >= SECURE_STEP)) {
        for (; at + 4 < end; at += 4) {
            secure_clear_step(at);
            __asm__ volatile("" : "+r"(at)); /* else the compiler calls memset */
        }
        secure_clear_step(end - 4);
    } else {
        for (; at != end; at++) {
            *at = (secure_pair){0, 0};
            __asm__ volatile("" : "+r"(at));
        }
    }
}

/* True if `object`, which may be any address, is a free object of the class. */
HAK_INLINE bool secure_is_free(const void *object, uint32_t class_index)
{
    size_t slice = window_slice_of_object(object);
    if (HAK_UNLIKELY(slice >= window_limit_seen() ||
                     owner_class(window_owner(slice)) != class_index)) {
        return false;
    }
    return secure_state_is_free(secure_state_of(object));
}

/* Gives an object a tag that neither a free object nor its neighbours have. */
HAK_INLINE void *secure_tag(void *object, size_t bytes)
{
    const char *start = (const char *)object, *end = start + bytes;
    uint64_t excluded = 1; /* 0: the tag of free objects */
    if ((uintptr_t)start % SLICE_SIZE != 0) {
        excluded = tag_exclude(tag_of_memory(start - TAG_GRANULE), excluded);
    }
    if ((uintptr_t)end % SLICE_SIZE != 0) {
        excluded = tag_exclude(tag_of_memory(end), excluded);
    }
    void *tagged = tag_random(object, excluded);
    tag_memory(tagged, bytes);
    return tagged;
}

/* Checks an object whose rest ends. Its first word becomes a link, so this is the last look at it.
 */
HAK_INLINE void secure_end_rest(const void *object)
{
    if (HAK_UNLIKELY(secure_state_of(object) != SECURE_RESTING ||
                     *(const uintptr_t *)object != 0)) {
        hak__secure_bad_rest(object);
    }
}

/* Makes a free object of the class, which has just left its list, one that the program owns. */
HAK_INLINE void *secure_hand_out(void *object, uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    size_t looked = bytes < SECURE_LOOK_MAX ? bytes : SECURE_LOOK_MAX;
    if (HAK_UNLIKELY(!secure_is_zero(object, looked))) {
        hak__secure_written(object, class_index);
    }
    *(uintptr_t *)object = 0; /* the link */
    *secure_canary(object, bytes) = hak__secure.canary ^ (uintptr_t)object;
    secure_set_state(object, SECURE_MALLOC);
    return HAK_TAGS && hak__secure.tags ? secure_tag(object, bytes) : object;
}

/* Makes an object that the program frees a resting one. `pointer` is any address in a slab of the
 * class; `state` is that which an object must have to be freed in this way. Returns the object,
 * without a tag. */
HAK_INLINE void *secure_take_back(void *pointer, uint32_t class_index, enum secure_state state)
{
    size_t bytes = size_class_bytes(class_index);
    if (HAK_UNLIKELY((uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ||
                     secure_state_of(pointer) != state)) {
        hak__secure_bad_free(pointer, class_index, state);
    }
    if (HAK_TAGS && hak__secure.tags) {
        if (HAK_UNLIKELY(tag_of_memory(pointer) != pointer)) {
            hak__secure_bad_tag(pointer, class_index);
        }
        pointer = tag_strip(pointer);
        tag_memory(pointer, bytes);
    }
    if (HAK_UNLIKELY(*secure_canary(pointer, bytes) != (hak__secure.canary ^ (uintptr_t)pointer))) {
        hak__secure_overflow(pointer, class_index);
    }
    secure_set_state(pointer, SECURE_RESTING);
    secure_clear(pointer, bytes);
    return pointer;
}

#endif
