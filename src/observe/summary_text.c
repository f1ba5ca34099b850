/* SPDX-License-Identifier: MIT */
/* summary_text.c: see summary_text.h. */
#include "observe/summary_text.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "region/superslab.h"

/* Columns of the lines that show parts: title, "~", MiB with two decimals, percent with one. */
#define SUMMARY_TITLE_WIDTH 26
#define SUMMARY_MIB_WIDTH 11
#define SUMMARY_PERCENT_WIDTH 6
/* Classes and sites that are named. */
#define SUMMARY_LARGEST 3u
/* A class with less is "0.00 MiB": not one of the largest. */
#define SUMMARY_LARGEST_MIN ((1u << 20) / 200)

struct summary_line {
    struct text text;
    char data[320]; /* three names of sites take 190 */
};

static void line_begin(struct summary_line *line)
{
    line->text = (struct text){line->data, sizeof line->data - 2, 0};
}

static void line_end(struct summary_line *line, struct report_writer *writer)
{
    line->data[line->text.length] = '\n';
    line->data[line->text.length + 1] = '\0';
    hak__report_put(writer, line->data);
}

/* Fills with blanks up to a column. */
static void line_pad(struct summary_line *line, size_t column)
{
    while (line->text.length < column) {
        hak__text_put(&line->text, " ");
    }
}

/* Puts value / scale with the decimals of `scale` (10 or 100), right-aligned in `width`. */
static void line_put_decimal(struct summary_line *line, uint64_t value, unsigned scale,
                             size_t width)
{
    char data[32];
    struct text number = {data, sizeof data, 0};
    hak__text_put_unsigned(&number, value / scale);
    hak__text_put(&number, ".");
    for (unsigned digit = scale / 10; digit != 0; digit /= 10) {
        hak__text_put_unsigned(&number, value / digit % 10);
    }
    line_pad(line, line->text.length + (number.length < width ? width - number.length : 0));
    hak__text_put_part(&line->text, data, number.length);
}

/* `bytes` in hundredths of a MiB, rounded. */
static uint64_t summary_hundredths(uint64_t bytes)
{
    return (bytes >> 20) * 100 + (((bytes & 0xfffff) * 100 + (1u << 19)) >> 20);
}

static void line_put_mib(struct summary_line *line, uint64_t bytes)
{
    line_put_decimal(line, summary_hundredths(bytes), 100, 0);
    hak__text_put(&line->text, " MiB");
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
    struct summary_line line;
    line_begin(&line);
    hak__text_put(&line.text, title);
    line_pad(&line, SUMMARY_TITLE_WIDTH);
    hak__text_put(&line.text, mark);
    line_put_decimal(&line, summary_hundredths(after) - summary_hundredths(before), 100,
                     SUMMARY_MIB_WIDTH);
    hak__text_put(&line.text, " MiB");
    if (summary_has_rss(summary)) {
        line_put_decimal(&line,
                         summary_thousandths(summary, after) - summary_thousandths(summary, before),
                         10, SUMMARY_PERCENT_WIDTH);
        hak__text_put(&line.text, " %");
    }
    hak__text_put(&line.text, *comment != '\0' ? "  " : "");
    hak__text_put(&line.text, comment);
    line_end(&line, writer);
}

/* The comment behind a part. */
static void summary_comment(struct text *comment, const struct summary *summary, uint32_t part,
                            const struct hak_stats *stats)
{
    switch (part) {
    case SUMMARY_IN_USE:
        hak__text_put_unsigned(comment, stats->objects_in_use_count);
        hak__text_put(comment, " blocks of ");
        if (stats->bytes_in_use < 1024) { /* for which there is no unit */
            hak__text_put_unsigned(comment, stats->bytes_in_use);
            hak__text_put(comment, " B");
        }
        hak__report_scale(comment, stats->bytes_in_use);
        hak__text_put(comment, ", touched or not");
        break;
    case SUMMARY_ROUNDING:
        if (summary->requests_count == 0) {
            hak__text_put(comment, "unknown, so part of the line above");
            break;
        }
        hak__text_put(comment, "estimated from ");
        hak__text_put_unsigned(comment, summary->requests_count);
        hak__text_put(comment, " requests");
        break;
    case SUMMARY_THREAD_CACHES:
        hak__text_put_unsigned(comment, stats->threads_count);
        hak__text_put(comment, stats->threads_count == 1 ? " thread" : " threads");
        break;
    case SUMMARY_FREE_IN_SLABS:
        hak__text_put(comment, "serves requests of the same size only");
        break;
    case SUMMARY_KEPT:
        hak__text_put(comment, "serves any request, or goes back to the OS");
        break;
    case SUMMARY_TABLES:
        hak__text_put(comment, "page map, slab metadata, heaps");
        break;
    default:
        hak__text_put(comment, "code, stacks, the program's own mappings");
        break;
    }
}

