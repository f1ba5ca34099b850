/* SPDX-License-Identifier: MIT */
/* secure.h: what libhakmem-secure.so knows of each object, out of the program's reach.
 *
 * The secure form of the library is built from the same sources. It has two more tables, which grow
 * with the window (window.h):
 *
 *   states   one byte for each 16 bytes of the window. The byte of an object's first 16 bytes says
 *            what the object is now, and how many bytes of it the program did not ask for:
 *
 *              7    3 2   0        If these bytes, the slack, are more than SECURE_NEAR_MAX, the
 *             +------+-----+       upper bits are SECURE_SLACK_FAR. Then the next bytes of the
 *             |slack |state|       object, up to SECURE_FAR_BYTES_MAX, have four bits of the slack
 *             +------+-----+       each, in bits 4 to 7. Their lower bits are 0.
 *
 *   keys     two random numbers for each slice; all slices of a slab have the same ones. Links of
 *            free objects are XORed with the first; canaries are made of both and the address.
 *
 *   carved --> FRESH --malloc--> MALLOC, NEW or NEW_ARRAY --free--> QUARANTINED --> FREE
 *                                            ^-------------malloc-------------------'
 *
 *   malloc  hands out an object only if it is FREE or FRESH, starts in a slab of its class, and
 *           is zero; of a FRESH one only SECURE_LOOK_MAX bytes are read. So no object ever has two
 *           owners, and a link that the program has overwritten leads to a free object of the
 *           class, or ends in a report.
 *   free    takes an object only in one of the three states of use. So it reports every double
 *           free and every pointer at which no object starts, however long ago the object was
 *           freed. It looks at the canary and at the word before the object, and clears the object.
 *
 * The canary begins at the first byte that the program did not ask for, and fills the slack, but at
 * most 64 bytes of it. Every object has at least OBJECT_TAIL of them. Each byte is odd,
 * so the zero that ends a string too long by one byte is always noticed. The byte at an address is
 * that of the mark (secure_mark) with the same place in its word, so words may overlap.
 *
 * The word in front of each object, the last one of its neighbour, is a mark that never changes
 * while the slab is cut into objects. So free checks it to find writes before the object. A slab
 * begins with room for such a word before its first object.
 *
 * Blocks of large/ have a canary in the gap between their end and their closed page, and spans also
 * one of SECURE_FRONT bytes or more before their start. Objects of heaps: heap/heap_secure.h.
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

#include "base/arch.h"
#include "core/size_class.h"
#include "region/window.h"

enum secure_state {
    SECURE_NOTHING, /* no object starts here, or it was not carved yet */
    SECURE_FRESH,   /* free, and never handed out: its pages may be untouched */
    SECURE_FREE,
    SECURE_QUARANTINED, /* freed a short time ago (cache/cache.h) */
    SECURE_MALLOC,      /* in use; from malloc and its relatives */
    SECURE_NEW,
    SECURE_NEW_ARRAY,
    SECURE_CHANGING /* for the moment in which it is cleared, or its canary moves */
};

#define SECURE_STATE_BITS 3u
#define SECURE_STATE_MASK ((1u << SECURE_STATE_BITS) - 1)
/* Slack that three words of canary fill. Requests of tiny classes have no more, unless they are
 * aligned. */
#define SECURE_NEAR_MAX (OBJECT_TAIL + OBJECT_ALIGNMENT)
#define SECURE_SLACK_FAR (OBJECT_ALIGNMENT + 1u)
#define SECURE_FAR_BYTES_MAX 5u
#define SECURE_FRONT 16u

struct secure_keys {
    uint64_t link;
    uint64_t mark;
};

/* Constant once the process has started: hak__secure_begin makes it read-only. */
struct secure {
    unsigned char *states;    /* the byte of `address` is states[address / OBJECT_ALIGNMENT] */
    struct secure_keys *keys; /* [~slice] */
    uint64_t secret;          /* random; hak__secure_draw mixes it into each number */
    uint64_t apart;           /* random; of marks outside the window */
    bool tags;                /* objects get memory tags (base/tags.h) */
    bool kinds;               /* new and malloc are told apart (override/cxx.cc) */
};
HAK_HIDDEN extern struct secure hak__secure;
/* The sizes of the tables' entries, in bytes for each slice. */
#define SECURE_STATES_SIZE (SLICE_SIZE / OBJECT_ALIGNMENT)

