/* SPDX-License-Identifier: MIT */
/* summary_text.c: the summary of a report as some 15 lines for people. */
#include "observe/report.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "region/superslab.h"

#include <string.h>

/* Classes and sites that are named. */
#define SUMMARY_LARGEST 3u
#define SUMMARY_MIB_SIZE 32u

/* `bytes` in hundredths of a MiB, rounded. */
static uint64_t summary_hundredths(uint64_t bytes)
{
    return (bytes >> 20) * 100 + (((bytes & 0xfffff) * 100 + (1u << 19)) >> 20);
}

static const char *summary_mib(char text[SUMMARY_MIB_SIZE], uint64_t bytes)
{
    uint64_t hundredths = summary_hundredths(bytes);
    return hak__text_make(text, SUMMARY_MIB_SIZE, "%lu.%02lu MiB", hundredths / 100,
                          hundredths % 100);
}

/* `bytes` in thousandths of the RSS, rounded. */
static uint64_t summary_thousandths(const struct summary *summary, uint64_t bytes)
{
    uint64_t rss = summary->memory.rss;
    return rss == 0 ? 0 : (bytes * 1000 + rss / 2) / rss;
}

/* One line of the table. `before` and `after` are the sums of the parts up to this one: their
 * rounded values are subtracted, so that the column adds up. */
static void summary_put_part(struct report_writer *writer, const struct summary *summary,
                             const char *title, const char *mark, uint64_t before, uint64_t after,
                             const char *comment)
{
    uint64_t mib = summary_hundredths(after) - summary_hundredths(before);
    hak__report_put(writer, "%-26s%s%8lu.%02lu MiB", title, mark, mib / 100, mib % 100);
    if (summary_has_rss(summary)) {
        uint64_t part = summary_thousandths(summary, after) - summary_thousandths(summary, before);
        hak__report_put(writer, "%4lu.%lu %%", part / 10, part % 10);
    }
    hak__report_put(writer, "%s%s\n", *comment != '\0' ? "  " : "", comment);
}

/* The comment behind a part. */
static const char *summary_comment(char comment[100], const struct report *report, uint32_t part)
{
    const struct hak_stats *stats = &report->stats;
    char bytes[16];
    switch (part) {
    case SUMMARY_IN_USE:
        if (stats->bytes_in_use < 1024) { /* for which there is no unit */
            hak__text_make(bytes, sizeof bytes, "%zu B", stats->bytes_in_use);
        } else {
            hak__report_scale(bytes, stats->bytes_in_use);
        }
        return hak__text_make(comment, 100, "%zu blocks of %s, touched or not",
                              stats->objects_in_use_count, bytes);
    case SUMMARY_ROUNDING:
        return report->summary.requests_count == 0
                   ? "unknown, so part of the line above"
                   : hak__text_make(comment, 100, "estimated from %lu requests",
                                    report->summary.requests_count);
    case SUMMARY_THREAD_CACHES:
        return hak__text_make(comment, 100, "%zu thread%s", stats->threads_count,
                              stats->threads_count == 1 ? "" : "s");
    case SUMMARY_FREE_IN_SLABS:
        return "serves requests of the same size only";
    case SUMMARY_KEPT:
        return "serves any request, or goes back to the OS";
    case SUMMARY_TABLES:
        return "page map, slab metadata, arenas";
    default:
        return hak__summary_names[part].help;
    }
}

static void summary_put_table(struct report_writer *writer, const struct report *report)
{
    const struct summary *summary = &report->summary;
    uint64_t before = 0, after;
    uint32_t end = summary_has_rss(summary) ? SUMMARY_PARTS : SUMMARY_NOT_HAKMEM;
    for (uint32_t part = 0; part < end; part++, before = after) {
        char comment[100], title[32];
        after = before + summary->parts[part];
        hak__text_make(title, sizeof title, "  %s", hak__summary_names[part].title);
        summary_put_part(writer, summary, title, part == SUMMARY_ROUNDING ? "~" : " ", before,
                         after, summary_comment(comment, report, part));
    }
    uint64_t whole = summary->parts[SUMMARY_NOT_HAKMEM], files = summary->memory.files;
    if (summary_has_rss(summary) && files != UINT64_MAX) {
        summary_put_part(writer, summary, "    anonymous", " ", 0,
                         whole > files ? whole - files : 0,
                         "the program's own mappings, stacks of threads");
    }
}

