/* SPDX-License-Identifier: MIT */
/* ending.c: see ending.h. */
#include "control/ending.h"

#include <pthread.h>

#include "base/atomics.h"
#include "control/background.h"
#include "control/life.h"
#include "core/gate.h"
#include "os/os.h"

enum ending_state { ENDING_NONE, ENDING_BEGUN, ENDING_DONE };

bool hak__ending_wanted;

static struct {
    uint32_t process;       /* process id; 0: the library has not begun */
    uint32_t shared_state;  /* enum ending_state; threads sleep on it */
    uintptr_t shared_owner; /* the thread that writes: the address of its hak__inside */
} ending;

void hak__ending_want(void)
{
    if (!atomic_load_relaxed(&hak__ending_wanted)) {
        hak__ending_note_process();
        atomic_store_relaxed(&hak__ending_wanted, true);
    }
}

void hak__ending_note_process(void)
{
    ending.process = hak__os_process_id();
    atomic_store_relaxed(&ending.shared_state, (uint32_t)ENDING_NONE);
}

/* A signal handler that ends the process may have interrupted the thread that writes: that thread
 * does not wait for itself. */
static void ending_wait(void)
{
    uint32_t began_ms = hak__os_clock_ms();
    /* Milliseconds that a second thread waits for the thread that writes. Twice: a process whose
     * report hangs, as on a pipe that nobody reads, lives that much longer. Half: a report on a
     * slow disk may be cut. */
    while (atomic_load_relaxed(&ending.shared_owner) != (uintptr_t)&hak__inside &&
           atomic_load_relaxed(&ending.shared_state) == ENDING_BEGUN &&
           hak__os_clock_ms() - began_ms < 2 * BACKGROUND_WAIT_MS) {
        hak__os_wait_ms(&ending.shared_state, ENDING_BEGUN, 2 * BACKGROUND_WAIT_MS);
    }
}

bool hak__ending_take(void)
{
    uint32_t none = ENDING_NONE;
    int before;
    if (ending.process != hak__os_process_id()) {
        return false;
    }
    if (!atomic_cas_acquire(&ending.shared_state, &none, (uint32_t)ENDING_BEGUN)) {
        ending_wait();
        return false;
    }
    atomic_store_relaxed(&ending.shared_owner, (uintptr_t)&hak__inside);
    /* Writing opens files, where a cancelled thread would end instead of the process. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return true;
}

void hak__ending_write(bool soon)
{
    if (soon) {
        hak__own.hurry = GATE_HURRY;
    }
    hak__last_report_at_end();
    hak__observer_end();
    atomic_store_release(&ending.shared_state, (uint32_t)ENDING_DONE); /* pairs with nothing */
    hak__os_wake_all(&ending.shared_state);
}

void hak__ending_by_signal(void)
{
    if (hak__ending_take()) {
        hak__own.hurry = GATE_HURRY;
        hak__last_report_at_end();
        hak__own.hurry = 0;
        hak__ending_note_process(); /* process 1 of a container may live on */
    }
}
