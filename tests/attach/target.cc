/* SPDX-License-Identifier: MIT */
/* target.cc: a program that is attached to (test_attach.py), again and again: whenever it finds
 * itself observed it stops the observer. What it does meanwhile must go on as if nobody had looked:
 *
 *   allocate   64 threads allocate and free all the time, and check what is in their blocks
 *   wait       threads wait in each system call in which a thread may be stopped; none may end
 *              early or with EINTR
 *   signals    queued signals with values come in all the time; none may be lost
 *   fork       a child after the other, with threads beside it
 *   compute    vector and scalar registers hold what a sum is made of
 *   rest       three threads that sleep: one in a signal handler, on a stack full of old words; a
 *              child's in the same; and one that waits for a futex without the C library
 *   protected  nobody but root may look into it
 *   filtered   becomes another program, whose system calls are filtered
 *
 * It ends when its standard input does, and says "good COUNT" if all was well. */
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static std::atomic<bool> over{false};
static std::atomic<uint64_t> done_count{0};

[[noreturn]] static void bad(const char *what)
{
    dprintf(2, "target: %s (errno %d: %s)\n", what, errno, strerror(errno));
    _exit(1);
}

static void require(bool good, const char *what)
{
    if (!good) {
        bad(what);
    }
}

/* --- allocate --- */

static void allocate(unsigned seed)
{
    std::vector<std::pair<unsigned char *, size_t>> blocks(200, {nullptr, 0});
    uint64_t random = seed;
    while (!over) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        auto &block = blocks[(random >> 33) % blocks.size()];
        if (block.first != nullptr) {
            require(block.first[0] == (unsigned char)block.second &&
                        block.first[block.second - 1] == (unsigned char)block.second,
                    "a block has changed");
        }
        delete[] block.first;
        block.second = 1 + (random >> 20) % ((random >> 50) % 64 == 0 ? 100000u : 500u);
        block.first = new unsigned char[block.second];
        block.first[0] = block.first[block.second - 1] = (unsigned char)block.second;
        done_count++;
    }
    for (auto &block : blocks) {
        delete[] block.first;
    }
}

/* --- wait --- */

static uint64_t now_ms()
{
    using namespace std::chrono;
    return (uint64_t)duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

template <typename Wait>
static void wait_often(Wait wait, const char *name)
{
    while (!over) {
        uint64_t before = now_ms();
        errno = 0;
        require(wait(), name);
        require(now_ms() - before >= 29, name); /* each takes 30 ms */
        done_count++;
    }
}

static void start_waits(std::vector<std::thread> &threads)
{
    threads.emplace_back(
        [] { wait_often([] { return poll(nullptr, 0, 30) == 0; }, "poll ended"); });
    threads.emplace_back([] {
        wait_often(
            [] {
                timespec time{0, 30000000};
                return nanosleep(&time, nullptr) == 0;
            },
            "nanosleep ended");
    });
    threads.emplace_back([] {
        wait_often(
            [] {
                timeval time{0, 30000};
                return select(0, nullptr, nullptr, nullptr, &time) == 0;
            },
            "select ended");
    });
    threads.emplace_back([] {
        int file = epoll_create1(0);
        wait_often(
            [file] {
                epoll_event event;
                return epoll_wait(file, &event, 1, 30) == 0;
            },
            "epoll_wait ended");
    });
    threads.emplace_back([] {
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
        wait_often(
            [&] {
                timespec time;
                clock_gettime(CLOCK_REALTIME, &time);
                time.tv_nsec += 31000000;
                time.tv_sec += time.tv_nsec / 1000000000;
                time.tv_nsec %= 1000000000;
                pthread_mutex_lock(&mutex);
                int result = pthread_cond_timedwait(&condition, &mutex, &time);
                pthread_mutex_unlock(&mutex);
                return result == ETIMEDOUT;
            },
            "pthread_cond_timedwait ended");
    });
    static int ends[2];
    require(pipe(ends) == 0, "pipe");
    threads.emplace_back([] {
        wait_often(
            [] {
                std::thread writer([] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(31));
                    require(write(ends[1], "x", 1) == 1, "write");
                });
                char byte;
                bool good = read(ends[0], &byte, 1) == 1;
                writer.join();
                return good;
            },
            "read ended");
    });
}

/* --- signals --- */

static std::atomic<uint64_t> taken_sum{0};

static void take_signal(int, siginfo_t *about, void *)
{
    taken_sum += (uint64_t)(uintptr_t)about->si_value.sival_ptr;
}

static void send_signals()
{
    uint64_t sent = 0;
    struct sigaction action = {};
    action.sa_sigaction = take_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGRTMIN + 3, &action, nullptr);
    for (uint64_t i = 1; !over; i++) {
        sigval value;
        value.sival_ptr = (void *)(uintptr_t)i;
        if (sigqueue(getpid(), SIGRTMIN + 3, value) == 0) {
            sent += i;
            done_count++;
        }
        if (i % 16 == 0) {
            usleep(200);
        }
    }
    for (int waited = 0; taken_sum != sent && waited < 20000; waited++) {
        usleep(1000);
    }
    require(taken_sum == sent, "signals were lost");
}

/* --- fork --- */