/* Report an object and abort. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_written(const void *object);
/* An object in use: its canary, or the word before it, has changed. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_overrun(const void *object,
                                                                       size_t bytes, size_t slack);
/* `size`: of the request. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_overflow(const void *block,
                                                                        size_t size);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_underflow(const void *block,
                                                                         size_t size);
/* Returns the object's byte if it may be freed so nevertheless (override/kinds.c). */
HAK_HIDDEN HAK_COLD unsigned char hak__secure_judge(const void *pointer, uint32_t class_index,
                                                    enum secure_state wanted);

/* A question about a pointer at which no object in use starts. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_bad_query(const void *pointer,
                                                                         uint32_t class_index);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_bad_quarantine(const void *object);
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__secure_bad_tag(const void *pointer,
                                                                       uint32_t class_index);

HAK_INLINE bool secure_has_kinds(void)
{
    return HAK_SECURE && hak__secure.kinds;
}

/* The state of what new returns, without a jump. */
HAK_STATIC_ASSERT(SECURE_NEW == SECURE_MALLOC + 1, "kinds are added");
HAK_INLINE enum secure_state secure_new_state(void)
{
    return (enum secure_state)(SECURE_MALLOC + (secure_has_kinds() ? 1 : 0));
}

/* The bytes of a closed page beside a block of large/. 0: the ordinary form closes none. */
#define secure_page() (HAK_SECURE ? hak__os_page_size() : (size_t)0)
/* A number that only the secure form writes. */
#define secure_field(place) (HAK_SECURE ? atomic_load_relaxed(place) : 0)

/* In override/cxx.cc and kinds.c, so not in every library. */
HAK_HIDDEN __attribute__((weak)) bool hak__secure_kinds(void);
HAK_HIDDEN __attribute__((weak)) bool hak__secure_kinds_mix(void);
HAK_HIDDEN extern bool hak__secure_forked; /* fork's child may lack pages of live blocks. Relaxed */
/* Called by the window when it stands. */
HAK_HIDDEN void hak__secure_begin(uintptr_t meet, uint64_t seed);

/* A new random number. Any thread. */
HAK_HIDDEN uint64_t hak__secure_draw(void);
/* In fork's child: from now on it draws other numbers than its parent and its siblings. */
HAK_HIDDEN void hak__secure_renew(void);

/* Gives the slices of a new slab or span keys. Their only user is the calling thread, or waits for
 * the arena's lock, which that holds. */
HAK_HIDDEN void hak__secure_new_keys(size_t slice, uint32_t count);

/* Forgets all objects of a slab that is given back. Under the arena's lock. */
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
    return (enum secure_state)(atomic_load_relaxed(secure_state_at(pointer)) & SECURE_STATE_MASK);
}

HAK_INLINE bool secure_state_is_used(enum secure_state state)
{
    return state >= SECURE_MALLOC && state <= SECURE_NEW_ARRAY;
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
    return hak__secure.keys[~window_slice_of(object)].link;
}

/* Changes how an object in use is to be freed. */
HAK_HIDDEN void hak__secure_set_kind(const void *pointer, enum secure_state state);
/* Takes slack above SECURE_NEAR_MAX from the state bytes of an object of `bytes`. */
HAK_HIDDEN size_t hak__secure_far_slack(const void *object, size_t bytes);
/* As secure_begin_use, for such slack. */
HAK_HIDDEN void hak__secure_put_far(void *object, size_t bytes, size_t slack,
                                    enum secure_state state);
/* Writes the canary of a block of `size` bytes that has room for `room`; the block lies at a
 * multiple of OBJECT_ALIGNMENT. The second function says whether it is as it was written. `mark`:
 * the block's (secure_mark, secure_mark_by). */
HAK_HIDDEN void hak__secure_put_gap(void *block, size_t size, size_t room, uint64_t mark);
HAK_HIDDEN bool hak__secure_gap_is_whole(const void *block, size_t size, size_t room,
                                         uint64_t mark);
/* The canary of `bytes` before a span, a multiple of SECURE_FRONT. */
HAK_HIDDEN void hak__secure_put_front(void *block, size_t bytes);
HAK_HIDDEN bool hak__secure_front_is_whole(const void *block, size_t bytes);
/* As secure_changed_before, for a word in another page. */
HAK_HIDDEN uint64_t hak__secure_changed_page(const uint64_t *word, uint64_t mark);
/* Makes the canary behind a block zeroes, for a block that will be longer. */
HAK_HIDDEN void hak__secure_clear_gap(void *block, size_t size, size_t room);

