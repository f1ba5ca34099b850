/* SPDX-License-Identifier: MIT */
/* load.c: loads one server on 127.0.0.1 and prints one line of JSON about the answers.
 *
 *   load PROTOCOL PORT [OPTIONS] PHASE...
 *
 *   PROTOCOL            redis, memcached, http, mqtt, dns, pgsql or mysql
 *   PHASE               NAME:closed:SECONDS        each connection asks again when it is answered
 *                       NAME:open:SECONDS:RATE     requests come at drawn moments, RATE a second
 *                       NAME:quiet:SECONDS         nothing comes
 *   --seed N            of the moments and of what is asked (1)
 *   --connections N     (16); --burst-connections N  in phases whose name is "burst" (64)
 *   --keys N            numbers that requests are about (20000)
 *   --target TEXT       path or query; {n} becomes a number; may be repeated
 *   --burst-target TEXT of phases whose name is "burst"
 *   --ready-s N         how long the server may take to accept a connection (30)
 *   --plan              prints the moments of each phase instead, nanoseconds from its start
 *
 * Open phases have no coordinated omission: the moments are drawn before, by the seed alone, as a
 * Poisson process; a request whose moment comes while all connections are busy waits, and its
 * latency counts from its moment. A phase ends when all its requests are answered.
 *
 * Exit status: 0 the line was printed, 1 it was not possible to load the server, 2 usage. More than
 * one error in a hundred answers is no load.
 */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

enum {
    CONNECTIONS_MAX = 1024,
    PHASES_MAX = 32,
    RETRY_MS = 20,
    ANSWER_S = 20, /* no answer for so long: the server hangs */
    /* Latencies are counted in steps of 1/32 of a power of two, so a quantile is 3 % exact. */
    STEPS = 32,
    STEP_BITS = 5,
    BUCKETS = 64 * STEPS
};

enum phase_kind { CLOSED, OPEN, QUIET };

struct phase {
    char name[16];
    enum phase_kind kind;
    double seconds;
    double rate;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t requests;
    uint64_t errors;
    uint64_t worst_ns;
    uint64_t buckets[BUCKETS];
};

struct connection {
    int socket; /* -1: closed */
    bool is_busy;
    uint64_t planned_ns;
    size_t length;
    char *answer;
};

static const struct protocol *protocol;
static in_port_t port;
static struct recipe steady = {.keys = 20000};
static struct recipe burst = {.keys = 20000, .is_burst = true};
static uint64_t seed = 1;
static uint64_t connections_steady = 16;
static uint64_t connections_burst = 64;
static uint64_t ready_s = 30;
static bool is_plan;
static struct phase phases[PHASES_MAX];
static size_t phase_count;
static struct connection connections[CONNECTIONS_MAX];
static struct pollfd polls[CONNECTIONS_MAX];

void load_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("load: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputs("\n", stderr);
    va_end(arguments);
    exit(1);
}

