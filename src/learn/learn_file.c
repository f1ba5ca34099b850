/* SPDX-License-Identifier: MIT */
/* learn_file.c: starts the learner with the process and keeps what it learned in a file, as the
 * option HAKMEM_LEARN says. */

#include "base/bits.h"
#include "base/text.h"
#include "control/exit_file.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "core/own_stack.h"
#include "learn/learner.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

static uint64_t learn_process; /* that began to learn */

/* For the time of reading. */
struct learn_memory {
    char text[LEARN_FILE_MAX];
    struct learn_state state;
};

static bool learn_is(const char *value)
{
    return hak__text_equal(hak__settings.learn, value);
}

/* The program's name as the file has it: no directory, no line break, cut where it is long. */
static void learn_name_program(char name[SITE_NAME_SIZE])
{
    const char *path = hak__os_program(), *slash = path != NULL ? strrchr(path, '/') : NULL;
    hak__text_make(name, SITE_NAME_SIZE, "%s",
                   slash != NULL  ? slash + 1
                   : path != NULL ? path
                                  : "");
    for (; *name != '\0'; name++) {
        *name = (char)((unsigned char)*name < ' ' ? '?' : *name);
    }
}

/* Why this run cannot go on with the state; NULL: it can. */
static const char *learn_objection(const struct learn_state *state, const char *program)
{
    struct learn_point now = hak__learn_point_now();
    if (!hak__text_equal(state->program, program)) {
        return "HAKMEM_LEARN begins anew: its file is of another program";
    }
    return hak__learn_point_equal(&state->options, &now) &&
                   state->memory_percent == hak__settings.learn_memory_percent
               ? NULL
               : "HAKMEM_LEARN begins anew: its file was learned with other options";
}

static bool learn_has_learned(const struct learn_state *state)
{
    return state->decisions_count != 0 || state->sites[0][0] != '\0' ||
           !hak__learn_point_equal(&state->options, &state->champion);
}

/* Reads the state of an earlier run. False: there is none that can be used, and *complaint says why
 * if the user should know; or there is no file, which *is_first says. */
static bool learn_read(struct learn_memory *memory, const char *program, const char **complaint,
                       bool *is_first)
{
    char path[EXIT_PATH_SIZE];
    struct learn_state *state = &memory->state;
    hak__exit_file_path(hak__settings.learn, path);
    long size = hak__os_read_file(path, memory->text, LEARN_FILE_MAX);
    *is_first = size == -ENOENT || size == 0;
    if (*is_first) {
        return false;
    }
    if (size < 0 || !hak__learn_state_parse(memory->text, (size_t)size, state) ||
        !hak__learn_point_is_reached(&state->options, &state->champion)) {
        *complaint = "HAKMEM_LEARN begins anew: its file is damaged, or not of this version";
        return false;
    }
    const char *objection = learn_objection(state, program);
    if (learn_has_learned(state)) { /* else nothing is lost: a script's shell was the first */
        *complaint = objection;
    }
    return objection == NULL;
}

/* 103: after the profile, so that a period of samples that the user chose stays. */
__attribute__((constructor(103))) static void learn_begin(void)
{
    if (hak__settings.learn == NULL || learn_is("off")) {
        return;
    }
    char program[SITE_NAME_SIZE];
    void *memory = NULL;
    size_t size = sizeof(struct learn_memory);
    const char *complaint = NULL;
    learn_name_program(program);
    bool is_first = false;
    bool known = !learn_is("on") && hak__os_map(size, hak__os_page_size(), &memory) == 0 &&
                 learn_read(memory, program, &complaint, &is_first);
    learn_process = hak__os_process_id();
    if (!hak__learner_start(program, known ? &((struct learn_memory *)memory)->state : NULL)) {
        complaint = "there is no memory for HAKMEM_LEARN";
    } else if (is_first) {
        hak__learner_save(); /* whatever ends the process, its user finds a file that says so */
    }
    if (complaint != NULL) {
        hak__diagnose_warn(complaint, NULL);
    }
    if (memory != NULL) {
        hak__os_discard(memory, size);
    }
}

