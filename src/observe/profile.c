/* SPDX-License-Identifier: MIT */
/* profile.c: the functions of profile.h. */
#include "hakmem/profile.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "core/options.h"
#include "observe/guard.h"
#include "observe/loaded.h"
#include "observe/modules.h"
#include "observe/report_writer.h"
#include "observe/samples.h"
#include "os/os.h"

/* Microseconds on a clock that does not wrap: tells processes of one number apart. 0: not
 * started. */
static uint64_t shared_profile_started_us;

bool hak__profile_begin(void)
{
    if (atomic_load_relaxed(&shared_profile_started_us) == 0) {
        atomic_store_relaxed(&shared_profile_started_us, hak__os_clock_us());
    }
    return hak__stacks_start();
}

static void profile_start(size_t period)
{
    static bool shared_said;
    if (!hak__profile_begin() && !atomic_exchange_acquire(&shared_said, true)) {
        hak__diagnose_warn("the profile has no stacks, because the program has no unwind tables",
                           NULL);
    }
    hak__sampling_set(SAMPLING_OWN, period == 0 ? HAK_PROFILE_PERIOD : period, period == 0);
}

/* The option shows what is in force. */
static void profile_note(uint64_t period)
{
    if (seal_open()) {
        atomic_store_relaxed(&hak__settings.sample_bytes, period);
        seal_close();
    }
}

int hak_profile_start(size_t period)
{
    profile_note(period);
    profile_start(period);
    return 0;
}

void hak_profile_stop(void)
{
    profile_note(UINT64_MAX);
    hak__sampling_set(SAMPLING_OWN, 0, false);
}

/* With `since`, blocks in use are those of sums->since. */
static void profile_write_sums(struct report_writer *writer, const struct stack_sums *sums,
                               bool since)
{
    double live_count = since ? sums->since.count : sums->allocated_count - sums->freed_count;
    double live_bytes = since ? sums->since.bytes : sums->allocated_bytes - sums->freed_bytes;
    double live_age_ms = since ? sums->since.age_ms : sums->live_age_ms;
    REPORT_NUMBERS(writer, {"samples", sums->samples_count},
                   {"samples_live", since ? sums->since.samples : sums->samples_live},
                   {"allocated_count", hak__report_round(sums->allocated_count)},
                   {"allocated_bytes", hak__report_round(sums->allocated_bytes)},
                   {"usable_bytes", hak__report_round(sums->usable_bytes)},
                   {"freed_count", hak__report_round(sums->freed_count)},
                   {"freed_bytes", hak__report_round(sums->freed_bytes)},
                   {"freed_remote_count", hak__report_round(sums->freed_remote)},
                   {"lifetime_ms", hak__report_round(sums->lifetime_ms)},
                   {"live_count", hak__report_round(live_count)},
                   {"live_bytes", hak__report_round(live_bytes)},
                   {"live_age_ms", hak__report_round(live_age_ms)},
                   {"peak_samples", sums->peak_samples},
                   {"peak_count", hak__report_round(sums->peak_count)},
                   {"peak_bytes", hak__report_round(sums->peak_bytes)});
}

static void profile_write_stack(struct report_writer *writer, const struct stack *stack,
                                const struct stack_sums *sums, bool since,
                                const uint64_t *live_bytes, uint32_t count)
{
    char site[SITE_NAME_SIZE] = "";
    bool is_cut = stack->depth != 0 && stack->frames[stack->depth - 1] == STACK_CUT;
    hak__report_record_begin(writer);
    hak__report_row(writer, "frames", stack->frames, stack->depth - is_cut, true);
    if (is_cut) {
        hak__report_number(writer, "cut", 1, "");
    }
    if (stack->site != NULL) {
        hak__site_name(stack->site, site);
    }
    hak__report_string(writer, "site", site, "");
    if (stack->thread != 0) {
        hak__report_number(writer, "thread", stack->thread, "");
    }
    profile_write_sums(writer, sums, since);
    hak__report_row(writer, "history_bytes", live_bytes, count, false);
    hak__report_record_end(writer);
}

/* Times are written as milliseconds before now. */
static void profile_write_stacks(struct report_writer *writer, bool since)
{
    struct samples_history history;
    struct stack_sums sums;
    float noted[HISTORY_MAX];
    uint64_t numbers[HISTORY_MAX];
    const struct stack *stack = hak__samples_first_stack(&history);
    hak__report_section_begin(writer, "history");
    for (uint32_t i = 0; i < history.count; i++) {
        numbers[i] = history.now_ms - history.times_ms[i];
    }
    hak__report_row(writer, "ago_ms", numbers, history.count, false);
    hak__report_section_end(writer);
    hak__report_section_begin(writer, "peak");
    REPORT_NUMBERS(writer, {"bytes", hak__report_round(history.peak_bytes)},
                   {"ago_ms", history.now_ms - history.peak_ms});
    hak__report_section_end(writer);
    hak__report_list_begin(writer, "stacks");
    for (; stack != NULL && hak__samples_copy(stack, &sums, noted); stack = stack->older) {
        for (uint32_t i = 0; i < history.count; i++) {
            numbers[i] = hak__report_round((double)noted[i]);
        }
        profile_write_stack(writer, stack, &sums, since, numbers, history.count);
    }
    hak__report_list_end(writer);
}

/* A thread may be renamed meanwhile, so its record is copied under SAMPLES. */
static void profile_write_threads(struct report_writer *writer)
{
    hak__report_list_begin(writer, "threads");
    for (uint32_t number = 1; number <= SAMPLE_THREADS_MAX && hak__samples_enter(true); number++) {
        const struct sample_thread *found = hak__sample_thread_of(number);
        struct sample_thread thread = found != NULL ? *found : (struct sample_thread){.id = 0};
        hak__samples_leave();
        if (thread.id != 0) {
            hak__report_record_begin(writer);
            REPORT_NUMBERS(writer, {"number", number}, {"id", thread.id});
            hak__report_string(writer, "name", thread.name, "");
            hak__report_record_end(writer);
        }
    }
    hak__report_list_end(writer);
}

