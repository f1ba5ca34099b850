/* learn_file.c: starts the learner with the process and keeps what it learned in a file, as the option
 * HAKMEM_LEARN says. */

#include "base/text.h"
#include "control/exit_file.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "learn/state_file.h"
#include "os/os.h"

#include <errno.h>

static uint64_t learn_process; /* that began to learn */

/* For the time of reading. */
struct learn_memory {
    char text[LEARN_FILE_MAX];
    struct learn_state state;
};

static struct exit_file learn_file = {.name = &hak__settings.learn,
                                      .what = "state of the learner",
                                      .replaces = true,
                                      .kept = {-1, 0, 0}};

static bool learn_is(const char *value)
{
    return hak__text_equal(hak__settings.learn, value);
}

static void learn_complain(const char *why)
{
    hak__diagnose_warn(why, NULL);
}

/* Reads the state of an earlier run to *state. False: there is none that can be used. */
static bool learn_read(char *memory, struct learn_state *state)
{
    long size = hak__exit_file_read(&learn_file, memory, LEARN_FILE_MAX);
    if (size == -ENOENT || size == 0) {
        return false; /* the first run */
    }
    if (size < 0 || !hak__learn_state_parse(memory, (size_t)size, state)) {
        learn_complain("HAKMEM_LEARN begins anew: its file is damaged, or not of this version");
        return false;
    }
    struct learn_point now = hak__learn_point_now();
    if (!hak__learn_point_equal(&state->options, &now)) {
        learn_complain("HAKMEM_LEARN begins anew: its file was learned with other options");
        return false;
    }
    return true;
}

/* 103: after the profile, so that a period of samples that the user chose stays. */
__attribute__((constructor(103))) static void learn_begin(void)
{
    if (hak__settings.learn == NULL || learn_is("off")) {
        return;
    }
    struct learn_memory *memory = NULL;
    size_t size = sizeof *memory;
    bool known = !learn_is("on") &&
                 hak__os_map(size, hak__os_page_size(), (void **)&memory) == 0 &&
                 learn_read(memory->text, &memory->state);
    learn_process = hak__os_process_id();
    if (!hak__learner_start(known ? &memory->state : NULL)) {
        learn_complain("there is no memory for HAKMEM_LEARN");
    }
    if (memory != NULL) {
        hak__os_discard(memory, size);
    }
}

static void learn_write(void *context, hak_report_sink *sink, void *sink_argument)
{
    hak__learn_state_write(context, hak__os_program(), sink, sink_argument);
}

void hak__learn_at_end(void)
{
    /* A forked child that has no file of its own leaves its parent's alone. */
    bool own = learn_process == hak__os_process_id() || hak__exit_file_varies(&learn_file);
    if (hak__settings.learn == NULL || learn_is("on") || learn_is("off") || !own) {
        return;
    }
    const struct learn_state *state = hak__learner_stop();
    if (state != NULL) {
        hak__exit_file_write(&learn_file, learn_write, (void *)(uintptr_t)state);
    }
}