static void learn_save(void *argument)
{
    static bool complained;
    const struct learn_state *state = argument;
    /* A forked child that has no file of its own leaves its parent's alone. */
    bool own = learn_process == hak__os_process_id() || hak__exit_file_varies(hak__settings.learn);
    void *memory;
    if (learn_is("on") || !own || hak__os_map(LEARN_FILE_MAX, hak__os_page_size(), &memory) != 0) {
        return;
    }
    struct text text = {memory, LEARN_FILE_MAX, 0};
    hak__learn_state_write(state, &text);
    char path[EXIT_PATH_SIZE];
    hak__exit_file_path(hak__settings.learn, path);
    int error = hak__os_update_file(path, text.data, text.length);
    hak__os_discard(memory, LEARN_FILE_MAX);
    if (error != 0 && !complained) {
        complained = true; /* at each decision would be too often */
        hak__exit_file_complain("state of the learner", path, error);
    }
}

/* On a stack of its own: a tick may come in any malloc of the program. */
void hak__learn_save(const struct learn_state *state)
{
    hak__own_stack_try(learn_save, (void *)(uintptr_t)state);
}

/* --- the format --- */

#define LEARN_HEADER "hakmem-learn 1"

static const char learn_verdict_names[][12] = {
    [LEARN_GOES_ON] = "goes_on",     [LEARN_ADOPTED] = "adopted", [LEARN_DROPPED] = "dropped",
    [LEARN_WENT_BACK] = "went_back", [LEARN_FROZE] = "froze",     [LEARN_OPENED] = "opened",
};

/* --- write --- */

/* The largest value of a knob is "never". */
static void learn_put_point(struct text *text, const struct learn_point *point)
{
#define X(type, knob, name)                                                                        \
    if (point->knob == (type)UINT64_MAX) {                                                         \
        hak__text_put(text, " " name "=never");                                                    \
    } else {                                                                                       \
        hak__text_format(text, " " name "=%lu", (uint64_t)point->knob);                            \
    }
    LEARN_KNOBS(X)
#undef X
}

static void learn_put_differences(struct text *text, const char *name, const int16_t *differences,
                                  uint32_t count)
{
    hak__text_put(text, name);
    for (uint32_t i = 0; i < count; i++) {
        int value = differences[i];
        hak__text_format(text, "%s%s%u", i == 0 ? "" : ",", value < 0 ? "-" : "",
                         (unsigned)(value < 0 ? -value : value));
    }
}

void hak__learn_state_add(struct learn_state *state, enum learn_verdict verdict,
                          const struct learn_test *test, uint32_t s)
{
    char *line = state->decisions[state->decisions_count++ % LEARN_DECISIONS_MAX];
    struct text text = {line, LEARN_DECISION_SIZE - 1, 0};
    hak__text_format(&text, "%s %s run=%u s=%u", learn_verdict_names[verdict],
                     hak__learn_move_name(test->move), state->runs, s);
    learn_put_point(&text, &test->point);
    learn_put_differences(&text, " time=", test->time, test->pairs);
    learn_put_differences(&text, " memory=", test->memory, test->pairs);
    line[text.length] = '\0';
}

void hak__learn_state_write(const struct learn_state *state, struct text *text)
{
    uint32_t count = state->decisions_count;
    hak__text_format(text, LEARN_HEADER "\nprogram %s\nruns %u\nmemory_percent %u\noptions",
                     state->program, state->runs, state->memory_percent);
    learn_put_point(text, &state->options);
    hak__text_put(text, "\nchampion");
    learn_put_point(text, &state->champion);
    hak__text_put(text, "\n");
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i++) {
        if (state->sites[i][0] != '\0') {
            hak__text_format(text, "apart %s\n", state->sites[i]);
        }
    }
    for (uint32_t i = count > LEARN_DECISIONS_MAX ? count - LEARN_DECISIONS_MAX : 0; i < count;
         i++) {
        hak__text_format(text, "decision %s\n", state->decisions[i % LEARN_DECISIONS_MAX]);
    }
    hak__text_format(text, "checksum %lu\n", bits_fnv(text->data, text->length));
}

/* --- read --- */

struct learn_reader {
    const char *at;
    const char *end;
};

/* Each of these moves over what it has read. False: something else is there. */

