/* SPDX-License-Identifier: MIT */
/* main.c: hakmem-trace, the program behind `./hakmem record` and `./hakmem replay`.
 *
 *   hakmem-trace record FILE LIBRARIES PROGRAM [ARGUMENT...]
 *   hakmem-trace summary FILE
 *   hakmem-trace timeline FILE
 *   hakmem-trace replay FILE RUNS NAME LIBRARY ENVIRONMENT...
 *   hakmem-trace replay-run ...    what `replay` starts for each run
 *   hakmem-trace image FILE IMAGE  what `./hakmem bench --trace` makes of a trace, and then runs by
 *   hakmem-trace replay-bench IMAGE --expect LIBRARY
 *
 * The launcher checks what users type; here a wrong call is only refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "remarks.h"

#define STATUS_USAGE 2

static int command_print(const char *name, int (*print)(const struct trace_file *file))
{
    struct trace_file file;
    const char *problem = trace_open(&file, name);
    int status = STATUS_CANNOT;
    if (problem != NULL) {
        remarks_say("%s %s", name, problem);
    } else {
        status = print(&file);
    }
    trace_close(&file);
    return status;
}

static int run_command(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "summary") == 0) {
        return command_print(words[2], summary_print);
    }
    if (count == 3 && strcmp(words[1], "timeline") == 0) {
        return command_print(words[2], timeline_print);
    }
    if (count >= 5 && strcmp(words[1], "record") == 0) {
        return record_program(words[2], words[3], words + 4);
    }
    if (count >= 7 && (count - 4) % 3 == 0 && strcmp(words[1], "replay") == 0) {
        return replay_all(words[2], (unsigned)atoi(words[3]), words + 4, (unsigned)(count - 4) / 3);
    }
    if (count == 4 && strcmp(words[1], "image") == 0) {
        return image_write(words[2], words[3]);
    }
    if (count == 5 && strcmp(words[1], "replay-bench") == 0 && strcmp(words[3], "--expect") == 0) {
        return replay_bench(words[2], words[4]);
    }
    if (count == 5 && strcmp(words[1], "replay-run") == 0) {
        return replay_run(atoi(words[2]), words[3], atoi(words[4]));
    }
    fprintf(stderr, "hakmem-trace: use ./hakmem record and ./hakmem replay\n");
    return STATUS_USAGE;
}

int main(int count, char **words)
{
    return remarks_finish_output(run_command(count, words));
}