static void profile_write_map(struct report_writer *writer, char *line, char *end,
                              const struct module_place *place, struct build_id *id)
{
    char was = *end;
    hak__build_id_read(id, place);
    *end = '\0';
    hak__report_record_begin(writer);
    hak__report_string(writer, "line", line, "");
    hak__build_id_write(writer, id);
    hak__report_record_end(writer);
    *end = was; /* the next line is compared with this one */
}

/* Writes the executable mappings, one record for each line of the list. Before one without a file
 * goes the mapping before it: some programs put their code into huge pages. */
static void profile_write_maps(struct report_writer *writer, const struct modules *modules)
{
    struct module_place place = {.end = 0}, before_place = place;
    struct build_id id = {.head = 0};
    char *before = NULL, *before_end = NULL; /* of a file, not written yet */
    for (char *line = modules->text, *next; *line != '\0'; line = next) {
        next = line + (hak__modules_next(line, &place) - line);
        char *end = next[-1] == '\n' ? next - 1 : next;
        bool has_file = place.path_length != 0;
        if (place.is_code) {
            if (!has_file && before != NULL) {
                profile_write_map(writer, before, before_end, &before_place, &id);
            }
            profile_write_map(writer, line, end, &place, &id);
        }
        before = has_file && !place.is_code ? line : NULL;
        before_end = end;
        before_place = place;
    }
}

/* Where tools find the code of frames that the mappings do not tell, or not any more. `head` is the
 * FNV-1a hash (G. Fowler, L. C. Noll, K.-P. Vo) of the module's first LOADED_HEAD_SIZE bytes. */
static void profile_write_module(struct report_writer *writer, const struct loaded *loaded)
{
    hak__report_record_begin(writer);
    hak__report_number(writer, "number", loaded->number, "");
    hak__report_hex(writer, "start", loaded->start, true);
    hak__report_hex(writer, "end", loaded->end, true);
    hak__report_hex(writer, "base", loaded->base, true);
    hak__report_hex(writer, "head", bits_fnv(loaded->head, LOADED_HEAD_SIZE), true);
    hak__report_string(writer, "path", loaded->path, "");
    hak__report_record_end(writer);
}

static void profile_write_modules(struct report_writer *writer)
{
    const struct loaded *loaded = hak__loaded_first();
    hak__report_list_begin(writer, "modules");
    for (; loaded != NULL; loaded = loaded->older) {
        if (loaded->number != 0 || !hak__loaded_is_there(loaded)) {
            profile_write_module(writer, loaded);
        }
    }
    hak__report_list_end(writer);
}

void hak_profile_write(hak_report_sink *sink, void *argument)
{
    hak__profile_write(sink, argument, 0);
}

void hak__profile_write(hak_report_sink *sink, void *argument, uint64_t since_ms)
{
    struct report_writer writer;
    struct modules modules;
    const char *program = hak__os_program();
    uint64_t own_period = hak__sampling_of(SAMPLING_OWN);
    if (since_ms != 0) {
        hak__samples_look_since(since_ms);
    }
    hak__report_begin(&writer, HAK_REPORT_JSON, sink, argument);
    hak__report_section_begin(&writer, "hakmem_profile");
    /* Of the JSON document. It grows when a field changes its meaning. */
    hak__report_number(&writer, "version", 1, "");
    hak__report_string(&writer, "program", program != NULL ? program : "", "");
    uint64_t started_us = atomic_load_relaxed(&shared_profile_started_us);
    REPORT_NUMBERS(&writer, {"process", hak__os_process_id()}, {"time", hak__os_wall_clock_s()},
                   {"started_us", started_us},
                   {"duration_us", started_us != 0 ? hak__os_clock_us() - started_us : 0},
                   {"period", atomic_load_relaxed(&hak__sampling.period)},
                   {"own_period", own_period != SAMPLE_PERIOD_MAX ? own_period : 0},
                   {"tools_period", hak__sampling_of(SAMPLING_TOOLS)});
    hak__report_section_end(&writer);
    /* In this order: a module of a stack that is there in the end was so when the mappings were
     * read, and one that was closed meanwhile is in the list of modules. */
    profile_write_stacks(&writer, since_ms != 0);
    if (atomic_load_relaxed(&hak__settings.profile_threads)) {
        profile_write_threads(&writer);
    }
    hak__modules_open(&modules);
    hak__report_list_begin(&writer, "mappings");
    if (modules.text != NULL) {
        profile_write_maps(&writer, &modules);
        hak__modules_close(&modules);
    }
    hak__report_list_end(&writer);
    profile_write_modules(&writer);
    hak__report_end(&writer);
}

/* --- the start of the profile and of the guard --- */

static bool profile_is_wanted(void)
{
    return atomic_load_relaxed(&hak__settings.sample_bytes) != UINT64_MAX ||
           hak__settings.profile_file != NULL;
}

/* 102: after control/life.c has read the options. */
__attribute__((constructor(102))) static void profile_begin(void)
{
    uint64_t period = hak__settings.sample_bytes;
    if (profile_is_wanted() || hak__knobs.guard != 0 || hak__settings.observe) {
        hak__modules_keep();
    }
    if (profile_is_wanted()) {
        profile_start(period == UINT64_MAX ? 0 : (size_t)period);
    }
    if (hak__knobs.guard != 0) {
        (void)hak__stacks_start();
        hak__os_fault_watch(hak__guard_fault);
    }
    hak__profile_dump_begin();
}