/* Resident bytes of a class of slabs, of spans (CLASS_COUNT) or of huge blocks (CLASS_COUNT +
 * 1). */
static uint64_t summary_class_bytes(const struct resident *resident, uint32_t class_index)
{
    return class_index < CLASS_COUNT    ? resident->classes[class_index]
           : class_index == CLASS_COUNT ? resident->slices[SLICE_SPAN]
                                        : resident->huge;
}

/* The class with the most resident bytes below those of class `last`; of classes with equally many
 * the first. 0: no further one has any. */
static uint32_t summary_next_largest(const struct resident *resident, uint32_t last)
{
    uint32_t largest = 0;
    uint64_t most = 0, limit = last == 0 ? UINT64_MAX : summary_class_bytes(resident, last);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT + 2; class_index++) {
        uint64_t bytes = summary_class_bytes(resident, class_index);
        if (bytes > most && (bytes < limit || (bytes == limit && class_index > last))) {
            most = bytes;
            largest = class_index;
        }
    }
    return largest;
}

/* "largest sizes    64 B 12.00 MiB, ...": the classes whose slabs or blocks hold most. */
static void summary_put_largest(struct report_writer *writer, const struct resident *resident)
{
    uint32_t class_index = 0;
    hak__report_put(writer, "largest sizes: ");
    for (uint32_t i = 0; i < SUMMARY_LARGEST; i++) {
        char name[24] = "over 2 MiB", mib[SUMMARY_MIB_SIZE];
        class_index = summary_next_largest(resident, class_index);
        uint64_t bytes = summary_class_bytes(resident, class_index);
        /* a class with less is "0.00 MiB": not one of the largest */
        if (class_index == 0 || (i != 0 && bytes < (1u << 20) / 200)) {
            hak__report_put(writer, "%s", i == 0 ? "none" : "");
            break;
        }
        if (class_index < CLASS_COUNT) {
            hak__text_make(name, sizeof name, "%u B", size_class_bytes(class_index));
        } else if (class_index == CLASS_COUNT) {
            hak__text_make(name, sizeof name, "64 KiB to 2 MiB");
        }
        hak__report_put(writer, "%s%s with %s", i == 0 ? "" : ", ", name, summary_mib(mib, bytes));
    }
    hak__report_put(writer, "\n");
}

static void summary_put_conclusions(struct report_writer *writer, const struct summary *summary)
{
    char mib[SUMMARY_MIB_SIZE];
    uint64_t in_slabs = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        in_slabs += summary->resident.classes[class_index];
    }
    hak__report_put(writer, "could go back to the OS now: %s",
                    summary_mib(mib, summary->parts[SUMMARY_KEPT]));
    /* With less in slabs, the part that is free says nothing: a small program has few objects of
     * each size, so that most of its slabs are nearly empty. */
    if (in_slabs >= 8u << 20) {
        hak__report_put(writer,
                        "; fragmentation: %u.%u %% (free in slabs, as a part of blocks and slabs)",
                        summary->fragmentation / 10, summary->fragmentation % 10);
    }
    hak__report_put(writer, "\n");
    summary_put_largest(writer, &summary->resident);
}

/* How much lies in huge pages, and why not more. */
static void summary_put_huge_pages(struct report_writer *writer, const struct summary *summary)
{
    const struct huge_use *use = &summary->resident.huge_use;
    uint64_t bytes = use->unknown ? hak__os_huge_page_bytes() : use->bytes;
    char mib[SUMMARY_MIB_SIZE], text[TEXT_LINE_SIZE];
    bool some = bytes != 0 && bytes != UINT64_MAX;
    const char *amount = some ? summary_mib(mib, bytes) : bytes == 0 ? "none" : "unknown";
    hak__report_put(writer, "huge pages: %s", amount);
    if (some && use->unknown) {
        hak__report_put(writer, " of the process; the kernel does not say it of the heap");
    } else if (some) {
        hak__report_put(writer, " of the heap's %s", summary_mib(mib, use->heap_bytes));
    }
    if (use->superslabs_count != 0) {
        uint64_t permille = hak__huge_use_permille(use);
        hak__report_put(writer, "; blocks fill %lu.%lu %% of the superslabs there", permille / 10,
                        permille % 10);
    }
    const char *why = hak__huge_use_why(text, use);
    hak__report_put(writer, *why == '\0' ? "\n" : some ? "\n  %s\n" : "; %s\n", why);
}

