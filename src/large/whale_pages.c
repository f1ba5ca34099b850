/* whale_pages.c: see whale_pages.h. */
#include "large/whale_pages.h"

#include "core/knobs.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/superslab.h"

/* Before there is evidence a whale gets huge pages when it and the superslabs are this many times
 * knobs.huge_threshold: the untouched part is then a small share, or the program's own doing. */
#define WHALE_HUGE_FACTOR 4u

struct sighting {
    struct whale whale; /* address 0: none */
    bool ended;         /* freed: `dense` is what was seen then */
    bool dense;
};

/* By kind; the last but one and the last. Under the WHALES lock. */
static struct sighting sightings[2][2];

static bool whale_is_dense(struct whale whale)
{
    return hak__os_resident_percent((const void *)whale.address, whale.size) >= HUGE_DENSE_PERCENT;
}

static bool sighting_is_dense(const struct sighting *sighting)
{
    return sighting->ended ? sighting->dense : whale_is_dense(sighting->whale);
}

bool hak__whale_earns_huge(size_t size, bool zeroed)
{
    if (size < 2 * HUGE_PAGE_SIZE) {
        return false;
    }
    lock_acquire(&hak__whale_lock);
    struct sighting older = sightings[zeroed][0], last = sightings[zeroed][1];
    size_t mapped = hak__whale_registry_totals().live_bytes;
    lock_release(&hak__whale_lock);
    mapped += hak__superslab_bytes_claimed() + size;
    if (mapped < hak__knobs.huge_threshold) {
        return false;
    }
    if (older.whale.address != 0) {
        return sighting_is_dense(&older);
    }
    if (!zeroed && mapped / WHALE_HUGE_FACTOR >= hak__knobs.huge_threshold) {
        return true;
    }
    return last.whale.address != 0 && sighting_is_dense(&last);
}

void hak__whale_watch(struct whale whale, bool zeroed)
{
    lock_acquire(&hak__whale_lock);
    sightings[zeroed][0] = sightings[zeroed][1];
    sightings[zeroed][1] = (struct sighting){whale, false, false};
    lock_release(&hak__whale_lock);
}

/* The one that watches the whale at `address`, NULL when none does. */
static struct sighting *sighting_of(uintptr_t address)
{
    for (size_t i = 0; i < 4; i++) {
        struct sighting *sighting = &sightings[i / 2][i % 2];
        if (HAK_UNLIKELY(sighting->whale.address == address && !sighting->ended)) {
            return sighting;
        }
    }
    return NULL;
}

bool hak__whale_is_watched(uintptr_t address)
{
    return sighting_of(address) != NULL;
}

void hak__whale_watch_moved(uintptr_t from, struct whale to)
{
    struct sighting *sighting = sighting_of(from);
    if (sighting != NULL) {
        sighting->whale = to;
    }
}

void hak__whale_watch_end(struct whale whale)
{
    bool dense = whale_is_dense(whale);
    lock_acquire(&hak__whale_lock);
    struct sighting *sighting = sighting_of(whale.address); /* another may have taken its place */
    if (sighting != NULL) {
        sighting->ended = true;
        sighting->dense = dense;
    }
    lock_release(&hak__whale_lock);
}
