/* SPDX-License-Identifier: MIT */
/* program.h: a program of calls out of the bytes of an input.
 *
 * Three lanes; the second and third are served by threads of their own, which end and begin anew
 * when the input says so. One lane moves at a time: the same bytes make the same calls. What the
 * allocator kept from programs before is not the same; it is asked to give all of it back.
 */
#ifndef TESTS_MODEL_PROGRAM_H
#define TESTS_MODEL_PROGRAM_H

#include "lane.h"

#include <semaphore.h>

enum { PROGRAM_LANES = 3, PROGRAM_SLOTS = 16, PROGRAM_BYTES_MAX = 1 << 16 };

/* The thread of a lane: does a step when asked, until it shall end. */
struct servant {
    pthread_t thread;
    sem_t asked, done;
    bool alive, ends;
    struct lane *lane;
};

static struct servant
    servants[PROGRAM_LANES]; /* the first is not used: that lane is the caller's */

static void *servant_run(void *argument)
{
    struct servant *servant = argument;
    lane_current = servant->lane;
    for (bool ends = false; !ends;) {
        sem_wait(&servant->asked);
        ends = servant->ends;
        if (!ends) {
            lane_step(servant->lane);
        }
        sem_post(&servant->done);
    }
    return NULL;
}

static void servant_ask(struct servant *servant)
{
    if (!servant->alive) {
        servant->alive = true;
        servant->ends = false;
        REQUIRE(pthread_create(&servant->thread, NULL, servant_run, servant) == 0);
    }
    sem_post(&servant->asked);
    sem_wait(&servant->done);
}

static void servant_end(struct servant *servant)
{
    if (servant->alive) {
        servant->ends = true;
        servant_ask(servant);
        pthread_join(servant->thread, NULL);
        servant->alive = false;
    }
}

/* Once, before the first program. */
static void program_init(void)
{
    option_max_live = 64 * MIB;
    option_size_bits = 21;
    option_threads = PROGRAM_LANES;
    for (size_t i = 0; i < SHARED_SLOTS; i++) {
        pthread_mutex_init(&shared_slots[i].lock, NULL);
    }
    for (size_t i = 0; i < PROGRAM_LANES; i++) {
        lane_init(i, PROGRAM_SLOTS);
        servants[i].lane = &lanes[i];
        sem_init(&servants[i].asked, 0, 0);
        sem_init(&servants[i].done, 0, 0);
    }
}

/* Runs one program of at most PROGRAM_BYTES_MAX; a difference ends the process. */
static void program_run(const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, size};
    hak_trim(0);
    struct hak_stats before = stats_now();
    lane_current = &lanes[0];
    for (size_t i = 0; i < PROGRAM_LANES; i++) {
        lanes[i].draws = (struct draws){i, &input};
        lanes[i].shared_operation = 0;
        lanes[i].generation = 0;
    }
    uint64_t operation = 0;
    for (; input.left != 0; operation++) {
        size_t choice = input_take(&input, 1) % 16;
        size_t number = choice < 10 ? 0 : choice % 2 + 1;
        lanes[number].shared_operation = operation;
        if (number == 0) {
            lane_step(&lanes[0]);
        } else if (choice < 14) {
            servant_ask(&servants[number]);
        } else {
            servant_end(&servants[number]);
            lanes[number].generation++;
            lanes[number].doing = "its thread ends";
            lane_trace(&lanes[number], SIZE_MAX, NULL);
        }
    }
    for (size_t i = 1; i < PROGRAM_LANES; i++) {
        servant_end(&servants[i]);
    }
    lanes_end(PROGRAM_LANES, &before);
}

#endif
