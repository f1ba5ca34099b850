/* SPDX-License-Identifier: MIT */
/* options.c: the table of run options, their values, and the profiles. A profile is a value for
 * every knob. See options.h.
 *
 * This code runs before the C library is ready: no getenv, no allocation, no printf. */
#include "core/options.h"

#include "base/atomics.h"
#include "base/text.h"
#include "core/knobs.h"
#include "core/limits.h"
#include "core/option_list.h"
#include "core/option_table.h"
#include "os/os.h"

#include <signal.h>

#define KIB(count) (UINT64_C(count) << 10)
#define MIB(count) (UINT64_C(count) << 20)

/* Tiny limits make caches and delays so small that every test evicts and purges. */
#define DELAY_MS(ms) ((ms) / (HAK_TINY_LIMITS ? 500u : 1u))
#define BIN_BYTES(bytes) (HAK_TINY_LIMITS ? BIN_BYTES_MAX : (bytes))
#define CACHE_BYTES(bytes) ((bytes) / (HAK_TINY_LIMITS ? 128u : 1u))
/* hak__options_settle replaces it by a share of the RAM. Without this limit, 400 idle threads that
 * used every class would hold 7 MB each. Twice the divisor of the RAM: all bins together hold
 * half as much, and many busy threads take the slow path more often. Twice the 32 MiB: machines and
 * containers with less than 4 GiB get the limit of those with 4 GiB. */
#define CACHE_BYTES_AUTOMATIC 0
#define HUGE_BYTES(bytes) ((bytes) / (HAK_TINY_LIMITS ? 4u : 1u))

/* hak__options_settle replaces it by the number of CPUs. */
#define ARENAS_AUTOMATIC 0

/* In the secure form a free of memory that is not hakmem's is a misuse as any other. */
#define FOREIGN_ABORT HAK_SECURE

/* The default keeps freed memory for a second, longer than a phase of most programs. 32 MiB are
 * enough for the bins of all classes at their limits. Below 8 MiB of heap there are too few
 * superslabs to see whether the program fills its memory. docs/options.md compares the profiles. */
#define KNOBS_DEFAULT                                                                              \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(1000u), .bin_bytes_max = BIN_BYTES_MAX,                         \
        .cache_bytes = CACHE_BYTES(MIB(32)), .cache_bytes_total = CACHE_BYTES_AUTOMATIC,           \
        .huge_cache_bytes = UINT64_MAX, .huge_threshold = MIB(4), .limit = UINT64_MAX,             \
        .limit_hard = UINT64_MAX, .arenas_max = ARENAS_AUTOMATIC,                                  \
        .abort_on_foreign = FOREIGN_ABORT, .abort_on_size = true, .numa = true                     \
    }

/* Fast keeps freed memory ten times as long. All threads' bins together have no limit. */
#define KNOBS_FAST                                                                                 \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(10000u), .bin_bytes_max = BIN_BYTES_MAX,                        \
        .cache_bytes = CACHE_BYTES(MIB(32)), .cache_bytes_total = UINT64_MAX,                      \
        .huge_cache_bytes = UINT64_MAX, .huge_threshold = MIB(4), .limit = UINT64_MAX,             \
        .limit_hard = UINT64_MAX, .arenas_max = ARENAS_AUTOMATIC,                                  \
        .abort_on_foreign = FOREIGN_ABORT, .abort_on_size = true, .numa = true                     \
    }

/* Small has an eighth of the default's bin limit and a sixteenth of its limit for a thread. Refills
 * still bring several objects at once. */
#define KNOBS_SMALL                                                                                \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(100u), .bin_bytes_max = BIN_BYTES(65536u),                      \
        .cache_bytes = CACHE_BYTES(MIB(2)), .cache_bytes_total = CACHE_BYTES(MIB(16)),             \
        .huge_cache_bytes = HUGE_BYTES(MIB(4)), .huge_threshold = UINT64_MAX, .limit = UINT64_MAX, \
        .limit_hard = UINT64_MAX, .arenas_max = ARENAS_AUTOMATIC,                                  \
        .abort_on_foreign = FOREIGN_ABORT, .abort_on_size = true, .numa = true                     \
    }

/* Debug ends the process at a free of foreign memory. It purges free pages without delay, so that a
 * program that still reads them finds zeroes. */
