/* SPDX-License-Identifier: MIT */
/* fuzz_events.c: whole traces of unusual events. A file that is changed anywhere does not match its
 * checksums, so nothing behind the decoder sees it; these are made by the encoder, and all are
 * accepted. Each is read by every command of the tool and replayed.
 *
 *   fuzz_events TRACER SEED FILES
 *
 * What is unusual: addresses that many blocks share, calls that are missing, stamps that are equal
 * or go back, blocks that change threads and lanes, events that no allocator would allow, and
 * frames whose headers say what their events do not. Half of the files are such as a program could
 * leave (`orderly`), so that replays do their calls. A command must end by itself, with a status
 * that the tool has, and not by a signal. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/decode.h"
#include "trace/encode.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum { LANES = 5, THREADS = 9, EVENTS = 300, BLOCKS = 40, SECONDS_MAX = 60 };

static struct encoder encoder;
static struct trace_event events[TRACE_EVENTS_MAX];
static uint64_t random_state, stamp_now;
static int output;

static uint64_t draw(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 20) % limit;
}

static void put(const void *bytes, size_t length)
{
    if (write(output, bytes, length) != (ssize_t)length) {
        perror("fuzz_events");
        exit(2);
    }
}

static uint64_t draw_size(bool absurd)
{
    switch (draw(absurd ? 7 : 5)) {
    case 0:
        return 0;
    case 1:
        return TRACE_LARGE_MIN - 1 + draw(3);
    case 2:
        return draw(3 * TRACE_LARGE_MIN);
    case 5:
        return TRACE_SIZE_MAX;
    case 6:
        return UINT64_C(1) << (45 + draw(2));
    default:
        return draw(400);
    }
}

/* Any event at all; `absurd`: also of a size or alignment that no memory has. */
static void draw_wild(struct trace_event *event, bool absurd)
{
    static const uint64_t places[] = {0, 1, 16, UINT64_C(0x7f0000000000), UINT64_MAX};
    unsigned kind = (unsigned)draw(KIND_COUNT);
    event->address = places[draw(5)] + (draw(3) == 0 ? 0 : 16 * draw(BLOCKS));
    event->size = kind == KIND_THREAD ? 1 + draw(THREADS) : draw_size(absurd);
    event->size = trace_has_size(kind) ? event->size : 0;
    event->shape = trace_shape(draw(8) == 0 ? 0 : UINT64_C(0x550000000000) + draw(300), kind,
                               (unsigned)(absurd ? draw(64) : 4 + draw(9)));
}

/* --- what a program could do --- */

static struct {
    unsigned birth; /* its kind */
    bool lives;
} blocks[BLOCKS];

static unsigned end_of(unsigned birth)
{
    static const unsigned of_new[] = {KIND_DELETE, KIND_DELETE_SIZED};
    static const unsigned of_malloc[] = {KIND_FREE, KIND_FREE_SIZED};
    return birth == KIND_NEW || birth == KIND_NEW_ARRAY ? of_new[draw(2)] : of_malloc[draw(2)];
}

/* One call as one to three events. Returns their number. */
static uint32_t draw_call(struct trace_event *made)
{
    uint32_t number = (uint32_t)draw(BLOCKS), count = 0;
    uint64_t address = UINT64_C(0x7f0000000000) + 4096 * number, size = draw_size(false);
    uint64_t site = UINT64_C(0x550000000000) + draw(300);
    unsigned birth = (unsigned)draw(KIND_REALLOC), what = (unsigned)draw(8);
    if (!blocks[number].lives) {
        blocks[number].lives = what != 0; /* else it failed */
        blocks[number].birth = birth;
        made[count++] =
            (struct trace_event){.address = what != 0 ? address : 0,
                                 .size = size,
                                 .shape = trace_shape(site, birth, 4 + (unsigned)draw(8))};
        return count;
    }
    if (draw(2) == 0) {
        made[count++] = (struct trace_event){
            .address = address, .size = draw_size(false), .shape = trace_shape(0, KIND_TOUCHED, 0)};
    }
    if (what < 4 && end_of(blocks[number].birth) < KIND_DELETE) { /* a resize */
        made[count++] =
            (struct trace_event){.address = address, .shape = trace_shape(0, KIND_REALLOC_FROM, 0)};
        blocks[number].lives = what != 1 || size != 0;
        made[count++] = (struct trace_event){.address = what != 1 ? address : 0,
                                             .size = size,
                                             .shape = trace_shape(site, KIND_REALLOC, 0)};
        return count;
    }
    blocks[number].lives = false;
    made[count++] =
        (struct trace_event){.address = draw(20) == 0 ? 0 : address,
                             .shape = trace_shape(site, end_of(blocks[number].birth), 0)};
    return count;
}

/* --- files --- */

