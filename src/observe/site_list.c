/* SPDX-License-Identifier: MIT */
/* site_list.c: see report.h. */
#include "observe/report.h"

#include "observe/loaded.h"
#include "observe/modules.h"
#include "observe/samples.h"

#include <string.h>

/* Behind the path of a library that was closed: no file has this name, so tools look into none. */
#define SITE_CLOSED " (closed)"

/* --- the list --- */

/* True if site `a` comes before site `b`. Under SAMPLES. */
static bool site_is_before(const struct site *a, const struct site *b)
{
    double live_a = site_live_bytes(&a->sums), live_b = site_live_bytes(&b->sums);
    /* Half a byte: what rounding leaves of a site whose blocks are all freed. */
    if (live_a - live_b > 0.5 || live_b - live_a > 0.5) {
        return live_a > live_b;
    }
    return a->sums.allocated_bytes > b->sums.allocated_bytes;
}

/* Puts the site to its place, if it is among the first. Under SAMPLES. */
static void site_list_add(struct site_list *list, const struct site *site)
{
    uint32_t i = list->count;
    if (i == SITE_LIST_MAX) {
        if (!site_is_before(site, list->sites[--i])) {
            return;
        }
    } else {
        list->count++;
    }
    for (; i != 0 && site_is_before(site, list->sites[i - 1]); i--) {
        list->sites[i] = list->sites[i - 1];
    }
    list->sites[i] = site;
}

void hak__site_list_take(struct site_list *list)
{
    list->count = 0;
    list->samples_count = 0;
    if (!hak__samples_enter(true)) {
        return;
    }
    for (const struct site *site = hak__site_first(); site != NULL; site = site->older) {
        list->samples_count += site->sums.samples_count;
        if (site->sums.samples_count != 0) {
            site_list_add(list, site);
        }
    }
    hak__samples_leave();
}

bool hak__site_copy(const struct site *site, struct site_sums *sums)
{
    if (!hak__samples_enter(true)) {
        return false;
    }
    *sums = site->sums;
    hak__samples_leave();
    return true;
}

/* --- records --- */

static const char *site_kind(const struct site *site)
{
    return site->is_address             ? "address"
           : hak__site_is_named(site)   ? "named"
           : site->key == SITE_ID_OTHER ? "other"
                                        : "number";
}

/* The address, the file in which it lies, and the offset there; "" where there is none. `id` is of
 * the site before. */
static void site_write_place(struct report_writer *writer, const struct site *site,
                             const struct modules *modules, struct build_id *id)
{
    char path[TEXT_LINE_SIZE] = "";
    static const struct module_place none = {.end = 0};
    struct module_place place = none;
    bool closed = false;
    bool found = site->is_address && hak__loaded_find(modules, site->key, &place, &closed);
    if (found) {
        hak__text_make(path, sizeof path, "%.*s%s", (int)place.path_length, place.path,
                       closed ? SITE_CLOSED : "");
    }
    hak__report_hex(writer, "address", loaded_address(site->key), site->is_address);
    hak__report_string(writer, "module", path, "");
    hak__report_hex(writer, "offset", place.offset + 1, found); /* as the return address */
    hak__build_id_read(id, found && !closed ? &place : &none);
    hak__build_id_write(writer, id);
}

/* Estimates, rounded; a mean of lifetimes; how many of 1,000 freed blocks another thread freed. */
static void site_write_sums(struct report_writer *writer, const struct site_sums *sums)
{
    uint64_t lifetimes[SITE_LIFETIMES];
    double freed = sums->freed_count, each = freed > 0 ? 1 / freed : 0;
    REPORT_NUMBERS(writer, {"live_bytes", hak__report_round(site_live_bytes(sums))},
                   {"live_count", hak__report_round(sums->allocated_count - freed)},
                   {"live_usable_bytes", hak__report_round(sums->live_usable_bytes)},
                   {"allocated_bytes", hak__report_round(sums->allocated_bytes)},
                   {"allocated_count", hak__report_round(sums->allocated_count)},
                   {"freed_bytes", hak__report_round(sums->freed_bytes)},
                   {"freed_count", hak__report_round(freed)}, {"size_min", sums->size_min},
                   {"size_max", sums->size_max},
                   {"lifetime_ms", hak__report_round(sums->lifetime_ms * each)},
                   {"remote_permille", hak__report_round(1000 * sums->freed_remote * each)},
                   {"samples", sums->samples_count}, {"samples_live", sums->samples_live});
    for (uint32_t i = 0; i < SITE_LIFETIMES; i++) {
        lifetimes[i] = hak__report_round(sums->lifetimes[i]);
    }
    hak__report_row(writer, "lifetime_counts", lifetimes, SITE_LIFETIMES, false);
}

void hak__site_list_write(struct report_writer *writer, const struct site_list *list)
{
    struct modules modules = {NULL, 0};
    struct build_id id = {.head = 0};
    struct site_sums sums;
    if (list->count != 0) {
        hak__modules_open(&modules);
    }
    hak__report_list_begin(writer, "sites");
    for (uint32_t i = 0; i < list->count; i++) {
        char name[SITE_NAME_SIZE];
        const struct site *site = list->sites[i];
        if (!hak__site_copy(site, &sums)) {
            break;
        }
        hak__site_name(site, name);
        hak__report_record_begin(writer);
        hak__report_string(writer, "kind", site_kind(site), "");
        hak__report_string(writer, "name", name, "");
        site_write_place(writer, site, &modules, &id);
        site_write_sums(writer, &sums);
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
    hak__modules_close(&modules);
}

static const struct site *site_list_first(void)
{
    const struct site *site = NULL;
    if (hak__samples_enter(true)) {
        site = hak__site_first();
        hak__samples_leave();
    }
    return site;
}

void hak__named_sites_write(struct report_writer *writer)
{
    struct site_sums sums;
    hak__report_list_begin(writer, "named_sites");
    for (const struct site *site = site_list_first(); site != NULL; site = site->older) {
        if (hak__site_is_named(site) && hak__site_copy(site, &sums)) {
            hak__report_record_begin(writer);
            hak__report_string(writer, "name", site->name, "");
            REPORT_NUMBERS(
                writer, {"live_bytes", hak__report_round(site_live_bytes(&sums))},
                {"live_count", hak__report_round(sums.allocated_count - sums.freed_count)},
                {"allocated_bytes", hak__report_round(sums.allocated_bytes)});
            hak__report_record_end(writer);
        }
    }
    hak__report_list_end(writer);
}

void hak__site_title(const struct site *site, const struct modules *modules,
                     char title[TEXT_LINE_SIZE])
{
    char name[SITE_NAME_SIZE];
    struct module_place place;
    bool closed;
    hak__site_name(site, name);
    if (site->is_address && hak__loaded_find(modules, site->key, &place, &closed)) {
        size_t start = place.path_length;
        while (start != 0 && place.path[start - 1] != '/') {
            start--;
        }
        hak__text_make(title, TEXT_LINE_SIZE, "%.*s%s+%#lx", (int)(place.path_length - start),
                       place.path + start, closed ? SITE_CLOSED : "",
                       closed ? place.offset : hak__module_address(&place));
    } else if (site->is_address) {
        hak__text_make(title, TEXT_LINE_SIZE, "%#lx", loaded_address(site->key));
    } else {
        hak__text_make(title, TEXT_LINE_SIZE, "%s", name);
    }
}
