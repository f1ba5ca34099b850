/* SPDX-License-Identifier: MIT */
/* test_fork_libc.c: fork beside threads that hold a lock of the C library while they allocate, one
 * kind of lock at a time and then all together; beside other forks; and by signal handlers, which
 * interrupt fork, too. Handlers fork beside no such thread: with the C library's malloc all hang at
 * once, and with hakmem they may (docs/guarantees.md, "Signals"). Children use memory of all sizes,
 * free what they inherited, start a thread, fork again.
 *
 *   test_fork_libc [--forks N] [KIND]     N forks beside each kind (default 200), all kinds or one
 *
 * ctest: no-qemu timeout=600
 */
#include "watched.h"

#include <grp.h>
#include <locale.h>
#include <pwd.h>
#include <sys/time.h>
#include <syslog.h>

enum { HANDLERS_MAX = 60, AT_EXIT_MAX = 10000, SHARED_COUNT = 64 };

static _Atomic(unsigned char *) shared_blocks[SHARED_COUNT];
static const size_t sizes[] = {1, 24, 100, 900, 5000, 30000, 70000, 400000, 3000000};
enum { SIZES_COUNT = sizeof sizes / sizeof *sizes };
static char lines_path[] = "/tmp/hakmem_fork_libc_XXXXXX";

static unsigned char *make_block(size_t index)
{
    unsigned char *block = get_memory(sizes[index] + 1);
    CHECK(block != NULL);
    block[0] = (unsigned char)index;
    block[sizes[index]] = (unsigned char)(index + 1);
    return block;
}

static void check_and_free(unsigned char *block)
{
    if (block != NULL) {
        size_t index = block[0];
        CHECK(index < SIZES_COUNT && (block[sizes[index]] == index + 1 || index == 0));
        give_back(block);
    }
}

static void exchange_blocks(uint64_t *state, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t number = random_next(state);
        unsigned char *made = number % 4 == 0 ? NULL : make_block((number >> 8) % SIZES_COUNT);
        check_and_free(atomic_exchange(&shared_blocks[number % SHARED_COUNT], made));
    }
}

/* --- what goes on beside fork --------------------------------------------------------------- */

static void read_lines(uint64_t *state)
{
    FILE *file = fopen(lines_path, "r");
    char *line = NULL;
    size_t size = 0;
    CHECK(file != NULL);
    for (size_t i = 0; i < 20 && getline(&line, &size, file) > 0; i++) {
        give_back(line);
        line = NULL;
        size = 0;
    }
    give_back(line);
    fclose(file);
}

static void flush_files(uint64_t *state)
{
    fflush(NULL);
}

static void nothing(void)
{
}

static atomic_size_t forks_done;

/* So few, and one or two beside each fork, that glibc's table, which has room for 48, moves to the
 * heap beside a fork and never moves again. To read the address of a handler, fork releases the
 * lock first: if another thread moves the table in between, and frees the old one, fork calls what
 * stands in freed memory, whatever the allocator. */
static void register_handlers(uint64_t *state)
{
    static atomic_size_t count;
    size_t registered = count;
    if (registered < HANDLERS_MAX && registered < 2 * (forks_done + 1) &&
        atomic_compare_exchange_strong(&count, &registered, registered + 1)) {
        CHECK(pthread_atfork(nothing, nothing, nothing) == 0);
    }
    exchange_blocks(state, 1);
}

static void register_at_exit(uint64_t *state)
{
    static atomic_size_t count;
    if (count++ < AT_EXIT_MAX) {
        CHECK(atexit(nothing) == 0);
    }
    exchange_blocks(state, 1);
}

static void change_locale(uint64_t *state)
{
    locale_t made = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (made != (locale_t)0) {
        freelocale(made);
    }
    setlocale(LC_ALL, random_next(state) % 2 == 0 ? "C" : "C.UTF-8");
}

static void ask_for_users(uint64_t *state)
{
    char text[2000];
    struct passwd user, *found;
    struct group group, *found_group;
    getpwnam_r("root", &user, text, sizeof text, &found);
    getgrgid_r(0, &group, text, sizeof text, &found_group);
    getpwnam("nobody");
}

static void write_log(uint64_t *state)
{
    syslog(LOG_DEBUG, "hakmem's test %u", (unsigned)random_next(state));
}

static void *use_late_keys(void *argument)
{
    pthread_key_t *keys = argument;
    for (size_t i = 0; i < 40; i++) {
        CHECK(pthread_setspecific(keys[i], &keys[i]) == 0);
    }
    check_and_free(make_block(2));
    return NULL;
}

static void create_keys(uint64_t *state)
{
    pthread_key_t keys[40];
    pthread_t thread;
    for (size_t i = 0; i < 40; i++) {
        CHECK(pthread_key_create(&keys[i], NULL) == 0);
    }
    CHECK(pthread_create(&thread, NULL, use_late_keys, keys) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < 40; i++) {
        CHECK(pthread_key_delete(keys[i]) == 0);
    }
    exchange_blocks(state, 1);
}

