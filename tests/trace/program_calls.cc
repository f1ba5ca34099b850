/* SPDX-License-Identifier: MIT */
/* program_calls.cc: what the tests of the recorder record. Usage: program_calls MODE [ARGUMENT]
 *
 *   entries          COUNT calls of each entry point
 *   exchange         threads that free each other's blocks
 *   tight            two threads that do so as fast as they can
 *   crowd            a thousand threads that do so, all alive at once; the first one only waits
 *   fork             a child that allocates, and one that only ends
 *   bare             the same by the system call, of which no library hears
 *   exec             becomes `program_calls entries`
 *   spawn            starts `program_calls entries` by posix_spawn
 *   crash            dies by SIGSEGV after many calls
 *   killed           dies by SIGKILL while threads free each other's blocks
 *   quick            ends by _exit
 *   quickly          ends by quick_exit
 *   descriptors      has no free descriptor for a while
 *   late             frees in a destructor of a thread's key and after main
 *   failing          asks for more than there is
 *   handler          a signal handler that allocates, at any moment
 *   large            a large block of which one page is used
 */
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace
{

constexpr int COUNT = 1000;
constexpr int EXCHANGES = 200000;
constexpr int SLOTS = 64;
constexpr unsigned THREADS = 6;
constexpr unsigned CROWD = 1000;

/* Keeps the compiler from dropping a pair of calls. */
template <typename Pointer>
Pointer opaque(Pointer pointer)
{
    __asm__ volatile("" : "+r"(pointer)::"memory");
    return pointer;
}

void once_each()
{
    struct alignas(128) wide {
        char bytes[128];
    };
    void *pointer = opaque(malloc(10));
    pointer = opaque(realloc(pointer, 100));
    free(pointer);
    free(opaque(calloc(3, 7)));
    free(opaque(realloc(nullptr, 33)));
    free(opaque(reallocarray(nullptr, 3, 11)));
    free(opaque(aligned_alloc(64, 128)));
    free(opaque(memalign(256, 10)));
    free(opaque(valloc(10)));
    free(opaque(pvalloc(10)));
    if (posix_memalign(&pointer, 32, 50) == 0) {
        free(opaque(pointer));
    }
    free(opaque(static_cast<void *>(nullptr)));
    delete opaque(new int);
    delete[] opaque(new int[20]);
    delete opaque(new wide);
    delete[] opaque(new wide[2]);
    ::operator delete(opaque(::operator new(9, std::nothrow)), std::nothrow);
    ::operator delete[](opaque(::operator new[](9, std::nothrow)), std::nothrow);
    ::operator delete(opaque(::operator new(10)), size_t(10));
    ::operator delete[](opaque(::operator new[](10)), size_t(10));
    ::operator delete(opaque(::operator new(10, std::align_val_t(64), std::nothrow)),
                      std::align_val_t(64), std::nothrow);
    ::operator delete(opaque(::operator new(10, std::align_val_t(64))), size_t(10),
                      std::align_val_t(64));
}

void entries()
{
    for (int i = 0; i < COUNT; i++) {
        once_each();
    }
}

/* Each thread puts a block into a slot and frees or resizes what it finds there. A slot holds the
 * number of its block's thread as well, in bits that addresses of programs do not use. Prints how
 * many blocks other threads freed and resized: that is up to the schedule, but the main thread
 * frees those that are left in the slots. */
void exchange_until(int killed_at)
{
    constexpr unsigned THREAD_SHIFT = 56;
    constexpr uintptr_t BLOCK_MASK = (uintptr_t(1) << THREAD_SHIFT) - 1;
    static std::atomic<int> done;
    static std::atomic<uintptr_t> slots[SLOTS];
    static std::atomic<int> freed, freed_elsewhere, resized_elsewhere;
    static std::atomic<unsigned> ready;
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < THREADS; number++) {
        threads.emplace_back([number, killed_at] {
            uint64_t random = number + 1;
            for (ready++; ready < THREADS;) {
                std::this_thread::yield();
            }
            for (int i = 0; i < EXCHANGES; i++) {
                if (i % 50 == 0) {
                    std::this_thread::yield(); /* few processors: threads take turns */
                }
                random = random * 6364136223846793005 + 1442695040888963407;
                uintptr_t fresh = reinterpret_cast<uintptr_t>(malloc(random >> 33 & 127)) |
                                  uintptr_t(number) << THREAD_SHIFT;
                uintptr_t held = slots[(random >> 42) % SLOTS].exchange(fresh);
                void *found = reinterpret_cast<void *>(held & BLOCK_MASK);
                bool is_other = found != nullptr && held >> THREAD_SHIFT != number;
                if ((random >> 50) % 8 == 0) {
                    found = realloc(found, 1 + (random >> 53) % 500);
                    resized_elsewhere += is_other;
                }
                freed += found != nullptr;
                freed_elsewhere += is_other;
                free(found);
                if (++done == killed_at) {
                    raise(SIGKILL);
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (std::atomic<uintptr_t> &slot : slots) {
        void *found = reinterpret_cast<void *>(slot & BLOCK_MASK);
        freed += found != nullptr;
        freed_elsewhere += found != nullptr;
        free(found);
    }
    dprintf(STDOUT_FILENO, "%d of %d freed elsewhere, %d resized\n", freed_elsewhere.load(),
            freed.load(), resized_elsewhere.load());
}

void exchange()
{
    exchange_until(0);
}

void killed()
{
    exchange_until(THREADS * EXCHANGES / 2);
}

/* The time from a block's birth to its end in the other thread is a few dozen processor cycles. */
void tight()
{
    static struct alignas(64) {
        std::atomic<void *> block;
    } places[4];
    auto run = [](uint64_t random) {
        for (int i = 0; i < 5 * EXCHANGES; i++) {
            random = random * 6364136223846793005 + 1442695040888963407;
            free(places[(random >> 42) % 4].block.exchange(malloc(random >> 33 & 127)));
        }
    };
    std::thread other(run, 1);
    run(2);
    other.join();
    for (auto &place : places) {
        free(place.block.load());
    }
}

void crowd()
{
    static std::atomic<void *> slots[SLOTS];
    static std::atomic<unsigned> ready;
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < CROWD; number++) {
        threads.emplace_back([number] {
            uint64_t random = number + 1;
            for (ready++; ready < CROWD;) {
                std::this_thread::yield();
            }
            for (int i = 0; i < 50; i++) {
                random = random * 6364136223846793005 + 1442695040888963407;
                free(slots[(random >> 42) % SLOTS].exchange(malloc(random >> 33 & 127)));
                if (i % 7 == 0) {
                    std::this_thread::yield();
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

void fork_twice()
{
    void *before = malloc(77);
    if (fork() == 0) {
        free(before); /* of its parent's trace */
        entries();
        exit(0);
    }
    if (fork() == 0) {
        _exit(0);
    }
    while (wait(nullptr) > 0) {
    }
    free(before);
}

void fork_bare()
{
    entries();
    long pid = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (pid == 0) {
        entries();
        _exit(0);
    }
    waitpid(static_cast<pid_t>(pid), nullptr, 0);
}

void become_entries(const char *self)
{
    for (int i = 0; i < COUNT; i++) {
        free(opaque(malloc(5)));
    }
    execl(self, self, "entries", static_cast<char *>(nullptr));
    abort();
}

void spawn_entries(const char *self)
{
    char *words[] = {const_cast<char *>(self), const_cast<char *>("entries"), nullptr};
    pid_t pid;
    if (posix_spawn(&pid, self, nullptr, nullptr, words, environ) != 0) {
        abort();
    }
    waitpid(pid, nullptr, 0);
}

void crash()
{
    for (int i = 0; i < 20 * COUNT; i++) {
        free(opaque(malloc(5)));
    }
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

/* The trace has 20 * COUNT pairs of calls, since those in the middle are lost. */
void descriptors()
{
    struct rlimit none, before;
    auto some = [] {
        for (int i = 0; i < 10 * COUNT; i++) {
            free(opaque(malloc(5)));
        }
    };
    some();
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    some();
    setrlimit(RLIMIT_NOFILE, &before);
    some();
}

void late()
{
    static pthread_key_t key;
    static void *kept;
    pthread_key_create(&key, [](void *block) { free(block); });
    std::thread([] { pthread_setspecific(key, malloc(1234)); }).join();
    kept = malloc(4321);
    atexit([] { free(kept); });
}

void failing()
{
    volatile size_t much = SIZE_MAX / 2;
    void *block = malloc(10);
    bool thrown = false;
    if (malloc(much) != nullptr || calloc(much, 4) != nullptr || realloc(block, much) != nullptr) {
        abort();
    }
    try {
        opaque(::operator new(much));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || opaque(::operator new(much, std::nothrow)) != nullptr) {
        abort();
    }
    delete opaque(new int); /* recording goes on after the exception */
    free(block);
}

void handler()
{
    const struct itimerval each = {{0, 300}, {0, 300}};
    const struct itimerval none = {};
    struct sigaction action = {};
    static std::atomic<int> seen;
    /* Not allowed in general; here the program itself does not allocate meanwhile, but the
     * recorder may be at work. */
    action.sa_handler = [](int) {
        int error = errno;
        seen++;
        errno = error;
    };
    sigaction(SIGALRM, &action, nullptr);
    setitimer(ITIMER_REAL, &each, nullptr);
    for (int i = 0; i < 500 * COUNT || seen < 20; i++) {
        errno = 42;
        free(opaque(malloc(static_cast<size_t>(i) % 300)));
        if (errno != 42) {
            abort();
        }
    }
    setitimer(ITIMER_REAL, &none, nullptr);
}

void large()
{
    char *block = static_cast<char *>(malloc(64 << 20));
    block[0] = 1;
    opaque(block);
    for (int i = 0; i < 10; i++) {
        free(opaque(static_cast<char *>(malloc(100))));
    }
    free(block);
}

} // namespace

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    struct {
        const char *name;
        void (*run)();
    } const modes[] = {
        {"entries", entries},
        {"exchange", exchange},
        {"fork", fork_twice},
        {"bare", fork_bare},
        {"crash", crash},
        {"late", late},
        {"failing", failing},
        {"handler", handler},
        {"large", large},
        {"tight", tight},
        {"crowd", crowd},
        {"killed", killed},
        {"descriptors", descriptors},
    };
    for (const auto &each : modes) {
        if (strcmp(mode, each.name) == 0) {
            each.run();
            return 0;
        }
    }
    if (strcmp(mode, "exec") == 0) {
        become_entries(words[0]);
    } else if (strcmp(mode, "spawn") == 0) {
        spawn_entries(words[0]);
    } else if (strcmp(mode, "quick") == 0) {
        entries();
        _exit(9);
    } else if (strcmp(mode, "quickly") == 0) {
        entries();
        quick_exit(8);
    } else {
        return 2;
    }
    return 0;
}
