/* SPDX-License-Identifier: MIT */
/* state_file.c: see state_file.h. */
#include "learn/state_file.h"

#include "base/text.h"

#define LEARN_HEADER "hakmem-learn 1"

static const char *const learn_verdict_names[] = {
    [LEARN_GOES_ON] = "goes_on",     [LEARN_ADOPTED] = "adopted", [LEARN_DROPPED] = "dropped",
    [LEARN_WENT_BACK] = "went_back", [LEARN_FROZE] = "froze",     [LEARN_OPENED] = "opened",
};
#define LEARN_VERDICTS (sizeof learn_verdict_names / sizeof learn_verdict_names[0])

/* FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo). */
#define LEARN_HASH_START UINT64_C(0xcbf29ce484222325)
static uint64_t learn_hash(uint64_t hash, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* --- write --- */

struct learn_writer {
    hak_report_sink *sink;
    void *sink_argument;
    uint64_t hash;
};

static void learn_put_line(struct learn_writer *writer, const struct text *line)
{
    line->data[line->length] = '\n';
    writer->hash = learn_hash(writer->hash, line->data, line->length + 1);
    writer->sink(writer->sink_argument, line->data, line->length + 1);
}

/* Longest line: a decision with all its gains, or a program's path. */
#define LEARN_LINE_SIZE 1280

static void learn_put_number(struct text *line, const char *name, uint64_t value)
{
    hak__text_put(line, " ");
    hak__text_put(line, name);
    hak__text_put(line, "=");
    if (value == UINT64_MAX) {
        hak__text_put(line, "never");
    } else {
        hak__text_put_unsigned(line, value);
    }
}

static void learn_put_point(struct text *line, const struct learn_point *point)
{
    uint32_t delay_ms = point->purge_delay_ms;
    learn_put_number(line, "purge_delay_ms", delay_ms == UINT32_MAX ? UINT64_MAX : delay_ms);
    learn_put_number(line, "bin_bytes", point->bin_bytes_max);
    learn_put_number(line, "cache_bytes", point->cache_bytes);
    learn_put_number(line, "whale_cache_bytes", point->whale_cache_bytes);
    learn_put_number(line, "huge_threshold", point->huge_threshold);
}

static void learn_write_point(struct learn_writer *writer, const char *what,
                              const struct learn_point *point)
{
    char buffer[LEARN_LINE_SIZE];
    struct text line = {buffer, sizeof buffer - 1, 0};
    hak__text_put(&line, what);
    learn_put_point(&line, point);
    learn_put_line(writer, &line);
}

static void learn_put_differences(struct text *line, const char *name, const int16_t *differences,
                                  uint32_t count)
{
    hak__text_put(line, name);
    for (uint32_t i = 0; i < count; i++) {
        int value = differences[i];
        hak__text_put(line, i == 0 ? "" : ",");
        hak__text_put(line, value < 0 ? "-" : "");
        hak__text_put_unsigned(line, (uint64_t)(value < 0 ? -value : value));
    }
}

static void learn_write_decision(struct learn_writer *writer, const struct learn_decision *decision)
{
    char buffer[LEARN_LINE_SIZE];
    struct text line = {buffer, sizeof buffer - 1, 0};
    const struct learn_test *test = &decision->test;
    hak__text_put(&line, "decision ");
    hak__text_put(&line, learn_verdict_names[decision->verdict]);
    hak__text_put(&line, " ");
    hak__text_put(&line, hak__learn_move_name(test->move));
    learn_put_number(&line, "run", decision->run);
    learn_put_number(&line, "s", decision->s);
    learn_put_point(&line, &test->point);
    learn_put_differences(&line, " time=", test->time, test->pairs);
    learn_put_differences(&line, " memory=", test->memory, test->pairs);
    learn_put_line(writer, &line);
}

static void learn_write_text(struct learn_writer *writer, const char *name, const char *value)
{
    char buffer[LEARN_LINE_SIZE];
    struct text line = {buffer, sizeof buffer - 1, 0};
    hak__text_put(&line, name);
    hak__text_put(&line, value);
    learn_put_line(writer, &line);
}

static void learn_write_number(struct learn_writer *writer, const char *name, uint64_t value)
{
    char buffer[LEARN_LINE_SIZE];
    struct text line = {buffer, sizeof buffer - 1, 0};
    hak__text_put(&line, name);
    hak__text_put_unsigned(&line, value);
    learn_put_line(writer, &line);
}

void hak__learn_state_write(const struct learn_state *state, hak_report_sink *sink,
                            void *sink_argument)
{
    struct learn_writer writer = {sink, sink_argument, LEARN_HASH_START};
    uint32_t count = state->decisions_count;
    learn_write_text(&writer, LEARN_HEADER, "");
    learn_write_text(&writer, "program ", state->program);
    learn_write_number(&writer, "runs ", state->runs);
    learn_write_number(&writer, "memory_percent ", state->memory_percent);
    learn_write_point(&writer, "options", &state->options);
    learn_write_point(&writer, "champion", &state->champion);
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i++) {
        if (state->sites[i][0] != '\0') {
            learn_write_text(&writer, "apart ", state->sites[i]);
        }
    }
    for (uint32_t i = count > LEARN_DECISIONS_MAX ? count - LEARN_DECISIONS_MAX : 0; i < count;
         i++) {
        learn_write_decision(&writer, &state->decisions[i % LEARN_DECISIONS_MAX]);
    }
    learn_write_number(&writer, "checksum ", writer.hash);
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

static bool learn_get_field(struct learn_reader *reader, const char *name, uint64_t most,
                            uint64_t *value)
{
    if (!learn_get(reader, " ") || !learn_get(reader, name) || !learn_get(reader, "=")) {
        return false;
    }
    if (learn_get(reader, "never")) {
        *value = UINT64_MAX;
        return true;
    }
    return learn_get_unsigned(reader, most, value);
}

static bool learn_get_point(struct learn_reader *reader, struct learn_point *point)
{
    uint64_t delay_ms, bin_bytes;
    if (!learn_get_field(reader, "purge_delay_ms", UINT32_MAX - 1, &delay_ms) ||
        !learn_get_field(reader, "bin_bytes", UINT32_MAX, &bin_bytes) || bin_bytes > UINT32_MAX ||
        !learn_get_field(reader, "cache_bytes", UINT64_MAX - 1, &point->cache_bytes) ||
        !learn_get_field(reader, "whale_cache_bytes", UINT64_MAX - 1, &point->whale_cache_bytes) ||
        !learn_get_field(reader, "huge_threshold", UINT64_MAX - 1, &point->huge_threshold)) {
        return false;
    }
    point->purge_delay_ms = delay_ms == UINT64_MAX ? UINT32_MAX : (uint32_t)delay_ms;
    point->bin_bytes_max = (uint32_t)bin_bytes;
    return true;
}

static bool learn_get_differences(struct learn_reader *reader, const char *name,
                                  int16_t differences[LEARN_PAIRS_MAX], uint32_t *count)
{
    *count = 0;
    if (!learn_get(reader, name)) {
        return false;
    }
    while (reader->at < reader->end && *reader->at != ' ' && *reader->at != '\n') {
        uint64_t value;
        bool below = (*count == 0 || learn_get(reader, ",")) && learn_get(reader, "-");
        if (*count == LEARN_PAIRS_MAX ||
            !learn_get_unsigned(reader, LEARN_DIFFERENCE_MOST, &value)) {
            return false;
        }
        differences[(*count)++] = (int16_t)(below ? -(int)value : (int)value);
    }
    return true;
}

static bool learn_get_decision(struct learn_reader *reader, struct learn_decision *decision)
{
    uint32_t verdict = 0, move = 0, memory_pairs;
    uint64_t run, s;
    while (verdict < LEARN_VERDICTS && !learn_get(reader, learn_verdict_names[verdict])) {
        verdict++;
    }
    if (verdict == LEARN_VERDICTS || !learn_get(reader, " ")) {
        return false;
    }
    while (move < LEARN_MOVES_ALL && !learn_get(reader, hak__learn_move_name(move))) {
        move++;
    }
    if (move == LEARN_MOVES_ALL || !learn_get_field(reader, "run", UINT32_MAX, &run) ||
        !learn_get_field(reader, "s", UINT32_MAX, &s) ||
        !learn_get_point(reader, &decision->test.point) ||
        !learn_get_differences(reader, " time=", decision->test.time, &decision->test.pairs) ||
        !learn_get_differences(reader, " memory=", decision->test.memory, &memory_pairs) ||
        memory_pairs != decision->test.pairs) {
        return false;
    }
    decision->verdict = verdict;
    decision->test.move = move;
    decision->run = (uint32_t)run;
    decision->s = (uint32_t)s;
    return learn_get(reader, "\n");
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

/* The name of a site, as hak_site_register makes names. */
static bool learn_get_site(struct learn_reader *reader, char name[LEARN_SITE_SIZE])
{
    if (!learn_get_rest(reader, name, LEARN_SITE_SIZE) || name[0] == '\0') {
        return false;
    }
    for (; *name != '\0'; name++) {
        if (*name < ' ' || *name > '~') {
            return false;
        }
    }
    return true;
}

static bool learn_get_sites(struct learn_reader *reader, struct learn_state *state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i++) {
        state->sites[i][0] = '\0';
    }
    while (learn_get(reader, "apart ")) {
        if (count == LEARN_SITES_MAX || !learn_get_site(reader, state->sites[count++])) {
            return false;
        }
    }
    return true;
}

static bool learn_get_all(struct learn_reader *reader, struct learn_state *state)
{
    uint64_t runs, checksum, memory_percent;
    const char *begin = reader->at;
    state->decisions_count = 0;
    if (!learn_get(reader, LEARN_HEADER "\n") || !learn_get(reader, "program ") ||
        !learn_get_rest(reader, state->program, LEARN_PROGRAM_SIZE) ||
        !learn_get(reader, "runs ") || !learn_get_unsigned(reader, UINT32_MAX - 1, &runs) ||
        !learn_get(reader, "\nmemory_percent ") ||
        !learn_get_unsigned(reader, UINT32_MAX, &memory_percent) ||
        !learn_get(reader, "\noptions") || !learn_get_point(reader, &state->options) ||
        !learn_get(reader, "\nchampion") || !learn_get_point(reader, &state->champion) ||
        !learn_get(reader, "\n") || !learn_get_sites(reader, state)) {
        return false;
    }
    while (learn_get(reader, "decision ")) {
        if (state->decisions_count == LEARN_DECISIONS_MAX ||
            !learn_get_decision(reader, &state->decisions[state->decisions_count++])) {
            return false;
        }
    }
    uint64_t hash = learn_hash(LEARN_HASH_START, begin, (size_t)(reader->at - begin));
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