static bool learn_get(struct learn_reader *reader, const char *word)
{
    const char *at = reader->at;
    while (*word != '\0') {
        if (at == reader->end || *at++ != *word++) {
            return false;
        }
    }
    reader->at = at;
    return true;
}

static bool learn_get_unsigned(struct learn_reader *reader, uint64_t most, uint64_t *value)
{
    const char *begin = reader->at;
    *value = 0;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        uint64_t digit = (uint64_t)(*reader->at++ - '0');
        if (*value > (most - digit) / 10) {
            return false;
        }
        *value = *value * 10 + digit;
    }
    return reader->at != begin;
}

static bool learn_get_knob(struct learn_reader *reader, const char *name, uint64_t never,
                           uint64_t *value)
{
    *value = never;
    return learn_get(reader, name) &&
           (learn_get(reader, "never") || learn_get_unsigned(reader, never - 1, value));
}

static bool learn_get_point(struct learn_reader *reader, struct learn_point *point)
{
    uint64_t value;
#define X(type, knob, name)                                                                        \
    if (!learn_get_knob(reader, " " name "=", (type)UINT64_MAX, &value)) {                         \
        return false;                                                                              \
    }                                                                                              \
    point->knob = (type)value;
    LEARN_KNOBS(X)
#undef X
    return true;
}

/* The rest of a line. False: it is longer than `size` less its zero. */
static bool learn_get_rest(struct learn_reader *reader, char *text, size_t size)
{
    size_t length = 0;
    while (reader->at < reader->end && *reader->at != '\n' && length < size - 1) {
        text[length++] = *reader->at++;
    }
    text[length] = '\0';
    return learn_get(reader, "\n");
}

/* A line of printable characters, which is not empty: the name of a site, or a decision. */
static bool learn_get_printable(struct learn_reader *reader, char *text, size_t size)
{
    if (!learn_get_rest(reader, text, size) || text[0] == '\0') {
        return false;
    }
    while (*text >= ' ' && *text <= '~') {
        text++;
    }
    return *text == '\0';
}

static bool learn_get_lines(struct learn_reader *reader, struct learn_state *state)
{
    uint32_t sites = 0;
    memset(state->sites, 0, sizeof state->sites);
    state->decisions_count = 0;
    while (learn_get(reader, "apart ")) {
        if (sites == LEARN_SITES_MAX ||
            !learn_get_printable(reader, state->sites[sites++], SITE_NAME_SIZE)) {
            return false;
        }
    }
    while (learn_get(reader, "decision ")) {
        if (state->decisions_count == LEARN_DECISIONS_MAX ||
            !learn_get_printable(reader, state->decisions[state->decisions_count++],
                                 LEARN_DECISION_SIZE)) {
            return false;
        }
    }
    return true;
}

static bool learn_get_all(struct learn_reader *reader, struct learn_state *state)
{
    uint64_t runs, checksum, memory_percent;
    const char *begin = reader->at;
    if (!learn_get(reader, LEARN_HEADER "\n") || !learn_get(reader, "program ") ||
        !learn_get_rest(reader, state->program, SITE_NAME_SIZE) || !learn_get(reader, "runs ") ||
        !learn_get_unsigned(reader, UINT32_MAX - 1, &runs) ||
        !learn_get(reader, "\nmemory_percent ") ||
        !learn_get_unsigned(reader, UINT32_MAX, &memory_percent) ||
        !learn_get(reader, "\noptions") || !learn_get_point(reader, &state->options) ||
        !learn_get(reader, "\nchampion") || !learn_get_point(reader, &state->champion) ||
        !learn_get(reader, "\n") || !learn_get_lines(reader, state)) {
        return false;
    }
    uint64_t hash = bits_fnv(begin, (size_t)(reader->at - begin));
    state->runs = (uint32_t)runs;
    state->memory_percent = (uint32_t)memory_percent;
    return learn_get(reader, "checksum ") && learn_get_unsigned(reader, UINT64_MAX, &checksum) &&
           checksum == hash && learn_get(reader, "\n") && reader->at == reader->end;
}

bool hak__learn_state_parse(const char *text, size_t size, struct learn_state *state)
{
    struct learn_reader reader = {text, text + size};
    return learn_get_all(&reader, state);
}
