/* SPDX-License-Identifier: MIT */
/* test_observe.c: a process that is observed answers through its file, whatever else it does:
 * starts and stops the observer often and in many threads, forks, execs, closes all descriptors,
 * changes its user, loses its main thread. Where there is no /dev/shm, or no room in it, the
 * process goes on and says so in one sentence.
 *
 * The option is read once at start, so the program runs itself anew with it.
 *
 * ctest: no-qemu own-shm
 */
#include "override.h"

#include "hakmem/observe.h"

#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mount.h>

enum { REPLY_OFFSET = 4096, ROUNDS = 20, THREADS = 8, ASKS = 200, PATH_SIZE = 64 };
enum { WAIT_MS = 120000 }; /* until something hangs */

/* The fields of src/observe/observer.h that a reader needs. */
struct page {
    char magic[8];
    uint32_t version, process;
    uint64_t start_time;
    uint32_t request_number, reply_number;
    uint64_t reply_size;
    uint32_t status, unused[3];
    char request[960];
};

static int (*observe_start)(void);
static int (*observe_stop)(void);

/* Under LD_PRELOAD the program refers to nothing of the library. */
static void find_functions(void)
{
    observe_start = (int (*)(void))find_in(RTLD_DEFAULT, "hak_observe_start");
    observe_stop = (int (*)(void))find_in(RTLD_DEFAULT, "hak_observe_stop");
}

static void name_file(char path[PATH_SIZE], pid_t process)
{
    snprintf(path, PATH_SIZE, "/dev/shm/hakmem.%d.%d", (int)geteuid(), (int)process);
}

static bool has_file(pid_t process)
{
    char path[PATH_SIZE];
    name_file(path, process);
    return access(path, F_OK) == 0;
}

/* 0: there is no file. */
static uint64_t inode_of_file(pid_t process)
{
    char path[PATH_SIZE];
    struct stat about;
    name_file(path, process);
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

/* The file is not that of the program before exec, which had the same number and start time. */
static bool has_new_file(pid_t process)
{
    uint64_t inode = inode_of_file(process);
    return inode != 0 && inode != strtoull(getenv("TEST_OLD_INODE"), NULL, 10);
}

/* In a new process: an earlier one of its number may have been killed and have left a file. */
static void remove_old_file(void)
{
    char path[PATH_SIZE];
    name_file(path, getpid());
    unlink(path);
}

static bool becomes(bool (*is)(pid_t), pid_t process, bool wanted)
{
    for (int waited = 0; waited < WAIT_MS; waited++) {
        if (is(process) == wanted) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* The size of the reply, whose first bytes go to `start`, which has 16. */
static uint64_t ask_page(int file, struct page *page, const char *request, char *start)
{
    CHECK(flock(file, LOCK_EX) == 0);
    uint32_t number = page->request_number + 1;
    strcpy(page->request, request);
    __atomic_store_n(&page->request_number, number, __ATOMIC_RELEASE);
    syscall(SYS_futex, &page->request_number, FUTEX_WAKE, 100, NULL, NULL, 0);
    for (int waited = 0; __atomic_load_n(&page->reply_number, __ATOMIC_ACQUIRE) != number;) {
        CHECK(waited++ < WAIT_MS * 10);
        usleep(100);
    }
    uint64_t size = page->status == 0 ? page->reply_size : 0;
    CHECK(pread(file, start, 16, REPLY_OFFSET) >= 0);
    CHECK(flock(file, LOCK_UN) == 0);
    return size;
}

/* Field 22 of /proc/PID/stat. */
static uint64_t start_time_of(pid_t process)
{
    char path[PATH_SIZE], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(file, text, sizeof text - 1);
    CHECK(file >= 0 && length > 0);
    close(file);
    text[length] = '\0';
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    CHECK(at != NULL);
    return strtoull(at, NULL, 10);
}

/* Maps the process's file as soon as there is one with its head, which the observer writes last.
 * There may be a file of an earlier process of that number, which was killed. */
static struct page *open_page(pid_t process, int *file)
{
    char path[PATH_SIZE];
    uint64_t start = start_time_of(process);
    name_file(path, process);
    for (int waited = 0; waited < WAIT_MS; waited++) {
        *file = open(path, O_RDWR | O_CLOEXEC);
        if (*file >= 0 && lseek(*file, 0, SEEK_END) >= 4096) {
            struct page *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
            CHECK(page != MAP_FAILED);
            if (memcmp(page->magic, "hakmem\0O", 8) == 0 && page->start_time == start) {
                return page;
            }
            munmap(page, 4096);
        }
        CHECK(*file < 0 || close(*file) == 0);
        usleep(1000);
    }
    FAIL("it is not observed");
    return NULL;
}

/* Asks the process and looks at the reply. */
static void ask(pid_t process)
{
    char start[16] = "";
    int file;
    struct page *page = open_page(process, &file);
    CHECK_EQUAL(page->version, 1);
    CHECK_EQUAL(page->process, process);
    CHECK(ask_page(file, page, "json", start) > 2000);
    CHECK(memcmp(start, "{\"hakmem\": ", 11) == 0);
    CHECK(ask_page(file, page, "full argument", start) > 2000);
    CHECK(memcmp(start, "hakmem ", 7) == 0);
    CHECK(ask_page(file, page, "no such request", start) == 0);
    CHECK_EQUAL(page->status, ENOENT);
    munmap(page, 4096);
    close(file);
}

static void ask_self(void)
{
    ask(getpid());
}

static bool has_threads(pid_t count)
{
    return threads_count(getpid()) == count;
}

static void wait_for(pid_t child, int wanted)
{
    CHECK(child >= 0);
    CHECK_EQUAL(status_of(child), wanted);
}

/* --- start and stop --- */

static void start_and_stop(void)
{
    char path[PATH_SIZE];
    name_file(path, getpid());
    unlink(path); /* a killed process that had this id may have left one */
    CHECK_EQUAL(observe_stop(), 0);
    for (int round = 0; round < 3; round++) {
        errno = 4711;
        CHECK_EQUAL(observe_start(), 0);
        CHECK_EQUAL(observe_start(), 0);
        CHECK_EQUAL(errno, 4711);
        CHECK(becomes(has_threads, 2, true));
        ask_self();
        CHECK_EQUAL(observe_stop(), 0);
        CHECK_EQUAL(observe_stop(), 0);
        CHECK_EQUAL(errno, 4711);
        CHECK(!has_file(getpid()));
        CHECK(becomes(has_threads, 1, true));
    }
}

static void *start_often(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQUAL(observe_start(), 0);
        if (round % 10 == 9) {
            CHECK_EQUAL(observe_stop(), 0);
        }
        free(malloc(1000));
    }
    return argument;
}

static void start_in_threads(void)
{
    pthread_t threads[THREADS];
    start_all(threads, THREADS, start_often, NULL);
    join_all(threads, THREADS);
    CHECK_EQUAL(observe_start(), 0);
    CHECK(becomes(has_threads, 2, true));
    ask_self();
}

/* A process's children do not disturb its file. */
static void fork_while_observed(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            remove_old_file();
            CHECK_EQUAL(threads_count(getpid()), 1); /* no option asks for an observer there */
            CHECK(!has_file(getpid()));
            CHECK_EQUAL(observe_stop(), 0);
            if (round % 2 == 0) {
                CHECK_EQUAL(observe_start(), 0);
                ask_self();
                round % 4 == 0 ? exit(0) : _exit(0); /* both remove the file */
            }
            _exit(0);
        }
        wait_for(child, 0);
        CHECK(!has_file(child));
    }
    ask_self();
}

