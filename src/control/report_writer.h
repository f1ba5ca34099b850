/* report_writer.h: one description of a report, written as text for people or as JSON for programs.
 *
 *                text                                       JSON
 *   section      its key, then a line per field             "key": {fields}
 *   records      the list's key, then a line per record     "key": [{fields}, {fields}]
 *   table        as records, with columns and a head line   as records
 *   field        key, value, help                           "key": value
 *
 * JSON is written as one line, so that reports appended to one file stay apart. The writer
 * allocates nothing and is used by one thread. */
#ifndef HAK_CONTROL_REPORT_WRITER_H
#define HAK_CONTROL_REPORT_WRITER_H

#include "base/text.h"
#include "hakmem/stats.h"

/* Bytes collected before the sink is called. A report is then some tens of pieces, and the buffer
 * fits on any thread's stack. Doubled: half as many calls of the sink, and 1 KiB more stack. */
#define REPORT_BUFFER_SIZE 1024

/* How the fields of a group look in text. */
enum report_layout {
    REPORT_LINES,  /* one line each */
    REPORT_INLINE, /* in one line, with keys */
    REPORT_COLUMNS /* in one line, values only, below a head line */
};

struct report_writer {
    hak_report_sink *sink;
    void *argument;
    enum hak_report_format format;
    enum report_layout layout;
    bool first; /* the next field or record is the first of its group */
    struct text text;
    char buffer[REPORT_BUFFER_SIZE];
};

/* Begins a report that goes to `sink` with `argument`; hak__report_end sends the rest. */
HAK_HIDDEN void hak__report_begin(struct report_writer *writer, enum hak_report_format format,
                                  hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_end(struct report_writer *writer);

/* Begins a group of fields under `key`. Inside a record its fields stay on the record's line. */
HAK_HIDDEN void hak__report_section_begin(struct report_writer *writer, const char *key);
HAK_HIDDEN void hak__report_section_end(struct report_writer *writer);

/* Begins a list of records. `columns` names the fields of every record in their order and ends with
 * NULL; NULL: the records differ, and each field has its key. */
HAK_HIDDEN void hak__report_list_begin(struct report_writer *writer, const char *key,
                                       const char *const *columns);
HAK_HIDDEN void hak__report_list_end(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_begin(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_end(struct report_writer *writer);

/* One field. Only text in REPORT_LINES shows `help`; "" is no help. Strings may hold any bytes. */
HAK_HIDDEN void hak__report_number(struct report_writer *writer, const char *key, uint64_t value,
                                   const char *help);
/* A number of bytes: text also shows it in KiB, MiB, ... */
HAK_HIDDEN void hak__report_bytes(struct report_writer *writer, const char *key, uint64_t value,
                                  const char *help);
HAK_HIDDEN void hak__report_string(struct report_writer *writer, const char *key, const char *value,
                                   const char *help);

#endif