static void put_events(bool orderly, uint32_t lane, uint32_t count)
{
    uint32_t unstamped = (uint32_t)(draw(4) == 0 ? draw(count + 1) : 0), made = 0, thread = lane;
    struct trace_frame given = {.lane = lane,
                                .thread = orderly ? lane : 1 + (uint32_t)draw(THREADS),
                                .threads = THREADS,
                                .missed = (uint32_t)draw(3),
                                .ms = (uint32_t)(stamp_now / (1 + draw(3))),
                                .stamp = draw(3) == 0 ? 0 : stamp_now + draw(3),
                                .resident = draw(2) * draw(UINT64_C(1) << 60)};
    unstamped = orderly ? 0 : unstamped;
    bool absurd = draw(4) == 0;
    while (made < count) {
        uint32_t more = 1;
        if (!orderly) {
            draw_wild(&events[made], absurd);
        } else if (draw(30) == 0) {
            thread = lane + LANES <= THREADS && thread == lane ? lane + LANES : lane;
            events[made] =
                (struct trace_event){.size = thread, .shape = trace_shape(0, KIND_THREAD, 0)};
        } else {
            more = draw_call(&events[made]);
        }
        for (uint32_t i = 0; i < more; i++, made++) {
            if (!orderly && draw(100) == 0) {
                stamp_now = draw(2) == 0 ? UINT64_MAX - draw(1000) : draw(1000);
            }
            stamp_now += draw(orderly ? 3 : 2) == 0 ? draw(1000) : orderly;
            events[made].stamp = made < unstamped ? 0 : stamp_now;
        }
    }
    encode_events(&encoder, events, made, &given);
    struct trace_frame *frame = (void *)encoder.output;
    if (!orderly && draw(3) == 0) { /* a header that says something else */
        frame->calls = draw(2) == 0 ? UINT32_MAX : 0;
        frame->first_stamp = draw(2) == 0 ? UINT64_MAX - draw(1000) : draw(10);
        frame->ms = draw(2) == 0 ? UINT32_MAX : 0;
        frame->checksum = 0;
        frame->checksum = trace_checksum(trace_checksum(0, frame, sizeof *frame), frame + 1,
                                         frame->payload_bytes);
    }
    put(encoder.output, sizeof *frame + frame->payload_bytes);
}

static void put_modules(void)
{
    static const char *const texts[] = {
        "550000000000-550000001000 0 /bin/test\nbuild-id 0123456789abcdef /bin/test\n",
        "550000000000-550000001000 ffffffffffffffff /bin/other\n",
        "0-ffffffffffffffff 0 /\n",
        "550000001000-550000000000 0 /bin/\"\\\x1b[2J\n",
        "build-id  /bin/test\nbuild-id /\n\n/\n",
        "550000000000-550000000100 0 /no end of line"};
    const char *text = texts[draw(6)];
    put(encoder.output, encode_frame(&encoder, FRAME_MODULES, text, (uint32_t)strlen(text)));
}

/* True: it is orderly. */
static bool make_file(void)
{
    bool orderly = draw(2) == 0;
    struct trace_header header = {.version = TRACE_VERSION,
                                  .header_bytes = sizeof header,
                                  .pid = draw(3),
                                  .forked_from = draw(3),
                                  .program = "\x1b\"\\",
                                  .stopped_by = (uint32_t)draw(3) * 1000};
    struct trace_end end = {.threads = draw(3), .peak_resident = draw(2) * UINT64_MAX};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    memset(blocks, 0, sizeof blocks);
    stamp_now = draw(2);
    if (ftruncate(output, 0) != 0 || lseek(output, 0, SEEK_SET) != 0) {
        perror("fuzz_events");
        exit(2);
    }
    put(&header, sizeof header);
    for (uint64_t i = 1 + draw(8); i > 0; i--) {
        if (draw(4) == 0) {
            put_modules();
        }
        put_events(orderly, 1 + (uint32_t)draw(LANES), 1 + (uint32_t)draw(EVENTS));
    }
    if (draw(2) == 0) {
        put(encoder.output, encode_frame(&encoder, FRAME_END, &end, sizeof end));
    }
    return orderly;
}

/* --- commands --- */

/* Returns its status. A signal, or another status than the tool has, is the end. */
static int run_tracer(const char *tracer, const char *verb, const char *name, uint64_t seed)
{
    static char empty[] = "";
    char *words[] = {(char *)(uintptr_t)tracer,
                     (char *)(uintptr_t)verb,
                     (char *)(uintptr_t)name,
                     strcmp(verb, "replay") == 0 ? "1" : NULL,
                     "libc",
                     empty,
                     empty,
                     NULL};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int nothing = open("/dev/null", O_RDWR);
        alarm(SECONDS_MAX);
        if (nothing < 0 || dup2(nothing, 1) < 0 ||
            (getenv("FUZZ_SHOW") == NULL && dup2(nothing, 2) < 0)) {
            _exit(2);
        }
        execv(tracer, words);
        _exit(2);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fuzz_events");
        exit(2);
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 0 && code != STATUS_FAILED && code != STATUS_CANNOT) {
        fprintf(stderr, "fuzz_events: seed %llu: %s ends with %x; the file is %s\n",
                (unsigned long long)seed, verb, (unsigned)status, name);
        exit(1);
    }
    return code;
}

int main(int count, char **words)
{
    static const char *const verbs[] = {"summary", "timeline", "replay"};
    unsigned accepted[3] = {0}, orderly = 0;
    char name[] = "/tmp/hakmem-fuzz-XXXXXX";
    if (count != 4 || (output = mkstemp(name)) < 0) {
        fprintf(stderr, "usage: %s TRACER SEED FILES\n", words[0]);
        return 2;
    }
    uint64_t seed = strtoull(words[2], NULL, 10), files = strtoull(words[3], NULL, 10);
    for (uint64_t i = 0; i < files; i++, seed++) {
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        bool is_orderly = make_file();
        orderly += is_orderly;
        for (unsigned k = 0; k < 3; k++) {
            int code = run_tracer(words[1], verbs[k], name, seed);
            accepted[k] += code == 0;
            if (code != 0 && (k < 2 || is_orderly)) {
                fprintf(stderr, "fuzz_events: seed %llu: %s refuses the file %s\n",
                        (unsigned long long)seed, verbs[k], name);
                return 1;
            }
        }
    }
    unlink(name);
    printf("%llu files, %u orderly: %u summaries, %u timelines, %u replays\n",
           (unsigned long long)files, orderly, accepted[0], accepted[1], accepted[2]);
    return 0;
}
