/* SPDX-License-Identifier: MIT */
/* measure_server.c: whether the measured program is a server that already accepts connections.
 *
 * Why: some load programs wait for ever for a server that is not there yet, so that it is not
 * enough to start them early and try again when they fail.
 *
 * The kernel's tables of sockets say which ones listen; the open files of the program and of all it
 * started say which ones are theirs.
 */
#include "measure.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TCP_LISTENING = 0x0A, UNIX_ACCEPTS = 0x10000, COUNT_AT_START = 64 };

static unsigned long *inodes; /* of all sockets that listen */
static size_t inode_count;
static size_t inode_room;

static void inode_add(unsigned long inode)
{
    if (inode_count == inode_room) {
        inode_room = inode_room == 0 ? COUNT_AT_START : inode_room * 2;
        inodes = realloc(inodes, inode_room * sizeof *inodes);
        if (inodes == NULL) {
            measure_fail(1, "no memory for a list of %zu sockets.", inode_room);
        }
    }
    inodes[inode_count++] = inode;
}

/* The word of a line with that index, or "". */
static const char *word_at(const char *line, unsigned index)
{
    const char *at = line + strspn(line, " ");
    for (; index > 0; index--) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return at;
}

/* Reads one table; the columns count from 0. */
static void table_read(pid_t program, const char *name, unsigned state_column,
                       unsigned inode_column, unsigned long state_mask, unsigned long state)
{
    char path[64];
    char line[512];
    FILE *file;
    (void)snprintf(path, sizeof path, "/proc/%d/net/%s", program, name);
    file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if ((strtoul(word_at(line, state_column), NULL, 16) & state_mask) == state) {
            inode_add(strtoul(word_at(line, inode_column), NULL, 10));
        }
    }
    (void)fclose(file);
}

static bool inode_listens(unsigned long inode)
{
    for (size_t i = 0; i < inode_count; i++) {
        if (inodes[i] == inode) {
            return true;
        }
    }
    return false;
}

static bool process_listens(pid_t pid)
{
    static const char prefix[] = "socket:[";
    char path[64];
    char target[64];
    struct dirent *entry;
    bool found = false;
    DIR *files;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    files = opendir(path);
    if (files == NULL) {
        return false;
    }
    while (!found && (entry = readdir(files)) != NULL) {
        ssize_t length = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strncmp(target, prefix, sizeof prefix - 1) == 0 &&
                inode_listens(strtoul(target + sizeof prefix - 1, NULL, 10));
    }
    (void)closedir(files);
    return found;
}

bool server_listens(pid_t program)
{
    struct memory_tree tree = memory_tree_list(program, 0);
    inode_count = 0;
    table_read(program, "tcp", 3, 9, ~0UL, TCP_LISTENING);
    table_read(program, "tcp6", 3, 9, ~0UL, TCP_LISTENING);
    table_read(program, "unix", 3, 6, UNIX_ACCEPTS, UNIX_ACCEPTS);
    for (size_t i = 0; inode_count > 0 && i < tree.count; i++) {
        if (process_listens(tree.pids[i])) {
            return true;
        }
    }
    return false;
}
