/* options.c: the table of run options, and the profiles, which are whole sets of knobs. See
 * options.h.
 *
 * Runs before the C library is ready: no getenv, no allocation, no printf. A name set to nothing
 * counts as not set, and HAKMEM_TEST_* belongs to the tests. */
#include "core/options.h"

#include "base/text.h"
#include "core/knobs.h"
#include "core/limits.h"
#include "os/os.h"

#define KIB(count) (UINT64_C(count) << 10)
#define MIB(count) (UINT64_C(count) << 20)

/* Tiny limits: caches and delays so small that eviction and purging happen in every test. */
#define DELAY_MS(ms) ((ms) / (HAK_TINY_LIMITS ? 500u : 1u))
#define BIN_BYTES(bytes) (HAK_TINY_LIMITS ? BIN_BYTES_MAX : (bytes))
#define CACHE_BYTES(bytes) ((bytes) / (HAK_TINY_LIMITS ? 128u : 1u))
/* Replaced by a share of the RAM at start. */
#define CACHE_BYTES_AUTOMATIC 0
#define CACHE_RAM_SHARE 64u
#define CACHE_BYTES_TOTAL_MIN MIB(32)
#define WHALE_BYTES(bytes) ((bytes) / (HAK_TINY_LIMITS ? 4u : 1u))

/* Replaced by a number for each processor at start. */
#define HEAPS_AUTOMATIC 0

/* 32 MiB hold all classes at their bound; a thread that uses half of them to the full is
 * charged 12. All threads together may be charged a 64th of the RAM: 400 idle ones with every class
 * in use would else hold 7 MB each. A second between purges is longer than a phase of most
 * programs. With 8 MiB mapped there are superslabs enough to see whether the program fills what it
 * takes; only then do others get huge pages (region/superslab.c). */
#define KNOBS_DEFAULT                                                                              \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(1000u), .bin_bytes_max = BIN_BYTES_MAX,                         \
        .cache_bytes = CACHE_BYTES(MIB(32)), .cache_bytes_total = CACHE_BYTES_AUTOMATIC,           \
        .whale_cache_bytes = UINT64_MAX, .huge_threshold = MIB(8), .limit = UINT64_MAX,            \
        .limit_hard = UINT64_MAX, .heaps_max = HEAPS_AUTOMATIC, .abort_on_foreign = false          \
    }

/* Four times what the default keeps, ten times as long. */
#define KNOBS_FAST                                                                                 \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(10000u), .bin_bytes_max = BIN_BYTES_MAX,                        \
        .cache_bytes = CACHE_BYTES(MIB(32)), .cache_bytes_total = UINT64_MAX,                      \
        .whale_cache_bytes = UINT64_MAX, .huge_threshold = MIB(8), .limit = UINT64_MAX,            \
        .limit_hard = UINT64_MAX, .heaps_max = HEAPS_AUTOMATIC, .abort_on_foreign = false          \
    }

/* An eighth of a bin's bound, a sixteenth of the default's caches: refills stay batches, little is
 * kept. */
#define KNOBS_SMALL                                                                                \
    {                                                                                              \
        .purge_delay_ms = DELAY_MS(100u), .bin_bytes_max = BIN_BYTES(65536u),                      \
        .cache_bytes = CACHE_BYTES(MIB(2)), .cache_bytes_total = CACHE_BYTES(MIB(16)),             \
        .whale_cache_bytes = WHALE_BYTES(MIB(4)), .huge_threshold = UINT64_MAX,                    \
        .limit = UINT64_MAX, .limit_hard = UINT64_MAX, .heaps_max = HEAPS_AUTOMATIC,               \
        .abort_on_foreign = false                                                                  \
    }

/* What is wrong ends the process; what is free goes back at once, so that a stray access finds
 * zeroes. */
#define KNOBS_DEBUG                                                                                \
    {                                                                                              \
        .purge_delay_ms = 0, .bin_bytes_max = BIN_BYTES_MAX, .cache_bytes = CACHE_BYTES(MIB(32)),  \
        .cache_bytes_total = CACHE_BYTES_AUTOMATIC, .whale_cache_bytes = UINT64_MAX,               \
        .huge_threshold = MIB(8), .limit = UINT64_MAX, .limit_hard = UINT64_MAX,                   \
        .heaps_max = HEAPS_AUTOMATIC, .abort_on_foreign = true                                     \
    }

