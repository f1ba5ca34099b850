/* SPDX-License-Identifier: MIT */
/* span.c: see span.h. */
#include "large/span.h"

#include "base/bits.h"
#include "os/os.h"
#include "region/numa.h"
#include "region/secure.h"
#include "region/superslab.h"

#include <string.h>

/* A span is zero when it is handed out, and so it is when it waits in the cache. */
#define SPANS_ARE_CLEAN HAK_SECURE

void *hak__span_pointer(size_t slice)
{
    uint32_t offset = atomic_load_relaxed(&span_metadata_at(slice)->offset);
    return (unsigned char *)window_slice_address(slice) + offset;
}

/* Bytes that the program could use. */
HAK_INLINE size_t span_room(size_t slice)
{
    const struct span_metadata *metadata = span_metadata_at(slice);
    return (size_t)atomic_load_relaxed(&metadata->slices) * SLICE_SIZE -
           atomic_load_relaxed(&metadata->offset) - secure_field(&metadata->tail);
}

HAK_INLINE size_t span_bytes(size_t slice)
{
    return span_room(slice) - secure_field(&span_metadata_at(slice)->slack);
}

size_t hak__span_bytes(size_t slice)
{
    return span_bytes(slice);
}

HAK_RACY_READER size_t hak__span_bytes_seen(size_t slice)
{
    return span_bytes(slice);
}

HAK_RACY_READER uint32_t hak__span_slices(size_t slice)
{
    return atomic_load_relaxed(&span_metadata_at(slice)->slices);
}

static uint32_t span_slices(size_t bytes)
{
    return (uint32_t)((bytes + SLICE_SIZE - 1) / SLICE_SIZE);
}

/* The number of cache lines at which a block of `size` bytes may start in a span of `slices`. */
static uint32_t span_colors(uint32_t slices, size_t size)
{
    size_t spare = (slices * SLICE_SIZE - size) / HAK_CACHE_LINE;
    return spare < COLORS_MAX ? (uint32_t)spare + 1 : COLORS_MAX;
}

size_t hak__span_good_size(size_t size)
{
    uint32_t slices = span_slices(size);
    size_t used = slices * SLICE_SIZE - (COLORS_MAX - 1) * HAK_CACHE_LINE;
    return size < used ? used : size;
}

/* Secure form: room for the canary before a block, which keeps the block's alignment. */
static uint32_t span_front(size_t alignment)
{
    bool has = HAK_SECURE && alignment < SLICE_SIZE;
    return !has ? 0 : alignment < SECURE_FRONT ? SECURE_FRONT : (uint32_t)alignment;
}

/* The slices for a block. In the secure form it ends as near to a closed page as the alignment
 * allows, and starts behind a canary, at one of several pages. */
static uint32_t span_slices_for(size_t size, size_t alignment)
{
    /* Secure form: pages at which a block may start at least, if they are smaller than slices.
     * Half: one bit less of its address is random, and fewer than 32 of some addresses. Twice: no
     * more places, because a block starts in the first slice. */
    const size_t places = 8;
    size_t page = secure_page();
    return span_slices(size + span_front(alignment) + page * (page < SLICE_SIZE ? places : 1));
}

/* Secure form: slices before a block that is aligned to slices. The last of them holds the canary
 * before the block. */
static uint32_t span_lead(size_t alignment)
{
    return HAK_SECURE ? (uint32_t)(alignment / SLICE_SIZE) : 0;
}

bool hak__span_serves(size_t size, size_t alignment)
{
    return size <= SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE &&
           span_slices_for(size, alignment) + span_lead(alignment) <= SUPERSLAB_SLICES;
}

bool hak__span_wastes(size_t size, size_t alignment)
{
    if (!HAK_SECURE || atomic_load_relaxed(&hak__superslabs.limited) == 0) {
        return false;
    }
    uint32_t slices = span_slices_for(size, alignment) + span_lead(alignment);
    return SUPERSLAB_SLICES / slices * slices < SUPERSLAB_SLICES / 4 * 3;
}

/* Bytes of the canary before a block: what is open there, but at most a page. Nearly always that is
 * in the block's first page, or all of the one before. */
