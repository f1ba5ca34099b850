/* SPDX-License-Identifier: MIT */
/* report_writer.h: one description of a report, written as text for people or as JSON for programs.
 *
 *                text                                      JSON
 *   section      its key, then a line per field            "key": {fields}
 *   records      the list's key, then a line per record    "key": [{fields}, {fields}]
 *   field        key, value, help                          "key": value
 *
 * JSON is written as one line, so that reports appended to one file stay apart. The writer
 * allocates nothing and is used by one thread. */
#ifndef HAK_OBSERVE_REPORT_WRITER_H
#define HAK_OBSERVE_REPORT_WRITER_H

#include "base/text.h"
#include "hakmem/stats.h"

/* Is told each number: the keys of its groups and its own key, with dots between them, such as
 * "counters.malloc_slow". In a record the first number stands for the key: "classes.64.in_use". */
typedef void report_visit(void *argument, const char *name, uint64_t value, const char *help);

struct report_writer {
    hak_report_sink *sink;
    void *argument;
    enum hak_report_format format;
    bool in_list;        /* fields of text stand in one line, without help */
    bool first;          /* the next field or record is the first of its group */
    report_visit *visit; /* told the numbers, and nothing is written; NULL: write */
    bool names;          /* the next number is the name of its record */
    struct text text;    /* while `visit` is told: the names of the groups that are open */
    /* Bytes collected before the sink is called. A report is then some tens of pieces, and the
     * buffer fits on any thread's stack. Doubled: half as many calls of the sink, and 1 KiB more
     * stack. */
    char buffer[1024];
};

/* Begins a report that goes to `sink` with `argument`; hak__report_end sends the rest. */
HAK_HIDDEN void hak__report_begin(struct report_writer *writer, enum hak_report_format format,
                                  hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_end(struct report_writer *writer);

/* Begins a report that writes nothing, and tells `visit` the numbers. */
HAK_HIDDEN void hak__report_visit(struct report_writer *writer, report_visit *visit,
                                  void *argument);

/* Begins a group of fields under `key`. Inside a record its fields stay on the record's line. */
HAK_HIDDEN void hak__report_section_begin(struct report_writer *writer, const char *key);
HAK_HIDDEN void hak__report_section_end(struct report_writer *writer);

/* Begins a list of records. */
HAK_HIDDEN void hak__report_list_begin(struct report_writer *writer, const char *key);
HAK_HIDDEN void hak__report_list_end(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_begin(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_end(struct report_writer *writer);

/* One field. Only text outside of lists shows `help`; "" is no help. Strings may hold any bytes. A
 * number UINT64_MAX is unknown now: null in JSON. One of bytes, by its key, is shown in KiB, MiB,
 * ... too. */
HAK_HIDDEN void hak__report_number(struct report_writer *writer, const char *key, uint64_t value,
                                   const char *help);
HAK_HIDDEN void hak__report_string(struct report_writer *writer, const char *key, const char *value,
                                   const char *help);
/* A string: the number with 0x, or "". */
HAK_HIDDEN void hak__report_hex(struct report_writer *writer, const char *key, uint64_t value,
                                bool known);
/* Several numbers without help, up to one without a key. */
struct report_number {
    const char *key;
    uint64_t value;
};
HAK_HIDDEN void hak__report_numbers(struct report_writer *writer,
                                    const struct report_number *numbers);
#define REPORT_NUMBERS(writer, ...)                                                                \
    hak__report_numbers(writer, (const struct report_number[]){__VA_ARGS__, {NULL, 0}})
/* The same as a whole record. */
#define REPORT_RECORD(writer, ...)                                                                 \
    hak__report_record_begin(writer);                                                              \
    REPORT_NUMBERS(writer, __VA_ARGS__);                                                           \
    hak__report_record_end(writer)

/* Several numbers, each with its help. */
struct report_figure {
    const char *key;
    uint64_t value;
    const char *help;
};
HAK_HIDDEN void hak__report_figures(struct report_writer *writer,
                                    const struct report_figure *figures);
#define REPORT_FIGURES(writer, ...)                                                                \
    hak__report_figures(writer, (const struct report_figure[]){__VA_ARGS__, {NULL, 0, NULL}})

/* A string of `count` numbers with blanks between them, decimal or with 0x. In text only in a
 * list. */
HAK_HIDDEN void hak__report_row(struct report_writer *writer, const char *key,
                                const uint64_t *numbers, uint32_t count, bool hex);
/* Text as it is, of at most 511 characters, for parts of a report that exist as text only. */
HAK_HIDDEN void hak__report_put(struct report_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An estimated number, rounded. */
HAK_HIDDEN uint64_t hak__report_round(double estimate);
/* Bytes as "11.7 MiB"; "" below 1 KiB. */
HAK_HIDDEN const char *hak__report_scale(char text[16], uint64_t bytes);

#endif