/* The eight bytes of the canary of a block, from an address on that is a multiple of 8. `key`: a
 * random number that few blocks share. */
HAK_INLINE uint64_t secure_mark_by(uint64_t key, const void *block)
{
    uintptr_t address = (uintptr_t)(HAK_TAGS ? tag_strip(block) : block);
    return (key ^ address) | UINT64_C(0x0101010101010101);
}

/* Of the place `bytes` before an object or span. By two keys: one that leaked tells no other. */
HAK_INLINE uint64_t secure_mark_before(const void *object, size_t bytes)
{
    struct secure_keys keys = hak__secure.keys[~window_slice_of(object)];
    uintptr_t address = (uintptr_t)(HAK_TAGS ? tag_strip(object) : object) - bytes;
    __extension__ unsigned __int128 key = keys.link | 1, product = key * (keys.mark ^ address);
    return ((uint64_t)product ^ (uint64_t)(product >> 64)) | UINT64_C(0x0101010101010101);
}

HAK_INLINE uint64_t secure_mark(const void *block)
{
    return secure_mark_before(block, 0);
}

/* The same, `offset` bytes behind such an address. */
HAK_INLINE uint64_t secure_mark_at(uint64_t mark, size_t offset)
{
    unsigned shift = (unsigned)offset * 8 % 64;
    return mark >> shift | mark << (64 - shift) % 64;
}

typedef uint64_t secure_word __attribute__((aligned(1), may_alias));

/* The last word of an object. */
HAK_INLINE uint64_t *secure_last(const void *object, size_t bytes)
{
    return (uint64_t *)((uintptr_t)object + bytes - sizeof(uint64_t));
}

/* Writes it. relaxed: other threads look at it before the object is used. */
HAK_INLINE void secure_put_last(void *object, size_t bytes)
{
    atomic_store_relaxed(secure_last(object, bytes), secure_mark(object));
}

/* The bits of the word before an object that are not as they were written. The page before the
 * object's own may be missing in a child of fork. With memory tags a write to that word faults, and
 * a look would, too. */
HAK_INLINE uint64_t secure_changed_before(const void *object, size_t bytes)
{
    const char *front = (const char *)object - bytes;
    const uint64_t *word = secure_last(front, bytes);
    if (HAK_TAGS && hak__secure.tags) {
        return 0;
    }
    if (HAK_UNLIKELY((uintptr_t)object % ARCH_PAGE_SIZE_MIN == 0)) {
        return hak__secure_changed_page(word, secure_mark_before(object, bytes));
    }
    return atomic_load_relaxed(word) ^ secure_mark_before(object, bytes);
}

/* Bytes that an object in use, with the state byte `byte`, has beyond the request. */
HAK_INLINE size_t secure_slack(const void *object, unsigned char byte, size_t bytes)
{
    size_t slack = byte >> SECURE_STATE_BITS;
    return HAK_LIKELY(slack < SECURE_SLACK_FAR) ? slack + OBJECT_TAIL
                                                : hak__secure_far_slack(object, bytes);
}

/* Makes an object one that the program owns, for a request of `slack` bytes less, which are at most
 * SECURE_NEAR_MAX. */
HAK_INLINE void secure_begin_near(void *object, size_t bytes, size_t slack, enum secure_state state,
                                  uint64_t mark)
{
    /* The words may overlap: from the request's end on, and the one before the last, or the last
     * itself, which has its value already. */
    char *end = (char *)object + bytes;
    *(secure_word *)(void *)(end - slack) = secure_mark_at(mark, bytes - slack);
    *(secure_word *)(void *)(end - 8 - (slack / 2 & 8)) = mark;
    atomic_fence_signal(); /* a handler that exits finds no canary missing (control/secure_end.c) */
    unsigned code = (unsigned)(slack - OBJECT_TAIL) << SECURE_STATE_BITS;
    atomic_store_relaxed(secure_state_at(object), (unsigned char)(code | (unsigned)state));
}