static void no_room_in_a_table_of_threads(void)
{
    struct rlimit before, none;
    if (geteuid() == 0) {
        return; /* the limit is not for root */
    }
    CHECK(observe_stop() == 0 && getrlimit(RLIMIT_NPROC, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    CHECK_EQUAL(observe_start(), EAGAIN);
    CHECK(setrlimit(RLIMIT_NPROC, &before) == 0);
    CHECK_EQUAL(observe_start(), 0);
    ask_self();
}

static void run_api(void)
{
    prove_served();
    start_and_stop();
    start_in_threads();
    fork_while_observed();
    no_room_in_a_table_of_threads();
    for (int i = 0; i < ASKS; i++) {
        ask_self();
    }
}

/* --- the option --- */

static void run_option(void)
{
    prove_served();
    ask_self();
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &mine, NULL) == 0 && kill(getpid(), SIGUSR1) == 0);
    struct timespec second = {1, 0};
    CHECK_EQUAL(sigtimedwait(&mine, NULL, &second), SIGUSR1);
    for (int file = 3; file < 1024; file++) {
        close(file);
    }
    CHECK_EQUAL(dup(0), 3); /* it holds no descriptor of the program's table */
    close(3);
    ask_self();
    pid_t child = fork();
    if (child == 0) {
        ask_self();
        exit(0);
    }
    wait_for(child, 0);
    CHECK(!has_file(child));
    child = fork();
    if (child == 0) {
        char inode[32];
        CHECK(becomes(has_file, getpid(), true));
        snprintf(inode, sizeof inode, "%llu", (unsigned long long)inode_of_file(getpid()));
        CHECK(setenv("TEST_OLD_INODE", inode, 1) == 0);
        execl("/proc/self/exe", "self", "option-after-exec", (char *)NULL);
        _exit(126);
    }
    wait_for(child, 0);
    CHECK(!has_file(child));
    child = fork();
    if (child == 0) {
        CHECK(becomes(has_file, getpid(), true));
        kill(getpid(), SIGKILL);
    }
    wait_for(child, SIGKILL);
    CHECK(has_file(child) || getenv("TEST_OWN_SHM") == NULL); /* readers remove it */
    char path[PATH_SIZE];
    name_file(path, child);
    unlink(path);
    ask_self();
}