struct option_profile {
    const char *name;
    struct knobs knobs;
};
static const struct option_profile option_profiles[] = {{"default", KNOBS_DEFAULT},
                                                        {"fast", KNOBS_FAST},
                                                        {"small", KNOBS_SMALL},
                                                        {"debug", KNOBS_DEBUG}};

struct knobs hak__knobs = KNOBS_DEFAULT;
struct settings hak__settings = {.profile = "default"};

/* X(kind, name, place, help): HAKMEM_NAME sets `place`. In the order of a report. */
#define OPTIONS(X)                                                                                 \
    X(PROFILE, profile, hak__settings.profile,                                                     \
      "which set of values the others start from: default, fast, small, debug")                    \
    X(MILLISECONDS, purge_delay_ms, hak__knobs.purge_delay_ms,                                     \
      "free memory older than this goes back to the OS, milliseconds, or never")                   \
    X(BYTES_32, bin_bytes, hak__knobs.bin_bytes_max,                                               \
      "most free memory one thread keeps of one size class, a quarter of it of blocks to 1 KiB, "  \
      "bytes")                                                                                     \
    X(BYTES, cache_bytes, hak__knobs.cache_bytes,                                                  \
      "most memory one thread's free objects may hold, the slabs they lie in included, bytes")     \
    X(BYTES, cache_bytes_total, hak__knobs.cache_bytes_total,                                      \
      "the same for all threads together, bytes; 0: a 64th of the RAM or of a container's limit")  \
    X(BYTES_OR_NEVER, whale_cache_bytes, hak__knobs.whale_cache_bytes,                             \
      "most freed memory kept of allocations above 2 MiB, bytes; never: no bound but what was in " \
      "use lately")                                                                                \
    X(BYTES_OR_NEVER, huge_threshold, hak__knobs.huge_threshold,                                   \
      "memory mapped from which on huge pages may be asked for, bytes, or never")                  \
    X(BYTES_OR_NEVER, limit, hak__knobs.limit,                                                     \
      "memory mapped by hakmem above which what is free goes back after 10 ms, bytes, or never")   \
    X(BYTES_OR_NEVER, limit_hard, hak__knobs.limit_hard,                                           \
      "most memory mapped by hakmem, not by the program itself: allocations fail, bytes, or "      \
      "never")                                                                                     \
    X(NUMBER, heaps, hak__knobs.heaps_max,                                                         \
      "heaps that threads share, up to twice as many where they wait; 0: one for each processor, " \
      "or "                                                                                        \
      "what a container's quota allows")                                                           \
    X(SWITCH, abort_on_foreign, hak__knobs.abort_on_foreign,                                       \
      "1: freeing memory that is not ours ends the process; 0: it is reported")                    \
    X(SWITCH, keep_deepbind, hak__settings.keep_deepbind,                                          \
      "1: a library loaded with RTLD_DEEPBIND has the C library's malloc; 0: it has this one")     \
    X(SWITCH, scavenger, hak__settings.scavenger,                                                  \
      "1: one thread more in each process gives memory back while it idles; 0: none")              \
    X(STATS, stats, hak__settings.stats, "report at exit: none, text or json")                     \
    X(PATH, stats_file, hak__settings.stats_file,                                                  \
      "file the report is appended to, opened at start; standard error when not set")              \
    X(PROCESS, stats_pid, hak__settings.stats_process,                                             \
      "the only process that reports, by its id; 0: every process")                                \
    X(PROCESS, announce, hak__settings.announce_process,                                           \
      "the process that says at start that hakmem serves it, by its id; 0: none")

enum option_kind {
    KIND_PROFILE,        /* const char * */
    KIND_MILLISECONDS,   /* uint32_t, UINT32_MAX is never */
    KIND_NUMBER,         /* uint32_t */
    KIND_BYTES_32,       /* uint32_t */
    KIND_BYTES,          /* uint64_t */
    KIND_BYTES_OR_NEVER, /* uint64_t, UINT64_MAX is never */
    KIND_SWITCH,         /* bool */
    KIND_STATS,          /* uint32_t, enum stats_format */
    KIND_PATH,           /* const char * */
    KIND_PROCESS         /* uint64_t */
};

struct option {
    const char *name;
    const char *help;
    void *place;
    enum option_kind kind;
};

#define X(kind, name, place, help) {#name, help, &(place), KIND_##kind},
static const struct option option_table[] = {OPTIONS(X)};
#undef X
#define OPTION_COUNT (sizeof option_table / sizeof option_table[0])

