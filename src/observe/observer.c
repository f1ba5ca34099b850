/* SPDX-License-Identifier: MIT */
/* observer.c: see observer.h.
 *
 * State of the observer, in observer.shared_state:
 *
 *   NONE -> STARTING   a thread that starts it; it becomes the observer's thread's to go on
 *   STARTING -> RUNNING, or NONE with observer.error   the observer, when its file is made or not
 *   RUNNING -> STOPPING   a thread that stops it
 *   RUNNING, STOPPING -> NONE   the observer, when its file is removed */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "observe/observer.h"

#include <errno.h>
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"
#include "base/text.h"
#include "control/background.h"
#include "control/ending.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "observe/claims.h"
#include "observe/report.h"
#include "observe/samples.h"
#include "os/os.h"

HAK_STATIC_ASSERT(sizeof(struct observer_page) == 1016, "tools know the layout");
HAK_STATIC_ASSERT(sizeof(struct observer_page) <= OBSERVER_REPLY_OFFSET, "the reply follows");

enum observer_state { OBSERVER_NONE, OBSERVER_STARTING, OBSERVER_RUNNING, OBSERVER_STOPPING };

static struct {
    uint32_t shared_state;   /* enum observer_state; threads sleep on it */
    uint32_t shared_process; /* the process that the state belongs to: after a fork without
                                handlers it is the parent's */
    uint32_t shared_error;   /* why the last start failed; an errno value */
    uint32_t *shared_word;   /* that the observer sleeps on; others only wake it, because its
                                mapping may move or go at any time */
    char path[64];           /* the observer's; others read it while the state is RUNNING */
} observer HAK_SELDOM;

/* --- requests --- */

/* What tools may ask for, one line each: documents, and in observer_act what only answers a
 * word. */
static const struct {
    const char *name;
    void (*write)(hak_report_sink *sink, void *sink_argument);
} observer_documents[] = {
    {"json", hak__report_json},   {"full", hak__report_text}, {"summary", hak__report_summary},
    {"names", hak__report_names}, {"map", hak_heap_map},
};

/* The answer; NULL: there is no such request. `room` is for an answer with a number. */
static const char *observer_act(const char *request, const char *argument, char room[32])
{
    if (hak__text_equal(request, "profile_claim")) {
        return hak__text_make(room, 32, "%lu", hak__claim(argument));
    }
    if (hak__text_equal(request, "profile_release")) {
        hak__claim_end(argument);
        return "released";
    }
    if (hak__text_equal(request, "profile_stop")) { /* the process's own sampling */
        hak_profile_stop();
        return "stopped";
    }
    return NULL;
}

/* Writes the answer to the request. Returns 0 or -errno. */
static int observer_write(const char *request, const char *argument, hak_report_sink *sink,
                          void *sink_argument)
{
    for (size_t i = 0; i < sizeof observer_documents / sizeof observer_documents[0]; i++) {
        if (hak__text_equal(request, observer_documents[i].name)) {
            observer_documents[i].write(sink, sink_argument);
            return 0;
        }
    }
    if (hak__text_equal(request, "profile")) {
        hak__profile_write(sink, sink_argument, hak__text_number(&argument));
        return 0;
    }
    char room[32];
    const char *answer = observer_act(request, argument, room);
    if (answer == NULL) {
        return -ENOENT;
    }
    sink(sink_argument, answer, strlen(answer));
    return 0;
}

/* --- the thread --- */

/* A reply under way; used by the observer alone. */
struct observer_reply {
    struct os_shared *shared;
    size_t size;
    int error; /* -errno; nothing is written after an error */
};

static struct observer_page *observer_page(const struct os_shared *shared)
{
    return shared->address;
}

