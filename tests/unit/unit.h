/* SPDX-License-Identifier: MIT */
/* unit.h: what the unit tests share besides ../support.h. They see the internal headers and call
 * modules directly, on caches and slab sets of their own.
 *
 * A program that links the static library gets only the modules it names, so a test starts the
 * library itself (unit_start) and does not rely on the constructor.
 */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include "../support.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/superslab.h"
#include "region/window.h"

/* cmocka group setup. */
static inline int unit_start(void **state)
{
    return hak__start() ? 0 : -1;
}

/* Test setup and teardown around tests that turn knobs. */
static inline struct knobs *unit_saved_knobs(void)
{
    static struct knobs saved;
    return &saved;
}

static inline int unit_save_knobs(void **state)
{
    *unit_saved_knobs() = hak__knobs;
    return 0;
}

static inline int unit_restore_knobs(void **state)
{
    hak__knobs = *unit_saved_knobs();
    return 0;
}

#define TEST_WITH_KNOBS(name) TEST_WITH(name, unit_save_knobs, unit_restore_knobs)

/* True when the OS page at `address` is mapped. */
static inline bool unit_is_mapped(uintptr_t address)
{
    unsigned char resident;
    size_t page = hak__os_page_size();
    return mincore((void *)bits_align_down(address, page), page, &resident) == 0;
}

/* What /proc/self/smaps says of the mapping at `place`, for example " hg": huge pages are welcome
 * there, " nh": they are not. */
