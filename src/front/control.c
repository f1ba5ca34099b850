/* SPDX-License-Identifier: MIT */
/* control.c: hak_option_set, hak_option_get and hak_control.
 *
 * An option that is a number or a switch is stored where the slow paths read it, and threads lower
 * the limits of their bins at their next tick (core/knobs.h). The limits and sample_bytes go
 * through the functions that set them otherwise. */
#include "front/control.h"

#include "arena/arena.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/option_table.h"
#include "core/options.h"
#include "hakmem/control.h"
#include "hakmem/observe.h"
#include "hakmem/profile.h"
#include "learn/learner.h"
#include "observe/report.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

#define CONTROL_OPTIONS "options."

/* The start reads the options, and a later start would replace what is set now. */
static bool control_start(void)
{
    if (!hak__gate_enter(GATE_PATIENTLY)) {
        return false;
    }
    bool started = hak__start();
    hak__gate_leave();
    return started;
}

/* --- options --- */

static int control_set_samples(uint64_t bytes)
{
    if (bytes == UINT64_MAX) {
        hak_profile_stop();
        return 0;
    }
    return hak_profile_start(bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX);
}

/* Sets an option whose change does not stay alone; `*done` says whether this is one. */
static int control_set_elsewhere(const struct option *option, const char *value, bool *done)
{
    bool soft = option->place == &hak__knobs.limit, hard = option->place == &hak__knobs.limit_hard;
    bool samples = option->place == &hak__settings.sample_bytes;
    uint64_t number;
    *done = soft || hard || samples;
    if (*done && !hak__option_store(option, &number, value)) {
        return EINVAL;
    }
    if (samples) {
        return control_set_samples(number);
    }
    bool set = !*done || hak__limit_set(soft ? &number : NULL, hard ? &number : NULL, NULL);
    return set ? 0 : EAGAIN;
}

static int control_set(const struct option *option, const char *value)
{
    bool done;
    uint64_t number;
    if (option->when == WHEN_START) {
        return EPERM;
    }
    if (option->when == WHEN_UNLEARNED && hak__learner_runs()) {
        return EBUSY;
    }
    if (!control_start()) {
        return EAGAIN;
    }
    int error = control_set_elsewhere(option, value, &done);
    if (done) {
        return error;
    }
    /* 0 stands for a share of the machine's memory, which only the start looks up. */
    if (option->place == &hak__knobs.cache_bytes_total &&
        (!hak__option_store(option, &number, value) || number == 0)) {
        return EINVAL;
    }
    if (!seal_open()) {
        return EAGAIN;
    }
    bool stored = hak__option_store(option, option->place, value);
    seal_close();
    if (!stored) {
        return EINVAL;
    }
    knobs_turned();
    return 0;
}

int hak_option_set(const char *name, const char *value)
{
    const struct option *option = hak__option_find(name, strlen(name));
    if (option == NULL) {
        return ENOENT;
    }
    return value == NULL ? EINVAL : control_set(option, value);
}

/* Ends an answer with a zero. */
static int control_finish(const struct control_answer *answer)
{
    bool fits = answer->length < answer->size;
    if (answer->size != 0) {
        answer->data[fits ? answer->length : answer->size - 1] = '\0';
    }
    return fits || (answer->size == 0 && answer->length == 0) ? 0 : ERANGE;
}

/* A hak_report_sink, whose argument is a struct control_answer. */
static void control_put_part(void *argument, const char *text, size_t size)
{
    struct control_answer *answer = argument;
    for (size_t i = 0; i < size; i++, answer->length++) {
        if (answer->length < answer->size) {
            answer->data[answer->length] = text[i];
        }
    }
}

static void control_put(struct control_answer *answer, const char *string)
{
    control_put_part(answer, string, strlen(string));
}

static void control_put_option(struct control_answer *answer, const struct option *option)
{
    char value[OPTION_VALUE_SIZE];
    struct text text = {value, sizeof value, 0};
    hak__option_put_value(&text, option);
    control_put_part(answer, value, text.length);
}

int hak_option_get(const char *name, char *value, size_t size)
{
    struct control_answer answer = {value, size, 0};
    const struct option *option = hak__option_find(name, strlen(name));
    if (option == NULL) {
        return ENOENT;
    }
    (void)control_start(); /* so that it shows what the environment says */
    control_put_option(&answer, option);
    return control_finish(&answer);
}

/* --- actions --- */

static void control_put_number(struct control_answer *answer, uint64_t value)
{
    char digits[24];
    control_put(answer, hak__text_make(digits, sizeof digits, "%lu", value));
}

/* The sink of a file. */
struct control_file {
    int descriptor;
    int error; /* the first one, 0 or -errno */
};

static void control_write_part(void *argument, const char *text, size_t size)
{
    struct control_file *file = argument;
    if (file->error == 0) {
        file->error = hak__os_write(file->descriptor, text, size);
    }
}

typedef void control_writer(hak_report_sink *sink, void *argument);

/* Lets `writer` write to the answer, or to a file. */
static int control_write(control_writer *writer, const char *path, bool appends,
                         struct control_answer *answer)
{
    if (path == NULL) {
        writer(control_put_part, answer);
        return 0;
    }
    struct control_file file = {appends ? hak__os_open_append(path) : hak__os_open_new(path), 0};
    if (file.descriptor < 0) {
        return -file.descriptor;
    }
    writer(control_write_part, &file);
    hak__os_close(file.descriptor);
    return -file.error;
}

