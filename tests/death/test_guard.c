/* SPDX-License-Identifier: MIT */
/* test_guard.c: each error with a guarded block ends the process with its report (HAKMEM_GUARD=1
 * guards every allocation that can be). A fault ends it by SIGSEGV, an error that a call finds by
 * SIGABRT.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"

enum { SIZE = 64 };

/* A block at the end of its pages, or at their start: chance decides for each. */
static char *block_at(size_t size, bool at_end)
{
    for (int i = 0; i < 200; i++) {
        char *block = hide(hak_malloc(size));
        REQUIRE(block != NULL);
        if ((((uintptr_t)block + (at_end ? size : 0)) % (uintptr_t)sysconf(_SC_PAGESIZE)) == 0) {
            return block;
        }
    }
    support_fail("no block lies at the %s of its pages\n", at_end ? "end" : "start");
    return NULL;
}

static void put(char *address)
{
    *(volatile char *)hide(address) = 1;
}

static char get(char *address)
{
    return *(volatile char *)hide(address);
}

static void read_freed(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(block);
    (void)get(block + 8);
}

static void write_freed(void *argument)
{
    char *block = hide(hak_malloc(5000));
    hak_free(block);
    put(block + 4999);
}

static void write_freed_later(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(block);
    for (int i = 0; i < 500; i++) { /* the slots wait in a queue */
        hak_free(hide(hak_malloc(SIZE)));
    }
    put(block);
}

static void write_past_end(void *argument)
{
    put(block_at(SIZE, true) + SIZE);
}

static void read_before_start(void *argument)
{
    (void)get(block_at(SIZE, false) - 1);
}

/* 61 bytes end 3 bytes before the page. */
static void write_unnoticed(void *argument)
{
    char *block = hide(hak_malloc(SIZE - 3));
    put(block + SIZE - 3);
    hak_free(block);
}

static void write_before_unnoticed(void *argument)
{
    char *block = block_at(SIZE, true);
    put(block - 2);
    hak_free(block);
}

static void free_twice(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(block);
    hak_free(hide(block));
}

static void free_inside(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(hide(block + 16));
}

static void free_inside_freed(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(block);
    hak_free(hide(block + 16));
}

static void realloc_freed(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    hak_free(block);
    block = hide(hak_realloc(hide(block), 200));
}

static void *free_twice_there(void *block)
{
    hak_free(hide(block));
    return block;
}

static void free_twice_in_threads(void *argument)
{
    char *block = hide(hak_malloc(SIZE));
    for (int i = 0; i < 2; i++) {
        thread_join(thread_start(free_twice_there, block));
    }
}

/* The child of a fork has the blocks of its parent, and what they were. */
static void read_freed_in_child(void *argument)
{
    char *block = hide(hak_malloc(SIZE)), *live = hide(hak_malloc(SIZE));
    memset(live, 7, SIZE);
    hak_free(block);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(get(live + SIZE - 1) == 7);
        hak_free(live);
        hak_free(hide(hak_malloc(SIZE)));
        (void)get(block);
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    hak_free(live); /* the parent's is its own */
    raise(SIGSEGV); /* and no error of hakmem's */
}

static void own_handler(int signal)
{
    static const char words[] = "the program's handler\n";
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) {
        _exit(1);
    }
    _exit(33);
}

static void read_freed_with_handler(void *argument)
{
    signal(SIGSEGV, own_handler);
    read_freed(argument);
}

/* Crash reporters call the handler that they have replaced, or set it again. Some come after
 * another one. */
static struct sigaction replaced[2];
static size_t calls[2];

static void count_call(size_t number)
{
    static const char *const words[] = {"first reporter\n", "second reporter\n"};
    if (++calls[number] > 1 || write(STDERR_FILENO, words[number], strlen(words[number])) < 0) {
        _exit(1);
    }
}

static void restore_replaced(int signal, siginfo_t *info, void *context)
{
    count_call(0);
    sigaction(signal, &replaced[0], NULL);
}

static void call_replaced(int signal, siginfo_t *info, void *context)
{
    count_call(1);
    replaced[1].sa_sigaction(signal, info, context);
}

static void read_freed_with_reporters(void *argument)
{
    struct sigaction action = {.sa_sigaction = restore_replaced, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, &replaced[0]);
    hak_free(hide(hak_malloc(SIZE)));
    action.sa_sigaction = call_replaced;
    sigaction(SIGSEGV, &action, &replaced[1]);
    if (argument == NULL) {
        read_freed(NULL);
    } else {
        hak_free(hide(hak_malloc(SIZE)));
        (void)get(NULL);
    }
}

/* Threads that fault on purpose and go on, as Java's do, all at the same time. */
static __thread sigjmp_buf after_fault;

static void go_on(int signal)
{
    siglongjmp(after_fault, 1);
}

static void *fault_often(void *argument)
{
    for (volatile int i = 0; i < 2000; i++) {
        hak_free(hide(hak_malloc(SIZE)));
        if (sigsetjmp(after_fault, 1) == 0) {
            (void)get(argument);
            support_fail("no fault\n");
        }
    }
    return NULL;
}

static void fault_in_threads(void *argument)
{
    pthread_t threads[4];
    REQUIRE(signal(SIGSEGV, go_on) != SIG_ERR);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(fault_often, argument);
    }
    JOIN_ALL(threads, COUNT_OF(threads));
}

/* A fault that is not hakmem's goes to the program's handler, or ends the process. */
static void read_null(void *argument)
{
    hak_free(hide(hak_malloc(SIZE)));
    (void)get(argument);
}

