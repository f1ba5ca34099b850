/* SPDX-License-Identifier: MIT */
/* site_list.c: see site_list.h. */
#include "observe/site_list.h"

#include "observe/build_id.h"
#include "observe/loaded.h"
#include "observe/samples.h"

/* Bytes of a file's path. Longer ones are cut, and name no file then. Half: paths of deep build
 * directories are cut. */
#define SITE_PATH_SIZE 512
/* Behind the path of a library that was closed: no file has this name, so tools look into none. */
#define SITE_CLOSED " (closed)"

uint64_t hak__site_round(double estimate)
{
    return estimate <= 0 ? 0 : (uint64_t)(estimate + 0.5);
}

/* --- the list --- */

/* True if site `a` comes before site `b`. Under SAMPLES. */
static bool site_is_before(const struct site *a, const struct site *b)
{
    double live_a = a->sums.allocated_bytes - a->sums.freed_bytes;
    double live_b = b->sums.allocated_bytes - b->sums.freed_bytes;
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

const struct site *hak__site_list_first(void)
{
    if (!hak__samples_enter(true)) {
        return NULL;
    }
    const struct site *site = hak__site_first();
    hak__samples_leave();
    return site;
}

/* --- records --- */

static const char *site_kind(const struct site *site)
{
    return site->is_address             ? "address"
           : hak__site_is_named(site)   ? "named"
           : site->key == SITE_ID_OTHER ? "other"
                                        : "number";
}

/* A field with a hexadecimal number, or "" for 0. */
static void site_write_hex(struct report_writer *writer, const char *key, uint64_t value)
{
    char digits[24];
    struct text text = {digits, sizeof digits - 1, 0};
    if (value != 0) {
        hak__text_put_hex(&text, value);
    }
    digits[text.length] = '\0';
    hak__report_string(writer, key, digits, "");
}

/* The address, the file in which it lies, and the offset there; "" where there is none. `id` is of
 * the site before. */
static void site_write_place(struct report_writer *writer, const struct site *site,
                             const struct modules *modules, struct build_id *id)
{
    char path[SITE_PATH_SIZE];
    struct text text = {path, sizeof path - 1, 0};
    struct module_place place = {.offset = 0};
    bool closed = false;
    if (site->is_address && hak__loaded_find(modules, site->key, &place, &closed)) {
        hak__text_put_part(&text, place.path, place.path_length);
        hak__text_put(&text, closed ? SITE_CLOSED : "");
    }
    path[text.length] = '\0';
    site_write_hex(writer, "address", site->is_address ? loaded_address(site->key) : 0);
    hak__report_string(writer, "module", path, "");
    site_write_hex(writer, "offset", place.offset);
    hak__build_id_read(id, text.length != 0 && !closed ? place.base : 0);
    hak__build_id_write(writer, id);
}

static void site_write_sums(struct report_writer *writer, const struct site_sums *sums)
{
    double freed = sums->freed_count;
    hak__report_number(writer, "live_bytes",
                       hak__site_round(sums->allocated_bytes - sums->freed_bytes), "");
    hak__report_number(writer, "live_count", hak__site_round(sums->allocated_count - freed), "");
    hak__report_number(writer, "live_usable_bytes", hak__site_round(sums->live_usable_bytes), "");
    hak__report_number(writer, "allocated_bytes", hak__site_round(sums->allocated_bytes), "");
    hak__report_number(writer, "allocated_count", hak__site_round(sums->allocated_count), "");
    hak__report_number(writer, "freed_bytes", hak__site_round(sums->freed_bytes), "");
    hak__report_number(writer, "freed_count", hak__site_round(freed), "");
    hak__report_number(writer, "size_min", sums->size_min, "");
    hak__report_number(writer, "size_max", sums->size_max, "");
    hak__report_number(writer, "lifetime_ms",
                       freed > 0 ? hak__site_round(sums->lifetime_ms / freed) : 0, "");
    hak__report_number(writer, "remote_permille",
                       freed > 0 ? hak__site_round(1000 * sums->freed_remote / freed) : 0, "");
    hak__report_number(writer, "samples", sums->samples_count, "");
    hak__report_number(writer, "samples_live", sums->samples_live, "");
}

/* One string of SITE_LIFETIMES numbers, with spaces between them. */
static void site_write_lifetimes(struct report_writer *writer, const struct site_sums *sums)
{
    char line[SITE_LIFETIMES * sizeof "18446744073709551615 "];
    struct text text = {line, sizeof line - 1, 0};
    for (uint32_t i = 0; i < SITE_LIFETIMES; i++) {
        hak__text_put(&text, i == 0 ? "" : " ");
        hak__text_put_unsigned(&text, hak__site_round(sums->lifetimes[i]));
    }
    line[text.length] = '\0';
    hak__report_string(writer, "lifetime_counts", line, "");
}

void hak__site_list_write(struct report_writer *writer, const struct site_list *list)
{
    struct modules modules = {NULL, 0};
    struct build_id id = {.base = 0};
    struct site_sums sums;
    if (list->count != 0) {
        hak__modules_open(&modules);
    }
    hak__report_list_begin(writer, "sites", NULL);
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
        site_write_lifetimes(writer, &sums);
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
    hak__modules_close(&modules);
}

void hak__site_put_title(struct text *text, const struct site *site, const struct modules *modules)
{
    char name[SITE_NAME_SIZE];
    struct module_place place;
    bool closed;
    hak__site_name(site, name);
    hak__text_put(text, name);
    if (site->is_address && hak__loaded_find(modules, site->key, &place, &closed)) {
        size_t start = place.path_length;
        while (start != 0 && place.path[start - 1] != '/') {
            start--;
        }
        hak__text_put_part(text, place.path + start, place.path_length - start);
        hak__text_put(text, closed ? SITE_CLOSED "+" : "+");
        hak__text_put_hex(text, hak__loaded_call(site->key, &place));
    } else if (site->is_address) {
        hak__text_put_hex(text, loaded_address(site->key));
    }
}