static int control_trim(const char *value, struct control_answer *answer)
{
    uint64_t keep = 0;
    if (value != NULL && (!hak__text_parse_size(value, &keep) || keep > SIZE_MAX)) {
        return EINVAL;
    }
    control_put_number(answer, hak_trim((size_t)keep));
    return 0;
}

/* An action that takes nothing and answers nothing but `result`. */
#define CONTROL_PLAIN(action, result)                                                              \
    static int action(const char *value, struct control_answer *answer)                            \
    {                                                                                              \
        (void)value;                                                                               \
        (void)answer;                                                                              \
        return (result);                                                                           \
    }
CONTROL_PLAIN(control_purge, control_start() ? (hak__arena_scavenge(), 0) : EAGAIN)
CONTROL_PLAIN(control_reset_peaks, (hak_stats_reset_peaks(), 0))
CONTROL_PLAIN(control_profile_stop, control_start() ? control_set_samples(UINT64_MAX) : EAGAIN)
CONTROL_PLAIN(control_observe_start, hak_observe_start())
CONTROL_PLAIN(control_observe_stop, hak_observe_stop())

/* An action that writes a document to the answer, or to the file. */
#define CONTROL_WRITER(action, writer, appends)                                                    \
    static int action(const char *path, struct control_answer *answer)                             \
    {                                                                                              \
        return control_write(writer, path, appends, answer);                                       \
    }
CONTROL_WRITER(control_report_summary, hak__report_summary, true)
CONTROL_WRITER(control_report_text, hak__report_text, true)
CONTROL_WRITER(control_report_json, hak__report_json, true)
CONTROL_WRITER(control_heap_map, hak_heap_map, false)
CONTROL_WRITER(control_profile_write, hak_profile_write, true)

static int control_profile_start(const char *value, struct control_answer *answer)
{
    uint64_t period = 0;
    (void)answer;
    if (value != NULL && !hak__text_parse_size(value, &period)) {
        return EINVAL;
    }
    return control_start() ? control_set_samples(period < UINT64_MAX ? period : UINT64_MAX - 1)
                           : EAGAIN;
}

static int control_version(const char *value, struct control_answer *answer)
{
    (void)value;
    control_put(answer, hak_version());
    return 0;
}

static int control_list(const char *prefix, struct control_answer *answer);

struct control_name {
    const char *name;
    control_action *action;
    const char *value;
    const char *help;
};
#define X(name, function, value, help) {name, function, value, help},
static const struct control_name control_names[] = {CONTROL_ACTIONS(X)};
#undef X

/* Where the action "list" writes: whole lines, each zero-terminated behind its line break. */
struct control_listing {
    struct control_answer *answer;
    const char *prefix;
};

static void control_list_line(void *argument, const char *line, size_t size)
{
    struct control_listing *listing = argument;
    if (hak__text_after(line, listing->prefix) != NULL) {
        control_put_part(listing->answer, line, size);
    }
}

static void control_list_name(struct control_listing *listing, const char *group, const char *name,
                              const char *takes, const char *help)
{
    char line[400]; /* the longest help of an option has some 110 characters */
    hak__text_make(line, sizeof line, "%s%s\t%s\t%s\n", group, name, takes, help);
    control_list_line(listing, line, strlen(line));
}

static int control_list(const char *prefix, struct control_answer *answer)
{
    struct control_listing listing = {answer, prefix != NULL ? prefix : ""};
    for (size_t i = 0; i < HAK_COUNT_OF(control_names); i++) {
        const struct control_name *name = &control_names[i];
        control_list_name(&listing, "", name->name, name->value, name->help);
    }
    for (uint32_t i = 0; i < hak__option_count; i++) {
        const struct option *option = &hak__option_table[i];
        const char *takes = option->when == WHEN_START ? "" : "VALUE";
        control_list_name(&listing, CONTROL_OPTIONS, option->name, takes, option->help);
    }
    hak__report_names(control_list_line, &listing);
    return 0;
}

/* --- names --- */

static int control_do(const char *name, const char *value, struct control_answer *answer)
{
    const char *option_name = hak__text_after(name, CONTROL_OPTIONS);
    if (option_name != NULL) {
        const struct option *option = hak__option_find(option_name, strlen(option_name));
        if (option == NULL || value != NULL) {
            return option == NULL ? ENOENT : control_set(option, value);
        }
        control_put_option(answer, option);
        return 0;
    }
    for (size_t i = 0; i < HAK_COUNT_OF(control_names); i++) {
        if (hak__text_equal(name, control_names[i].name)) {
            bool refused = value != NULL && control_names[i].value[0] == '\0';
            return refused ? EINVAL : control_names[i].action(value, answer);
        }
    }
    uint64_t number;
    if (!hak_stats_value(name, &number)) {
        return ENOENT;
    }
    if (value != NULL) {
        return EPERM;
    }
    control_put_number(answer, number);
    return 0;
}

int hak_control(const char *name, const char *value, char *answer, size_t size)
{
    struct control_answer into = {answer, size, 0};
    int error = control_do(name, value, &into);
    int fits = control_finish(&into);
    return error != 0 ? error : answer == NULL ? 0 : fits;
}