static void fork_often()
{
    while (!over) {
        pid_t child = fork();
        if (child == 0) {
            for (size_t size = 1; size < 100000; size *= 2) {
                free(malloc(size));
            }
            _exit(7);
        }
        int status = 0;
        require(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
        require(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child failed");
        done_count++;
    }
}

/* --- compute --- */

static void compute(unsigned seed)
{
    while (!over) {
        double sums[8] = {0}, scalar = 0;
        uint64_t whole = seed;
        for (unsigned i = 1; i <= 200000; i++) {
            for (unsigned lane = 0; lane < 8; lane++) {
                sums[lane] += (double)(i * (lane + 1));
            }
            scalar += 0.5 * i;
            whole = whole * 31 + i;
        }
        uint64_t again = seed;
        for (unsigned i = 1; i <= 200000; i++) {
            again = again * 31 + i;
        }
        for (unsigned lane = 0; lane < 8; lane++) {
            require(sums[lane] == 20000100000.0 * (lane + 1), "a vector register has changed");
        }
        require(scalar == 10000050000.0 && whole == again, "a register has changed");
        done_count++;
    }
}

/* --- rest --- */

/* Leaves return addresses of hakmem on the stack, and those to which handlers return. */
static __attribute__((noinline)) void leave_words(int depth)
{
    std::vector<void *> blocks;
    struct sigaction action = {};
    sigaction(SIGUSR1, nullptr, &action);
    sigaction(SIGUSR1, &action, nullptr);
    for (size_t i = 0; i < 3000; i++) {
        blocks.push_back(malloc(1 + i * 50));
    }
    for (void *block : blocks) {
        free(block);
    }
    if (depth > 0) {
        leave_words(depth - 1);
    }
}

/* Sleeps until the driver has written, in a frame that is not filled. */
static __attribute__((noinline)) void sleep_above_words()
{
    char hole[2048];
    pollfd input{0, POLLIN, 0};
    __asm__ volatile("" : : "r"(hole) : "memory");
    require(poll(&input, 1, -1) == 1, "poll");
}

static int tid_of_futex;

static void sleep_in_handler(int)
{
    pid_t child = fork();
    leave_words(10);
    if (child != 0) {
        dprintf(1, "%d %d\n", child, tid_of_futex);
    }
    sleep_above_words();
    if (child == 0) {
        _exit(7);
    }
    int status = 0;
    require(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "the child failed");
}

static void sleep_by_futex()
{
    static int word;
    tid_of_futex = (int)syscall(SYS_gettid);
#if defined(__x86_64__)
    while (!over) {
        timespec time{0, 50000000};
        register timespec *fourth __asm__("r10") = &time;
        long result = SYS_futex;
        __asm__ volatile("syscall"
                         : "+a"(result)
                         : "D"(&word), "S"(0), "d"(0), "r"(fourth)
                         : "rcx", "r11", "memory");
    }
#endif
}

static void rest(std::vector<std::thread> &threads)
{
    threads.emplace_back(sleep_by_futex);
    signal(SIGALRM, sleep_in_handler);
    ualarm(50000, 0);
    pollfd input{0, 0, 0};
    poll(&input, 1, -1);
    done_count = 1;
}

/* --- rights --- */

/* Becomes another program, under a filter: action, then numbers of system calls, "--", the words.
 */
static void exec_filtered(char **words)
{
    std::vector<sock_filter> steps = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)}; /* the number */
    auto action = (uint32_t)strtoul(*words++, nullptr, 0);
    for (; *words != nullptr && strcmp(*words, "--") != 0; words++) {
        steps.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)atoi(*words), 0, 1));
        steps.push_back(BPF_STMT(BPF_RET | BPF_K, action));
    }
    steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    sock_fprog program = {(unsigned short)steps.size(), steps.data()};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new rights");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("no filter");
        exit(77);
    }
    execvp(words[1], words + 1);
    bad("exec");
}

/* The main thread has ended; this one allocates until the driver has seen enough. */
__attribute__((noinline)) static void *live_on(void *)
{
    pollfd input{0, POLLIN, 0};
    while (poll(&input, 1, 1) == 0) {
        void *volatile block = malloc(100000);
        free(block);
    }
    exit(0);
}

static unsigned stop_observers()
{
    auto stop = (int (*)())dlsym(RTLD_DEFAULT, "hak_observe_stop");
    unsigned count = 0;
    char byte;
    require(stop != nullptr, "no hakmem");
    for (;;) {
        pollfd input{0, POLLIN, 0};
        int ready = poll(&input, 1, 1);
        if (ready > 0) {
            if (read(0, &byte, 1) <= 0) {
                return count;
            }
            require(stop() == 0, "stop"); /* a byte: the driver has looked */
            require(write(1, "\n", 1) == 1, "write");
            count++;
        }
    }
}

int main(int count, char **arguments)
{
    std::string mode = count > 1 ? arguments[1] : "";
    std::vector<std::thread> threads;
    if (mode == "allocate") {
        for (unsigned i = 0; i < 64; i++) {
            threads.emplace_back(allocate, i);
        }
    } else if (mode == "wait") {
        start_waits(threads);
    } else if (mode == "signals") {
        threads.emplace_back(send_signals);
        threads.emplace_back(allocate, 1u);
    } else if (mode == "fork") {
        threads.emplace_back(fork_often);
        threads.emplace_back(allocate, 1u);
    } else if (mode == "compute") {
        threads.emplace_back(compute, 1u);
        threads.emplace_back(compute, 2u);
    } else if (mode == "filtered" && count > 4) {
        exec_filtered(arguments + 2);
    } else if (mode == "rest") {
        rest(threads);
    } else if (mode == "main ended") {
        pthread_t thread;
        require(pthread_create(&thread, nullptr, live_on, nullptr) == 0, "thread");
        pthread_exit(nullptr);
    } else if (mode == "protected") {
        require(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "dumpable");
        require(write(1, "ready\n", 6) == 6, "write");
        done_count = 1;
    } else {
        bad("which mode?");
    }
    unsigned stops = stop_observers();
    while (done_count == 0) { /* a busy machine may not have let any of them run */
        usleep(1000);
    }
    over = true;
    for (auto &thread : threads) {
        thread.join();
    }
    printf("good %u\n", stops);
    return 0;
}
