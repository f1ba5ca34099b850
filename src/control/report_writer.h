/* report_writer.h: one description of a report, written as text for people or as JSON for programs.
 *
 *                text                                       JSON
 *   section      its key, then a line per field             "key": {fields}
 *   records      the list's key, then a line per record     "key": [{fields}, {fields}]
 *   table        the same with columns and a head line      the same
 *   field        key, value, help                           "key": value
 *
 * JSON is one line, so that reports appended to one file stay apart. Allocates nothing. */
#ifndef HAK_CONTROL_REPORT_WRITER_H
#define HAK_CONTROL_REPORT_WRITER_H

#include "base/text.h"
#include "hakmem/stats.h"

/* Large enough that a report is some tens of pieces, small enough for any thread's stack. */
#define REPORT_BUFFER_SIZE 1024

/* What the text of a field looks like. */
enum report_layout {
    REPORT_LINES,  /* each on a line of its own */
    REPORT_INLINE, /* one behind the other */
    REPORT_COLUMNS /* values only, under the head */
};

struct report_writer {
    hak_report_sink *sink;
    void *argument;
    enum hak_report_format format;
    enum report_layout layout;
    bool first; /* nothing stands before the next field or record of the innermost group */
    struct text text;
    char buffer[REPORT_BUFFER_SIZE];
};

HAK_HIDDEN void hak__report_begin(struct report_writer *writer, enum hak_report_format format,
                                  hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_end(struct report_writer *writer);

/* Inside a record a section's fields stay on the record's line. */
HAK_HIDDEN void hak__report_section_begin(struct report_writer *writer, const char *key);
HAK_HIDDEN void hak__report_section_end(struct report_writer *writer);

/* `columns` ends with NULL and names the fields of each record in their order; NULL: records
 * differ. */
HAK_HIDDEN void hak__report_list_begin(struct report_writer *writer, const char *key,
                                       const char *const *columns);
HAK_HIDDEN void hak__report_list_end(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_begin(struct report_writer *writer);
HAK_HIDDEN void hak__report_record_end(struct report_writer *writer);

HAK_HIDDEN void hak__report_number(struct report_writer *writer, const char *key, uint64_t value,
                                   const char *help);
/* A number of bytes: text adds it in KiB, MiB, ... */
HAK_HIDDEN void hak__report_bytes(struct report_writer *writer, const char *key, uint64_t value,
                                  const char *help);
HAK_HIDDEN void hak__report_string(struct report_writer *writer, const char *key, const char *value,
                                   const char *help);

#endif