#define KNOBS_DEBUG                                                                                \
    {                                                                                              \
        .purge_delay_ms = 0, .bin_bytes_max = BIN_BYTES_MAX, .cache_bytes = CACHE_BYTES(MIB(32)),  \
        .cache_bytes_total = CACHE_BYTES_AUTOMATIC, .huge_cache_bytes = UINT64_MAX,                \
        .huge_threshold = MIB(4), .limit = UINT64_MAX, .limit_hard = UINT64_MAX,                   \
        .arenas_max = ARENAS_AUTOMATIC, .abort_on_foreign = true, .abort_on_size = true,           \
        .numa = true                                                                               \
    }

struct option_profile {
    const char *name;
    struct knobs knobs;
};
static const struct option_profile option_profiles[] = {{"default", KNOBS_DEFAULT},
                                                        {"fast", KNOBS_FAST},
                                                        {"small", KNOBS_SMALL},
                                                        {"debug", KNOBS_DEBUG}};

/* Each object fills its pages in the secure form (core/seal.h). */
static _Alignas(SEAL_ALIGNMENT) union {
    struct knobs knobs;
    char pages[SEAL_BYTES(sizeof(struct knobs))];
} option_knobs = {.knobs = KNOBS_DEFAULT};
extern struct knobs hak__knobs __attribute__((alias("option_knobs")));

/* learn_memory_percent: 1 % of memory weighs as much as 1 % of time. */
#define SETTINGS_DEFAULT                                                                           \
    {                                                                                              \
        .profile = "default", .config_file = HAK_CONFIG_FILE, .sample_bytes = UINT64_MAX,          \
        .learn_memory_percent = 100                                                                \
    }
static _Alignas(SEAL_ALIGNMENT) union {
    struct settings settings;
    char pages[SEAL_BYTES(sizeof(struct settings))];
} option_settings = {.settings = SETTINGS_DEFAULT};
extern struct settings hak__settings __attribute__((alias("option_settings")));

uint32_t hak__knobs_turns;

#define X(kind, name, when, place, help, advice) {#name, help, &(place), KIND_##kind, WHEN_##when},
const struct option hak__option_table[] = {OPTIONS(X)};
#undef X
const uint32_t hak__option_count = sizeof hak__option_table / sizeof hak__option_table[0];

/* By enum stats_format. */
const char *const hak__option_stats_names[] = {"none", "summary", "full", "json"};

#define OPTION_PATHS 7
/* Copies, because programs that rename themselves (setproctitle) write over the environment. */
static _Alignas(SEAL_ALIGNMENT) union {
    char at[OPTION_PATHS][OPTION_VALUE_SIZE]; /* one for each path option: see option_set_path */
    char pages[SEAL_BYTES(OPTION_PATHS * OPTION_VALUE_SIZE)];
} option_paths HAK_SELDOM;

struct seal_pages hak__options_pages(uint32_t part)
{
    const struct seal_pages parts[] = {{&option_knobs, sizeof option_knobs},
                                       {&option_settings, sizeof option_settings},
                                       {&option_paths, sizeof option_paths}};
    return part < sizeof parts / sizeof parts[0] ? parts[part] : (struct seal_pages){NULL, 0};
}

/* The values that each kind allows. The message says "must be" before them. */
static const char *const option_allowed[] = {
    [KIND_PROFILE] = "default, fast, small or debug",
    [KIND_MILLISECONDS] = "never or a number of milliseconds below 2^32 - 1",
    [KIND_NUMBER] = "a number below 2^32",
    [KIND_BYTES_32] = "a number of bytes below 2^32, such as 4096, 64k or 1m",
    [KIND_BYTES] = "a number of bytes below 2^64, such as 4096, 64k or 1m",
    [KIND_BYTES_OR_NEVER] = "never or a number of bytes below 2^64 - 1, such as 4096, 64k or 1m",
    [KIND_SWITCH] = "0 or 1",
    [KIND_STATS] = "none, summary, full or json",
    [KIND_PATH] = "a path shorter than 1024 bytes, with %p for the process id and %% for a percent",
    [KIND_INPUT] = "a path shorter than 1024 bytes",
    [KIND_PROCESS] = "a process id, or 0",
    [KIND_SIGNAL] = "the number of a signal that programs are free to use, such as 12, or 0",
    [KIND_DUMP] = "none, or words such as peak=50,above=4g,every_s=600,limit=90",
};

/* A setter that gets a value that is not allowed returns false and changes nothing. */

static bool option_set_profile(const char *value)
{
    for (size_t i = 0; i < sizeof option_profiles / sizeof option_profiles[0]; i++) {
        if (hak__text_equal(value, option_profiles[i].name)) {
            hak__settings.profile = option_profiles[i].name;
            hak__knobs = option_profiles[i].knobs;
            return true;
        }
    }
    return false;
}

