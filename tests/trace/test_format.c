/* SPDX-License-Identifier: MIT */
/* test_format.c: what the encoder packs the decoder unpacks. Files that are cut at any byte or
 * changed in any byte end in a sentence or in fewer frames, never in a crash. The walk finds the
 * order of threads. */
#include "support.h"

#include "trace/decode.h"
#include "trace/encode.h"
#include "trace/walk.h"

#include <sys/resource.h>

static struct encoder encoder;
static struct trace_event events[TRACE_EVENTS_MAX], unpacked_events[TRACE_EVENTS_MAX];
static uint64_t random_state = 1;

static uint64_t draw(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 20) % limit;
}

/* Events as a thread could make them; `stamped`: from that one on. */
static void draw_events(uint32_t count, uint32_t stamped, uint64_t addresses, uint64_t sizes)
{
    uint64_t stamp = draw(UINT64_C(1) << 40) + 1;
    for (uint32_t i = 0; i < count; i++) {
        unsigned kind = (unsigned)draw(KIND_COUNT);
        events[i].stamp = i < stamped ? 0 : (stamp += draw(i % 7 == 0 ? 1000000 : 100));
        events[i].address = draw(5) == 0 ? 0 : UINT64_C(0x7f0000000000) + 8 * draw(addresses);
        events[i].size = trace_has_size(kind) ? draw(sizes) : 0;
        events[i].shape = trace_shape(UINT64_C(0x550000000000) + draw(300), kind,
                                      trace_is_birth(kind) ? (unsigned)draw(13) : 0);
    }
}

static const struct trace_frame *pack(uint32_t count, uint32_t thread)
{
    struct trace_frame given = {
        .lane = 7, .thread = thread, .threads = 9, .missed = 3, .resident = 4096};
    size_t bytes = encode_events(&encoder, events, count, &given);
    const struct trace_frame *frame = (const void *)encoder.output;
    assert_int_equal(bytes, sizeof *frame + frame->payload_bytes);
    return frame;
}

TEST(round_trip)
{
    static const uint64_t widths[] = {1, 50, 5000, UINT64_C(1) << 40};
    struct unpacked *unpacked = unpacked_new();
    for (unsigned round = 0; round < 200; round++) {
        uint32_t count = round == 0 ? 0 : round < 20 ? round : (uint32_t)draw(TRACE_EVENTS_MAX) + 1;
        uint32_t stamped = round % 3 == 0 ? 0 : (uint32_t)draw(count + 1);
        const struct trace_frame *frame;
        draw_events(count, stamped, widths[round % 4], widths[(round / 4) % 4]);
        frame = pack(count, 5);
        assert_int_equal(frame->events, count);
        assert_int_equal(frame->thread, 5);
        assert_int_equal(frame->missed, 3);
        assert_true(frame_unpack(unpacked, frame, unpacked_events));
        assert_memory_equal(events, unpacked_events, count * sizeof *events);
    }
    unpacked_free(unpacked);
}

/* Requests that no address space holds are all the same size. */
TEST(extremes)
{
    struct unpacked *unpacked = unpacked_new();
    for (uint32_t i = 0; i < TRACE_EVENTS_MAX; i++) {
        events[i] = (struct trace_event){
            .stamp = i == 0 ? 1 : UINT64_MAX - TRACE_EVENTS_MAX + i,
            .address = i % 2 == 0 ? UINT64_MAX - i : i,
            .size = i % 3 == 0 ? TRACE_SIZE_MAX : UINT64_MAX - 4096 * i,
            .shape = trace_shape(i % 2 == 0 ? UINT64_MAX - i : i, KIND_MEMALIGN, 63),
        };
    }
    assert_true(frame_unpack(unpacked, pack(TRACE_EVENTS_MAX, 1), unpacked_events));
    for (uint32_t i = 0; i < TRACE_EVENTS_MAX; i++) {
        assert_int_equal(unpacked_events[i].size, TRACE_SIZE_MAX);
        assert_int_equal(unpacked_events[i].address, events[i].address);
        assert_int_equal(unpacked_events[i].stamp, events[i].stamp);
        assert_int_equal(unpacked_events[i].shape, events[i].shape);
    }
    unpacked_free(unpacked);
}