static size_t span_front_bytes(const struct span_metadata *metadata)
{
    size_t page = hak__os_page_size();
    size_t open = metadata->front != 0 ? page : metadata->offset - metadata->head;
    return open < page ? open / SECURE_FRONT * SECURE_FRONT : page;
}

/* Secure form: notes the size of the request and writes the canary behind its end. */
static void span_begin_use(size_t slice, size_t size)
{
    if (HAK_SECURE) {
        size_t room = span_room(slice);
        atomic_store_relaxed(&span_metadata_at(slice)->slack, (uint32_t)(room - size));
        void *pointer = hak__span_pointer(slice);
        hak__secure_new_keys(window_slice_of(pointer), 1);
        hak__secure_put_gap(pointer, size, room, secure_mark(pointer));
        hak__secure_put_front(pointer, span_front_bytes(span_metadata_at(slice)));
        atomic_fence_signal(); /* the owner is written after it (control/secure_end.c) */
    }
}

/* Bytes of the closed pages at the end; of one that is open, too. */
static size_t span_tail(const struct span_metadata *metadata)
{
    return metadata->tail != 0 ? metadata->tail : hak__os_page_size();
}

static bool span_gap_is_whole(size_t slice)
{
    const void *pointer = hak__span_pointer(slice);
    return hak__secure_gap_is_whole(pointer, hak__span_bytes(slice), span_room(slice),
                                    secure_mark(pointer));
}

bool hak__span_is_whole(size_t slice)
{
    return span_gap_is_whole(slice) &&
           hak__secure_front_is_whole(hak__span_pointer(slice),
                                      span_front_bytes(span_metadata_at(slice)));
}

void hak__span_report(size_t slice)
{
    if (span_gap_is_whole(slice)) {
        hak__secure_underflow(hak__span_pointer(slice), hak__span_bytes(slice));
    }
    hak__secure_overflow(hak__span_pointer(slice), hak__span_bytes(slice));
}

static void span_check_canary(size_t slice)
{
    if (HAK_SECURE && HAK_UNLIKELY(!hak__span_is_whole(slice))) {
        hak__span_report(slice);
    }
}

/* `lead`: the slice before it belongs to the block, too; only in the secure form. */
static void *span_start(size_t slice, uint32_t slices, size_t size, size_t alignment, bool lead)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t offset;
    metadata->tail = metadata->head = 0;
    metadata->front = lead;
    atomic_store_relaxed(&metadata->slices, slices); /* reports read it and the offset */
    if (!HAK_SECURE) {
        offset =
            alignment <= HAK_CACHE_LINE ? window_slice_color(slice, span_colors(slices, size)) : 0;
    } else if (slices <= SUPERSLAB_SLICES) {
        offset = hak__span_place(slice, size, alignment);
    } else {
        offset = span_front(alignment);
    }
    atomic_store_relaxed(&metadata->offset, offset);
    span_begin_use(slice, size);
    window_set_owner(slice, OWNER_SPAN);
    return hak__span_pointer(slice);
}

/* Starts a block in a cached span: where the last one started, if that fits, which takes less. */
static void *span_start_again(size_t slice, size_t size, size_t alignment)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t offset = metadata->offset, slices = metadata->slices;
    if (HAK_SECURE) { /* the end is closed already */
        offset = hak__span_end_offset(slices, size, alignment, span_tail(metadata));
        if (!hak__span_open_head(slice, offset)) {
            return NULL; /* nobody can use it */
        }
        atomic_store_relaxed(&metadata->offset, offset);
        span_begin_use(slice, size);
    } else if (HAK_UNLIKELY(offset + size > slices * SLICE_SIZE ||
                            (offset != 0 && alignment > HAK_CACHE_LINE))) {
        return span_start(slice, slices, size, alignment, false);
    }
    window_set_owner(slice, OWNER_SPAN);
    return (unsigned char *)window_slice_address(slice) + offset;
}

/* Secure form: false if the closed pages of a cached span leave too few bytes for the request, or
 * so many that it would not begin in the first slice. */
static bool span_has_room(size_t slice, size_t size, size_t alignment)
{
    if (!HAK_SECURE) {
        return true;
    }
    const struct span_metadata *metadata = span_metadata_at(slice);
    size_t bytes = metadata->slices * SLICE_SIZE - span_tail(metadata);
    return bytes >= size + span_front(alignment) && bytes - size < SLICE_SIZE;
}