/* The sink of all writers. */
static void observer_put(void *argument, const char *text, size_t size)
{
    struct observer_reply *reply = argument;
    size_t needed = OBSERVER_REPLY_OFFSET + reply->size + size;
    if (reply->error == 0 && needed > reply->shared->size) {
        size_t larger = bits_align_up(needed * 2, hak__os_page_size());
        /* Largest file, a bound on what a request can take. Doubled: pictures of twice as large a
         * heap. */
        reply->error =
            needed > (size_t)256 << 20 ? -EFBIG : hak__os_share_resize(reply->shared, larger);
    }
    if (reply->error != 0) {
        return;
    }
    memcpy((char *)reply->shared->address + OBSERVER_REPLY_OFFSET + reply->size, text, size);
    reply->size += size;
}

static void observer_answer(struct os_shared *shared, uint32_t number)
{
    char request[sizeof observer_page(shared)->request];
    struct observer_reply reply = {shared, 0, 0};
    memcpy(request, observer_page(shared)->request, sizeof request);
    request[sizeof request - 1] = '\0';
    char *argument = strchrnul(request, ' '); /* the name ends there */
    if (*argument == ' ') {
        *argument++ = '\0';
    }
    /* A file above this size shrinks before the next reply. Doubled: twice as much memory may
     * stay. */
    if (shared->size > (size_t)1 << 20 && shared->descriptor >= 0) {
        hak__os_share_resize(shared, bits_align_up(OBSERVER_REPLY_OFFSET, hak__os_page_size()));
    }
    int unknown = observer_write(request, argument, observer_put, &reply);
    reply.error = unknown != 0 ? unknown : reply.error;
    struct observer_page *page = observer_page(shared); /* it may have moved */
    page->status = (uint32_t)-reply.error;
    page->reply_size = reply.error == 0 ? reply.size : 0;
    /* release: pairs with the reader's look at the number before it reads the reply */
    atomic_store_release(&page->shared_reply, number);
    hak__os_wake_shared(&page->shared_reply);
}

/* Field 22 of /proc/self/stat. The second field may hold spaces and parentheses. 0: unknown. */
static uint64_t observer_start_time(void)
{
    char text[1024];
    (void)hak__os_read_text("/proc/self/stat", text, sizeof text);
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    at = at != NULL ? at + 1 : "";
    return hak__text_number(&at);
}

/* Containers may share /dev/shm, as those of a Kubernetes pod do, and each has a process 1.
 * `again`: another user has made a file of that name, so this one gets a name that nobody can know
 * before. */
