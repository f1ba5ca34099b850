/* whale_join.c: see whale_join.h. */
#include "large/whale_join.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "os/os.h"
#include "region/huge.h"

/* Of a new mapping that is being filled. */
struct join {
    uintptr_t start;
    size_t lost_at; /* another thread's is [lost_at, lost_at + lost); lost 0: nothing is */
    size_t lost;
};

static void join_unmap(uintptr_t address, size_t size, uint64_t origin)
{
    hak__whale_unmap((struct whale){address, size, origin});
}

/* Moves a part to `at`, in steps that are a part of one mapping each. */
static void join_part(struct join *join, struct whale part, size_t at)
{
    while (part.size != 0 && join->lost == 0) {
        bool whole = part.origin != 0 || part.size < HUGE_PAGE_SIZE;
        struct whale step = {part.address, whole ? part.size : HUGE_PAGE_SIZE, part.origin};
        int error =
            hak__os_move((void *)step.address, step.size, (void *)(join->start + at), false);
        if (error == 0) {
            whale_uncount(step);
        } else if (error == -EEXIST) { /* of pages the program made different a half may be moved */
            join->lost_at = at;
            join->lost = step.size;
            whale_uncount(step);
            hak__os_leave(step.size);
        } else {
            hak__whale_unmap(step); /* the new mapping's own pages will do */
        }
        part.address += step.size;
        part.size -= step.size;
        at += step.size;
    }
    hak__whale_unmap(part);
}

/* What is left of a new mapping of which a part is lost. */
static void join_drop(const struct join *join, size_t size)
{
    size_t behind = join->lost_at + join->lost;
    uint64_t origin = hak__whale_new_origin();
    join_unmap(join->start, join->lost_at, origin);
    join_unmap(join->start + behind, size - behind, origin);
}

struct whale hak__whale_join(const struct whale_parts *taken, size_t size, bool want_zero)
{
    void *place = NULL;
    bool mapped = hak__os_map(size, HUGE_PAGE_SIZE, &place) == 0;
    struct join join = {(uintptr_t)place, 0, 0};
    size_t covered = 0, end = bits_align_down(size, HUGE_PAGE_SIZE);
    if (mapped) {
        hak__os_small(place, size); /* hak__os_move touches it */
    }
    for (uint32_t i = 0; i < taken->count; i++) {
        struct whale part = taken->parts[i];
        if (!mapped || join.lost != 0) {
            hak__whale_unmap(part);
        } else if (part.size < HUGE_PAGE_SIZE) {
            join_part(&join, part, end);
        } else {
            join_part(&join, part, covered);
            covered += part.size;
        }
    }
    if (mapped && join.lost != 0) {
        join_drop(&join, size);
        mapped = false;
    }
    if (!mapped) {
        return (struct whale){0};
    }
    if (end - covered >= 2 * HUGE_PAGE_SIZE && hak__whale_earns_huge(size, want_zero)) {
        hak__huge_ask((void *)(join.start + covered), end - covered, 0);
    }
    atomic_add_relaxed(&hak__whale_joined_bytes, size);
    return (struct whale){join.start, size, 0};
}

struct whale hak__whale_join_grow(struct whale whale, size_t size)
{
    void *place;
    if (hak__os_map(size, HUGE_PAGE_SIZE, &place) != 0) {
        return (struct whale){0};
    }
    hak__os_small(place, size);
    struct join join = {(uintptr_t)place, 0, 0};
    size_t at = 0, step = 0;
    int error = 0;
    for (; at < whale.size && error == 0; at += error == 0 ? step : 0) {
        step = whale.size - at < HUGE_PAGE_SIZE ? whale.size - at : HUGE_PAGE_SIZE;
        error = hak__os_move((void *)(whale.address + at), step, (char *)place + at, true);
    }
    if (error != 0) { /* back with what has moved: to where the whale's own mapping still is */
        memcpy((void *)whale.address, place, at);
        join.lost_at = at;
        join.lost = error == -EEXIST ? step : 0;
        join_drop(&join, size);
        return (struct whale){0};
    }
    hak__os_discard((void *)whale.address, whale.size);
    atomic_add_relaxed(&hak__whale_joined_bytes, size - whale.size);
    return (struct whale){join.start, size, 0};
}