/* --- files --- */

static int file; /* in memory */
static char file_name[32];
static unsigned char file_bytes[1 << 16] __attribute__((aligned(TRACE_ALIGNMENT)));
static size_t file_length, frame_starts[8], frame_count;

static void add_bytes(const void *bytes, size_t length)
{
    assert_true(file_length + length <= sizeof file_bytes);
    memcpy(file_bytes + file_length, bytes, length);
    file_length += length;
}

static void write_file(size_t length)
{
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(pwrite(file, file_bytes, length, 0), length);
}

/* A small file of two threads. */
static void make_file(void)
{
    struct trace_header header = {
        .version = TRACE_VERSION, .header_bytes = sizeof header, .pid = 1, .program = "test"};
    static const char modules[] = "550000000000-550000001000 0 /bin/test\n";
    struct trace_end end = {.threads = 2};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    file_length = frame_count = 0;
    add_bytes(&header, sizeof header);
    frame_starts[frame_count++] = file_length;
    add_bytes(encoder.output,
              encode_frame(&encoder, FRAME_MODULES, modules, (uint32_t)sizeof modules - 1));
    for (uint32_t i = 0; i < 4; i++) {
        struct trace_frame given = {.lane = 1 + i % 2, .thread = 1 + i % 2, .threads = 2};
        frame_starts[frame_count++] = file_length;
        draw_events(30, i < 2 ? 10 : 0, 20, 1000);
        add_bytes(encoder.output, encode_events(&encoder, events, 30, &given));
    }
    frame_starts[frame_count++] = file_length;
    add_bytes(encoder.output, encode_frame(&encoder, FRAME_END, &end, sizeof end));
}

/* Walks through what can be read; returns the number of whole frames. */
static size_t read_frames(const char **problem)
{
    struct trace_file trace;
    struct walk walk;
    struct step step;
    size_t frames;
    *problem = trace_open(&trace, file_name);
    frames = trace.frame_count;
    if (*problem == NULL) {
        walk_begin(&walk, &trace);
        while (walk_next(&walk, &step)) {
        }
        walk_end(&walk);
    }
    trace_close(&trace);
    return frames;
}

TEST(cut)
{
    const char *problem;
    make_file();
    for (size_t length = 0; length <= file_length; length++) {
        size_t whole = 0;
        write_file(length);
        for (size_t i = 0; i < frame_count; i++) {
            size_t end = i + 1 < frame_count ? frame_starts[i + 1] : file_length;
            whole += end <= length;
        }
        if (length < sizeof(struct trace_header)) {
            read_frames(&problem);
            assert_non_null(problem);
        } else {
            assert_int_equal(read_frames(&problem), whole);
            assert_null(problem);
        }
    }
}

/* Whether the byte belongs to the length of a frame's payload. */
static bool is_in_length(size_t at)
{
    size_t start = 0, field = offsetof(struct trace_frame, payload_bytes);
    for (size_t i = 0; i < frame_count && frame_starts[i] <= at; i++) {
        start = frame_starts[i];
    }
    return at - start >= field && at - start < field + sizeof(uint32_t);
}

TEST(changed)
{
    const char *problem;
    make_file();
    for (size_t i = 0; i < file_length; i++) {
        unsigned char before = file_bytes[i];
        file_bytes[i] = (unsigned char)(before ^ (1 + draw(255)));
        write_file(file_length);
        read_frames(&problem);
        if (i >= frame_starts[0] && problem == NULL) {
            assert_true(is_in_length(i)); /* it reaches beyond the end: the file looks cut */
        }
        file_bytes[i] = before;
    }
}