/* The same for any slack. `mark`: the object's. */
HAK_INLINE void secure_begin_use(void *object, size_t bytes, size_t slack, enum secure_state state,
                                 uint64_t mark)
{
    if (HAK_LIKELY(slack <= SECURE_NEAR_MAX)) {
        secure_begin_near(object, bytes, slack, state, mark);
    } else {
        hak__secure_put_far(object, bytes, slack, state);
    }
}

/* The bits of the canary of an object in use that are not as they were written. */
HAK_INLINE uint64_t secure_changed(const void *object, size_t bytes, size_t slack)
{
    uint64_t mark = secure_mark(object);
    if (HAK_UNLIKELY(slack > SECURE_NEAR_MAX)) {
        uint64_t last = *secure_last(object, bytes) ^ mark;
        return hak__secure_gap_is_whole(object, bytes - slack, bytes, mark) ? last : 1;
    }
    const char *end = (const char *)object + bytes;
    uint64_t first = *(const secure_word *)(const void *)(end - slack);
    uint64_t middle = *(const secure_word *)(const void *)(end - 8 - (slack / 2 & 8));
    uint64_t last = *(const secure_word *)(const void *)(end - 8);
    return (first ^ secure_mark_at(mark, bytes - slack)) | (middle ^ mark) | (last ^ mark);
}

/* True if nobody has written behind an object in use, or before it. */
HAK_INLINE bool secure_is_whole(const void *object, size_t bytes, size_t slack)
{
    return (secure_changed(object, bytes, slack) | secure_changed_before(object, bytes)) == 0;
}

/* Reports an object in use if somebody has. */
HAK_INLINE void secure_check_canary(const void *object, size_t bytes, size_t slack)
{
    if (HAK_UNLIKELY(!secure_is_whole(object, bytes, slack))) {
        hak__secure_overrun(object, bytes, slack);
    }
}

/* Two words at once; every object is a multiple of them. */
typedef uint64_t secure_pair __attribute__((vector_size(16), may_alias));

/* malloc looks whether an object is still zero; so far at most if it was never handed out: its
 * pages are untouched. Twice as far: it touches twice as many. Half: half of the writes to it. */
#define SECURE_LOOK_MAX 1024u
/* The length from which the C library's memset is faster. */
#define SECURE_CLEAR_MIN 512u

HAK_INLINE secure_pair secure_or_step(const secure_pair *at)
{
    return (at[0] | at[1]) | (at[2] | at[3]);
}

/* True if a free object is as free has left it: zero between the first word, a link, and the last,
 * its mark, `mark`. The bytes from SECURE_LOOK_MAX on are not looked at, unless `all`. The second
 * word is read by itself: a processor waits for a store to finish if a load needs it and more. The
 * last step may overlap the one before it, so there is one loop only. */
HAK_INLINE bool secure_is_clean(const void *object, size_t bytes, uint64_t mark, bool all)
{
    const uint64_t *last = secure_last(object, bytes);
    uint64_t changed = atomic_load_relaxed(last) ^ mark;
    if (HAK_UNLIKELY(bytes == sizeof(secure_pair))) {
        return changed == 0;
    }
    changed |= ((const uint64_t *)object)[1] | last[-1];
    const secure_pair *at = (const secure_pair *)object + 1;
    const secure_pair *end = (const secure_pair *)(const void *)(last - 1);
    if (!all && end - at > (ptrdiff_t)(SECURE_LOOK_MAX / sizeof(secure_pair))) {
        end = at + SECURE_LOOK_MAX / sizeof(secure_pair);
    }
    secure_pair sum = {0, 0};
    if (HAK_LIKELY(end - at >= 4)) {
        for (; at + 4 < end; at += 4) {
            sum |= secure_or_step(at);
        }
        sum |= secure_or_step(end - 4);
    } else {
        for (; at != end; at++) {
            sum |= *at;
        }
    }
    return (sum[0] | sum[1] | changed) == 0;
}

HAK_INLINE void secure_clear_step(secure_pair *at)
{
    at[0] = at[1] = at[2] = at[3] = (secure_pair){0, 0};
}

