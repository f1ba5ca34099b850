/* SPDX-License-Identifier: MIT */
/* query.c: hak_version, questions about blocks, hak_limit_set and hak_trim. */
#include "arena/arena.h"
#include "base/bits.h"
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "large/empty.h"
#include "large/huge.h"
#include "observe/guard.h"
#include "os/os.h"
#include "region/superslab.h"

#define QUERY_STRING(x) #x
#define QUERY_VERSION(a, b, c) QUERY_STRING(a) "." QUERY_STRING(b) "." QUERY_STRING(c)

const char *hak_version(void)
{
    return QUERY_VERSION(HAK_VERSION_MAJOR, HAK_VERSION_MINOR, HAK_VERSION_PATCH);
}

static HAK_NOINLINE size_t usable_size_slow(const void *pointer)
{
    if (short_is_span(pointer)) {
        return hak__span_bytes(window_slice_of(pointer));
    }
    static const char freed[] = "use after free: malloc_usable_size of a freed block";
    return pointer == NULL ? 0 : hak__locate_allocation(pointer, freed).bytes;
}

HAK_FAST_PATH size_t hak_usable_size(const void *pointer)
{
    uint32_t code = short_code(pointer);
    return HAK_LIKELY(short_code_is_class(code)) ? short_usable(pointer, code)
                                                 : usable_size_slow(pointer);
}

size_t hak_good_size(size_t size)
{
    if (HAK_SECURE) { /* all behind the request is a canary */
        return size > REQUEST_SIZE_MAX ? SIZE_MAX : size;
    }
    if (size <= MID_REQUEST_MAX) {
        return size_class_usable(size_class_of(size));
    }
    if (size <= SPAN_SIZE_MAX) {
        return hak__span_good_size(size);
    }
    size_t page = hak__os_page_size();
    return size > REQUEST_SIZE_MAX - page ? SIZE_MAX : bits_align_up(size, page);
}

bool hak_owns(const void *pointer)
{
    if (guard_contains(pointer)) {
        return hak__guard_owns(pointer);
    }
    if (empty_contains(pointer)) {
        return true;
    }
    size_t slice = window_slice_of(pointer);
    return (window_contains_slice(slice) && superslab_has_slice(slice)) ||
           hak__huge_containing(pointer).address != 0;
}

/* Starts hakmem if that has not happened yet. False: the gate refused the caller, or there is no
 * memory. */
static bool query_start(enum gate_wait wait)
{
    if (!hak__gate_enter(wait)) {
        return false;
    }
    bool started = hak__start();
    hak__gate_leave();
    return started;
}

/* SIZE_MAX means no limit. */
static uint64_t query_limit(size_t bytes)
{
    return bytes == SIZE_MAX ? UINT64_MAX : bytes;
}

void hak_limit_set(size_t soft, size_t hard, hak_limit_function *over, void *argument)
{
    /* The start reads the options. A later start would replace these limits by those of the
     * options. */
    if (query_start(GATE_PATIENTLY)) {
        const uint64_t limits[] = {query_limit(soft), query_limit(hard)};
        const struct limit_call call = {over, argument};
        (void)hak__limit_set(&limits[0], &limits[1], &call);
    }
}

bool hak_trim(size_t keep)
{
    if (!query_start(GATE_BRIEFLY)) {
        return false;
    }
    if (keep != 0) {
        if (!hak__gate_enter(GATE_BRIEFLY)) {
            return false;
        }
        size_t free_bytes = hak__superslab_bytes_dirty() + hak__huge_totals().cached_bytes;
        hak__gate_leave();
        if (free_bytes <= keep) {
            return false;
        }
    }
    return hak__arena_reclaim(false) != 0;
}
