/* SPDX-License-Identifier: MIT */
/* sessions.c: bursts of short-lived objects, among them a few that live for many bursts.
 *
 * Imitates: a server that answers bursts of requests, and between them does little. Each burst
 * allocates BURST objects of 16 to 1,024 bytes for its requests and one session for each ONE_IN of
 * them, and then frees the requests in random order. Sessions are of the same sizes; KEPT of them
 * are live, and each new one replaces the oldest. After a burst come QUIET pauses of a millisecond,
 * and in each of them 64 objects are allocated and freed, so that free memory may go back to the
 * kernel. Each malloc and each free is one operation.
 *
 * Sessions are allocated in the scope of the site "sessions" (hakmem/site.h), requests in that of
 * "requests". With HAKMEM_LEARN=FILE, hakmem finds out which of them live long. Other allocators
 * get the same calls of malloc and free.
 *
 * Does not show: long-lived objects without a name. Sizes and shares are the project's own choice.
 */
#include "harness.h"

#include <hakmem/site.h>
#include <time.h>

/* NULL with other allocators, and in sessions_static of a library built from many files. */
#pragma weak hak_site_register
#pragma weak hak_site_enter
#pragma weak hak_site_leave

enum { BURSTS, BURST, QUIET, ONE_IN, KEPT, SEED, ARGUMENT_COUNT };
enum { BYTES_MIN = 16, BYTES_MAX = 1024, SLOTS = 64 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [BURSTS] = {.name = "BURSTS",
                .meaning = "bursts",
                .value = 12,
                .value_smoke = 3,
                .min = 1,
                .max = 1000000000},
    [BURST] = {.name = "BURST",
               .meaning = "objects of the requests of a burst",
               .value = 100000,
               .value_smoke = 12000,
               .min = 1,
               .max = 100000000},
    [QUIET] = {.name = "QUIET",
               .meaning = "milliseconds of pauses after each burst",
               .value = 250,
               .value_smoke = 20,
               .min = 0,
               .max = 1000000},
    [ONE_IN] = {.name = "ONE_IN",
                .meaning = "objects of requests for each session",
                .value = 120,
                .value_smoke = 120,
                .min = 1,
                .max = 100000000},
    [KEPT] = {.name = "KEPT",
              .meaning = "sessions that are live at the same time",
              .value = 5000,
              .value_smoke = 150,
              .min = 1,
              .max = 100000000},
    [SEED] = {.name = "SEED",
              .meaning = "start of the random numbers",
              .value = 42,
              .value_smoke = 42,
              .min = 1,
              .max = UINT32_MAX},
};

static const struct bench_workload workload = {
    .name = "sessions",
    .summary = "Bursts of short-lived objects with a few long-lived ones: does one hold its slab?",
    .arguments = arguments,
    .argument_count = ARGUMENT_COUNT,
};

static uintptr_t site_sessions, site_requests; /* 0: the allocator has no sites */

struct server {
    void **requests;       /* of the burst */
    void **sessions;       /* a ring */
    uint64_t sessions_put; /* so far */
    void *slots[SLOTS];
};

static uintptr_t scope_enter(uintptr_t site)
{
    return hak_site_enter != NULL ? hak_site_enter(site) : 0;
}

static void scope_leave(uintptr_t before)
{
    if (hak_site_leave != NULL) {
        hak_site_leave(before);
    }
}

static void server_map(struct bench_thread *thread)
{
    struct server *server = bench_map(sizeof *server);
    server->requests = bench_map(arguments[BURST].value * sizeof(void *));
    server->sessions = bench_map(arguments[KEPT].value * sizeof(void *));
    thread->data = server;
}

BENCH_INLINE void *object_allocate(uint32_t *state, struct bench_latency *latency)
{
    uint32_t size = BYTES_MIN + bench_random_below(state, BYTES_MAX - BYTES_MIN + 1);
    unsigned char *object = bench_malloc(latency, size);
    object[0] = object[size - 1] = (unsigned char)size;
    return object;
}

/* Returns the operations. */
BENCH_INLINE uint64_t session_begin(struct server *server, uint32_t *state,
                                    struct bench_latency *latency)
{
    void **session = &server->sessions[server->sessions_put++ % arguments[KEPT].value];
    uint64_t operations = *session != NULL ? 2 : 1;
    uintptr_t before = scope_enter(site_sessions);
    if (*session != NULL) {
        bench_free(latency, *session);
    }
    *session = object_allocate(state, latency);
    scope_leave(before);
    return operations;
}

/* Shuffled on the way: each goes to a random place, what was there to the end. */
BENCH_INLINE uint64_t burst_run(struct server *server, uint32_t *state,
                                struct bench_latency *latency)
{
    uint64_t count = arguments[BURST].value, operations = 2 * count;
    uintptr_t before = scope_enter(site_requests);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t other = bench_random_below(state, (uint32_t)i + 1);
        void *request = object_allocate(state, latency);
        server->requests[i] = server->requests[other];
        server->requests[other] = request;
        if (i % arguments[ONE_IN].value == 0) {
            operations += session_begin(server, state, latency);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        bench_free(latency, server->requests[i]);
    }
    scope_leave(before);
    return operations;
}

BENCH_INLINE uint64_t quiet_run(struct server *server, uint32_t *state,
                                struct bench_latency *latency)
{
    static const struct timespec pause = {0, 1000000};
    for (uint64_t i = 0; i < arguments[QUIET].value; i++) {
        nanosleep(&pause, NULL);
        for (uint64_t j = 0; j < SLOTS; j++) {
            server->slots[j] = object_allocate(state, latency);
        }
        for (uint64_t j = 0; j < SLOTS; j++) {
            bench_free(latency, server->slots[j]);
        }
    }
    return 2 * SLOTS * arguments[QUIET].value;
}

BENCH_INLINE void server_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct server *server = thread->data;
    uint32_t state = thread->seed;
    uint64_t operations = 0;
    for (uint64_t burst = 0; burst < arguments[BURSTS].value; burst++) {
        operations += burst_run(server, &state, latency);
        operations += quiet_run(server, &state, latency);
    }
    thread->operations = operations;
}

static void server_measure(struct bench_thread *thread)
{
    if (thread->latency == NULL) {
        server_run(thread, NULL);
    } else {
        server_run(thread, thread->latency);
    }
}

static void server_drain(struct bench_thread *thread)
{
    struct server *server = thread->data;
    for (uint64_t i = 0; i < arguments[KEPT].value; i++) {
        free(server->sessions[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {server_map, server_measure, server_drain};
    bench_start(&workload, argc, argv);
    if (hak_site_register != NULL) {
        site_sessions = hak_site_register("sessions");
        site_requests = hak_site_register("requests");
    }
    bench_run(&phases);
    bench_report();
    return 0;
}
