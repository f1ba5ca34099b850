/* SPDX-License-Identifier: MIT */
/* plugin_fork.c: a library with thread-local memory that the loader allocates at a thread's first
 * use. It registers no fork handlers: glibc may call those of a library that was just unloaded. */
#define EXPORT __attribute__((visibility("default")))

EXPORT char *plugin_fork_touch(void);

static __thread char memory[3000];

EXPORT char *plugin_fork_touch(void)
{
    memory[0] = 1;
    return memory;
}
