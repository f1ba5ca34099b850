/* SPDX-License-Identifier: MIT */
/* test_tls_destructors.cc: the end of a thread: pthread key destructors and C++ thread_local
 * destructors that allocate, free and set their key again, before and after the allocator's own
 * hook ran; more keys than the thread structure holds (setspecific callocs the second level).
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace
{

const size_t keys_count = 100; /* glibc keeps 32 in the thread structure */
pthread_key_t keys[keys_count];
std::atomic<size_t> destructor_calls;

struct value {
    size_t index;
    int rounds_left;
    char padding[100];
};

value *make_value(size_t index, int rounds_left)
{
    auto *made = static_cast<value *>(get_memory(sizeof(value)));
    CHECK(made != nullptr);
    made->index = index;
    made->rounds_left = rounds_left;
    memset(made->padding, static_cast<int>(index), sizeof made->padding);
    return made;
}

/* Called up to PTHREAD_DESTRUCTOR_ITERATIONS times for each key. */
void destroy_value(void *argument)
{
    auto *old = static_cast<value *>(argument);
    CHECK(old->index < keys_count);
    for (char byte : old->padding) {
        CHECK_EQUAL(byte, static_cast<char>(old->index));
    }
    destructor_calls++;
    void *block = get_memory((old->index * 977) % 70000);
    void *cleared = calloc(opaque_size(old->index + 1), opaque_size(31));
    CHECK(block != nullptr && cleared != nullptr);
    void *grown = realloc(opaque_pointer(block), opaque_size(old->index * 50 + 1));
    CHECK(grown != nullptr);
    if (old->rounds_left > 0) {
        value *next = make_value(old->index, old->rounds_left - 1);
        CHECK(pthread_setspecific(keys[old->index], next) == 0);
    }
    give_back(grown);
    give_back(cleared);
    give_back(old);
}

/* thread_local objects are destroyed before the keys, in reverse order, and may create others. */
struct inner {
    std::vector<std::string> lines;
    ~inner()
    {
        lines.clear();
        std::vector<std::string>(20, std::string(100, 'x')).swap(lines);
    }
};
thread_local inner thread_inner;

struct outer {
    std::unique_ptr<std::string> text = std::make_unique<std::string>(1000, 'o');
    ~outer()
    {
        thread_inner.lines.assign(50, *text); /* may well be its first use */
        text.reset();
    }
};
thread_local outer thread_outer;

std::atomic<void *> handed_over[64];

/* What a thread does before it ends; `number` chooses how much of it. */
void *run_thread(void *argument)
{
    size_t number = reinterpret_cast<uintptr_t>(argument);
    if (number % 3 != 0) {
        CHECK(thread_outer.text->size() == 1000);
    }
    size_t used_count = number % 4 == 0 ? keys_count : number % 7;
    for (size_t i = 0; i < used_count; i++) {
        size_t index = keys_count - 1 - i; /* the second level first */
        CHECK(pthread_setspecific(keys[index], make_value(index, static_cast<int>(number % 4))) ==
              0);
    }
    void *old = handed_over[number % 64].exchange(get_memory(number % 3000));
    give_back(old); /* another, ended thread's */
    return nullptr;
}

/* A thread whose first allocator call is made by a destructor. */
pthread_key_t late_key;

void allocate_late(void *)
{
    void *block = get_memory(100);
    CHECK(block != nullptr);
    give_back(block);
    give_back(get_memory(300000));
}

void *run_late(void *)
{
    CHECK(pthread_setspecific(late_key, &late_key) == 0);
    return nullptr;
}

void run_threads(size_t count)
{
    const size_t at_once = 8;
    pthread_t threads[at_once];
    for (size_t i = 0; i < count; i += at_once) {
        for (size_t j = 0; j < at_once; j++) {
            void *argument = reinterpret_cast<void *>(i + j);
            void *(*const run)(void *) = (i + j) % 10 == 9 ? run_late : run_thread;
            CHECK(pthread_create(&threads[j], nullptr, run, argument) == 0);
        }
        for (pthread_t thread : threads) {
            CHECK(pthread_join(thread, nullptr) == 0);
        }
    }
}

void empty_handed_over()
{
    for (auto &one : handed_over) {
        give_back(one.exchange(nullptr));
    }
}

} // namespace

int main()
{
    prove_served();
    const size_t threads_count = 2000;
    CHECK(pthread_key_create(&late_key, allocate_late) == 0);
    for (pthread_key_t &key : keys) {
        CHECK(pthread_key_create(&key, destroy_value) == 0);
    }
    run_threads(200);
    empty_handed_over();
    size_t calls = destructor_calls;
    CHECK(calls > 200);
    malloc_trim(0); /* what is free depends on how many threads ran at once */
    size_t used_before = mallinfo2().uordblks;
    run_threads(threads_count);
    empty_handed_over();
    CHECK(destructor_calls > calls);
    malloc_trim(0);
    CHECK(mallinfo2().uordblks <=
          used_before + (size_t{1} << 20)); /* ended threads leave nothing */
    /* The main thread's own values are destroyed by pthread_exit. */
    CHECK(pthread_setspecific(keys[0], make_value(0, 3)) == 0);
    CHECK(pthread_setspecific(keys[99], make_value(99, 3)) == 0);
    CHECK(thread_outer.text->size() == 1000);
    pthread_exit(nullptr);
}
