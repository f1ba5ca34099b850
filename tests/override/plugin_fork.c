/* plugin_fork.c: a library that registers fork handlers as it is loaded, which go with it, and has
 * thread-local memory that the loader allocates at a thread's first use. */
#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT char *plugin_fork_touch(void);

static __thread char memory[3000];

static void nothing(void)
{
}

__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(nothing, nothing, nothing);
}

EXPORT char *plugin_fork_touch(void)
{
    memory[0] = 1;
    return memory;
}