#define X(part, key, title, help) {key, title, help},
static const struct {
    const char *key;
    const char *title;
    const char *help;
} summary_parts[SUMMARY_PARTS] = {SUMMARY_PART_LIST(X)};
#undef X

static void summary_put_table(struct report_writer *writer, const struct summary *summary,
                              const struct hak_stats *stats)
{
    uint64_t before = 0;
    uint32_t end = summary_has_rss(summary) ? SUMMARY_PARTS : SUMMARY_NOT_HAKMEM;
    for (uint32_t part = 0; part < end; part++) {
        char data[100], title[SUMMARY_TITLE_WIDTH + 2];
        struct text comment = {data, sizeof data - 1, 0}, indented = {title, sizeof title - 1, 0};
        summary_comment(&comment, summary, part, stats);
        data[comment.length] = '\0';
        hak__text_put(&indented, "  ");
        hak__text_put(&indented, summary_parts[part].title);
        title[indented.length] = '\0';
        uint64_t after = before + summary->parts[part];
        summary_put_part(writer, summary, title, part == SUMMARY_ROUNDING ? "~" : " ", before,
                         after, data);
        before = after;
    }
    uint64_t whole = summary->parts[SUMMARY_NOT_HAKMEM], files = summary->memory.files;
    if (summary_has_rss(summary) && files != UINT64_MAX) {
        summary_put_part(writer, summary, "    anonymous", " ", 0,
                         whole > files ? whole - files : 0,
                         "the program's own mappings, stacks of threads");
    }
}

/* The name of a class for people, such as "64 B". */
static void summary_put_class(struct text *text, uint32_t class_index)
{
    if (class_index < CLASS_COUNT) {
        hak__text_put_unsigned(text, size_class_bytes(class_index));
        hak__text_put(text, " B");
    } else {
        hak__text_put(text, class_index == CLASS_COUNT ? "64 KiB to 2 MiB" : "over 2 MiB");
    }
}

/* "largest sizes    64 B 12.00 MiB, ...": the classes whose slabs or blocks hold most. */
static void summary_put_largest(struct report_writer *writer, const struct summary *summary)
{
    uint32_t found[SUMMARY_LARGEST];
    struct summary_line line;
    line_begin(&line);
    hak__text_put(&line.text, "largest sizes: ");
    for (uint32_t i = 0; i < SUMMARY_LARGEST; i++) {
        found[i] = hak__summary_next_largest(summary, found, i);
        if (found[i] == 0 ||
            (i != 0 && hak__summary_class_bytes(summary, found[i]) < SUMMARY_LARGEST_MIN)) {
            hak__text_put(&line.text, i == 0 ? "none" : "");
            break;
        }
        hak__text_put(&line.text, i == 0 ? "" : ", ");
        summary_put_class(&line.text, found[i]);
        hak__text_put(&line.text, " with ");
        line_put_mib(&line, hak__summary_class_bytes(summary, found[i]));
    }
    line_end(&line, writer);
}

static void summary_put_conclusions(struct report_writer *writer, const struct summary *summary)
{
    struct summary_line line;
    line_begin(&line);
    hak__text_put(&line.text, "could go back to the OS now: ");
    line_put_mib(&line, summary->parts[SUMMARY_KEPT]);
    hak__text_put(&line.text, "; fragmentation: ");
    line_put_decimal(&line, summary->fragmentation, 10, 0);
    hak__text_put(&line.text, " % (free in slabs, as a part of blocks and slabs)");
    line_end(&line, writer);
    summary_put_largest(writer, summary);
}

/* The sites whose blocks hold most; nothing if none holds any. */
static void summary_put_sites(struct report_writer *writer, const struct site_list *sites)
{
    struct summary_line line;
    struct modules modules;
    struct site_sums sums;
    double live = 0;
    line_begin(&line);
    hak__text_put(&line.text, "largest sites: ");
    hak__modules_open(&modules);
    for (uint32_t i = 0; i < sites->count && i < SUMMARY_LARGEST; i++) {
        if (!hak__site_copy(sites->sites[i], &sums) || sums.samples_live == 0) {
            break;
        }
        live = sums.allocated_bytes - sums.freed_bytes;
        hak__text_put(&line.text, i == 0 ? "" : ", ");
        hak__site_put_title(&line.text, sites->sites[i], &modules);
        hak__text_put(&line.text, " with ");
        line_put_mib(&line, hak__site_round(live));
    }
    hak__modules_close(&modules);
    if (live > 0) {
        hak__text_put(&line.text, " (estimated from ");
        hak__text_put_unsigned(&line.text, sites->samples_count);
        hak__text_put(&line.text, " samples)");
        line_end(&line, writer);
    }
}

