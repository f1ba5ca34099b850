/* SPDX-License-Identifier: MIT */
/* test_after_main.cc: the end of a process: atexit and at_quick_exit handlers, static and library
 * destructors that allocate and free, threads that go on allocating while the process exits.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace
{

std::vector<void *> kept_blocks;

void *fill(size_t size)
{
    void *block = get_memory(size);
    CHECK(block != nullptr);
    memset(block, 0x44, size);
    return block;
}

void churn(uint64_t seed, int rounds)
{
    void *slots[64] = {};
    for (int i = 0; i < rounds; i++) {
        uint64_t number = random_next(&seed);
        void *&slot = slots[number % 64];
        give_back(slot);
        slot = get_memory((number >> 8) % 1000 == 0 ? 3000000 : (number >> 8) % 5000);
        CHECK(slot != nullptr);
    }
    for (void *slot : slots) {
        give_back(slot);
    }
}

void free_kept_blocks()
{
    for (void *block : kept_blocks) {
        CHECK(static_cast<unsigned char *>(block)[0] == 0x44);
        give_back(block);
    }
    kept_blocks.clear();
    kept_blocks.shrink_to_fit();
    churn(3, 1000);
}

/* From glibc 2.41 on, a thread that is born and ends in exit after pthread_exit in main takes
 * itself for the last one and waits in exit for ever, with any malloc. */
bool may_have_threads_at_exit = true;

/* A static object which is destroyed after the handlers that main registers. */
struct last_user {
    std::list<std::string> lines;
    last_user() : lines(100, std::string(200, 'l'))
    {
    }
    ~last_user()
    {
        CHECK(lines.size() == 100 && lines.back() == std::string(200, 'l'));
        lines.clear();
        churn(4, 1000);
        /* A thread born after main. */
        if (may_have_threads_at_exit) {
            std::thread([] { churn(5, 1000); }).join();
        }
        free(fill(5000000));
    }
};
last_user static_last_user;

__attribute__((destructor)) void plain_destructor()
{
    churn(6, 1000);
}

/* The last thing of all that a program can do. */
void fini()
{
    churn(7, 1000);
}
__attribute__((section(".fini_array"), used)) void (*fini_entry)() = fini;

/* --- the ways to end ----------------------------------------------------------------------- */

std::atomic<int> threads_running;

void *run_forever(void *seed)
{
    threads_running++;
    for (uint64_t i = reinterpret_cast<uintptr_t>(seed);; i++) {
        churn(i * 2 + 1, 1000);
    }
    return nullptr;
}

void start_threads()
{
    for (uintptr_t i = 1; i <= 4; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, nullptr, run_forever, reinterpret_cast<void *>(i)) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
    while (threads_running < 4) {
        std::this_thread::yield();
    }
}

void *exit_from_thread(void *)
{
    exit(0);
}

void *end_process_later(void *)
{
    churn(9, 20000);
    return nullptr;
}

/* Ends the process in the way `kind` names; returns for "return". */
void end(const std::string &kind)
{
    for (int size : {10, 1000, 20000, 300000, 4000000}) {
        kept_blocks.push_back(fill(static_cast<size_t>(size)));
    }
    CHECK(atexit(free_kept_blocks) == 0);
    pthread_t thread;
    if (kind == "main ends first") {
        /* The main thread's cache is given up while the process lives on. */
        may_have_threads_at_exit = false;
        CHECK(pthread_create(&thread, nullptr, end_process_later, nullptr) == 0);
        pthread_exit(nullptr);
    }
    if (kind != "return" && kind != "exit") {
        start_threads();
    }
    if (kind.rfind("exit", 0) == 0) {
        exit(0);
    } else if (kind == "a thread exits") {
        CHECK(pthread_create(&thread, nullptr, exit_from_thread, nullptr) == 0);
        pthread_join(thread, nullptr);
    } else if (kind == "quick_exit") {
        CHECK(at_quick_exit(free_kept_blocks) == 0);
        quick_exit(0);
    } else if (kind == "_exit") {
        _exit(0);
    }
}

const char *const kinds[] = {
    "return",         "return beside threads", "exit",       "exit beside threads",
    "a thread exits", "main ends first",       "quick_exit", "_exit"};

} // namespace

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        alarm(240);
        end(argv[1]);
        return 0;
    }
    const char *const none = nullptr; /* of variables */
    for (const char *kind : kinds) {
        for (size_t i = 0; i < 20; i++) {
            run_again(kind, &none);
        }
    }
    return 0;
}