/* The sites whose blocks hold most; nothing if none holds any. */
static void summary_put_sites(struct report_writer *writer, const struct site_list *sites)
{
    struct modules modules;
    struct site_sums sums;
    uint32_t i = 0;
    hak__modules_open(&modules);
    for (; i < sites->count && i < SUMMARY_LARGEST; i++) {
        char mib[SUMMARY_MIB_SIZE], title[TEXT_LINE_SIZE];
        if (!hak__site_copy(sites->sites[i], &sums) || sums.samples_live == 0) {
            break;
        }
        hak__site_title(sites->sites[i], &modules, title);
        hak__report_put(writer, "%s%s with %s", i == 0 ? "largest sites: " : ", ", title,
                        summary_mib(mib, hak__report_round(site_live_bytes(&sums))));
    }
    hak__modules_close(&modules);
    if (i != 0) {
        hak__report_put(writer, " (estimated from %lu samples)\n", sites->samples_count);
    }
}

/* Peaks, swap, and what is mapped. */
static void summary_put_other(struct report_writer *writer, const struct report *report)
{
    char mib[SUMMARY_MIB_SIZE];
    const struct os_memory *memory = &report->summary.memory;
    const struct hak_stats *stats = &report->stats;
    if (memory->peak_rss != UINT64_MAX) {
        hak__report_put(writer, "peak RSS: %s; ", summary_mib(mib, memory->peak_rss));
    }
    hak__report_put(writer, "mapped by hakmem: %s",
                    summary_mib(mib, stats->bytes_mapped + stats->bytes_metadata));
    hak__report_put(writer, ", at most %s", summary_mib(mib, stats->peak_bytes_mapped));
    if (memory->swapped != UINT64_MAX && memory->swapped != 0) {
        hak__report_put(writer, "; swapped out, not in RSS: %s", summary_mib(mib, memory->swapped));
    }
    hak__report_put(writer, "\npeak of slabs, spans and huge blocks: %s",
                    summary_mib(mib, stats->peak_bytes_taken));
    uint64_t ago_ms = hak__superslab_peak_ago_ms();
    if (ago_ms != UINT64_MAX) {
        hak__report_put(writer, ", %lu.%lu s before this report", ago_ms / 1000, ago_ms / 100 % 10);
    }
    hak__report_put(writer, "\n");
}

static void summary_put_head(struct report_writer *writer)
{
    const char *path = hak__os_program();
    hak__report_put(writer, "hakmem %s, process %u", hak_version(), hak__os_process_id());
    if (path != NULL) {
        char shown[80];
        const char *slash = strrchr(path, '/');
        hak__text_make(shown, sizeof shown, "%s", slash != NULL ? slash + 1 : path);
        for (char *at = shown; *at != '\0'; at++) {
            *at = *at >= ' ' && *at <= '~' ? *at : '?';
        }
        hak__report_put(writer, " (%s)", shown);
    }
    hak__report_put(writer, ", profile %s\n", hak__settings.profile);
}

void hak__summary_write_text(struct report_writer *writer, const struct report *report)
{
    const struct summary *summary = &report->summary;
    summary_put_head(writer);
    if (summary_has_rss(summary)) {
        summary_put_part(writer, summary, "resident memory (RSS)", " ", 0, summary->memory.rss, "");
    } else {
        hak__report_put(writer, "resident memory (RSS) is unknown: /proc cannot be read\n");
    }
    if (summary->known) {
        summary_put_table(writer, report);
        summary_put_conclusions(writer, summary);
    } else {
        hak__report_put(writer, "  its parts are unknown: the kernel does not answer mincore, or "
                                "hakmem was interrupted\n");
    }
    summary_put_huge_pages(writer, summary);
    summary_put_sites(writer, &report->sites);
    summary_put_other(writer, report);
}
