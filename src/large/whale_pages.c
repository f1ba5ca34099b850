/* whale_pages.c: see whale_pages.h. */
#include "large/whale_pages.h"

#include "core/knobs.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/superslab.h"

/* How much whales may have of a heap of small objects before there is evidence about them:
 * untouched, they add that share to it. */
#define WHALE_HEAP_SHARE 4u
/* And how much besides, so that the second of two is not refused. */
#define WHALE_SPARE ((size_t)8 << 20)
/* A look takes a few microseconds: one for each such share of what whales have. */
#define WHALE_LOOK_SHARE 4u
/* Where a whale is looked at that has huge pages: all of it is resident then. */
#define WHALE_PLACES 8u
#define WHALE_PLACE_STEP 40503u /* of 65,536: the golden ratio */

struct sighting {
    struct whale whale; /* address 0: none */
    bool zeroed;        /* its kind */
    bool ended;         /* freed: `dense` is what was seen then */
    bool dense;
    bool counted; /* in filled_known */
};

/* By kind; the last but one and the last. Under the WHALES lock. */
static struct sighting sightings[2][2];
/* Of whales that were seen filled since one was seen that is not. */
struct filled {
    size_t largest;
    size_t together; /* their sum, at most what live whales had */
};

/* By kind; and what has been freed unseen. Under the WHALES lock. */
static struct filled filled_known[2];
static size_t unseen_bytes;

static bool whale_is_dense(struct whale whale)
{
    return hak__os_resident_percent((const void *)whale.address, whale.size) >= HUGE_DENSE_PERCENT;
}

static bool sighting_is_dense(const struct sighting *sighting)
{
    return sighting->ended ? sighting->dense : whale_is_dense(sighting->whale);
}

enum contents { CONTENTS_UNKNOWN, CONTENTS_FEW, CONTENTS_FILLED };

/* Is something else than zeroes in half of a few pages, one in each part, at no regular distances?
 * One that is not resident is not read: that would bring it. Nor one that cannot be written, as its
 * owner may have made it, or a kernel before 5.14 that cannot tell. */
static enum contents whale_contents(struct whale whale)
{
    size_t page = hak__os_page_size();
    size_t part_pages = whale.size / page / WHALE_PLACES;
    uint32_t filled = 0;
    for (uint32_t i = 0; i < WHALE_PLACES; i++) {
        size_t place = part_pages * (uint16_t)((i + 1) * WHALE_PLACE_STEP) >> 16;
        void *start = (void *)(whale.address + (part_pages * i + place) * page);
        if (hak__os_resident(start, page) == 0) {
            continue;
        }
        if (hak__os_populate(start, page) != 0) {
            return CONTENTS_UNKNOWN;
        }
        const uint64_t *words = start;
        size_t word = 0, words_count = page / sizeof *words;
        while (word < words_count && words[word] == 0) {
            word++;
        }
        filled += word < words_count;
    }
    return filled >= WHALE_PLACES / 2 ? CONTENTS_FILLED : CONTENTS_FEW;
}

/* A whale of `size` bytes was looked at when all live ones had `live`. Under the lock. */
static void filled_count(bool zeroed, bool filled, size_t size, size_t live)
{
    struct filled *known = &filled_known[zeroed];
    if (!filled) {
        *known = (struct filled){0, 0};
        return;
    }
    size_t together = known->together + size < live ? known->together + size : live;
    known->largest = known->largest < size ? size : known->largest;
    known->together = known->together < together ? together : known->together;
}

static size_t whales_live_bytes(void)
{
    return hak__whale_registry_totals().live_bytes;
}

/* The sighting that the next whale of the kind goes by. Under the lock. */
static struct sighting *sighting_to_go_by(bool zeroed)
{
    return &sightings[zeroed][sightings[zeroed][0].whale.address == 0];
}

bool hak__whale_earns_huge(size_t size, bool zeroed)
{
    if (size < 2 * HUGE_PAGE_SIZE) {
        return false;
    }
    size_t claimed = hak__superslab_bytes_claimed();
    lock_acquire(&hak__whale_lock);
    struct sighting evidence = *sighting_to_go_by(zeroed);
    size_t together = whales_live_bytes() + size;
    lock_release(&hak__whale_lock);
    if (together + claimed < hak__knobs.huge_threshold) {
        return false;
    }
    bool any = evidence.whale.address != 0;
    bool dense = any && sighting_is_dense(&evidence);
    lock_acquire(&hak__whale_lock);
    struct sighting *sighting = sighting_to_go_by(zeroed);
    if (any && !sighting->counted && sighting->whale.address == evidence.whale.address &&
        sighting->whale.size == evidence.whale.size) {
        size_t live = whales_live_bytes();
        sighting->counted = dense; /* one that is not may not be filled yet */
        filled_count(zeroed, dense, evidence.whale.size,
                     live > evidence.whale.size ? live : evidence.whale.size);
    }
    struct filled filled = filled_known[zeroed];
    lock_release(&hak__whale_lock);
    size_t share = claimed / WHALE_HEAP_SHARE;
    if (!any) {
        return !zeroed && together <= share;
    }
    return dense && size <= 2 * filled.largest + WHALE_SPARE &&
           together <= 2 * filled.together + share + WHALE_SPARE;
}

void hak__whale_watch(struct whale whale, bool zeroed)
{
    lock_acquire(&hak__whale_lock);
    sightings[zeroed][0] = sightings[zeroed][1];
    sightings[zeroed][1] = (struct sighting){.whale = whale, .zeroed = zeroed};
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

bool hak__whale_is_worth_a_look(struct whale whale)
{
    if (sighting_of(whale.address) != NULL) {
        return true;
    }
    size_t together = filled_known[0].together > filled_known[1].together
                          ? filled_known[0].together
                          : filled_known[1].together;
    if (whale.size < 2 * HUGE_PAGE_SIZE || together == 0) {
        return false;
    }
    unseen_bytes += whale.size;
    if (unseen_bytes < together / WHALE_LOOK_SHARE) {
        return false;
    }
    unseen_bytes = 0;
    return true;
}

void hak__whale_watch_moved(uintptr_t from, struct whale to)
{
    struct sighting *sighting = sighting_of(from);
    if (sighting != NULL) {
        sighting->whale = to;
    }
}

void hak__whale_look(struct whale whale, bool ends)
{
    lock_acquire(&hak__whale_lock);
    bool watched = sighting_of(whale.address) != NULL;
    lock_release(&hak__whale_lock);
    bool filled;
    if (watched && ends) {
        filled = whale_is_dense(whale);
    } else {
        enum contents contents = whale_contents(whale);
        if (contents == CONTENTS_UNKNOWN) {
            return;
        }
        filled = contents == CONTENTS_FILLED;
    }
    lock_acquire(&hak__whale_lock);
    size_t live = whales_live_bytes() + whale.size;
    struct sighting *sighting = sighting_of(whale.address);
    if (sighting != NULL) { /* no more: what it grows by may have huge pages */
        sighting->ended = true;
        sighting->dense = filled;
        sighting->counted = true;
        filled_count(sighting->zeroed, filled, whale.size, live);
    } else if (!watched) { /* nobody knows of which kind it was, but when malloc's grow */
        for (size_t zeroed = 0; zeroed < 2; zeroed++) {
            bool known = filled_known[zeroed].largest != 0 || (!ends && !zeroed);
            filled_count(zeroed, filled && known, whale.size, live);
        }
    } /* else another whale is watched in its place since */
    lock_release(&hak__whale_lock);
}
