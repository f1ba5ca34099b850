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

static uint64_t shared_secure_secret; /* for hak__secure_draw; relaxed */

void hak__secure_written(const void *object, uint32_t class_index)
{
    hak__diagnose_fatal("use after free: a freed object was written", object,
                        size_class_bytes(class_index), 0);
}

void hak__secure_overflow(const void *object, uint32_t class_index)
{
    hak__diagnose_fatal("overflow: the bytes behind the allocation were written", object,
                        size_class_bytes(class_index) - OBJECT_TAIL, 0);
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
    case SECURE_RESTING:
        return "double free";
    case SECURE_MALLOC:
    case SECURE_NEW:
    case SECURE_NEW_ARRAY:
        break;
    }
    return mismatches[state - SECURE_MALLOC][wanted - SECURE_MALLOC];
}

void hak__secure_bad_free(const void *pointer, uint32_t class_index, enum secure_state wanted)
{
    enum secure_state state =
        (uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ? SECURE_NOTHING : secure_state_of(pointer);
    hak__diagnose_fatal(secure_what(state, wanted), pointer,
                        size_class_bytes(class_index) - OBJECT_TAIL, 0);
}

void hak__secure_bad_rest(const void *object)
{
    uint32_t class_index = owner_class(window_owner(window_slice_of(object)));
    if (secure_state_of(object) == SECURE_RESTING) {
        hak__secure_written(object, class_index);
    }
    /* Two threads have freed it at the same moment. */
    hak__diagnose_fatal("double free", object, size_class_usable(class_index), 0);
}

void hak__secure_bad_tag(const void *pointer, uint32_t class_index)
{
    hak__diagnose_fatal("invalid free (the block has a new owner: its memory tag has changed)",
                        pointer, size_class_bytes(class_index) - OBJECT_TAIL, 0);
}

void hak__secure_tables(uintptr_t meet, uint64_t seed)
{
    hak__secure.states = (unsigned char *)(meet - hak__window.base / OBJECT_ALIGNMENT);
    hak__secure.keys = (uint64_t *)meet;
    /* Odd, so the first byte of each object's canary is odd, too (objects lie at multiples of 16):
     * a string's end behind its block is always noticed. */
    hak__secure.canary = bits_mix(seed ^ UINT64_C(0xd1b54a32d192ed03)) | 1;
    shared_secure_secret = bits_mix(hak__secure.canary ^ bits_mix(seed + 1));
    hak__secure.tags = HAK_TAGS && hak__os_start_tags();
}

void hak__secure_seal(void)
{
    /* If the kernel refuses, the page stays open. */
    (void)hak__os_write_protect(&secure_sealed, sizeof secure_sealed, true, false);
}

uint64_t hak__secure_draw(void)
{
    /* relaxed: a counter */
    uint64_t number = atomic_add_relaxed(&shared_secure_secret, UINT64_C(0x9e3779b97f4a7c15));
    return bits_mix(bits_mix(number) ^ hak__secure.canary);
}

void hak__secure_new_key(size_t slice, uint32_t count)
{
    uint64_t key = hak__secure_draw();
    for (uint32_t i = 0; i < count; i++) {
        hak__secure.keys[~(slice + i)] = key;
    }
}

void hak__secure_forget(size_t slice, uint32_t count)
{
    memset(secure_state_at(window_slice_address(slice)), SECURE_NOTHING,
           count * SECURE_STATES_SIZE);
}
