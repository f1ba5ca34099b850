/* SPDX-License-Identifier: MIT */
/* learn_file.c: starts the learner with the process and keeps what it learned in a file, as the
 * option HAKMEM_LEARN says. */

#include "base/text.h"
#include "control/exit_file.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "core/own_stack.h"
#include "learn/state_file.h"
#include "os/os.h"

#include <errno.h>

static uint64_t learn_process; /* that began to learn */

/* For the time of reading. */
struct learn_memory {
    char text[LEARN_FILE_MAX];
    struct learn_state state;
};

static struct exit_file learn_file = {
    .name = &hak__settings.learn, .what = "state of the learner", .kept = {-1, 0, 0}};

static bool learn_is(const char *value)
{
    return hak__text_equal(hak__settings.learn, value);
}

/* The program's name as the file has it: no directory, no line break, cut where it is long. */
static void learn_name_program(char name[LEARN_PROGRAM_SIZE])
{
    const char *path = hak__os_program(), *base = path;
    size_t length = 0;
    for (; path != NULL && *path != '\0'; path++) {
        base = *path == '/' ? path + 1 : base;
    }
    for (; base != NULL && *base != '\0' && length < LEARN_PROGRAM_SIZE - 1; base++) {
        name[length++] = (char)((unsigned char)*base < ' ' ? '?' : *base);
    }
    name[length] = '\0';
}

/* Reads the state of an earlier run. False: there is none that can be used, and *complaint says why
 * if the user should know. */
static bool learn_read(struct learn_memory *memory, const char *program, const char **complaint)
{
    char path[EXIT_PATH_SIZE];
    struct learn_state *state = &memory->state;
    hak__exit_file_path(&learn_file, path);
    long size = hak__os_read_file(path, memory->text, LEARN_FILE_MAX);
    if (size == -ENOENT || size == 0) {
        return false; /* the first run */
    }
    struct learn_point now = hak__learn_point_now();
    if (size < 0 || !hak__learn_state_parse(memory->text, (size_t)size, state) ||
        !hak__learn_point_is_reached(&state->options, &state->champion)) {
        *complaint = "HAKMEM_LEARN begins anew: its file is damaged, or not of this version";
    } else if (!hak__text_equal(state->program, program)) {
        *complaint = "HAKMEM_LEARN begins anew: its file is of another program";
    } else if (!hak__learn_point_equal(&state->options, &now) ||
               state->memory_percent != hak__settings.learn_memory_percent) {
        *complaint = "HAKMEM_LEARN begins anew: its file was learned with other options";
    }
    return *complaint == NULL;
}

/* 103: after the profile, so that a period of samples that the user chose stays. */
__attribute__((constructor(103))) static void learn_begin(void)
{
    if (hak__settings.learn == NULL || learn_is("off")) {
        return;
    }
    char program[LEARN_PROGRAM_SIZE];
    void *memory = NULL;
    size_t size = sizeof(struct learn_memory);
    const char *complaint = NULL;
    learn_name_program(program);
    bool known = !learn_is("on") && hak__os_map(size, hak__os_page_size(), &memory) == 0 &&
                 learn_read(memory, program, &complaint);
    learn_process = hak__os_process_id();
    if (!hak__learner_start(program, known ? &((struct learn_memory *)memory)->state : NULL)) {
        complaint = "there is no memory for HAKMEM_LEARN";
    }
    if (complaint != NULL) {
        hak__diagnose_warn(complaint, NULL);
    }
    if (memory != NULL) {
        hak__os_discard(memory, size);
    }
}

static void learn_put(void *argument, const char *piece, size_t size)
{
    hak__text_put_part(argument, piece, size);
}

static void learn_save(void *argument)
{
    static bool complained;
    const struct learn_state *state = argument;
    /* A forked child that has no file of its own leaves its parent's alone. */
    bool own = learn_process == hak__os_process_id() || hak__exit_file_varies(&learn_file);
    void *memory;
    if (learn_is("on") || !own || hak__os_map(LEARN_FILE_MAX, hak__os_page_size(), &memory) != 0) {
        return;
    }
    struct text text = {memory, LEARN_FILE_MAX, 0};
    hak__learn_state_write(state, learn_put, &text);
    char path[EXIT_PATH_SIZE];
    hak__exit_file_path(&learn_file, path);
    int error = hak__os_update_file(path, text.data, text.length);
    hak__os_discard(memory, LEARN_FILE_MAX);
    if (error != 0 && !complained) {
        complained = true; /* at each decision would be too often */
        hak__exit_file_complain(&learn_file, path, error);
    }
}

/* On a stack of its own: a tick may come in any malloc of the program. */
void hak__learn_save(const struct learn_state *state)
{
    hak__own_stack_try(learn_save, (void *)(uintptr_t)state);
}