static inline bool unit_mapping_has_flag(const void *place, const char *flag)
{
    static char smaps[4 * MIB];
    uintptr_t address = (uintptr_t)place;
    support_read_file("/proc/self/smaps", smaps, sizeof smaps);
    bool found = false;
    for (char *line = strtok(smaps, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *end;
        uintptr_t low = strtoull(line, &end, 16);
        if (*end == '-') {
            found = low <= address && address < strtoull(end + 1, NULL, 16);
        } else if (found && strncmp(line, "VmFlags:", 8) == 0) {
            return strstr(line, flag) != NULL;
        }
    }
    return false;
}

/* Somebody else's mapping of `size` bytes at exactly `address`. */
static inline void *unit_occupy(uintptr_t address, size_t size)
{
    void *result = mmap((void *)address, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(result == (void *)address);
    return result;
}

/* Nothing that ends at `end` can grow there; NULL: something was there already. */
static inline void *unit_block(uintptr_t end)
{
    return unit_is_mapped(end) ? NULL : unit_occupy(end, hak__os_page_size());
}

static inline void unit_unblock(void *place)
{
    REQUIRE(place == NULL || munmap(place, hak__os_page_size()) == 0);
}

/* Bytes of slices that somebody has: the same before and after a test that gives everything back.
 */
static inline size_t unit_region_bytes_taken(void)
{
    return hak__superslab_bytes_claimed() - hak__superslab_bytes_free();
}

/* Arena ids from the other end than the library's. */
static inline uint32_t unit_next_arena_id(void)
{
    static uint32_t id = ARENA_ID_MAX;
    return id--;
}

static inline struct slab_set *unit_set_create(void)
{
    struct slab_set *set = calloc(1, sizeof *set); /* no mapping: some tests make 300,000 sets */
    REQUIRE(set != NULL);
    set->key = unit_next_arena_id() << OWNER_CODE_BITS;
    set->shared_patience = NOTIFIED_PENDING_MAX;
    return set;
}

static inline bool unit_set_is_empty(const struct slab_set *set)
{
    for (uint32_t class_index = 0; class_index < CLASS_COUNT; class_index++) {
        if (set->partial[class_index] != NULL) {
            return false;
        }
    }
    return set->shared_notified == 0;
}

/* All objects of all its slabs must be back. */
static inline void unit_set_destroy(struct slab_set *set)
{
    hak__slab_drain(set);
    REQUIRE(unit_set_is_empty(set));
    free(set);
}

/* A cache, with a slab set of its own or drawing from another's. */
static inline struct cache *unit_cache_create_on(struct slab_set *set)
{
    struct cache *cache = support_map(sizeof *cache + sizeof(struct cache_far));
    cache->far_at = sizeof *cache;
    hak__cache_start(cache, set);
    return cache;
}

static inline struct cache *unit_cache_create(void)
{
    return unit_cache_create_on(unit_set_create());
}

/* All its objects must be back, and it then costs nothing. */
static inline void unit_cache_destroy_on(struct cache *cache)
{
    hak__remote_flush(cache);
    hak__cache_flush(cache);
    REQUIRE_SIZE(cache->charged, ==, 0);
    munmap(cache, sizeof *cache + sizeof(struct cache_far));
}

static inline void unit_cache_destroy(struct cache *cache)
{
    struct slab_set *set = cache->slabs;
    unit_cache_destroy_on(cache);
    unit_set_destroy(set);
}

/* A refill with its objects linked. */
static inline struct object_list unit_slab_refill(struct slab_set *set, uint32_t class_index,
                                                  uint32_t most)
{
    return refill_link(hak__slab_refill(set, class_index, most), object_mark_of(set->key));
}

/* What malloc's slow path does where the bin is empty. */
static inline void *unit_cache_refill(struct cache *cache, uint32_t class_index)
{
    return hak__cache_fill(cache, class_index, hak__cache_refill(cache, class_index));
}

/* What the fast paths do, on a cache that belongs to no thread. */
static inline void *unit_cache_allocate(struct cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    if (bin->head == NULL) {
        return unit_cache_refill(cache, class_index);
    }
    return hak__bin_pop(cache, class_index);
}

/* The first frees of a class, which are checked, have a test of their own (test_flush.c). */
static inline void unit_cache_free(struct cache *cache, uint32_t class_index, void *pointer)
{
    if (cache->history[class_index].frees == 0) {
        cache->history[class_index].frees = FREES_CHECKED;
    }
    struct bin *bin = &cache->bins[class_index];
    struct object *object = pointer;
    object_set_free(object, bin->head, cache->mark);
    bin->head = object;
    if (--bin->room < 0) {
        hak__cache_overflow(cache, class_index);
    }
}

static inline struct slab *unit_slab_of(const void *object)
{
    return slab_of_slice(window_slice_of(object));
}

/* Objects of a list, counted by walking it; a list that is not as long as it says ends the test. */
static inline struct object *unit_list_tail(struct object_list list)
{
    struct object *tail = NULL;
    uint32_t count = 0;
    for (struct object *object = list.head; object != NULL; object = object->next) {
        REQUIRE(count++ < list.count);
        tail = object;
    }
    REQUIRE_SIZE(count, ==, list.count);
    return tail;
}

/* Links `count` objects in the given order. */
static inline struct object_list unit_list_of(void *const *objects, uint32_t count)
{
    struct object *next = NULL;
    for (uint32_t i = count; i-- > 0;) {
        struct object *object = objects[i];
        object_set_free(object, next, object_mark_of(window_owner(window_slice_of(object))));
        next = object;
    }
    return (struct object_list){next, count};
}

/* Gives an object of a list another mark, for another list. */
static inline void unit_set_mark(struct object *object, uintptr_t mark)
{
    if (!HAK_SECURE) {
        object->mark = mark;
    }
}

/* The list is all that the bin holds. */
static inline void unit_fill_bin(struct cache *cache, uint32_t class_index, struct object_list list)
{
    struct bin *bin = &cache->bins[class_index];
    struct object *object = list.head;
    for (uint32_t i = 0; i < list.count; i++, object = object_next(object)) {
        unit_set_mark(object, cache->mark);
    }
    bin->head = list.head;
    bin->room = (int32_t)(bin->limit - list.count);
}

/* Gives the objects of a list, all of one slab, back to their owner. */
static inline void unit_return_list(struct object_list list)
{
    struct object *tail = list.head;
    for (uint32_t i = 1; i < list.count; i++) {
        tail = object_next(tail);
    }
    if (list.count != 0) {
        slab_return(unit_slab_of(list.head), list, tail);
    }
}

/* Gives `count` (not 0) objects of one slab back to its owner, as the owner or as another thread.
 */
static inline void unit_return(void *const *objects, uint32_t count)
{
    unit_return_list(unit_list_of(objects, count));
}

static inline struct slab_set *unit_return_remote(void *const *objects, uint32_t count)
{
    struct object_list list = unit_list_of(objects, count);
    return hak__slab_return_remote(unit_slab_of(objects[0]), list, objects[count - 1]);
}

/* So many whole superslabs that are free and dirty, taken at once and so different ones. */
static inline void unit_free_superslabs(size_t count)
{
    enum { SUPERSLABS_MAX = 512 };
    size_t slices[SUPERSLABS_MAX];
    REQUIRE_SIZE(count, <=, SUPERSLABS_MAX);
    for (size_t i = 0; i < count; i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    for (size_t i = 0; i < count; i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
}

static inline bool unit_has_huge_pages(void)
{
    char *probe = support_map(HUGE_PAGE_SIZE);
    bool has =
        hak__os_page_size() == ARCH_PAGE_SIZE_MIN && hak__os_huge_pages(probe, HUGE_PAGE_SIZE) == 0;
    munmap(probe, HUGE_PAGE_SIZE);
    return has;
}

/* Superslabs that are claimed for spans earn huge pages from now on, or not. */
static inline void unit_set_evidence(bool earns)
{
    static char *dense, *sparse;
    if (dense == NULL) {
        dense = support_map(SUPERSLAB_SIZE);
        sparse = support_map(SUPERSLAB_SIZE);
        memset(dense, 'x', SUPERSLAB_SIZE);
    }
    struct huge_pages_evidence *evidence = &hak__superslab_first.evidence;
    evidence->watched = NULL;
    hak__huge_pages_watch(evidence, earns ? dense : sparse, SUPERSLAB_SIZE, 0,
                          HUGE_PAGES_DENSE_SPANS_PERCENT);
    for (int look = 0; look < 2; look++) {
        hak__huge_pages_are_earned(evidence, 1, SUPERSLAB_SIZE, SIZE_MAX);
    }
    hak__huge_pages_note_growth(evidence, GIB, GIB); /* without evidence it is of no effect */
}

/* --- tests of layer os, which run with an errno that nobody sets --- */

static inline int poison_errno(void **state)
{
    errno = ERRNO_UNTOUCHED;
    return 0;
}

static inline int errno_is_kept(void **state)
{
    return errno == ERRNO_UNTOUCHED ? 0 : -1;
}

#define OS_TEST(name) TEST_WITH(name, poison_errno, errno_is_kept)

#endif