/* Clears all but the last word. */
HAK_INLINE void secure_clear(void *object, size_t bytes)
{
    uint64_t *last = secure_last(object, bytes);
    secure_pair *at = (secure_pair *)object;
    secure_pair *end = (secure_pair *)(void *)(last - 1);
    if (HAK_UNLIKELY(bytes >= SECURE_CLEAR_MIN)) {
        __builtin_memset(object, 0, bytes - sizeof *last);
        return;
    }
    last[-1] = 0;
    /* A step of four pairs, and one. */
    if (HAK_LIKELY(bytes >= 5 * sizeof(secure_pair))) {
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
    size_t slice = window_slice_of(object);
    return HAK_LIKELY((uintptr_t)object % OBJECT_ALIGNMENT == 0 && slice < window_limit_seen()) &&
           HAK_LIKELY(owner_class(window_owner(slice)) == class_index) &&
           secure_state_is_free(secure_state_of(object));
}

/* Gives an object a tag that neither a free object nor its neighbours have. */
HAK_HIDDEN void *hak__secure_tag(void *object, size_t bytes);

/* Makes a free object of `bytes` bytes, which has just left its list, one that the program owns,
 * for a request of `size` bytes. `tiny`: its size is the request's, rounded. */
HAK_INLINE void *secure_hand_out(void *object, size_t bytes, size_t size, enum secure_state state,
                                 bool tiny)
{
    uint64_t mark = secure_mark(object);
    bool all = tiny || secure_state_of(object) != SECURE_FRESH;
    if (HAK_UNLIKELY(!secure_is_clean(object, bytes, mark, all))) {
        hak__secure_written(object);
    }
    *(uintptr_t *)object = 0; /* the link */
    if (tiny) {
        secure_begin_near(object, bytes, bytes - size, state, mark);
    } else {
        secure_begin_use(object, bytes, bytes - size, state, mark);
    }
    return HAK_TAGS && hak__secure.tags ? hak__secure_tag(object, bytes) : object;
}

/* The state byte of an object of the class. `pointer`, any address in a slab of the class, is
 * reported if no object with the state starts there. */
HAK_INLINE unsigned char secure_check_state(const void *pointer, uint32_t class_index,
                                            enum secure_state state)
{
    unsigned char byte = atomic_load_relaxed(secure_state_at(pointer));
    if (HAK_UNLIKELY((uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ||
                     (byte & SECURE_STATE_MASK) != state)) {
        byte = hak__secure_judge(pointer, class_index, state);
    }
    return byte;
}

/* Makes an object in use of the class, of `bytes` bytes and with this state byte, a resting one.
 * Returns it without a tag. */
HAK_INLINE void *secure_take_back(void *pointer, uint32_t class_index, size_t bytes,
                                  unsigned char byte)
{
    if (HAK_TAGS && hak__secure.tags) {
        if (HAK_UNLIKELY(tag_of_memory(pointer) != pointer)) {
            hak__secure_bad_tag(pointer, class_index);
        }
        pointer = tag_strip(pointer);
        tag_memory(pointer, bytes);
    }
    unsigned char *state = secure_state_at(pointer);
    secure_check_canary(pointer, bytes, secure_slack(pointer, byte, bytes));
    atomic_store_relaxed(state, (unsigned char)SECURE_CHANGING);
    atomic_fence_signal(); /* as above */
    secure_clear(pointer, bytes);
    atomic_fence_signal();
    atomic_store_relaxed(state, (unsigned char)SECURE_QUARANTINED);
    return pointer;
}

/* True if an object in use starts at the pointer, any address in a slab. */
HAK_INLINE bool secure_is_used(const void *pointer)
{
    return (uintptr_t)pointer % OBJECT_ALIGNMENT == 0 &&
           secure_state_is_used(secure_state_of(pointer));
}

/* The size of the request that got the object; of an object that is not in use, or another address
 * of a slab of the class, what a request may have at most. */
HAK_INLINE size_t secure_size(const void *pointer, uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    unsigned char byte = atomic_load_relaxed(secure_state_at(pointer));
    bool used = (uintptr_t)pointer % OBJECT_ALIGNMENT == 0 &&
                secure_state_is_used((enum secure_state)(byte & SECURE_STATE_MASK));
    return bytes - (HAK_LIKELY(used) ? secure_slack(pointer, byte, bytes) : OBJECT_TAIL);
}

/* Gives an object in use, of class bytes `bytes`, to a request of another size, and moves the
 * canary. What the program gets in addition is zero, or what it had written there before. */
HAK_HIDDEN void hak__secure_resize(void *object, size_t bytes, size_t size);

#endif
