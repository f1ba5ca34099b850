/* SPDX-License-Identifier: MIT */
/* exit_file.h: a file that a process writes when it ends: the report, the heap profile, the heap
 * map. The option that names it may have %p, which becomes the process id, and %% for a percent
 * sign (core/options.h).
 *
 * A file that several processes may append to is opened at the start: at the end a server's worker
 * may have no right to open it. What is appended is collected and written at once, so that the
 * documents of several processes stay apart. One thread at a time uses a file. */
#ifndef HAK_CONTROL_EXIT_FILE_H
#define HAK_CONTROL_EXIT_FILE_H

#include "hakmem/stats.h"
#include "os/os.h"

/* Longest path: the option's value with process ids in it. Twice: more stack. */
#define EXIT_PATH_SIZE 1280u

struct exit_file {
    const char *const *name; /* the option's value; NULL: standard error */
    const char *what;        /* "report": for messages */
    void (*write)(hak_report_sink *sink, void *sink_argument); /* its document */
    bool replaces;       /* empties the file and opens it only at the end, instead of appending */
    bool stays;          /* a write leaves it open for the next one */
    struct os_kept kept; /* descriptor -1: not open */
    uint64_t process;    /* that opened it */
};

/* True if the name has %p: each process has a file of its own. NULL: false. */
HAK_HIDDEN bool hak__exit_file_varies(const char *name);
/* Opens it early, if it appends. Errors are noticed at the end. */
HAK_HIDDEN void hak__exit_file_open(struct exit_file *file);
/* Closes it, unless the program has closed it or uses its number. */
HAK_HIDDEN void hak__exit_file_close(struct exit_file *file);
/* Stores the path of this process's file. */
HAK_HIDDEN void hak__exit_file_path(const char *name, char path[EXIT_PATH_SIZE]);
/* Says on standard error why it could not be written. `error`: -errno. */
HAK_HIDDEN void hak__exit_file_complain(const char *what, const char *path, int error);
/* Writes the document, and closes the file unless it stays. False: not all is written, and standard
 * error says why. */
HAK_HIDDEN bool hak__exit_file_write(struct exit_file *file);

#endif