/* By enum stats_format. */
static const char *const option_stats_names[] = {"none", "text", "json"};

/* A copy: programs that rename themselves (setproctitle) write over the environment. */
#define OPTION_PATH_SIZE 1024 /* option_allowed says so, too */
static char option_path[OPTION_PATH_SIZE];

#define OPTION_PREFIX "HAKMEM_"
#define OPTION_TEST_PREFIX "HAKMEM_TEST_"

/* The value in "NAME=value" when NAME is `name` in capitals, else NULL. */
static const char *option_value_of(const char *string, const char *name)
{
    while (*name != '\0') {
        char capital = *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
        if (*string != capital) {
            return NULL;
        }
        string++;
        name++;
    }
    return *string == '=' ? string + 1 : NULL;
}

/* What each kind allows, to follow the words "must be". */
static const char *const option_allowed[] = {
    [KIND_PROFILE] = "default, fast, small or debug",
    [KIND_MILLISECONDS] = "never or a number of milliseconds below 2^32 - 1",
    [KIND_NUMBER] = "a number below 2^32",
    [KIND_BYTES_32] = "a number of bytes below 2^32, such as 4096, 64k or 1m",
    [KIND_BYTES] = "a number of bytes below 2^64, such as 4096, 64k or 1m",
    [KIND_BYTES_OR_NEVER] = "never or a number of bytes below 2^64 - 1, such as 4096, 64k or 1m",
    [KIND_SWITCH] = "0 or 1",
    [KIND_STATS] = "none, text or json",
    [KIND_PATH] = "a path shorter than 1024 bytes",
    [KIND_PROCESS] = "a process id, or 0",
};

/* The setters return false for a value that is not allowed, and change nothing then. */

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
        *(uint64_t *)place = number;
    } else {
        *(uint32_t *)place = (uint32_t)number;
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
    *place = value[0] == '1';
    return true;
}

static bool option_set_stats(const char *value)
{
    for (uint32_t format = STATS_NONE; format <= STATS_JSON; format++) {
        bool digit = value[0] == (char)('0' + format) && value[1] == '\0' && format != STATS_JSON;
        if (digit || hak__text_equal(value, option_stats_names[format])) {
            hak__settings.stats = format;
            return true;
        }
    }
    return false;
}

static bool option_set_path(const char **place, const char *value)
{
    size_t length = 0;
    while (length < sizeof option_path && value[length] != '\0') {
        length++;
    }
    if (length == sizeof option_path) { /* looked at first: a refused value changes nothing */
        return false;
    }
    for (size_t i = 0; i <= length; i++) {
        option_path[i] = value[i];
    }
    *place = option_path;
    return true;
}

static bool option_set(const struct option *option, const char *value)
{
    switch (option->kind) {
    case KIND_PROFILE:
        return option_set_profile(value);
    case KIND_MILLISECONDS:
        return option_set_plain_number(option->place, value, false, true);
    case KIND_NUMBER:
        return option_set_plain_number(option->place, value, false, false);
    case KIND_BYTES_32:
        return option_set_number(option->place, value, false, false);
    case KIND_BYTES:
        return option_set_number(option->place, value, true, false);
    case KIND_BYTES_OR_NEVER:
        return option_set_number(option->place, value, true, true);
    case KIND_SWITCH:
        return option_set_switch(option->place, value);
    case KIND_STATS:
        return option_set_stats(value);
    case KIND_PATH:
        return option_set_path(option->place, value);
    case KIND_PROCESS:
        return option_set_plain_number(option->place, value, true, false);
    }
    return false;
}

/* One line: what is not printable is shown as a question mark, and a long value is cut. */
static void option_refuse(const char *string, const char *reason, const char *allowed)
{
    char line[260];
    struct text text = {line, 140, 0};
    hak__text_put(&text, "hakmem: ");
    for (; *string != '\0' && text.length < text.size; string++) {
        hak__text_put_part(&text, *string >= ' ' && *string <= '~' ? string : "?", 1);
    }
    text.size = sizeof line; /* the reason always fits */
    hak__text_put(&text, " ignored: ");
    hak__text_put(&text, reason);
    hak__text_put(&text, allowed);
    hak__text_put(&text, "\n");
    hak__os_write_error(line, text.length);
}