static bool option_set_number(void *place, const char *value, bool wide, bool never)
{
    uint64_t most = wide ? UINT64_MAX : UINT32_MAX;
    uint64_t number = most;
    if (!never || !hak__text_equal(value, "never")) {
        if (!hak__text_parse_size(value, &number) || number > most || (never && number == most)) {
            return false;
        }
    }
    if (wide) {
        atomic_store_relaxed((uint64_t *)place, number);
    } else {
        atomic_store_relaxed((uint32_t *)place, (uint32_t)number);
    }
    return true;
}

/* Without the suffixes of sizes. */
static bool option_set_plain_number(void *place, const char *value, bool wide, bool never)
{
    const char *at = value;
    while (*at >= '0' && *at <= '9') {
        at++;
    }
    bool plain = *at == '\0' || (never && hak__text_equal(value, "never"));
    return plain && option_set_number(place, value, wide, never);
}

static bool option_set_switch(bool *place, const char *value)
{
    if ((value[0] != '0' && value[0] != '1') || value[1] != '\0') {
        return false;
    }
    atomic_store_relaxed(place, value[0] == '1');
    return true;
}

/* Refuses signals that cannot be caught, that say that the program's code failed, by which others
 * end it, and those that the C libraries use, 32 to 34. SIGCHLD has a use in every program. */
static bool option_set_signal(uint32_t *place, const char *value)
{
    static const uint32_t refused[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGILL, SIGFPE, SIGTRAP,
                                       SIGSYS,  SIGABRT, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT,
                                       SIGTERM, SIGPIPE, SIGALRM, 32,      33,     34};
    const uint32_t number_max = 64; /* the kernel's */
    uint32_t number = 0;
    if (!option_set_plain_number(&number, value, false, false) || number > number_max) {
        return false;
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (number == refused[i]) {
            return false;
        }
    }
    *place = number;
    return true;
}

static bool option_set_stats(const char *value)
{
    static const char *const others[] = {"0", "1", "text"};
    for (uint32_t format = STATS_NONE; format <= STATS_JSON; format++) {
        if (hak__text_equal(value, hak__option_stats_names[format]) ||
            (format <= STATS_FULL && hak__text_equal(value, others[format]))) {
            hak__settings.stats = format;
            return true;
        }
    }
    return false;
}

/* `escapes`: %p and %% stand in it, and no other percent sign. */
static bool option_set_path(const char **place, const char *value, bool escapes)
{
    const char **const places[] = {&hak__settings.stats_file,    &hak__settings.profile_file,
                                   &hak__settings.heap_map_file, &hak__settings.learn,
                                   &hak__settings.config_file,   &hak__settings.profile_dump,
                                   &hak__settings.guard_file};
    HAK_STATIC_ASSERT(sizeof places / sizeof places[0] == OPTION_PATHS, "a copy of each");
    char *copy = option_paths.at[0];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        copy = places[i] == place ? option_paths.at[i] : copy;
    }
    size_t length = hak__text_length(value, OPTION_VALUE_SIZE);
    if (length == OPTION_VALUE_SIZE) { /* looked at first: a refused value changes nothing */
        return false;
    }
    for (size_t i = 0; escapes && i < length; i++) {
        if (value[i] == '%' && value[++i] != 'p' && value[i] != '%') {
            return false;
        }
    }
    *place = hak__text_make(copy, OPTION_VALUE_SIZE, "%s", value);
    return true;
}

/* One word: a name, and perhaps "=" and a number. */
static bool option_set_dump_word(const char *word, struct dump_when *when)
{
    const struct {
        const char *name;
        uint64_t *place;
        uint64_t usual, most; /* usual 0: the number must be there */
        bool is_size;
    } names[] = {{"peak", &when->peak_percent, 50, 10000, false},
                 {"above", &when->above, 0, UINT64_MAX, true},
                 {"every_s", &when->every_s, 0, UINT32_MAX, false},
                 {"limit", &when->limit_percent, 90, 99, false}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *after = hak__text_after(word, names[i].name);
        if (after == NULL || (*after != '\0' && *after != '=')) {
            continue;
        }
        uint64_t number = names[i].usual;
        if (*after == '=' &&
            !(names[i].is_size ? option_set_number(&number, after + 1, true, false)
                               : option_set_plain_number(&number, after + 1, true, false))) {
            return false;
        }
        *names[i].place = number;
        return number != 0 && number <= names[i].most;
    }
    return false;
}

