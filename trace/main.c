/* main.c: hakmem-trace, the program behind `./hakmem record` and `./hakmem replay`.
 *
 *   hakmem-trace record FILE LIBRARIES PROGRAM [ARGUMENT...]
 *   hakmem-trace summary FILE
 *
 * The launcher checks what users type; here a wrong call is only refused. */
#include <stdio.h>
#include <string.h>

#include "decode.h"
#include "summary.h"

#define STATUS_USAGE 2

static int command_summary(const char *name)
{
    struct trace_file file;
    const char *problem = trace_open(&file, name);
    int status = 125;
    if (problem != NULL) {
        fprintf(stderr, "hakmem: %s: %s\n", name, problem);
    } else {
        status = summary_print(&file);
    }
    trace_close(&file);
    return status;
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "summary") == 0) {
        return command_summary(words[2]);
    }
    fprintf(stderr, "hakmem-trace: use ./hakmem record and ./hakmem replay\n");
    return STATUS_USAGE;
}
