/* SPDX-License-Identifier: MIT */
/* sites.c: see sites.h. */
#include "observe/sites.h"

#include "arena/arena.h"
#include "base/atomics.h"
#include "base/bits.h"
#include "base/text.h"
#include "hakmem/site.h"

#include <string.h>

HAK_STATIC_ASSERT(SITE_NAME_SIZE == HAK_SITE_NAME_MAX + 1, "the header says how long names are");

HAK_TLS uintptr_t hak__site_current;

/* Written under SAMPLES. */
/* [SITES_MAX / 4]: with a full table, 4 sites each. Half: longer searches. NULL: not allocated
 * yet. */
static struct site **sites_buckets;
static struct site *sites_newest;
static struct site *sites_other;
static uint32_t sites_named_count, sites_others_count;

/* NULL: there is no table yet. */
static struct site **site_bucket(uintptr_t key)
{
    uint64_t hash = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    struct site **buckets = atomic_load_acquire(&sites_buckets);  /* pairs with sites_are_ready */
    return buckets != NULL ? &buckets[(hash >> 32) % SITES_MAX / 4] : NULL;
}

static struct site *site_find(uintptr_t key, bool is_address)
{
    struct site **bucket = site_bucket(key);
    /* acquire: pairs with the release in site_add */
    struct site *site = bucket != NULL ? atomic_load_acquire(bucket) : NULL;
    while (site != NULL && (site->key != key || site->is_address != is_address)) {
        site = site->next;
    }
    return site;
}

/* NULL: no memory. */
static struct site *site_add(uintptr_t key, bool is_address)
{
    struct site **bucket = site_bucket(key), *site = hak__metadata_allocate(sizeof *site);
    if (site != NULL) {
        *site = (struct site){
            .next = *bucket, .older = sites_newest, .key = key, .is_address = is_address};
        atomic_store_release(bucket, site); /* pairs with the acquire in site_find */
        sites_newest = site;
    }
    return site;
}

/* Makes the table. The entry "other" comes first, so that it always has room. */
static bool sites_are_ready(void)
{
    if (sites_buckets == NULL) {
        /* release: pairs with the acquire in site_bucket */
        atomic_store_release(&sites_buckets,
                             hak__metadata_allocate(SITES_MAX / 4 * sizeof(struct site *)));
    }
    if (sites_buckets != NULL && sites_other == NULL) {
        sites_other = site_add(SITE_ID_OTHER, false);
    }
    return sites_other != NULL;
}

struct site *hak__site_find(uintptr_t id)
{
    return site_find(id, false);
}

struct site *hak__site_of(uintptr_t key, bool is_address)
{
    if (!sites_are_ready()) {
        return NULL;
    }
    struct site *site = key == 0 ? sites_other : site_find(key, is_address);
    if (site == NULL && sites_others_count < SITES_MAX - SITES_NAMED_MAX - 1) {
        site = site_add(key, is_address);
        sites_others_count += site != NULL;
    }
    return site != NULL ? site : sites_other;
}

/* --- names --- */

/* The site to give the name to, or which has it already; NULL: it must be made. Stores its id: the
 * hash, or a number above it if sites of other names have that. */
static struct site *site_find_name(const char *name, uintptr_t *id)
{
    for (*id = bits_fnv(name, strlen(name));; (*id)++) {
        if (*id == 0 || *id == SITE_ID_OTHER) {
            continue;
        }
        struct site *site = site_find(*id, false);
        if (site == NULL || !site->shared_is_named || hak__text_equal(site->name, name)) {
            return site;
        }
    }
}

uintptr_t hak__site_named(const char name[SITE_NAME_SIZE])
{
    uintptr_t id;
    if (!sites_are_ready()) {
        return 0;
    }
    struct site *site = site_find_name(name, &id);
    if (site != NULL && site->shared_is_named) {
        return id;
    }
    if (sites_named_count == SITES_NAMED_MAX) {
        return SITE_ID_OTHER;
    }
    if (site != NULL) { /* a sample had that number by chance */
        sites_others_count--;
    } else {
        site = site_add(id, false);
    }
    if (site == NULL) {
        return 0;
    }
    sites_named_count++;
    memcpy(site->name, name, SITE_NAME_SIZE);
    /* release: pairs with the acquire in hak__site_is_named */
    atomic_store_release(&site->shared_is_named, true);
    return id;
}

bool hak__site_is_named(const struct site *site)
{
    return atomic_load_acquire(&site->shared_is_named);
}

void hak__site_name(const struct site *site, char name[SITE_NAME_SIZE])
{
    bool is_named = hak__site_is_named(site), is_number = !is_named && !site->is_address;
    if (is_number && site->key != SITE_ID_OTHER) {
        hak__text_make(name, SITE_NAME_SIZE, "site %#lx", site->key);
    } else {
        hak__text_make(name, SITE_NAME_SIZE, "%s",
                       is_named    ? site->name
                       : is_number ? "other"
                                   : "");
    }
}

/* --- sums --- */

void hak__site_begin(struct site *site, double weight, size_t size, size_t usable, uint64_t now_ms)
{
    struct site_sums *sums = &site->sums;
    sums->allocated_count += weight;
    sums->allocated_bytes += weight * (double)size;
    sums->live_usable_bytes += weight * (double)usable;
    sums->size_min = sums->samples_count == 0 || size < sums->size_min ? size : sums->size_min;
    sums->began_ms = sums->samples_count == 0 ? now_ms : sums->began_ms;
    sums->size_max = size > sums->size_max ? size : sums->size_max;
    sums->samples_count++;
    sums->samples_live++;
}

static uint32_t site_lifetime_index(uint64_t lifetime_ms)
{
    uint32_t index = lifetime_ms == 0 ? 0 : 1 + bits_log2(lifetime_ms) / 2;
    return index < SITE_LIFETIMES ? index : SITE_LIFETIMES - 1;
}

void hak__site_end(struct site *site, double weight, size_t size, size_t usable,
                   uint64_t lifetime_ms, bool remote)
{
    struct site_sums *sums = &site->sums;
    sums->freed_count += weight;
    sums->freed_bytes += weight * (double)size;
    sums->freed_remote += remote ? weight : 0;
    sums->live_usable_bytes -= weight * (double)usable;
    sums->lifetime_ms += weight * (double)lifetime_ms;
    sums->lifetimes[site_lifetime_index(lifetime_ms)] += weight;
    sums->samples_live--;
}

struct site *hak__site_first(void)
{
    return sites_newest;
}