/* Frames that are sound but hold nonsense, as another program could make them. */
TEST(nonsense)
{
    for (unsigned round = 0; round < 600; round++) {
        const char *problem;
        struct trace_frame *frame;
        make_file();
        frame = (void *)(file_bytes + frame_starts[1 + draw(4)]);
        for (uint64_t i = draw(4); i < 4; i++) {
            unsigned char *payload = (unsigned char *)(frame + 1);
            if (draw(3) != 0) {
                payload[draw(frame->payload_bytes)] = (unsigned char)draw(256);
            } else {
                ((unsigned char *)frame)[12 + draw(sizeof *frame - 20)] = (unsigned char)draw(256);
            }
        }
        if ((size_t)((unsigned char *)(frame + 1) - file_bytes) + frame->payload_bytes >
            file_length) {
            continue;
        }
        frame->checksum = 0;
        frame->checksum = trace_checksum(trace_checksum(0, frame, sizeof *frame), frame + 1,
                                         frame->payload_bytes);
        write_file(file_length);
        read_frames(&problem);
    }
}

/* --- order --- */

static void put_event(uint32_t at, uint64_t stamp, uint64_t address, uint64_t size, unsigned kind)
{
    events[at] = (struct trace_event){
        .stamp = stamp, .address = address, .size = size, .shape = trace_shape(1, kind, 0)};
}

/* A file of the frames that put_frame adds, then open_walk reads it. */
static void begin_file(void)
{
    struct trace_header header = {.version = TRACE_VERSION, .header_bytes = sizeof header};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    file_length = 0;
    add_bytes(&header, sizeof header);
}

/* Adds the first `count` events as a frame of that thread's. */
static void put_frame(uint32_t thread, uint32_t count, uint32_t threads)
{
    struct trace_frame given = {.lane = thread, .thread = thread, .threads = threads};
    add_bytes(encoder.output, encode_events(&encoder, events, count, &given));
}

static void open_walk(struct walk *walk, struct trace_file *trace)
{
    write_file(file_length);
    assert_null(trace_open(trace, file_name));
    walk_begin(walk, trace);
}

/* One address goes through three threads, a resize moves a block, another one fails. */
TEST(order)
{
    static const enum step_type expected[] = {STEP_BIRTH,  STEP_BIRTH,  STEP_END, STEP_BIRTH,
                                              STEP_RESIZE, STEP_FAILED, STEP_END, STEP_END};
    static const uint64_t live[] = {100, 140, 40, 49, 59, 59, 9, 0};
    struct trace_file trace;
    struct walk walk;
    struct step step;
    size_t steps = 0;
    begin_file();
    put_event(0, 0, 0x1000, 100, KIND_MALLOC);
    put_event(1, 0, 0x2000, 40, KIND_MALLOC);
    put_event(2, 30, 0x2000, 0, KIND_REALLOC_FROM);
    put_event(3, 40, 0x3000, 50, KIND_REALLOC);
    put_event(4, 50, 0x1000, 0, KIND_REALLOC_FROM);
    put_event(5, 60, 0, 1 << 30, KIND_REALLOC);
    put_frame(1, 6, 3);
    put_event(0, 10, 0x1000, 0, KIND_FREE);
    put_event(1, 80, 0x1000, 0, KIND_FREE);
    put_frame(2, 2, 3);
    put_event(0, 10, 0x1000, 9, KIND_NEW); /* the same stamp: the end goes first */
    put_event(1, 70, 0x3000, 0, KIND_DELETE);
    put_frame(3, 2, 3);
    open_walk(&walk, &trace);
    for (; walk_next(&walk, &step); steps++) {
        assert_in_range(steps, 0, COUNT_OF(expected) - 1);
        assert_int_equal(step.type, expected[steps]);
        assert_int_equal(walk.live_bytes, live[steps]);
    }
    assert_int_equal(steps, COUNT_OF(expected));
    assert_int_equal(walk.repairs.frees + walk.repairs.reallocs + walk.repairs.ends, 0);
    assert_int_equal(walk.peak_bytes, 140);
    assert_int_equal(walk.peak_call, 2);
    assert_int_equal(walk.live_blocks, 0);
    walk_end(&walk);
    trace_close(&trace);
}

/* Calls are missing, as at the end of a process that was killed: no block ends that was not born,
 * and no two live blocks have one address. */