/* The link to the span that serves a request: the shortest that fits, and of those the one that was
 * freed last. NULL: none. */
static uint32_t *span_cache_find(struct span_cache *cache, uint32_t slices, size_t size,
                                 size_t alignment)
{
    /* In the secure form a block starts in the first slice and ends at the closed pages. A cached
     * span may be an eighth longer than the request. Twice the divisor: less unused memory in
     * spans, but fewer requests hit the cache. Half: the reverse. */
    uint32_t longest = slices + (HAK_SECURE ? 0 : slices / 8);
    longest = longest < SUPERSLAB_SLICES ? longest : SUPERSLAB_SLICES;
    uint64_t fit = cache->lengths & bits_mask(slices - 1, longest - slices + 1);
    for (; fit != 0; fit &= fit - 1) {
        uint32_t *link = &cache->first[bits_lowest(fit)];
        if (((uintptr_t)window_slice_address(*link - 1) & (alignment - 1)) == 0 &&
            span_has_room(*link - 1, size, alignment)) {
            return link;
        }
    }
    return NULL;
}

/* Takes the span to which `*link` leads out of the cache. Returns its first slice. */
static size_t span_cache_take(struct span_cache *cache, uint32_t *link)
{
    size_t slice = *link - 1;
    const struct span_metadata *metadata = span_metadata_at(slice);
    *link = metadata->next;
    if (cache->first[metadata->slices - 1] == 0) {
        cache->lengths &= ~(UINT64_C(1) << (metadata->slices - 1));
    }
    atomic_store_relaxed(&cache->slices, cache->slices - metadata->slices); /* reports read it */
    return slice;
}

static void span_cache_put(struct span_cache *cache, size_t slice, uint32_t slices)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    metadata->next = cache->first[slices - 1];
    metadata->trims = cache->trims;
    cache->first[slices - 1] = (uint32_t)slice + 1;
    cache->lengths |= UINT64_C(1) << (slices - 1);
    atomic_store_relaxed(&cache->slices, cache->slices + slices);
}

/* Clears a new block, whose slices may have been a slab. True: it is zero. */
static bool span_make_clean(void *pointer, size_t size, bool zeroed)
{
    if (SPANS_ARE_CLEAN && !zeroed) {
        hak__os_clear(pointer, size);
        zeroed = true;
    }
    return zeroed;
}

bool hak__span_is_cached(struct span_cache *cache, size_t size, size_t alignment)
{
    return span_lead(alignment) == 0 &&
           span_cache_find(cache, span_slices_for(size, alignment), size, alignment) != NULL;
}

struct span hak__span_allocate(struct span_cache *cache, struct counters *counters, size_t size,
                               size_t alignment)
{
    HAK_ASSERT(size != 0 && size <= SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE);
    uint32_t slices = span_slices_for(size, alignment), lead = span_lead(alignment);
    uint32_t *link =
        cache == NULL || lead != 0 ? NULL : span_cache_find(cache, slices, size, alignment);
    void *pointer = NULL;
    if (link != NULL) {
        pointer = span_start_again(span_cache_take(cache, link), size, alignment);
    }
    if (pointer != NULL) {
        counter_add(counters, COUNTER_SPAN_ALLOCATED, 1);
        counter_add(counters, COUNTER_SPAN_CACHE_HIT, 1);
        return (struct span){pointer, SPANS_ARE_CLEAN};
    }
    if (cache != NULL && cache->slices != 0 && hak__superslab_would_grow(lead + slices)) {
        hak__span_cache_trim(cache, true);
    }
    size_t alignment_slices = alignment <= SLICE_SIZE ? 1 : alignment / SLICE_SIZE;
    struct slice_run run = hak__superslab_take(cache == NULL ? 0 : cache->part, lead + slices,
                                               (uint32_t)alignment_slices, FOR_SPAN);
    if (run.slice == SLICE_NONE) {
        return (struct span){NULL, false};
    }
    if (lead > 1) { /* all but the last slice before the block */
        hak__superslab_give(run.slice, lead - 1);
    }
    counter_add(counters, COUNTER_SPAN_ALLOCATED, 1);
    pointer = span_start(run.slice + lead, slices, size, alignment, lead != 0);
    return (struct span){pointer, span_make_clean(pointer, size, run.zeroed)};
}

