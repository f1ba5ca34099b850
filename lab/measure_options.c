/* SPDX-License-Identifier: MIT */
/* measure_options.c: the command line of measure; measure.c says what the options mean. */
#include "measure.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

struct options options = {
    .interval_ms = 10,
    .timeout_s = 120,
    .ready_ms = 10000,
    .stop_ms = 10000,
    .output = "/dev/null",
    .errors = "/dev/null",
    .load_output = "/dev/null",
};

/* Where the value of an option goes: to a number, a text, or a list. */
static const struct {
    const char *name;
    uint64_t *number;
    const char **text;
    char ***list;
} kinds[] = {
    {"interval-ms", &options.interval_ms, NULL, NULL},
    {"timeout-s", &options.timeout_s, NULL, NULL},
    {"ready-ms", &options.ready_ms, NULL, NULL},
    {"stop-ms", &options.stop_ms, NULL, NULL},
    {"directory", NULL, &options.directory, NULL},
    {"stdout", NULL, &options.output, NULL},
    {"stderr", NULL, &options.errors, NULL},
    {"load-stdout", NULL, &options.load_output, NULL},
    {"load", NULL, NULL, &options.load},
    {"env", NULL, NULL, &options.environment},
    {"rest-s", NULL, NULL, &options.rest_s},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

uint64_t number_read(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number == 0 ||
        number > 1000000) {
        measure_fail(2, "'%s' is not a number from 1 to 1000000.", text);
    }
    return number;
}

char **options_read(int count, char **words)
{
    struct option names[KIND_COUNT + 1] = {{0}};
    int option;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        names[kind] = (struct option){kinds[kind].name, required_argument, NULL, kind + 1};
        if (kinds[kind].list != NULL) { /* no more of each than there are words */
            *kinds[kind].list = calloc((size_t)count + 1, sizeof(char *));
            if (*kinds[kind].list == NULL) {
                measure_fail(1, "no memory for %d words.", count);
            }
        }
    }
    while ((option = getopt_long(count, words, "+", names, NULL)) != -1) {
        int kind = option - 1;
        if (kind >= KIND_COUNT) { /* a question mark */
            measure_fail(2, "the options are in the first lines of lab/measure.c.");
        } else if (kinds[kind].number != NULL) {
            *kinds[kind].number = number_read(optarg);
        } else if (kinds[kind].text != NULL) {
            *kinds[kind].text = optarg;
        } else {
            char **end = *kinds[kind].list;
            while (*end != NULL) {
                end++;
            }
            *end = optarg;
        }
    }
    if (optind == count) {
        measure_fail(2, "which program?");
    }
    return words + optind;
}
