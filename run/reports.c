/* SPDX-License-Identifier: MIT */
/* reports.c: see launch.h. The library writes its reports when the program ends, perhaps in another
 * folder. So names become whole here, and what cannot be written is refused before the start. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

enum { MAP_NAME_SIZE = 1024 }; /* core/option_table.h: OPTION_VALUE_SIZE */

/* The name of the program's own report file: %p is its process id, which is this one's. */
static char *expand(const char *name, bool *has_pid)
{
    char *expanded = words_join("%s", "");
    *has_pid = false;
    while (*name != 0) {
        int length = (int)strcspn(name, "%");
        if (length != 0) {
            expanded = words_join("%s%.*s", expanded, length, name);
            name += length;
        } else if (name[1] == 'p') {
            expanded = words_join("%s%d", expanded, (int)getpid());
            *has_pid = true;
            name += 2;
        } else if (name[1] == '%') {
            expanded = words_join("%s%%", expanded);
            name += 2;
        } else {
            words_misuse(
                "in the name of a report file, %% needs a p behind it, for the process id, or "
                "another %%");
        }
    }
    return expanded;
}

/* The folder's own percent signs are none of the user's. */
static char *absolute_pattern(const char *name)
{
    char *folder, *pattern, *to;
    if (name[0] == '/') {
        return words_join("%s", name);
    }
    folder = words_absolute("");
    pattern = words_join("%s%s%s", folder, folder, name); /* long enough */
    to = pattern;
    for (const char *from = folder; *from != 0; from++) {
        *to++ = *from;
        if (*from == '%') {
            *to++ = '%';
        }
    }
    memmove(to, name, strlen(name) + 1);
    return pattern;
}

static bool is_own_output(const char *name)
{
    return strncmp(name, "/dev/std", 8) == 0 || strncmp(name, "/dev/fd/", 8) == 0 ||
           strncmp(name, "/proc/self/fd/", 14) == 0;
}

bool reports_set_file(const char *name)
{
    struct stat status;
    char *pattern, *expanded;
    bool has_pid;
    if (name[0] == 0) {
        words_misuse("--stats-file needs the name of a file");
    }
    pattern = absolute_pattern(name);
    expanded = expand(pattern, &has_pid);
    if (lstat(expanded, &status) == 0 && S_ISLNK(status.st_mode) && !is_own_output(expanded)) {
        words_refuse("cannot write the report to %s: it is a symbolic link", expanded);
    }
    /* Not a pipe: its reader would take this for the end. */
    if (stat(expanded, &status) != 0 || !S_ISFIFO(status.st_mode)) {
        int descriptor = open(expanded, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
        if (descriptor < 0) {
            words_refuse("cannot write the report to %s: %s", expanded, strerror(errno));
        }
        close(descriptor);
    }
    settings_add("stats_file", pattern);
    return has_pid;
}

void reports_set_heap_map(const char *name)
{
    struct stat status;
    char *file, *folder, *last;
    bool is_there;
    if (name[0] == 0) {
        words_misuse("--heap-map needs the name of a file");
    }
    file = words_absolute(name);
    folder = words_join("%s", file);
    last = strrchr(folder, '/');
    last[1] = 0;
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
        words_refuse("cannot write the heap map to %s: there is no such directory", file);
    }
    is_there = stat(file, &status) == 0;
    if (is_there && S_ISDIR(status.st_mode)) {
        words_refuse("cannot write the heap map to %s: it is a directory", file);
    }
    if (euidaccess(is_there ? file : folder, W_OK) != 0) {
        words_refuse("cannot write the heap map to %s: permission denied", file);
    }
    if (strlen(file) >= MAP_NAME_SIZE) {
        words_refuse("the name of the heap map must be shorter than %d bytes", MAP_NAME_SIZE);
    }
    setenv("HAKMEM_HEAP_MAP_FILE", file, 1);
}