struct span hak__span_allocate_long(struct counters *counters, size_t size, size_t alignment)
{
    /* A single superslab is an ordinary span, whose last page the secure form closes. */
    size_t tailed = size + span_front(alignment) + secure_page();
    size_t superslabs = tailed / SUPERSLAB_SIZE + (tailed % SUPERSLAB_SIZE != 0);
    if (superslabs > hak__window.size / SUPERSLAB_SIZE) {
        return (struct span){NULL, false};
    }
    struct slice_run run = hak__superslab_take_run(superslabs);
    if (run.slice == SLICE_NONE) {
        return (struct span){NULL, false};
    }
    counter_add(counters, COUNTER_SPAN_ALLOCATED, 1);
    uint32_t slices = (uint32_t)(superslabs * SUPERSLAB_SLICES);
    void *pointer =
        span_start(run.slice, slices, size, HAK_SECURE ? alignment : SUPERSLAB_SIZE, false);
    return (struct span){pointer, span_make_clean(pointer, size, run.zeroed)};
}

void hak__span_free(struct span_cache *cache, struct counters *counters, size_t slice)
{
    hak__span_take(slice);
    hak__span_free_taken(cache, counters, slice);
}

/* Slices of all spans of a cache together at most, 8 MiB; in the secure form half as many with
 * memory may rest. Half: programs that free and allocate more than 4 MiB of such blocks in turn
 * take the lock of the process for each. Twice: each arena may keep 16 MiB until its next ticks. */
enum { SPANS_KEPT_SLICES = HAK_TINY_LIMITS ? SUPERSLAB_SLICES : 4 * SUPERSLAB_SLICES };

/* Lets the program have the slices of a freed span again. */
static void span_return(struct span_cache *cache, struct resting_span span)
{
    if (cache == NULL || cache->slices + span.slices > SPANS_KEPT_SLICES ||
        numa_is_far(span.slice) || span.closed) {
        hak__span_give(span);
        return;
    }
    span_metadata_at(span.slice)->empty = span.empty;
    span_cache_put(cache, span.slice, span.slices);
}

void hak__span_free_taken(struct span_cache *cache, struct counters *counters, size_t slice)
{
    HAK_ASSERT(window_owner(slice) == OWNER_SPAN_TAKEN);
    span_check_canary(slice);
    window_set_owner(slice, OWNER_NOBODY);
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t slices = metadata->slices;
    if (counters != NULL) {
        counter_add(counters, COUNTER_SPAN_FREED, 1);
    }
    if (slices > SUPERSLAB_SLICES) {
        if (SPANS_ARE_CLEAN) {
            (void)hak__span_rest(NULL, slice, slices);
        }
        hak__superslab_give_run(slice, slices / SUPERSLAB_SLICES);
        return;
    }
    if (secure_field(&metadata->front) != 0) { /* its slices become one span */
        *span_metadata_at(--slice) =
            (struct span_metadata){.slices = ++slices, .tail = metadata->tail};
    }
    struct resting_span span = {(uint32_t)slice, slices, false, false};
    if (SPANS_ARE_CLEAN) {
        span = hak__span_rest(cache == NULL ? NULL : cache->quarantine, slice, slices);
    }
    while (span.slices != 0) {
        span_return(cache, span);
        span.slices = 0;
        if (SPANS_ARE_CLEAN && cache != NULL) {
            span = hak__span_end_rest(cache->quarantine, SPANS_KEPT_SLICES / 2);
        }
    }
}

/* Moves the contents down to the start of the span, so that more fits behind them. */
static void span_move_down(size_t slice)
{
    size_t bytes = hak__span_bytes(slice), front = span_front(OBJECT_ALIGNMENT);
    char *from = hak__span_pointer(slice), *to = (char *)window_slice_address(slice) + front;
    memmove(to, from, bytes);
    atomic_store_relaxed(&span_metadata_at(slice)->offset, (uint32_t)front); /* reports read it */
}