static void observer_name_file(bool again)
{
    struct text text = {observer.path, sizeof observer.path - 1, 0};
    uint64_t space = hak__os_process_space();
    hak__text_format(&text, "/dev/shm/hakmem.%u.%u", hak__os_user_id(), hak__os_process_id());
    if (space != 0) {
        hak__text_format(&text, ".%lu", space);
    }
    if (again) { /* of the seed, which others must not learn, too little is left to tell it */
        uint64_t mixed = hak__os_random_seed() ^ hak__os_clock_us();
        hak__text_format(&text, "-%lu", (mixed * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
    }
    observer.path[text.length] = '\0';
}

/* Makes the file. Returns 0 or -errno. */
static int observer_open(struct os_shared *shared)
{
    static const char magic[8] = {'h', 'a', 'k', 'm', 'e', 'm', '\0', 'O'};
    /* In the program's table, a number that is in use for a moment would change what the program's
     * next open returns, and a program that closes all descriptors would close the file's. */
    bool grows = hak__os_leave_descriptors();
    /* The first size of a file that cannot grow has room for a report of some hundred arenas and
     * threads. */
    size_t size =
        bits_align_up(grows ? OBSERVER_REPLY_OFFSET : METADATA_CHUNK_SIZE, hak__os_page_size());
    observer_name_file(false);
    int error = hak__os_share(observer.path, size, shared);
    if (error == -EEXIST) {
        observer_name_file(true);
        error = hak__os_share(observer.path, size, shared);
    }
    if (error != 0) {
        return error;
    }
    if (!grows) {
        hak__os_share_close(shared);
    }
    struct observer_page *page = observer_page(shared);
    page->process = hak__os_process_id();
    page->start_time = observer_start_time();
    page->version = 1;
    memcpy(page->magic, magic, sizeof magic);
    return 0;
}

/* Also for the threads that sleep on the state. */
static void observer_set_state(uint32_t state)
{
    /* release: pairs with the acquire in observer_state */
    atomic_store_release(&observer.shared_state, state);
    hak__os_wake_all(&observer.shared_state);
}

static uint32_t observer_state(void)
{
    /* acquire: pairs with the release in observer_set_state */
    return atomic_load_acquire(&observer.shared_state);
}

/* Until it is told to stop, or no thread of the program is left. */
static void observer_serve(struct os_shared *shared)
{
    uint32_t answered = 0;
    while (observer_state() == OBSERVER_RUNNING && !hak__background_is_left_alone()) {
        /* acquire: pairs with the reader's store of the number after the request's text */
        uint32_t *word = &observer_page(shared)->shared_request;
        uint32_t asked = atomic_load_acquire(word);
        if (asked != answered) {
            observer_answer(shared, asked);
            answered = asked;
        } else {
            atomic_store_relaxed(&observer.shared_word, word);
            uint32_t began_ms = hak__os_clock_ms();
            hak__os_wait_shared(word, asked, BACKGROUND_LOOK_MS);
            uint32_t waited_ms = hak__os_clock_ms() - began_ms;
            hak__claims_wait(waited_ms < BACKGROUND_LOOK_MS ? waited_ms : BACKGROUND_LOOK_MS);
        }
    }
}

static void *observer_run(void *argument)
{
    struct os_shared shared;
    hak__os_name_thread("hakmem-observe");
    int error = observer_open(&shared);
    atomic_store_relaxed(&observer.shared_error, (uint32_t)-error);
    if (error == 0) {
        observer_set_state(OBSERVER_RUNNING);
        observer_serve(&shared);
        hak__claims_drop();
        hak__os_remove(observer.path);
        hak__os_unshare(&shared);
    }
    hak__background_end();
    observer_set_state(OBSERVER_NONE);
    return argument;
}

/* --- start and stop --- */

/* Starts the thread, unless there is one, and does not wait for it. Returns 0 or an errno value. */
static int observer_start(void)
{
    uint32_t none = OBSERVER_NONE;
    uint32_t process = hak__os_process_id();
    if (atomic_load_relaxed(&observer.shared_process) != process) {
        atomic_store_relaxed(&observer.shared_process, process);
        atomic_store_relaxed(&observer.shared_state, OBSERVER_NONE); /* that of the parent */
    }
    /* acquire: pairs with the release in observer_set_state */
    if (!atomic_cas_acquire(&observer.shared_state, &none, OBSERVER_STARTING)) {
        return 0;
    }
    hak__ending_want(); /* the file goes at the end */
    int error = hak__background_start(observer_run);
    if (error != 0) {
        atomic_store_relaxed(&observer.shared_error, (uint32_t)error);
        observer_set_state(OBSERVER_NONE);
    }
    return error;
}

/* Waits for an observer that starts or stops; at most BACKGROUND_WAIT_MS unless `patiently`. */
static uint32_t observer_settled(uint32_t passing, bool patiently)
{
    return hak__background_wait(&observer.shared_state, passing, patiently);
}

int hak_observe_start(void)
{
    HAK_KEEP_ERRNO;
    int error;
    do {
        observer_settled(OBSERVER_STOPPING, true);
        error = observer_start();
        if (error == 0 && observer_settled(OBSERVER_STARTING, true) == OBSERVER_NONE) {
            error = (int)atomic_load_relaxed(&observer.shared_error);
        }
    } while (error == 0 && observer_state() == OBSERVER_STOPPING);
    return error;
}

int hak_observe_stop(void)
{
    if (atomic_load_relaxed(&observer.shared_process) != hak__os_process_id()) {
        return 0;
    }
    uint32_t running = OBSERVER_RUNNING;
    observer_settled(OBSERVER_STARTING, true);
    /* acquire: pairs with the release in observer_set_state */
    (void)atomic_cas_acquire(&observer.shared_state, &running, OBSERVER_STOPPING);
    while (observer_state() == OBSERVER_STOPPING) { /* it may just be about to sleep */
        hak__os_wake_shared(atomic_load_relaxed(&observer.shared_word));
        hak__os_wait_ms(&observer.shared_state, OBSERVER_STOPPING, 1);
    }
    return 0;
}

void hak__observer_begin(void)
{
    if (!hak__settings.observe) {
        return;
    }
    int error = observer_start();
    if (error == 0 && observer_settled(OBSERVER_STARTING, false) == OBSERVER_NONE) {
        error = (int)atomic_load_relaxed(&observer.shared_error);
    }
    if (error != 0) {
        char line[160];
        hak__diagnose_warn(hak__text_make(line, sizeof line,
                                          "HAKMEM_OBSERVE does nothing: its thread or file in "
                                          "/dev/shm cannot be made: %s",
                                          hak__os_file_error(-error)),
                           NULL);
    }
}

void hak__observer_fork_child(void)
{
    hak__claims_drop();
    atomic_store_relaxed(&observer.shared_state, OBSERVER_NONE);
    if (hak__settings.observe) {
        observer_start();
    }
}

void hak__observer_end(void)
{
    if (atomic_load_relaxed(&observer.shared_process) == hak__os_process_id() &&
        observer_settled(OBSERVER_STARTING, false) == OBSERVER_RUNNING) {
        hak__os_remove(observer.path);
    }
}

/* --- from outside --- */

char hak_observe_stack[HAK_OBSERVE_STACK_SIZE] HAK_SELDOM __attribute__((aligned(64)));
HAK_STATIC_ASSERT(HAK_OBSERVE_SAVED_AT + sizeof(struct hak_observe_saved) <=
                      HAK_OBSERVE_STACK_SIZE / 2,
                  "half of the stack is for the call");

/* struct hak_observe_note. Linkers keep notes, and programs map them. */
extern __typeof__(hak_observe_enter) hak__observe_enter
    __attribute__((alias("hak_observe_enter"), visibility("hidden"), used));
extern __typeof__(hak_observe_stack) hak__observe_stack
    __attribute__((alias("hak_observe_stack"), visibility("hidden"), used));
HAK_STATIC_ASSERT(sizeof HAK_OBSERVE_NOTE == 8 && sizeof(struct hak_observe_note) == 24 &&
                      HAK_OBSERVE_STACK_SIZE == 32768,
                  "as below");
__asm__(".pushsection .note.hakmem, \"a\", %note\n\t.balign 4\n\t"
        ".long 8, 24, 1\n\t.asciz \"" HAK_OBSERVE_NOTE "\"\n"
        "1:\t.quad hak__observe_enter - 1b, hak__observe_stack - 1b, 32768\n\t.popsection");

/* The tool stops a thread wherever it is, perhaps between two instructions of malloc's fast path in
 * a function that called it. So the allocations of pthread_create do not touch this thread's bins
 * or arena: the thread seems to have ended, and is refused at the gate, so that they get emergency
 * memory (large/emergency.h). */
static int observer_start_beside(void)
{
    struct thread *own = hak__thread;
    uint32_t inside = hak__inside;
    if (inside != 0) {
        return EBUSY;
    }
    hak__inside = INSIDE_REPORT;
    hak__thread_give_up();
    atomic_fence_signal();
    int error = observer_start();
    atomic_fence_signal();
    hak__thread = own;
    hak__inside = inside;
    return error;
}

void hak_observe_enter(void)
{
    char *place = hak_observe_stack + HAK_OBSERVE_SAVED_AT;
    struct hak_observe_saved *saved = (struct hak_observe_saved *)(void *)place;
    bool returns = saved->mark == HAK_OBSERVE_MARK;
    int error_before = errno;
    saved->mark = 0; /* for this call only */
    int error = observer_start_beside();
    errno = error_before;
    hak__os_tell_tracer(HAK_OBSERVE_MARK, (uint64_t)error, returns);
    if (returns) { /* the tool was killed */
        hak__os_go_back(saved);
    }
    hak__diagnose_foreign("the tool that attached to the process was killed", NULL);
}
