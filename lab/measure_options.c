/* SPDX-License-Identifier: MIT */
/* measure_options.c: the command line of measure; measure.c says what the options mean. */
#include "measure.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options options = {
    .interval_ms = 10,
    .timeout_s = 120,
    .ready_ms = 10000,
    .stop_ms = 10000,
    .input = "/dev/null",
    .output = "/dev/null",
    .errors = "/dev/null",
    .load_output = "/dev/null",
};

static size_t environment_count;
static size_t load_count;

static uint64_t number_read(const char *text)
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

static void rest_add(char *value)
{
    uint64_t rest_s = number_read(value);
    if (options.rest_count > 0 && rest_s <= options.rest_s[options.rest_count - 1]) {
        measure_fail(2, "the seconds of --rest-s must rise.");
    }
    options.rest_s[options.rest_count++] = rest_s;
}

static void load_add(char *value)
{
    options.load[load_count++] = value;
}

static void environment_add(char *value)
{
    if (strchr(value, '=') == NULL) {
        measure_fail(2, "'%s' is not of the form NAME=VALUE.", value);
    }
    options.environment[environment_count++] = value;
}

/* Where the value of an option goes: to a number, a text, or a function. */
static const struct {
    const char *name;
    uint64_t *number;
    const char **text;
    void (*add)(char *value);
} kinds[] = {
    {"interval-ms", &options.interval_ms, NULL, NULL},
    {"timeout-s", &options.timeout_s, NULL, NULL},
    {"ready-ms", &options.ready_ms, NULL, NULL},
    {"stop-ms", &options.stop_ms, NULL, NULL},
    {"directory", NULL, &options.directory, NULL},
    {"stdin", NULL, &options.input, NULL},
    {"stdout", NULL, &options.output, NULL},
    {"stderr", NULL, &options.errors, NULL},
    {"load-stdout", NULL, &options.load_output, NULL},
    {"load", NULL, NULL, load_add},
    {"env", NULL, NULL, environment_add},
    {"rest-s", NULL, NULL, rest_add},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static void option_read(int kind, char *value)
{
    if (kind >= KIND_COUNT) {
        measure_fail(2, "the options are in the first lines of lab/measure.c.");
    } else if (kinds[kind].number != NULL) {
        *kinds[kind].number = number_read(value);
    } else if (kinds[kind].text != NULL) {
        *kinds[kind].text = value;
    } else {
        kinds[kind].add(value);
    }
}

char **options_read(int count, char **words)
{
    struct option names[KIND_COUNT + 1] = {{0}};
    int option;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        names[kind] = (struct option){kinds[kind].name, required_argument, NULL, kind + 1};
    }
    /* No more of each than there are words. */
    options.environment = calloc((size_t)count + 1, sizeof *options.environment);
    options.load = calloc((size_t)count + 1, sizeof *options.load);
    options.rest_s = calloc((size_t)count + 1, sizeof *options.rest_s);
    if (options.environment == NULL || options.load == NULL || options.rest_s == NULL) {
        measure_fail(1, "no memory for %d words.", count);
    }
    while ((option = getopt_long(count, words, "+", names, NULL)) != -1) {
        option_read(option - 1, optarg); /* a question mark is none of them */
    }
    if (optind == count) {
        measure_fail(2, "which program?");
    }
    return words + optind;
}