/* One "NAME=value". The profile is option 0 and has a pass of its own, before all others. */
static void option_read(const char *string, bool profile_pass)
{
    const char *name = hak__text_after(string, OPTION_PREFIX);
    if (name == NULL || hak__text_after(string, OPTION_TEST_PREFIX) != NULL) {
        return;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const char *value = option_value_of(name, option_table[i].name);
        if (value != NULL) {
            bool due = (option_table[i].kind == KIND_PROFILE) == profile_pass && *value != '\0';
            if (due && !option_set(&option_table[i], value)) {
                option_refuse(string, "must be ", option_allowed[option_table[i].kind]);
            }
            return;
        }
    }
    if (!profile_pass) {
        option_refuse(string, "unknown option", "");
    }
}

/* What there is for this process. A look at its container is some ten microseconds: not where the
 * answer is given, and not on few processors, where it changes little. */
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
                          hak__knobs.heaps_max == HEAPS_AUTOMATIC);
    if (hak__knobs.cache_bytes_total == CACHE_BYTES_AUTOMATIC) {
        uint64_t share = here.memory / CACHE_RAM_SHARE;
        uint64_t least = CACHE_BYTES_TOTAL_MIN;
        hak__knobs.cache_bytes_total = share > least ? share : least;
    }
    hak__os_set_limit(hak__knobs.limit_hard);
    if (hak__knobs.heaps_max == HEAPS_AUTOMATIC) {
        hak__knobs.heaps_max = HAK_TINY_LIMITS ? 2 : here.processors;
    }
    uint64_t crowded = (uint64_t)HEAPS_CROWDED_FACTOR * hak__knobs.heaps_max;
    hak__knobs.heaps_crowded_max = crowded < HEAP_ID_MAX ? (uint32_t)crowded : HEAP_ID_MAX;
}

static void options_read_all(char *const *environment)
{
    for (char *const *string = environment; *string != NULL; string++) {
        option_read(*string, true);
    }
    for (char *const *string = environment; *string != NULL; string++) {
        option_read(*string, false);
    }
}

void hak__options_read(char *const *environment)
{
    static bool options_done;
    if (environment != NULL && !options_done) {
        options_done = true;
        if (!hak__os_is_secure()) {
            options_read_all(environment);
        }
    }
}

/* As it may be given: 8m, not 8388608. */
static void option_put_bytes(struct text *text, uint64_t bytes)
{
    const char *const suffixes[] = {"", "k", "m", "g", "t"};
    unsigned unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < sizeof suffixes / sizeof suffixes[0]) {
        bytes /= 1024;
        unit++;
    }
    hak__text_put_unsigned(text, bytes);
    hak__text_put(text, suffixes[unit]);
}

static void option_put_value(struct text *text, const struct option *option)
{
    const char *string = NULL;
    switch (option->kind) {
    case KIND_PROFILE:
    case KIND_PATH:
        string = *(const char *const *)option->place;
        hak__text_put(text, string != NULL ? string : "");
        break;
    case KIND_MILLISECONDS: {
        uint32_t ms = *(const uint32_t *)option->place;
        if (ms == UINT32_MAX) {
            hak__text_put(text, "never");
        } else {
            hak__text_put_unsigned(text, ms);
        }
        break;
    }
    case KIND_NUMBER:
        hak__text_put_unsigned(text, *(const uint32_t *)option->place);
        break;
    case KIND_BYTES_32:
        option_put_bytes(text, *(const uint32_t *)option->place);
        break;
    case KIND_BYTES:
    case KIND_BYTES_OR_NEVER:
        if (*(const uint64_t *)option->place == UINT64_MAX) {
            hak__text_put(text, "never");
        } else {
            option_put_bytes(text, *(const uint64_t *)option->place);
        }
        break;
    case KIND_SWITCH:
        hak__text_put(text, *(const bool *)option->place ? "1" : "0");
        break;
    case KIND_STATS:
        hak__text_put(text, option_stats_names[*(const uint32_t *)option->place]);
        break;
    case KIND_PROCESS:
        hak__text_put_unsigned(text, *(const uint64_t *)option->place);
        break;
    }
}

bool hak__options_view(uint32_t index, struct option_view *view)
{
    if (index >= OPTION_COUNT) {
        return false;
    }
    view->name = option_table[index].name;
    view->help = option_table[index].help;
    struct text text = {view->value, sizeof view->value - 1, 0};
    option_put_value(&text, &option_table[index]);
    view->value[text.length] = '\0';
    return true;
}