static _Noreturn void usage(const char *what)
{
    (void)fprintf(stderr, "load: %s; the call is in the first lines of lab/load.c.\n", what);
    exit(2);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t draw_next(struct draw *draw)
{
    uint64_t mixed = draw->state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ mixed >> 31;
}

uint32_t draw_below(struct draw *draw, uint32_t count)
{
    return (uint32_t)((draw_next(draw) >> 32) * count >> 32);
}

/* The time between two requests of a Poisson process. */
static uint64_t draw_gap_ns(struct draw *draw, double rate)
{
    double uniform = (double)(draw_next(draw) >> 11) * 0x1p-53;
    return (uint64_t)(-log1p(-uniform) / rate * (double)SECOND);
}

/* Moments do not depend on what is asked, so they have a generator of their own for each phase. */
static struct draw moments_of(size_t phase)
{
    struct draw draw = {.state = seed * 1000 + phase};
    return (struct draw){.state = draw_next(&draw)};
}

/* ---- Connections. ---- */

/* The socket, or -1. */
static int connect_once(unsigned number)
{
    static const struct timeval limit = {.tv_sec = ANSWER_S};
    static const int one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int file =
        socket(AF_INET, (protocol->is_datagram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    if (file < 0) {
        load_fail("cannot make a socket: %s.", strerror(errno));
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!protocol->is_datagram) {
        (void)setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (connect(file, (struct sockaddr *)&address, sizeof address) != 0 ||
        (protocol->greet != NULL && !protocol->greet(file, number))) {
        (void)close(file);
        return -1;
    }
    return file;
}

static bool connection_open(unsigned number)
{
    struct connection *connection = &connections[number];
    if (connection->answer == NULL && (connection->answer = malloc(LOAD_ANSWER_MAX)) == NULL) {
        load_fail("no memory for %u connections.", number);
    }
    connection->is_busy = false;
    connection->socket = connect_once(number);
    return connection->socket >= 0;
}

static void connection_close(unsigned number)
{
    if (connections[number].socket >= 0) {
        (void)close(connections[number].socket);
    }
    connections[number].socket = -1;
    connections[number].is_busy = false;
}

static void answer_count(struct phase *phase, uint64_t latency_ns)
{
    unsigned bucket = (unsigned)latency_ns;
    if (latency_ns >= STEPS) {
        unsigned shift = 63U - (unsigned)__builtin_clzll(latency_ns) - STEP_BITS;
        bucket = (shift + 1) * STEPS + ((unsigned)(latency_ns >> shift) & (STEPS - 1));
    }
    phase->buckets[bucket]++;
    phase->requests++;
    phase->worst_ns = latency_ns > phase->worst_ns ? latency_ns : phase->worst_ns;
}

/* The largest latency that is counted in this bucket. */
static uint64_t bucket_end_ns(unsigned bucket)
{
    unsigned shift = bucket / STEPS;
    if (shift == 0) {
        return bucket;
    }
    return (((uint64_t)STEPS + bucket % STEPS + 1) << (shift - 1)) - 1;
}

static void request_send(unsigned number, struct phase *phase, uint64_t planned_ns,
                         struct draw *draw)
{
    static char request[LOAD_REQUEST_MAX];
    struct connection *connection = &connections[number];
    bool is_burst = strcmp(phase->name, "burst") == 0;
    size_t length = protocol->ask(request, is_burst ? &burst : &steady, draw);
    /* A server may close what was idle: once anew. */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (connection->socket < 0 && !connection_open(number)) {
            break;
        }
        if (send(connection->socket, request, length, MSG_NOSIGNAL) == (ssize_t)length) {
            connection->planned_ns = planned_ns;
            connection->length = 0;
            connection->is_busy = true;
            return;
        }
        connection_close(number);
    }
    phase->errors++;
}

/* What came on a connection. */
static void answer_read(unsigned number, struct phase *phase)
{
    struct connection *connection = &connections[number];
    ssize_t count = recv(connection->socket, connection->answer + connection->length,
                         LOAD_ANSWER_MAX - connection->length, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (!connection->is_busy || count <= 0) {
        phase->errors += connection->is_busy;
        connection_close(number); /* the server closed it */
        return;
    }
    connection->length += (size_t)count;
    int verdict = protocol->judge(connection->answer, connection->length);
    if (verdict == 0 && connection->length < LOAD_ANSWER_MAX) {
        return;
    }
    connection->is_busy = false;
    if (verdict > 0) {
        uint64_t answered_ns = now_ns();
        answer_count(
            phase, answered_ns > connection->planned_ns ? answered_ns - connection->planned_ns : 0);
    } else {
        phase->errors++;
    }
    if (verdict != 1) {
        connection_close(number);
    }
}

/* ---- Phases. ---- */

/* Waits for answers, at most until a moment; the number of connections that still wait. */
static unsigned answers_await(unsigned count, struct phase *phase, uint64_t until_ns)
{
    unsigned busy = 0;
    for (unsigned i = 0; i < count; i++) {
        polls[i] = (struct pollfd){connections[i].socket, POLLIN, 0};
    }
    uint64_t now = now_ns();
    uint64_t pause_ns = until_ns > now ? until_ns - now : 0;
    const struct timespec pause = {(time_t)(pause_ns / SECOND), (long)(pause_ns % SECOND)};
    if (ppoll(polls, count, &pause, NULL) > 0) {
        for (unsigned i = 0; i < count; i++) {
            if (polls[i].revents != 0) {
                answer_read(i, phase);
            }
        }
    }
    for (unsigned i = 0; i < count; i++) {
        busy += connections[i].is_busy;
    }
    return busy;
}

/* Until the server answers a whole request: some listen before they can. */
static void server_await(struct draw *draw)
{
    static struct phase trial;
    const struct timespec pause = {0, RETRY_MS * 1000000L};
    uint64_t deadline_ns = now_ns() + ready_s * SECOND;
    while (trial.requests == 0) {
        if (now_ns() > deadline_ns) {
            load_fail("the server does not answer well within %llu s.",
                      (unsigned long long)ready_s);
        }
        request_send(0, &trial, now_ns(), draw);
        while (answers_await(1, &trial, now_ns() + SECOND) != 0 && now_ns() <= deadline_ns) {
        }
        connection_close(0);
        if (trial.requests == 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
}

/* A connection that may ask, or `count`; they take turns, as those of a pool do. */
static unsigned idle_find(unsigned count)
{
    static unsigned last;
    for (unsigned i = 1; i <= count; i++) {
        unsigned number = (last + i) % count;
        if (!connections[number].is_busy) {
            return last = number;
        }
    }
    return count;
}

static void phase_run(size_t index, struct draw *draw)
{
    struct phase *phase = &phases[index];
    struct draw moments = moments_of(index);
    unsigned count =
        (unsigned)(strcmp(phase->name, "burst") == 0 ? connections_burst : connections_steady);
    phase->start_ns = now_ns();
    uint64_t end_ns = phase->start_ns + (uint64_t)(phase->seconds * (double)SECOND);
    uint64_t next_ns = phase->start_ns;
    uint64_t answered_ns = phase->start_ns;
    uint64_t answered = 0;
    unsigned busy = 0;
    if (phase->kind == OPEN) {
        next_ns += draw_gap_ns(&moments, phase->rate);
    }
    for (;;) {
        uint64_t now = now_ns();
        bool is_more =
            phase->kind == OPEN ? next_ns < end_ns : phase->kind == CLOSED && now < end_ns;
        unsigned number = count;
        while (is_more && (phase->kind == CLOSED || next_ns <= now) &&
               (number = idle_find(count)) < count) {
            request_send(number, phase, phase->kind == OPEN ? next_ns : now_ns(), draw);
            next_ns += phase->kind == OPEN ? draw_gap_ns(&moments, phase->rate) : 0;
            is_more = phase->kind != OPEN || next_ns < end_ns;
        }
        if (!is_more && busy == 0 && now >= end_ns && idle_find(count) < count) {
            break;
        }
        uint64_t until_ns = now + SECOND;
        if (is_more && phase->kind == OPEN && next_ns > now && next_ns < until_ns) {
            until_ns = next_ns;
        } else if (now < end_ns && end_ns < until_ns) {
            until_ns = end_ns;
        }
        busy = answers_await(count, phase, until_ns);
        if (phase->requests != answered || busy == 0) {
            answered = phase->requests;
            answered_ns = now_ns();
        } else if (now_ns() - answered_ns > ANSWER_S * SECOND) {
            load_fail("the server has not answered for %d s in phase %s.", ANSWER_S, phase->name);
        }
        if (phase->errors > 100 && phase->errors > phase->requests / 100) {
            load_fail("%llu of %llu answers in phase %s are errors.",
                      (unsigned long long)phase->errors,
                      (unsigned long long)(phase->errors + phase->requests), phase->name);
        }
    }
    phase->end_ns = now_ns();
    for (unsigned i = (unsigned)connections_steady; i < count; i++) {
        connection_close(i);
    }
}

static void phase_print(const struct phase *phase, bool is_first)
{
    const char *comma = "";
    (void)printf("%s{\"name\":\"%s\",\"start_ns\":%llu,\"end_ns\":%llu,\"requests\":%llu,"
                 "\"errors\":%llu,\"worst_ns\":%llu,\"latencies\":[",
                 is_first ? "" : ",", phase->name, (unsigned long long)phase->start_ns,
                 (unsigned long long)phase->end_ns, (unsigned long long)phase->requests,
                 (unsigned long long)phase->errors, (unsigned long long)phase->worst_ns);
    for (unsigned i = 0; i < BUCKETS; i++) {
        if (phase->buckets[i] != 0) {
            (void)printf("%s[%llu,%llu]", comma, (unsigned long long)bucket_end_ns(i),
                         (unsigned long long)phase->buckets[i]);
            comma = ",";
        }
    }
    (void)fputs("]}", stdout);
}

static void plan_print(void)
{
    (void)fputs("{\"plan\":[", stdout);
    for (size_t i = 0; i < phase_count; i++) {
        struct draw moments = moments_of(i);
        double end_ns = phases[i].seconds * (double)SECOND;
        uint64_t at_ns = 0;
        const char *comma = "";
        (void)printf("%s[", i == 0 ? "" : ",");
        while (phases[i].kind == OPEN &&
               (double)(at_ns += draw_gap_ns(&moments, phases[i].rate)) < end_ns) {
            (void)printf("%s%llu", comma, (unsigned long long)at_ns);
            comma = ",";
        }
        (void)fputs("]", stdout);
    }
    (void)fputs("]}\n", stdout);
}

/* ---- The command line. ---- */

static double number_read(const char *text, double least, double most)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= least && number <= most)) {
        (void)fprintf(stderr, "load: '%s' is not a number from %g to %g.\n", text, least, most);
        exit(2);
    }
    return number;
}

static void phase_read(char *text)
{
    char *words[4] = {NULL};
    size_t count = 0;
    for (char *word = strtok(text, ":"); word != NULL && count < 4; word = strtok(NULL, ":")) {
        words[count++] = word;
    }
    if (phase_count == PHASES_MAX || count < 3 || strlen(words[0]) >= sizeof phases->name) {
        usage("a phase is NAME:closed:SECONDS, NAME:open:SECONDS:RATE or NAME:quiet:SECONDS");
    }
    struct phase *phase = &phases[phase_count++];
    (void)strcpy(phase->name, words[0]);
    phase->seconds = number_read(words[2], 0.001, 1e6);
    if (strcmp(words[1], "open") == 0 && count == 4) {
        phase->kind = OPEN;
        phase->rate = number_read(words[3], 0.001, 1e7);
    } else if (strcmp(words[1], "closed") == 0 && count == 3) {
        phase->kind = CLOSED;
    } else if (strcmp(words[1], "quiet") == 0 && count == 3) {
        phase->kind = QUIET;
    } else {
        usage("a phase is NAME:closed:SECONDS, NAME:open:SECONDS:RATE or NAME:quiet:SECONDS");
    }
}

static void target_add(struct recipe *recipe, const char *text)
{
    if (recipe->target_count == LOAD_TARGETS_MAX) {
        usage("there are too many targets");
    }
    recipe->targets[recipe->target_count++] = text;
}

static void option_read(const char *name, char *value)
{
    static const struct {
        const char *name;
        uint64_t *number;
        double most;
        struct recipe *targets;
    } options[] = {
        {"--seed", &seed, 1e15, NULL},
        {"--connections", &connections_steady, CONNECTIONS_MAX, NULL},
        {"--burst-connections", &connections_burst, CONNECTIONS_MAX, NULL},
        {"--keys", &steady.keys, 1e9, NULL},
        {"--ready-s", &ready_s, 1e6, NULL},
        {"--target", NULL, 0, &steady},
        {"--burst-target", NULL, 0, &burst},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strcmp(name, options[i].name) == 0 && options[i].number != NULL) {
            *options[i].number = (uint64_t)number_read(value, i == 0 ? 0 : 1, options[i].most);
            return;
        }
        if (strcmp(name, options[i].name) == 0) {
            target_add(options[i].targets, value);
            return;
        }
    }
    usage("there is an unknown option");
}

int main(int argc, char **argv)
{
    struct draw draw;
    if (argc < 3 || (protocol = protocol_find(argv[1])) == NULL) {
        usage("the first two words are a protocol and a port");
    }
    port = (in_port_t)number_read(argv[2], 1, 65535);
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--plan") == 0) {
            is_plan = true;
        } else if (argv[i][0] != '-') {
            phase_read(argv[i]);
        } else if (i + 1 < argc) {
            option_read(argv[i], argv[i + 1]);
            i++;
        } else {
            usage("an option has no value");
        }
    }
    if (phase_count == 0) {
        usage("there is no phase");
    }
    if (steady.target_count == 0) {
        target_add(&steady, "/");
    }
    burst.keys = steady.keys;
    if (burst.target_count == 0) {
        memcpy(burst.targets, steady.targets, sizeof burst.targets);
        burst.target_count = steady.target_count;
    }
    if (is_plan) {
        plan_print();
        return 0;
    }
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        connections[i].socket = -1;
    }
    draw.state = seed;
    server_await(&draw);
    for (size_t i = 0; i < phase_count; i++) {
        phase_run(i, &draw);
    }
    (void)fputs("{\"phases\":[", stdout);
    for (size_t i = 0; i < phase_count; i++) {
        phase_print(&phases[i], i == 0);
    }
    (void)fputs("]}\n", stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