/* Secure form: the block stays, and its canary moves. If it grows beyond that, closed pages behind
 * it open, or it moves down, so that it does not take a new span for each small step. The span is
 * taken. */
static void *span_resize_secure(size_t slice, size_t size, bool stays)
{
    const struct span_metadata *metadata = span_metadata_at(slice);
    size_t room = span_room(slice), before = hak__span_bytes(slice);
    bool moves = !stays && metadata->offset > SECURE_FRONT && metadata->front == 0;
    size_t most = room + metadata->tail - (metadata->tail != 0 ? hak__os_page_size() : 0);
    if (size > most + (moves ? metadata->offset - SECURE_FRONT : 0) ||
        (size < room / 2 && !stays)) {
        return NULL;
    }
    span_check_canary(slice);
    hak__secure_clear_gap(hak__span_pointer(slice), before, room);
    if (size > room) {
        hak__span_open_tail(slice);
        room = span_room(slice);
    }
    if (size > room && !(moves && hak__span_open_head(slice, SECURE_FRONT))) {
        span_begin_use(slice, before);
        return NULL;
    }
    if (size > room) {
        char *end = (char *)hak__span_pointer(slice) + before;
        span_move_down(slice);
        char *moved_end = (char *)hak__span_pointer(slice) + before;
        memset(moved_end, 0, (size_t)(end - moved_end));
    }
    span_begin_use(slice, size);
    return hak__span_pointer(slice);
}

/* The span is taken. */
static void *span_resize(size_t slice, size_t size, bool stays)
{
    if (HAK_SECURE) {
        return span_resize_secure(slice, size, stays);
    }
    struct span_metadata *metadata = span_metadata_at(slice);
    size_t bytes = hak__span_bytes(slice);
    /* A long span is too rare for more than this. */
    if (metadata->slices > SUPERSLAB_SLICES) {
        return size <= bytes && (stays || size >= bytes / 2) ? hak__span_pointer(slice) : NULL;
    }
    if (size > SPAN_SIZE_MAX) {
        return NULL;
    }
    uint32_t old = metadata->slices, slices = span_slices(metadata->offset + size);
    if (slices > old && !hak__superslab_take_exact(slice + old, slices - old)) {
        slices = span_slices(size);
        if (stays || (slices > old && !hak__superslab_take_exact(slice + old, slices - old))) {
            return NULL;
        }
        span_move_down(slice);
    }
    if (slices < old) {
        hak__superslab_give(slice + slices, old - slices);
    }
    atomic_store_relaxed(&metadata->slices, slices); /* reports read it */
    return hak__span_pointer(slice);
}

void *hak__span_resize(size_t slice, size_t size, bool stays)
{
    hak__span_take(slice);
    void *pointer = span_resize(slice, size, stays);
    window_set_owner(slice, OWNER_SPAN);
    return pointer;
}

uint32_t hak__span_cache_trim(struct span_cache *cache, bool everything)
{
    uint32_t given = HAK_SECURE && everything ? hak__span_end_quarantine(cache->quarantine) : 0;
    for (uint64_t lengths = cache->lengths; lengths != 0; lengths &= lengths - 1) {
        uint32_t slices = bits_lowest(lengths) + 1, *link = &cache->first[slices - 1];
        /* Trims that a span survives. One: a program that frees 60 spans, then allocates 60, finds
         * half of them, because 64 operations bring a tick. Three: freed spans stay for longer
         * where they are not needed. */
        while (*link != 0 && !everything && cache->trims - span_metadata_at(*link - 1)->trims < 2) {
            link = &span_metadata_at(*link - 1)->next;
        }
        for (; *link != 0; given += slices) { /* what follows was freed earlier */
            uint32_t slice = (uint32_t)span_cache_take(cache, link);
            bool empty = secure_field(&span_metadata_at(slice)->empty) != 0;
            hak__span_give((struct resting_span){slice, slices, false, empty});
        }
    }
    cache->trims++;
    struct resting_span span = {0, 0, false, false};
    if (SPANS_ARE_CLEAN) {
        span = hak__span_end_rest(cache->quarantine, 0);
    }
    if (span.slices != 0) {
        hak__span_give(span);
    }
    return given + span.slices;
}