static void *outlive_main(void *argument)
{
    usleep(100000);
    return argument;
}

/* The process ends with its last own thread, though two of hakmem's are left. */
static void run_end(void)
{
    pthread_t thread;
    CHECK(becomes(has_file, getpid(), true));
    alarm(WAIT_MS / 1000);
    CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0);
    pthread_exit(NULL);
}

/* The file stays with the user that made it. */
static void run_user(void)
{
    CHECK(becomes(has_file, getpid(), true));
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    usleep(1000);
}

static void run_after_exec(void)
{
    CHECK(becomes(has_new_file, getpid(), true));
    ask_self();
}

/* --- no /dev/shm --- */

static bool put_in_place(const char *kind)
{
    int user = geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (unshare(user | CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return false;
    }
    if (strcmp(kind, "full") == 0) {
        int file;
        char bytes[4096] = {0};
        if (mount("none", "/dev/shm", "tmpfs", 0, "size=4096") != 0) {
            return false;
        }
        CHECK((file = open("/dev/shm/filler", O_CREAT | O_WRONLY, 0600)) >= 0);
        CHECK(write(file, bytes, sizeof bytes) == sizeof bytes);
        close(file);
        return true;
    }
    if (strcmp(kind, "small") == 0) { /* for the file, but not for a reply */
        return mount("none", "/dev/shm", "tmpfs", 0, "size=8192") == 0;
    }
    return mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=4096") == 0;
}

static void run_refused(void)
{
    int wanted = strcmp(getenv("TEST_KIND"), "full") == 0 ? ENOSPC : EROFS;
    prove_served();
    CHECK(becomes(has_file, getpid(), false));
    CHECK_EQUAL(observe_start(), wanted);
    CHECK(!has_file(getpid()));
    CHECK_EQUAL(observe_stop(), 0);
    free(malloc(1000));
}

static void run_small(void)
{
    char start[16];
    int file;
    prove_served();
    struct page *page = open_page(getpid(), &file);
    CHECK(ask_page(file, page, "json", start) == 0);
    CHECK_EQUAL(page->status, ENOSPC);
    CHECK(ask_page(file, page, "full", start) == 0);
    CHECK_EQUAL(page->status, ENOSPC);
}

/* --- running itself --- */

static const struct part {
    const char *name, *kind; /* of /dev/shm */
    void (*run)(void);
} parts[] = {
    {"api", "", run_api},
    {"option", "", run_option},
    {"option-after-exec", "", run_after_exec},
    {"end", "", run_end},
    {"refused", "full", run_refused},
    {"refused", "read-only", run_refused},
    {"small", "small", run_small},
    {"user", "", run_user},
};

static void run_self(const char *self, const char *part, const char *kind)
{
    int ends[2];
    char said[4096] = "", line[256];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        remove_old_file();
        CHECK(setenv("TEST_KIND", kind, 1) == 0 &&
              setenv("HAKMEM_OBSERVE", strcmp(part, "api") == 0 ? "0" : "1", 1) == 0);
        CHECK(setenv("HAKMEM_SCAVENGER", strcmp(part, "end") == 0 ? "1" : "0", 1) == 0);
        if (*kind != '\0' && !put_in_place(kind)) {
            printf("no other /dev/shm: %s\n", strerror(errno));
            _exit(0);
        }
        dup2(ends[1], 2);
        execl(self, self, part, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    size_t length = read_to_end(ends[0], said, sizeof said);
    if (strcmp(part, "refused") == 0 && length != 0) {
        snprintf(line, sizeof line,
                 "hakmem: warning: HAKMEM_OBSERVE does nothing: its thread or file in /dev/shm "
                 "cannot be made: %s\n",
                 strcmp(kind, "full") == 0 ? "no space left" : "the file system is read-only");
        CHECK(strcmp(said, line) == 0);
    } else if (length != 0) {
        FAIL(said);
    }
    wait_for(child, 0);
    if (strcmp(part, "user") == 0) { /* it could not remove the file itself */
        char path[PATH_SIZE];
        name_file(path, child);
        unlink(path);
    }
    CHECK(!has_file(child));
}

int main(int count, char **arguments)
{
    find_functions();
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        const struct part *part = &parts[i];
        if (count > 1) {
            if (strcmp(part->name, arguments[1]) == 0) {
                part->run();
                return 0;
            }
        } else if (part->run != run_after_exec && (part->run != run_user || geteuid() == 0)) {
            run_self(arguments[0], part->name, part->kind);
        }
    }
    return count > 1;
}