bool hak__options_parse_dump(const char *words, struct dump_when *when)
{
    char word[48]; /* the longest name and number are shorter */
    *when = (struct dump_when){0, 0, 0, 0};
    bool fine = true, more = !hak__text_equal(words, "none");
    while (fine && more) {
        struct text text = {word, sizeof word - 1, 0};
        size_t length = 0;
        while (words[length] != '\0' && words[length] != ',') {
            length++;
        }
        hak__text_put_part(&text, words, length);
        word[text.length] = '\0';
        fine = length < sizeof word && option_set_dump_word(word, when);
        more = words[length] == ',';
        words += length + more;
    }
    return fine;
}

static bool option_set_dump(const char **place, const char *value)
{
    struct dump_when when;
    return hak__options_parse_dump(value, &when) && option_set_path(place, value, false);
}

bool hak__option_store(const struct option *option, void *place, const char *value)
{
    switch (option->kind) {
    case KIND_PROFILE:
        return option_set_profile(value);
    case KIND_MILLISECONDS:
        return option_set_plain_number(place, value, false, true);
    case KIND_NUMBER:
        return option_set_plain_number(place, value, false, false);
    case KIND_BYTES_32:
        return option_set_number(place, value, false, false);
    case KIND_BYTES:
        return option_set_number(place, value, true, false);
    case KIND_BYTES_OR_NEVER:
        return option_set_number(place, value, true, true);
    case KIND_SWITCH:
        return option_set_switch(place, value);
    case KIND_STATS:
        return option_set_stats(value);
    case KIND_PATH:
    case KIND_INPUT:
        return option_set_path(place, value, option->kind == KIND_PATH);
    case KIND_PROCESS:
        return option_set_plain_number(place, value, true, false);
    case KIND_SIGNAL:
        return option_set_signal(place, value);
    case KIND_DUMP:
        return option_set_dump(place, value);
    }
    return false;
}

const char *hak__option_allowed(const struct option *option)
{
    return option_allowed[option->kind];
}

/* True if the two names are equal but for the case of letters. `own` is in lower case. */
static bool option_has_name(const char *own, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++, own++) {
        char lower = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
        if (*own == '\0' || *own != lower) {
            return false;
        }
    }
    return *own == '\0';
}

const struct option *hak__option_find(const char *name, size_t length)
{
    const size_t prefix = sizeof "hakmem_" - 1;
    if (length > prefix && option_has_name("hakmem_", name, prefix)) {
        name += prefix;
        length -= prefix;
    }
    for (uint32_t i = 0; i < hak__option_count; i++) {
        if (option_has_name(hak__option_table[i].name, name, length)) {
            return &hak__option_table[i];
        }
    }
    return NULL;
}

/* CPUs and memory for this process. Reading the container's limits takes some ten microseconds.
 * hakmem skips it if no value depends on it, and with one or two CPUs, where it changes little. */
static struct os_container options_container(bool automatic)
{
    struct os_container here = {hak__os_processors(), hak__os_ram_size()};
    if (automatic && here.processors > 2) {
        struct os_container limits = hak__os_container("/proc/self/cgroup", "/sys/fs/cgroup");
        here.processors = limits.processors < here.processors ? limits.processors : here.processors;
        here.memory = limits.memory < here.memory ? limits.memory : here.memory;
    }
    return here;
}

void hak__options_settle(void)
{
    struct os_container here =
        options_container(hak__knobs.cache_bytes_total == CACHE_BYTES_AUTOMATIC ||
                          hak__knobs.arenas_max == ARENAS_AUTOMATIC);
    if (hak__knobs.cache_bytes_total == CACHE_BYTES_AUTOMATIC) {
        uint64_t share = here.memory / 64;
        uint64_t least = MIB(32);
        hak__knobs.cache_bytes_total = share > least ? share : least;
    }
    hak__os_set_limit(hak__knobs.limit_hard);
    if (hak__knobs.arenas_max == ARENAS_AUTOMATIC) {
        hak__knobs.arenas_max = HAK_TINY_LIMITS ? 2 : here.processors;
    }
    /* For crowded threads hakmem adds arenas, up to this multiple of knobs.arenas_max in all.
     * Twice: fewer waits, but more partly used slabs. 1: no arena is added. */
    uint64_t crowded = (uint64_t)2 * hak__knobs.arenas_max;
    hak__knobs.arenas_crowded_max = crowded < ARENA_ID_MAX ? (uint32_t)crowded : ARENA_ID_MAX;
}
