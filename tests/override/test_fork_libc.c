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
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <syslog.h>

/* A process forks so often at most, then a new one goes on. */
enum { FORKS_MAX = 50, HANDLERS_MAX = 60, AT_EXIT_MAX = 10000, SHARED_COUNT = 64 };

static atomic_bool stop;
static _Atomic(unsigned char *) shared_blocks[SHARED_COUNT];
static const size_t sizes[] = {1, 24, 100, 900, 5000, 30000, 70000, 400000, 3000000};
enum { SIZES_COUNT = sizeof sizes / sizeof *sizes };
static char lines_path[] = "/tmp/hakmem_fork_libc_XXXXXX";
static char plugin[TEST_PATH_SIZE];

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
    (void)state;
}

static void flush_files(uint64_t *state)
{
    fflush(NULL);
    (void)state;
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

static void load_plugin(uint64_t *state)
{
    void *library = dlopen(plugin, RTLD_NOW);
    CHECK(library != NULL);
    char *(*touch)(void) = (char *(*)(void))(uintptr_t)dlsym(library, "plugin_fork_touch");
    CHECK(touch != NULL && *touch() != 0);
    CHECK(dlclose(library) == 0);
    dlsym(RTLD_DEFAULT, "there_is_no_such_name");
    dlerror();
    (void)state;
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
    (void)state;
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
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        exchange_blocks(state, 30);
        if (number % 8 == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(126);
        }
        number % 8 == 1 ? exit(0) : _exit(0);
    }
    wait_for_success(child, "child of another thread");
}

typedef void beside(uint64_t *state);

static const struct kind {
    const char *name;
    beside *beside[2];
} kinds[] = {
    {"blocks", {exchange_some, exchange_some}},
    {"stdio", {read_lines, flush_files}},
    {"atfork", {register_handlers, register_handlers}},
    {"atexit", {register_at_exit, register_at_exit}},
    {"dlopen", {load_plugin, load_plugin}},
    {"locale", {change_locale, change_locale}},
    {"users", {ask_for_users, ask_for_users}},
    {"syslog", {write_log, write_log}},
    {"keys", {create_keys, create_keys}},
    {"everything", {NULL, NULL}}, /* all above */
    {"forks", {fork_too, fork_too}},
    {"signals", {exchange_some, exchange_some}},
    {"nothing", {NULL, NULL}}, /* but signals of a timer, in fork as well; and no other thread */
};
enum { KINDS_COUNT = sizeof kinds / sizeof *kinds };

static void *run_beside(void *argument)
{
    beside *body = *(beside *const *)argument;
    uint64_t state = (uintptr_t)body | 1;
    while (!stop) {
        body(&state);
        sched_yield();
    }
    return NULL;
}

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
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            run_child(number + 1, false);
            _exit(0);
        }
        wait_for_success(child, "grandchild");
    }
    exchange_blocks(&state, 30);
}

static atomic_size_t handled_count;

/* In whatever the thread was doing, allocating as well: the child only allocates a little. */
static void fork_in_handler(int number)
{
    int saved = errno, status;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        for (size_t i = 0; i < SIZES_COUNT; i++) {
            unsigned char *block = get_memory(sizes[i] + 100000);
            if (block == NULL) {
                _exit(1);
            }
            block[sizes[i]] = 1;
            give_back(block);
        }
        _exit(0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    handled_count++;
    (void)number;
    errno = saved;
}

static bool is_called(const struct kind *kind, const char *name)
{
    return strcmp(kind->name, name) == 0;
}

static void start_threads(const struct kind *kind, pthread_t *threads, size_t *count)
{
    const struct kind *first = kind, *end = kind + 1;
    if (is_called(kind, "everything")) {
        first = kinds;
        end = kind;
    }
    *count = 0;
    for (; first < end && first->beside[0] != NULL; first++) {
        for (size_t i = 0; i < 2; i++) {
            void *argument = (void *)(uintptr_t)&first->beside[i];
            CHECK(pthread_create(&threads[(*count)++], NULL, run_beside, argument) == 0);
        }
    }
}

static void run_forks(const void *argument, size_t count, int progress)
{
    const struct kind *kind = argument;
    pthread_t threads[2 * KINDS_COUNT];
    size_t threads_count;
    start_threads(kind, threads, &threads_count);
    children_start_threads =
        !is_called(kind, "everything") && !is_called(kind, "dlopen") && !is_called(kind, "keys");
    bool signals = is_called(kind, "signals");
    struct itimerval often = {{0, 1000}, {0, 1000}};
    signal(SIGUSR1, fork_in_handler);
    signal(SIGPROF, fork_in_handler);
    if (threads_count == 0) {
        CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (signals && i % 4 == 0) {
            pthread_kill(threads[i / 4 % 2], SIGUSR1);
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            run_child(i, true);
            _exit(0);
        }
        wait_for_success(child, kind->name);
        note_progress(progress);
        forks_done++;
    }
    stop = true;
    for (size_t i = 0; i < threads_count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(!signals || handled_count != 0);
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
    size_t forks = 200;
    int next = 1;
    if (next + 1 < argc && strcmp(argv[next], "--forks") == 0) {
        forks = strtoul(argv[next + 1], NULL, 10);
        next += 2;
    }
    write_lines();
    plugin_path("fork", plugin);
    for (size_t i = 0; i < KINDS_COUNT; i++) {
        if (next == argc || is_called(&kinds[i], argv[next])) {
            for (size_t left = forks; left != 0;) {
                size_t part = left < FORKS_MAX ? left : FORKS_MAX;
                watch(kinds[i].name, run_forks, &kinds[i], part);
                left -= part;
            }
        }
    }
    unlink(lines_path);
    return 0;
}
