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

enum option_value {
    INTERVAL = 1,
    TIMEOUT,
    DIRECTORY,
    ENV,
    STDIN,
    STDOUT,
    STDERR,
    LOAD,
    LOAD_STDOUT,
    READY,
    STOP,
    REST
};

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

static void rest_add(uint64_t rest_s)
{
    if (options.rest_count > 0 && rest_s <= options.rest_s[options.rest_count - 1]) {
        measure_fail(2, "the seconds of --rest-s must rise.");
    }
    options.rest_s[options.rest_count++] = rest_s;
}

static void option_read(int option, char *value)
{
    switch ((enum option_value)option) {
    case INTERVAL:
        options.interval_ms = number_read(value);
        return;
    case TIMEOUT:
        options.timeout_s = number_read(value);
        return;
    case READY:
        options.ready_ms = number_read(value);
        return;
    case STOP:
        options.stop_ms = number_read(value);
        return;
    case REST:
        rest_add(number_read(value));
        return;
    case DIRECTORY:
        options.directory = value;
        return;
    case STDIN:
        options.input = value;
        return;
    case STDOUT:
        options.output = value;
        return;
    case STDERR:
        options.errors = value;
        return;
    case LOAD_STDOUT:
        options.load_output = value;
        return;
    case LOAD:
        options.load[load_count++] = value;
        return;
    case ENV:
        if (strchr(value, '=') == NULL) {
            measure_fail(2, "'%s' is not of the form NAME=VALUE.", value);
        }
        options.environment[environment_count++] = value;
        return;
    }
    measure_fail(2, "the options are in the first lines of lab/measure.c.");
}

char **options_read(int count, char **words)
{
    static const struct option names[] = {
        {"interval-ms", required_argument, NULL, INTERVAL},
        {"timeout-s", required_argument, NULL, TIMEOUT},
        {"directory", required_argument, NULL, DIRECTORY},
        {"env", required_argument, NULL, ENV},
        {"stdin", required_argument, NULL, STDIN},
        {"stdout", required_argument, NULL, STDOUT},
        {"stderr", required_argument, NULL, STDERR},
        {"load", required_argument, NULL, LOAD},
        {"load-stdout", required_argument, NULL, LOAD_STDOUT},
        {"ready-ms", required_argument, NULL, READY},
        {"stop-ms", required_argument, NULL, STOP},
        {"rest-s", required_argument, NULL, REST},
        {NULL, 0, NULL, 0},
    };
    int option;
    /* No more of each than there are words. */
    options.environment = calloc((size_t)count + 1, sizeof *options.environment);
    options.load = calloc((size_t)count + 1, sizeof *options.load);
    options.rest_s = calloc((size_t)count + 1, sizeof *options.rest_s);
    if (options.environment == NULL || options.load == NULL || options.rest_s == NULL) {
        measure_fail(1, "no memory for %d words.", count);
    }
    while ((option = getopt_long(count, words, "+", names, NULL)) != -1) {
        option_read(option, optarg);
    }
    if (optind == count) {
        measure_fail(2, "which program?");
    }
    return words + optind;
}
