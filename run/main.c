/* SPDX-License-Identifier: MIT */
/* main.c: see launch.h.
 *
 *   hakmem-run OPTION... run|record|replay WORD...    what stands behind `./hakmem run` and so on
 *   hakmem-run --nothing                              does nothing: the library checks a setting */
#include <stdio.h>
#include <string.h>

#include "launch.h"

struct launch launch;

/* True: `word` is an option, which is noted. */
static bool note_option(const char *word)
{
    const struct {
        const char *name;
        const char **place;
    } options[] = {
        {"--library=", &launch.library}, {"--recorder=", &launch.recorder},
        {"--tracer=", &launch.tracer},   {"--path=", &launch.path},
        {"--package=", &launch.package},
    };
    if (strcmp(word, "--installed") == 0) {
        launch.installed = true;
        return true;
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t length = strlen(options[i].name);
        if (strncmp(word, options[i].name, length) == 0) {
            *options[i].place = word + length;
            return true;
        }
    }
    return false;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "--nothing") == 0) {
        return 0;
    }
    while (*words != NULL && *++words != NULL && note_option(*words)) {
    }
    launch.command = *words;
    if (launch.library != NULL && launch.command != NULL) {
        words++;
        if (strcmp(launch.command, "run") == 0) {
            return run_program(words);
        }
        if (launch.recorder != NULL && launch.tracer != NULL) {
            if (strcmp(launch.command, "record") == 0) {
                return trace_record(words);
            }
            if (strcmp(launch.command, "replay") == 0) {
                return trace_replay(words);
            }
        }
    }
    fprintf(stderr, "hakmem-run: use ./hakmem run, record and replay\n");
    return STATUS_USAGE;
}
