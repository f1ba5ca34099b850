/* SPDX-License-Identifier: MIT */
/* producer_consumer.c: some threads allocate messages, others free them.
 *
 * Imitates: thread pools, pipelines, loggers and message passing, where an object ends its life in
 * another thread than it began. Each producer allocates MESSAGES messages of 16 to 527 bytes,
 * writes head and end and passes them on through a queue of its own, of QUEUE places. PATTERN:
 *   pairs        even threads produce, odd ones consume; for each message the consumer makes a
 *                result of the same size and frees it 16 messages later: both sides allocate
 *   silent       the same, but the consumer never allocates: what it frees is of no use to it and
 *                must find the way back to the producer
 *   many_to_one  thread 0 consumes, in turn from all the others, and never allocates
 *
 * A thread that has no partner (one thread, the last of an odd number of pairs) fills its own
 * queue and empties it. Each malloc and each free is one operation; the consumer checks contents.
 *
 * Does not show: what a message is for; the way through the queue is part of the figure and the
 * slower side sets it. A side that must wait calls sched_yield until it need not, so system time
 * counts waiting. With more threads than cores messages come in bursts of up to QUEUE.
 */
#include "ring.h"

#include <sched.h>

enum { PATTERN, MESSAGES, QUEUE, SEED, ARGUMENT_COUNT };
enum pattern { PAIRS, SILENT, MANY_TO_ONE };
enum { RESULT_COUNT = 16 };

struct message {
    uint32_t number;
    uint32_t text_size;
    unsigned char text[];
};

/* Where messages come from: `ring_count` rings, one after another; and what is made of them. */
struct consumer {
    struct ring *first;
    unsigned ring_count;
    struct message *results[RESULT_COUNT]; /* all NULL unless the consumer allocates */
    uint64_t received_count;
};

static const char *const pattern_words[] = {"pairs", "silent", "many_to_one", NULL};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(PATTERN, "who allocates and who frees", pattern_words, 0, 0),
    BENCH_COUNT(MESSAGES, "messages of each producer", 5000000, 20000, 1, UINT32_MAX),
    BENCH_COUNT(QUEUE, "messages that may wait for each producer", 1024, 1024, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("producer_consumer",
               "Producers allocate messages and queue them, consumers check and free them.");

static struct ring *rings; /* one for each thread, of those that produce */

BENCH_INLINE struct message *message_new(uint32_t number, uint32_t text_size,
                                         struct bench_latency *latency)
{
    struct message *message = bench_malloc(latency, sizeof *message + text_size);
    message->number = number;
    message->text_size = text_size;
    message->text[text_size - 1] = (unsigned char)number;
    return message;
}

BENCH_INLINE void message_receive(struct consumer *consumer, struct message *message,
                                  bool is_making, struct bench_latency *latency)
{
    if (message->text[message->text_size - 1] != (unsigned char)message->number) {
        bench_fail_run("a message has changed on its way.");
    }
    if (is_making) {
        struct message **place = &consumer->results[consumer->received_count % RESULT_COUNT];
        if (*place != NULL) {
            bench_free(latency, *place);
        }
        *place = message_new(message->number, message->text_size, latency);
    }
    bench_free(latency, message);
    consumer->received_count++;
}

/* Takes what is there, at most a queue full of each ring. False if nothing was. */
BENCH_INLINE bool consumer_poll(struct consumer *consumer, bool is_making,
                                struct bench_latency *latency)
{
    uint64_t before_count = consumer->received_count;
    for (unsigned i = 0; i < consumer->ring_count; i++) {
        struct message *message;
        for (uint64_t j = 0; j < arguments[QUEUE].value; j++) {
            message = ring_pop(&consumer->first[i]);
            if (message == NULL) {
                break;
            }
            message_receive(consumer, message, is_making, latency);
        }
    }
    return consumer->received_count != before_count;
}

BENCH_INLINE void consumer_run(struct consumer *consumer, bool is_making,
                               struct bench_latency *latency)
{
    uint64_t expected_count = arguments[MESSAGES].value * consumer->ring_count;
    while (consumer->received_count < expected_count) {
        if (!consumer_poll(consumer, is_making, latency)) {
            (void)sched_yield();
        }
    }
}

/* `alone` consumes what this thread produces, or is NULL. */
BENCH_INLINE void producer_run(struct bench_thread *thread, struct consumer *alone, bool is_making,
                               struct bench_latency *latency)
{
    struct ring *ring = &rings[thread->index];
    uint64_t message_count = arguments[MESSAGES].value;
    uint32_t state = thread->seed;
    for (uint64_t i = 0; i < message_count; i++) {
        uint32_t text_size = 8 + (bench_random(&state) & 0x1FF);
        struct message *message = message_new((uint32_t)i, text_size, latency);
        while (!ring_push(ring, message)) {
            if (alone == NULL) {
                (void)sched_yield();
            } else {
                (void)consumer_poll(alone, is_making, latency);
            }
        }
    }
    if (alone != NULL) {
        consumer_run(alone, is_making, latency);
    }
}

enum role { PRODUCER, CONSUMER, ALONE };

static enum role thread_role(unsigned index)
{
    unsigned count = bench_thread_count();
    if (count == 1) {
        return ALONE;
    }
    if (arguments[PATTERN].value == MANY_TO_ONE) {
        return index == 0 ? CONSUMER : PRODUCER;
    }
    return index % 2 == 1 ? CONSUMER : index + 1 < count ? PRODUCER : ALONE;
}

BENCH_INLINE void role_run(struct bench_thread *thread, bool is_making,
                           struct bench_latency *latency)
{
    enum role role = thread_role(thread->index);
    struct consumer consumer = {.first = &rings[thread->index], .ring_count = 1};
    if (role == CONSUMER && arguments[PATTERN].value == MANY_TO_ONE) {
        consumer.first = &rings[1];
        consumer.ring_count = bench_thread_count() - 1;
    } else if (role == CONSUMER) {
        consumer.first = &rings[thread->index - 1];
    }
    if (role == CONSUMER) {
        consumer_run(&consumer, is_making, latency);
    } else {
        producer_run(thread, role == ALONE ? &consumer : NULL, is_making, latency);
    }
    for (size_t i = 0; i < RESULT_COUNT; i++) {
        if (consumer.results[i] != NULL) {
            bench_free(latency, consumer.results[i]);
        }
    }
    thread->operations = (role == CONSUMER ? 0 : arguments[MESSAGES].value) +
                         consumer.received_count * (is_making ? 3 : 1);
}

static void role_measure(struct bench_thread *thread)
{
    bool is_making = arguments[PATTERN].value == PAIRS;
    if (thread->latency == NULL) {
        if (is_making) {
            role_run(thread, true, NULL);
        } else {
            role_run(thread, false, NULL);
        }
    } else {
        role_run(thread, is_making, thread->latency);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {NULL, role_measure, NULL};
    bench_start(&workload, argc, argv);
    rings = bench_map(bench_thread_count() * sizeof *rings);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        if (thread_role(i) != CONSUMER) {
            ring_open(&rings[i], (uint32_t)arguments[QUEUE].value);
        }
    }
    bench_run(&phases);
    bench_report();
    return 0;
}