static void read_null_with_handler(void *argument)
{
    signal(SIGSEGV, own_handler);
    read_null(argument);
}

/* There are no addresses for the slots: the program runs on, and is checked as ever. */
static void run_without_room(void *argument)
{
    struct rlimit none = {0, 0};
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    for (int i = 0; i < 100; i++) {
        char *block = hide(hak_malloc(SIZE));
        REQUIRE(block == NULL || hak_usable_size(block) >= SIZE);
        hak_free(block);
    }
}

/* The kernel marks no page of locked memory as a guard. More blocks than there are slots, so that
 * the pages that were locked are opened again. */
static void run_locked(void *argument)
{
    for (int i = 0; i < 3000; i++) {
        char *block = hide(hak_malloc(SIZE));
        (void)mlock(block, SIZE); /* up to RLIMIT_MEMLOCK */
        memset(block, 1, SIZE);
        hak_free(block);
    }
}

static void read_null_with_reporters(void *argument)
{
    read_freed_with_reporters(&argument);
}

struct guard_case {
    struct child_case child;
    int how;                 /* a signal, or 100 and an exit status */
    const char *patterns[7]; /* none: hakmem says nothing */
};

static struct guard_case cases[] = {
    {{"read_freed", read_freed},
     SIGSEGV,
     {"^hakmem: fatal: use after free( .read.)?: pointer 0x[0-9a-f]+, 8 bytes inside a freed block "
      "of 64 bytes at 0x[0-9a-f]+, process [0-9]+, program ",
      "^hakmem:   freed by thread [0-9]+, [0-9]+\\.[0-9]+ s ago",
      "^hakmem:   allocated by thread [0-9]+, ", "^hakmem:   accessed by thread [0-9]+, ",
      "^hakmem:     #0 0x[0-9a-f]+ .*test_guard\\+0x[0-9a-f]+$",
      "^hakmem:   build id [0-9a-f]{16,} .*/test_guard$"}},
    {{"write_freed", write_freed},
     SIGSEGV,
     {"^hakmem: fatal: use after free( .write.)?: pointer 0x[0-9a-f]+, 4999 bytes inside a freed "
      "block of 5000 bytes"}},
    {{"write_freed_later", write_freed_later},
     SIGSEGV,
     {"^hakmem: fatal: use after free.*, 0 bytes inside"}},
    {{"write_past_end", write_past_end},
     SIGSEGV,
     {"^hakmem: fatal: overflow( .write.)?: .*, 1 byte past the end of a block of 64 "}},
    {{"read_before_start", read_before_start},
     SIGSEGV,
     {"^hakmem: fatal: underflow( .read.)?: .*, 1 byte before the start of a block of "}},
    {{"write_unnoticed", write_unnoticed},
     SIGABRT,
     {"^hakmem: fatal: overflow .found at free.: .*, 1 byte past the end of a block of 61 "}},
    {{"write_before_unnoticed", write_before_unnoticed},
     SIGABRT,
     {"^hakmem: fatal: underflow .found at free.: .*, 2 bytes before the start"}},
    {{"free_twice", free_twice},
     SIGABRT,
     {"^hakmem: fatal: double free: .* a freed block of 64 ", "^hakmem:   freed by thread"}},
    {{"free_twice_in_threads", free_twice_in_threads}, SIGABRT, {"^hakmem: fatal: double free: "}},
    {{"free_inside", free_inside},
     SIGABRT,
     {"^hakmem: fatal: invalid pointer .*, 16 bytes inside a bl"}},
    {{"free_inside_freed", free_inside_freed},
     SIGABRT,
     {"^hakmem: fatal: invalid pointer .inside a freed "}},
    {{"realloc_freed", realloc_freed}, SIGABRT, {"^hakmem: fatal: use after free .realloc"}},
    {{"read_freed_in_child", read_freed_in_child},
     SIGSEGV,
     {"^hakmem: fatal: use after free( .read.)?: "}},
    {{"read_freed_with_handler", read_freed_with_handler},
     133,
     {"^hakmem: fatal: use after free", "^the program's handler"}},
    {{"read_freed_with_reporters", read_freed_with_reporters},
     SIGSEGV,
     {"^hakmem: fatal: use after free", "^second reporter\nfirst reporter"}},
    {{"read_null_with_reporters", read_null_with_reporters}, SIGSEGV, {NULL}},
    {{"fault_in_threads", fault_in_threads}, 100, {NULL}},
    {{"read_null", read_null}, SIGSEGV, {NULL}},
    {{"read_null_with_handler", read_null_with_handler}, 133, {NULL}},
    {{"run_without_room", run_without_room}, 100, {NULL}},
    {{"run_locked", run_locked}, 100, {NULL}},
};

TEST(each_ends_with_its_report)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        static char guard_all[] = "HAKMEM_GUARD=1";
        struct child_end end;
        child_exec(cases[i].child.name, child_put, guard_all, &end);
        int how = WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 100 + WEXITSTATUS(end.status);
        bool right = how == cases[i].how &&
                     (cases[i].patterns[0] != NULL || strstr(end.text, "hakmem") == NULL);
        for (const char **pattern = cases[i].patterns; *pattern != NULL; pattern++) {
            right = right && text_matches(end.text, *pattern);
        }
        if (!right) {
            fail_msg("%s: ended with %d and <%s>", cases[i].child.name, how, end.text);
        }
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        child_run_case(&cases[i].child, argc, argv);
    }
    return tests_main(argc, argv, NULL, NULL);
}
