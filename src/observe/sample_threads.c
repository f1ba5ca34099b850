/* SPDX-License-Identifier: MIT */
/* sample_threads.c: see sample_threads.h. */
#include "observe/sample_threads.h"

#include "heap/heap.h"
#include "os/os.h"

/* [SAMPLE_THREADS_MAX], by number - 1; NULL: not mapped yet. */
static struct sample_thread *sample_threads;

uint32_t hak__sample_thread_note(uint32_t number)
{
    if (number > SAMPLE_THREADS_MAX) {
        return 0;
    }
    if (sample_threads == NULL) {
        sample_threads = hak__metadata_allocate(SAMPLE_THREADS_MAX * sizeof *sample_threads);
        if (sample_threads == NULL) {
            return 0;
        }
    }
    /* A thread may get its name late, and another id in the child of a fork. */
    struct sample_thread *thread = &sample_threads[number - 1];
    thread->id = hak__os_thread_id();
    hak__os_thread_name(thread->name);
    return number;
}

const struct sample_thread *hak__sample_thread_of(uint32_t number)
{
    bool known = sample_threads != NULL && number != 0 && number <= SAMPLE_THREADS_MAX &&
                 sample_threads[number - 1].id != 0;
    return known ? &sample_threads[number - 1] : NULL;
}