static void exchange_some(uint64_t *state)
{
    exchange_blocks(state, 10);
}

/* Other threads fork at the same time. Their children end in every way. */
static void fork_too(uint64_t *state)
{
    uint64_t number = random_next(state);
    IN_CHILD("child of another thread") {
        alarm(CHILD_SECONDS);
        exchange_blocks(state, 30);
        if (number % 8 == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(126);
        }
        number % 8 == 1 ? exit(0) : _exit(0);
    }
}

static const struct kind kinds[] = {
    {"blocks", {exchange_some, exchange_some}, false},
    {"stdio", {read_lines, flush_files}, false},
    {"atfork", {register_handlers, register_handlers}, false},
    {"atexit", {register_at_exit, register_at_exit}, false},
    {"dlopen", {load_plugin, load_plugin}, false},
    {"locale", {change_locale, change_locale}, false},
    {"users", {ask_for_users, ask_for_users}, false},
    {"syslog", {write_log, write_log}, false},
    {"keys", {create_keys, create_keys}, false},
    {"everything", {NULL, NULL}, false}, /* all above */
    {"forks", {fork_too, fork_too}, false},
    {"signals", {exchange_some, exchange_some}, true},
    {"nothing",
     {NULL, NULL},
     false}, /* but signals of a timer, in fork as well; and no other thread */
};
enum { KINDS_COUNT = sizeof kinds / sizeof *kinds };

/* --- forks ---------------------------------------------------------------------------------- */

static void *use_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument | 1;
    exchange_blocks(&state, 20);
    return NULL;
}

/* Not where other threads use a plugin's thread-local data, or more than 32 keys. glibc frees the
 * data that dlclose made stale, that of a cached stack in pthread_create, and a thread's table of
 * further keys at its end, before it forgets it, without a lock. If a fork comes in between, the
 * child's next thread on that stack uses it or frees it again, whatever the allocator. */
static bool children_start_threads;

/* What a server's child does; `number` says how much of it. */
static void run_child(size_t number, bool again)
{
    pthread_t thread;
    alarm(CHILD_SECONDS);
    uint64_t state = number + 1;
    exchange_blocks(&state, 30);
    if (number % 4 == 0) {
        for (size_t i = 0; i < SHARED_COUNT; i++) {
            check_and_free(atomic_exchange(&shared_blocks[i], NULL));
        }
    }
    if (number % 8 == 1 && children_start_threads) {
        CHECK(pthread_create(&thread, NULL, use_thread, &state) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    if (number % 8 == 3 && again) {
        IN_CHILD("grandchild") {
            run_child(number + 1, false);
        }
    }
    exchange_blocks(&state, 30);
}

static bool is_called(const struct kind *kind, const char *name)
{
    return strcmp(kind->name, name) == 0;
}

static size_t start_threads(const struct kind *kind, pthread_t *threads)
{
    const struct kind *first = kind, *end = kind + 1;
    size_t count = 0;
    if (is_called(kind, "everything")) {
        first = kinds;
        end = kind;
    }
    for (; first < end && first->beside[0] != NULL; first++, count += 2) {
        start_beside(first, threads + count);
    }
    return count;
}

static void run_forks(const struct kind *kind, size_t count, int progress)
{
    pthread_t threads[2 * KINDS_COUNT];
    size_t threads_count = start_threads(kind, threads);
    children_start_threads =
        !is_called(kind, "everything") && !is_called(kind, "dlopen") && !is_called(kind, "keys");
    struct itimerval often = {{0, 1000}, {0, 1000}};
    signal(SIGUSR1, fork_in_handler);
    signal(SIGPROF, fork_in_handler);
    if (threads_count == 0) {
        CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (kind->handlers && i % 4 == 0) {
            pthread_kill(threads[i / 4 % 2], SIGUSR1);
        }
        IN_CHILD(kind->name) {
            run_child(i, true);
        }
        note_progress(progress);
        forks_done++;
    }
    stop_beside(threads, threads_count);
    CHECK(!kind->handlers || handled_count != 0);
}

static void write_lines(void)
{
    int file = mkstemp(lines_path);
    CHECK(file >= 0);
    FILE *lines = fdopen(file, "w");
    CHECK(lines != NULL);
    for (size_t i = 0; i < 20; i++) {
        for (size_t j = 0; j < 100 + i * i * i * 10; j++) {
            fputc('a', lines);
        }
        fputc('\n', lines);
    }
    fclose(lines);
}

int main(int argc, char **argv)
{
    prove_served();
    write_lines();
    watch_all(argc, argv, kinds, KINDS_COUNT, run_forks, 200, 50);
    unlink(lines_path);
    return 0;
}
