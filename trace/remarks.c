/* SPDX-License-Identifier: MIT */
/* remarks.c: see remarks.h. */
#include "remarks.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

void remarks_say(const char *format, ...)
{
    char text[2 * PATH_MAX];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    trace_make_plain(text);
    fprintf(stderr, "hakmem: %s\n", text);
}

void remarks_print_end(FILE *stream, const char *before, const struct trace_file *file)
{
    if (file->header.stopped_by != 0) {
        fprintf(stream, "%sThe trace ends early: the recorder could not write it (%s)\n", before,
                strerror((int)file->header.stopped_by));
    } else if (file->end.threads == 0) {
        fprintf(stream,
                "%sThe process did not end in order: the last calls of each thread are missing, up "
                "to %u, or all since it could not reach the file\n",
                before, TRACE_EVENTS_MAX);
    }
    if (file->cut_at != 0) {
        fprintf(stream, "%sThe file is cut: what follows byte %zu is not a whole frame\n", before,
                file->cut_at);
    }
}

void remarks_print_repairs(FILE *stream, const struct trace_file *file,
                           const struct walk_repairs *repairs)
{
    if (file->missed != 0) {
        fprintf(stream,
                "Not recorded: %" PRIu64 " calls inside other calls, or while the program had no "
                "free descriptor\n",
                file->missed);
    }
    if (repairs->frees + repairs->reallocs + repairs->ends != 0) {
        fprintf(stream,
                "%s: %" PRIu64 " frees of unknown blocks are left out, %" PRIu64
                " reallocs of unknown blocks are taken for malloc, and %" PRIu64
                " blocks are freed when their address is given out again\n",
                file->header.forked_from != 0 && repairs->ends == 0
                    ? "Blocks are from before the fork"
                    : "The trace lacks calls",
                repairs->frees, repairs->reallocs, repairs->ends);
    }
}

int remarks_finish_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return status;
    }
    remarks_say("cannot write the output%s%s", errno != 0 ? ": " : "",
                errno != 0 ? strerror(errno) : "");
    return 125;
}
