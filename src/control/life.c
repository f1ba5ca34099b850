/* SPDX-License-Identifier: MIT */
/* life.c: what the loader calls: the library's first and last moments.
 *
 *   begin   Reads the options, for processes that allocated before the C library knew the
 *           environment. Registers the fork handlers: they must be the first in the process, so
 *           the library is linked with -z initfirst. Starts the scavenger and the observer, opens
 *           the report's file, and writes the line that says hakmem serves this process.
 *   end     At exit and quick_exit: what ending.h says. At _exit, override/next.c does the
 *           same.
 *
 * hakmem serves memory before begin and after end: it needs nothing from here for that. */
#include "control/life.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>

#include "arena/arena.h"
#include "base/alone.h"
#include "base/atomics.h"
#include "base/symbols.h"
#include "base/text.h"
#include "control/background.h"
#include "control/ending.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "os/os.h"

const bool hak__life_linked = true;

/* Weak: a static program may lack dlsym, and older C libraries have it in a library of their
 * own. */
#pragma weak dlsym

/* --- begin --- */

/* Of the object that this code is in. Weak: a static program has none. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak)); /* NOLINT(readability-redundant-declaration) */

/* True if dlclose never unloads that object: it is the program, which has a word for debuggers, or
 * it is marked so (-z nodelete). */
static bool life_stays(void)
{
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_DEBUG ||
            (entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & DF_1_NODELETE) != 0)) {
            return true;
        }
    }
    return _DYNAMIC == NULL;
}

struct life_search {
    uintptr_t address;
    const char *path; /* of the object that holds the address; "" for the program */
};

/* Callback of dl_iterate_phdr: 1, which ends the walk, at the object that holds the address. */
static int life_match_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct life_search *search = argument;
    (void)size;
    if (hak__symbols_segment(object, search->address) == NULL) {
        return 0;
    }
    search->path = object->dlpi_name;
    return 1;
}

/* The path of the object that this code is in: the library, the program, or a library that was
 * linked with the archive. */
static const char *life_own_path(void)
{
    struct life_search search = {(uintptr_t)&life_own_path, ""};
    dl_iterate_phdr(life_match_object, &search);
    return search.path;
}

typedef void *life_dlopen(const char *file, int mode);

/* Keeps a library that was linked with libhakmem.a loaded: blocks in use, and the function that
 * each thread calls at its end, must outlive any dlclose. dlopen is looked up by name, because a
 * linker warns of every static program that refers to it. */
static void life_stay(void)
{
    const char *path = life_stays() || dlsym == NULL ? "" : life_own_path();
    if (path[0] == '\0') {
        return;
    }
    life_dlopen *open = (life_dlopen *)(uintptr_t)dlsym(RTLD_DEFAULT, "dlopen");
    if (open != NULL) {
        open(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

static void life_announce(const char *own_path)
{
    /* The path that musl gives for a static program. */
    if (own_path[0] == '\0' || hak__text_equal(own_path, "/proc/self/exe")) {
        const char *program = hak__os_program();
        own_path = program != NULL ? program : "a program without a name";
    }
    DIAGNOSE_SAY(4096 + 128, "hakmem: %s serves process %u (profile %s) from %s", hak_version(),
                 hak__os_process_id(), hak__settings.profile, own_path); /* the longest path */
}

/* Removes HAKMEM_ANNOUNCE from the environment. The process id survives exec, and a script may exec
 * several programs: one line is enough. The program's children do not see the variable either. */
static void life_forget_announce(char **environment)
{
    const char *name = "HAKMEM_ANNOUNCE=";
    char **kept = environment;
    if (environment == NULL) {
        return;
    }
    for (char **string = environment; *string != NULL; string++) {
        if (hak__text_after(*string, name) == NULL) {
            *kept++ = *string;
        }
    }
    *kept = NULL;
}

/* 1: the process had several threads at its last fork; relaxed, because one thread alone, or the
 * child of the fork, cares. */
static uint32_t shared_life_threads;

static void life_fork_prepare(void)
{
    atomic_store_relaxed(&shared_life_threads, (uint32_t)!alone());
    hak__fork_prepare();
}

static void life_fork_child(void)
{
    if (HAK_SECURE) {
        hak__secure_fork_child(atomic_load_relaxed(&shared_life_threads) != 0);
    }
    hak__fork_child();
    hak__stacks_fork_child(atomic_load_relaxed(&shared_life_threads) != 0);
    hak__background_fork_child();
    hak__scavenger_start(); /* the first process has reported what it cannot do */
    if (atomic_load_relaxed(&hak__ending_wanted)) {
        hak__ending_note_process();
    }
    hak__observer_fork_child();
    hak__learn_fork_child();
    hak__last_report_fork_child();
}

/* quick_exit may be called in a signal handler, as _exit may. */
static void life_quick_end(void)
{
    if (hak__ending_take()) {
        hak__ending_write(true);
    }
}

/* 101 is the first priority that programs may use. Only glibc passes main's arguments. */
__attribute__((constructor(101))) static void life_begin(int argc, char **argv, char **handed)
{
    (void)argc;
    (void)argv;
    char **environment = hak__os_environment(handed);
    hak__start_read_options(environment);
    if (hak__settings.stats != STATS_NONE || hak__settings.profile_file != NULL ||
        hak__settings.heap_map_file != NULL) {
        hak__ending_want();
    }
    if (HAK_SECURE) {
        hak__secure_watch();
    }
    pthread_atfork(life_fork_prepare, hak__fork_parent, life_fork_child);
    const char *complaint = hak__scavenger_start();
    if (complaint != NULL) {
        hak__diagnose_warn(complaint, NULL);
    }
    hak__observer_begin();
    if (hak__ending_wanted) {
        (void)at_quick_exit(life_quick_end); /* registered first, so it runs last */
    }
    life_stay();
    hak__last_report_begin();
    if (hak__settings.announce_process != 0 &&
        hak__settings.announce_process == hak__os_process_id()) {
        life_announce(life_own_path());
        life_forget_announce(environment);
    }
}

/* --- end --- */

__attribute__((destructor)) static void life_end(void)
{
    if (atomic_load_relaxed(&hak__ending_wanted) && hak__ending_take()) {
        hak__ending_write(false);
    }
    if (HAK_SECURE) {
        hak__secure_look_at_end();
    }
}