TEST(repairs)
{
    static const struct {
        enum step_type type;
        uint32_t thread;
        uint64_t live;
    } expected[] = {
        {STEP_FOREIGN, 1, 0},  {STEP_BIRTH, 1, 100}, /* realloc of an unknown block */
        {STEP_BIRTH, 1, 110},  {STEP_LOST, 2, 10},   /* 0x1000 is given out again */
        {STEP_BIRTH, 2, 17},   {STEP_LOST, 2, 7},    /* 0x2000 is where a block was moved to */
        {STEP_RESIZE, 2, 300}, {STEP_BIRTH, 1, 305}, /* 0x3000 */
        {STEP_BIRTH, 2, 311},                        /* 0x3000's resize is not over yet */
        {STEP_LOST, 1, 306},                         /* and never will be */
        {STEP_END, 1, 300},    {STEP_FOREIGN, 1, 300}, {STEP_BIRTH, 1, 308},
        {STEP_BIRTH, 2, 317},  {STEP_LOST, 1, 308}, /* 0x5000: the resize failed, so it is there */
        {STEP_FAILED, 1, 308},
    };
    struct trace_file trace;
    struct walk walk;
    struct step step;
    size_t steps = 0;
    begin_file();
    put_event(0, 1, 0x9000, 0, KIND_FREE);
    put_event(1, 2, 0x9008, 0, KIND_REALLOC_FROM);
    put_event(2, 3, 0x1000, 100, KIND_REALLOC);
    put_event(3, 4, 0x2000, 10, KIND_MALLOC);
    put_event(4, 30, 0x3000, 5, KIND_MALLOC);
    put_event(5, 31, 0x3000, 0, KIND_REALLOC_FROM);
    put_event(6, 41, 0x3000, 0, KIND_FREE);
    put_event(7, 42, 0x3000, 0, KIND_FREE);
    put_event(8, 43, 0x5000, 8, KIND_NEW);
    put_event(9, 44, 0x5000, 0, KIND_REALLOC_FROM);
    put_event(10, 46, 0, 1 << 30, KIND_REALLOC);
    put_frame(1, 11, 2);
    put_event(0, 10, 0x1000, 7, KIND_CALLOC);
    put_event(1, 20, 0x1000, 0, KIND_REALLOC_FROM);
    put_event(2, 21, 0x2000, 300, KIND_REALLOC);
    put_event(3, 40, 0x3000, 6, KIND_MALLOC);
    put_event(4, 45, 0x5000, 9, KIND_MALLOC);
    put_frame(2, 5, 2);
    open_walk(&walk, &trace);
    for (; walk_next(&walk, &step); steps++) {
        assert_in_range(steps, 0, COUNT_OF(expected) - 1);
        assert_int_equal(step.type, expected[steps].type);
        assert_int_equal(step.thread, expected[steps].thread);
        assert_int_equal(walk.live_bytes, expected[steps].live);
    }
    assert_int_equal(steps, COUNT_OF(expected));
    assert_int_equal(walk.repairs.frees, 2);
    assert_int_equal(walk.repairs.reallocs, 1);
    assert_int_equal(walk.repairs.ends, 4);
    assert_int_equal(walk.calls, trace.calls);
    walk_end(&walk);
    trace_close(&trace);
}

/* A small file that says that there were very many threads takes little memory. */
TEST(very_many_threads)
{
    static const struct {
        uint32_t lane, thread;
        bool damaged;
    } cases[] = {{65537, 65537, true}, {1 << 24, 1 << 24, true}, {1, 1 << 24, false}};
    struct rlimit limit = {600 * MIB, 600 * MIB};
    REQUIRE(SUPPORT_EMULATED || setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *problem;
        struct trace_frame given = {
            .lane = cases[i].lane, .thread = cases[i].thread, .threads = cases[i].thread};
        begin_file();
        put_event(0, 1, 0x1000, 10, KIND_MALLOC);
        add_bytes(encoder.output, encode_events(&encoder, events, 1, &given));
        write_file(file_length);
        read_frames(&problem);
        assert_int_equal(problem != NULL, cases[i].damaged);
    }
}

int main(void)
{
    file = memfd_create("trace", MFD_CLOEXEC);
    snprintf(file_name, sizeof file_name, "/proc/self/fd/%d", file);
    return tests_run(NULL, NULL);
}
