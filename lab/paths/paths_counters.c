/* SPDX-License-Identifier: MIT */
/* paths_counters.c: the library's counters, read from its own report. See paths.h. */
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem/stats.h"

static char report_text[1 << 18];
static size_t report_length;

static void report_collect(void *argument, const char *text, size_t size)
{
    if (size >= sizeof report_text - report_length) {
        paths_fail(PATHS_STATUS_FAILED, "the library's report is too long to be read.");
    }
    memcpy(report_text + report_length, text, size);
    report_length += size;
    report_text[report_length] = '\0';
}

/* Appends the numbers of the report's section `key`, a flat object. */
static void snapshot_read(struct paths_snapshot *snapshot, const char *key)
{
    const char *at = strstr(report_text, key);
    if (at == NULL) {
        paths_fail(PATHS_STATUS_FAILED, "the library's report has no %s.", key);
    }
    at += strlen(key);
    const char *end = strchr(at, '}');
    while ((at = strchr(at, '"')) != NULL && at < end) {
        size_t length = strcspn(at + 1, "\"");
        if (length >= sizeof snapshot->entries[0].name ||
            snapshot->count == sizeof snapshot->entries / sizeof snapshot->entries[0]) {
            paths_fail(PATHS_STATUS_FAILED, "the library has more counters than fit here.");
        }
        memcpy(snapshot->entries[snapshot->count].name, at + 1, length);
        snapshot->entries[snapshot->count].name[length] = '\0';
        at += length + 2;
        snapshot->entries[snapshot->count++].value = strtoull(at + strspn(at, ": "), NULL, 10);
    }
}

void paths_snapshot_take(struct paths_snapshot *snapshot)
{
    report_length = 0;
    hak_report(HAK_REPORT_JSON, report_collect, NULL);
    *snapshot = (struct paths_snapshot){.count = 0};
    snapshot_read(snapshot, "\"counters\":");
    snapshot->counters = snapshot->count;
    snapshot_read(snapshot, "\"os_calls\":");
}

void paths_snapshot_add(struct paths_snapshot *sum, const struct paths_snapshot *earlier,
                        const struct paths_snapshot *later)
{
    for (unsigned i = 0; i < later->count; i++) {
        memcpy(sum->entries[i].name, later->entries[i].name, sizeof sum->entries[i].name);
        sum->entries[i].value += later->entries[i].value - earlier->entries[i].value;
    }
    sum->counters = later->counters;
    sum->count = later->count;
}

void paths_snapshot_print(const struct paths_snapshot *snapshot, unsigned first, unsigned end)
{
    const char *separator = "";
    printf("{");
    for (unsigned i = first; i < end; i++) {
        if (snapshot->entries[i].value != 0) {
            printf("%s\"%s\":%llu", separator, snapshot->entries[i].name,
                   (unsigned long long)snapshot->entries[i].value);
            separator = ",";
        }
    }
    printf("}");
}