/* Peaks, swap, and what is mapped. */
static void summary_put_other(struct report_writer *writer, const struct summary *summary,
                              const struct hak_stats *stats)
{
    struct summary_line line;
    line_begin(&line);
    if (summary->memory.peak_rss != UINT64_MAX) {
        hak__text_put(&line.text, "peak RSS: ");
        line_put_mib(&line, summary->memory.peak_rss);
        hak__text_put(&line.text, "; ");
    }
    hak__text_put(&line.text, "mapped by hakmem: ");
    line_put_mib(&line, stats->bytes_mapped + stats->bytes_metadata);
    hak__text_put(&line.text, ", at most ");
    line_put_mib(&line, stats->peak_bytes_mapped);
    if (summary->memory.swapped != UINT64_MAX && summary->memory.swapped != 0) {
        hak__text_put(&line.text, "; swapped out, not in RSS: ");
        line_put_mib(&line, summary->memory.swapped);
    }
    line_end(&line, writer);
}

/* The most that the program had at a time, and when. */
static void summary_put_peak(struct report_writer *writer, const struct hak_stats *stats)
{
    struct summary_line line;
    uint64_t ago_ms = hak__superslab_peak_ago_ms();
    line_begin(&line);
    hak__text_put(&line.text, "peak of slabs, spans and huge allocations: ");
    line_put_mib(&line, stats->peak_bytes_taken);
    if (ago_ms != UINT64_MAX) {
        hak__text_put(&line.text, ", ");
        line_put_decimal(&line, ago_ms / 100, 10, 0);
        hak__text_put(&line.text, " s before this report");
    }
    line_end(&line, writer);
}

static void summary_put_head(struct report_writer *writer)
{
    struct summary_line line;
    const char *path = hak__os_program(), *name = path;
    for (; path != NULL && *path != '\0'; path++) {
        name = *path == '/' ? path + 1 : name;
    }
    line_begin(&line);
    hak__text_put(&line.text, "hakmem ");
    hak__text_put(&line.text, hak_version());
    hak__text_put(&line.text, ", process ");
    hak__text_put_unsigned(&line.text, hak__os_process_id());
    hak__text_put(&line.text, name != NULL ? " (" : "");
    for (const char *at = name; at != NULL && *at != '\0' && line.text.length < 100; at++) {
        hak__text_put_part(&line.text, *at >= ' ' && *at <= '~' ? at : "?", 1);
    }
    hak__text_put(&line.text, name != NULL ? "), profile " : ", profile ");
    hak__text_put(&line.text, hak__settings.profile);
    line_end(&line, writer);
}

void hak__summary_write_text(struct report_writer *writer, const struct summary *summary,
                             const struct hak_stats *stats, const struct site_list *sites)
{
    summary_put_head(writer);
    if (summary_has_rss(summary)) {
        summary_put_part(writer, summary, "resident memory (RSS)", " ", 0, summary->memory.rss, "");
    } else {
        hak__report_put(writer, "resident memory (RSS) is unknown: /proc cannot be read\n");
    }
    if (summary->known) {
        summary_put_table(writer, summary, stats);
        summary_put_conclusions(writer, summary);
    } else {
        hak__report_put(writer, "  its parts are unknown: the kernel does not answer mincore, or "
                                "hakmem was interrupted\n");
    }
    if (sites->count != 0) {
        summary_put_sites(writer, sites);
    }
    summary_put_other(writer, summary, stats);
    summary_put_peak(writer, stats);
}

/* A number of bytes, or null if it is UINT64_MAX or not known. */
static void summary_field(struct report_writer *writer, const char *key, uint64_t value, bool known,
                          const char *help)
{
    if (known && value != UINT64_MAX) {
        hak__report_bytes(writer, key, value, help);
    } else {
        hak__report_unknown(writer, key, help);
    }
}

void hak__summary_write_fields(struct report_writer *writer, const struct summary *summary)
{
    hak__report_section_begin(writer, "summary");
    summary_field(writer, "rss_bytes", summary->memory.rss, true,
                  "resident memory of the process; the next seven are its parts");
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        bool known = summary->known && (part != SUMMARY_NOT_HAKMEM || summary_has_rss(summary));
        summary_field(writer, summary_parts[part].key, summary->parts[part], known,
                      summary_parts[part].help);
    }
    summary_field(writer, "returnable_bytes", summary->parts[SUMMARY_KEPT], summary->known,
                  "hak_trim would return them to the OS now");
    summary_field(writer, "peak_rss_bytes", summary->memory.peak_rss, true,
                  "the most resident memory since exec");
    summary_field(writer, "swapped_bytes", summary->memory.swapped, true,
                  "in swap areas; not part of RSS");
    hak__report_number(writer, "rounding_requests_count", summary->requests_count,
                       "requests that the estimate of rounding rests on");
    if (summary->known) {
        hak__report_number(writer, "fragmentation_permille", summary->fragmentation,
                           "free in slabs, as a part of it and of blocks in use");
    } else {
        hak__report_unknown(writer, "fragmentation_permille", "");
    }
    hak__report_section_end(writer);
}
