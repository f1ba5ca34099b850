/* SPDX-License-Identifier: MIT */
/* proof.cc: says which file serves each function of the malloc family in this process, and shows
 * that they work together.
 *
 * Rule 1 of the laboratory: no timing before this is known. The program is run the way the arm will
 * be (same LD_PRELOAD, same environment) and prints lines with a tab:
 *
 *   FUNCTION  FILE        the file that defines the address a program gets; empty: nobody does
 *   per_cpu   true|false  google tcmalloc only: whether its per-CPU caches are active
 *
 * Before that, threads allocate in every way there is and hand blocks to each other, each block
 * filled with a pattern that its last owner checks. Exit status: 0 all well, 1 a check failed (one
 * line on stderr says which).
 *
 * It is C++ because operator new has to be looked up in a process that has libstdc++: there, a
 * library that only overrides malloc must not seem to own it.
 */
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <unistd.h>

namespace
{

constexpr unsigned thread_count = 4;
constexpr unsigned steps_per_thread = 6000;
constexpr size_t slot_count = 256;
constexpr size_t size_min = 32; /* room for the head of a block */
constexpr size_t small_max = 2048;
constexpr size_t large_max = size_t{1} << 20;
constexpr unsigned large_one_in = 128;
constexpr unsigned seconds_max = 60; /* an allocator that hangs ends by SIGALRM */

enum way {
    WAY_MALLOC,
    WAY_CALLOC,
    WAY_REALLOC,
    WAY_POSIX_MEMALIGN,
    WAY_ALIGNED_ALLOC,
    WAY_MEMALIGN,
    WAY_NEW,
    WAY_NEW_ARRAY,
    WAY_NEW_SIZED,
    WAY_NEW_ALIGNED,
    WAY_COUNT
};

/* The head of each block; the rest is filled with `pattern`. */
struct block {
    size_t size;
    way how;
    unsigned char pattern;
};

static_assert(sizeof(block) <= size_min, "the smallest block holds its head");

std::atomic<block *> shared_slots[slot_count];

[[noreturn]] void fail(const char *sentence)
{
    static_cast<void>(fprintf(stderr, "proof: %s\n", sentence));
    _exit(1);
}

void check(bool condition, const char *sentence)
{
    if (!condition) {
        fail(sentence);
    }
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

bool is_filled(const unsigned char *from, size_t size, unsigned char with)
{
    return size == 0 || (from[0] == with && memcmp(from, from + 1, size - 1) == 0);
}

bool is_aligned(const void *pointer, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

void *grow_by_realloc(size_t size)
{
    size_t half = size / 2;
    void *small = malloc(half);
    check(small != nullptr, "malloc returned NULL");
    memset(small, 0x5a, half);
    void *grown = realloc(small, size);
    check(grown != nullptr && is_filled(static_cast<unsigned char *>(grown), half, 0x5a),
          "realloc lost what was in the block");
    return grown;
}

void *get_memory(way how, size_t size, size_t alignment)
{
    void *memory = nullptr;
    switch (how) {
    case WAY_MALLOC:
        return malloc(size);
    case WAY_CALLOC:
        memory = calloc(1, size);
        check(memory == nullptr || is_filled(static_cast<unsigned char *>(memory), size, 0),
              "calloc gave memory that is not zero");
        return memory;
    case WAY_REALLOC:
        return grow_by_realloc(size);
    case WAY_POSIX_MEMALIGN:
        check(posix_memalign(&memory, alignment, size) == 0, "posix_memalign failed");
        return memory;
    case WAY_ALIGNED_ALLOC:
        return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    case WAY_MEMALIGN:
        return memalign(alignment, size);
    case WAY_NEW_ARRAY:
        return ::operator new[](size);
    case WAY_NEW_ALIGNED:
        return ::operator new (size, std::align_val_t{alignment});
    default:
        return ::operator new(size);
    }
}

bool honours_alignment(way how)
{
    return how == WAY_POSIX_MEMALIGN || how == WAY_ALIGNED_ALLOC || how == WAY_MEMALIGN ||
           how == WAY_NEW_ALIGNED;
}

block *make_block(uint64_t *random)
{
    uint64_t dice = random_next(random);
    auto how = static_cast<way>(dice % WAY_COUNT);
    size_t size_max = (dice >> 8) % large_one_in == 0 ? large_max : small_max;
    size_t size = size_min + (dice >> 16) % (size_max - size_min);
    size_t alignment = size_t{16} << (dice >> 40) % 8;
    if (how == WAY_NEW_ALIGNED) {
        alignment = 64; /* the deleter has to name it too */
    }
    void *memory = get_memory(how, size, alignment);
    check(memory != nullptr, "an allocation returned NULL");
    check(is_aligned(memory, honours_alignment(how) ? alignment : 16), "a block is misaligned");
    check(malloc_usable_size(memory) >= size, "malloc_usable_size is smaller than the request");
    auto *made = static_cast<block *>(memory);
    *made = {size, how, static_cast<unsigned char>(dice >> 48)};
    memset(made + 1, made->pattern, size - sizeof(block));
    return made;
}

void release_block(block *old)
{
    if (old == nullptr) {
        return;
    }
    check(is_filled(reinterpret_cast<unsigned char *>(old + 1), old->size - sizeof(block),
                    old->pattern),
          "a block was overwritten while it was in use");
    switch (old->how) {
    case WAY_NEW:
        ::operator delete(old);
        break;
    case WAY_NEW_ARRAY:
        ::operator delete[](old);
        break;
    case WAY_NEW_SIZED:
#if defined(__cpp_sized_deallocation)
        ::operator delete(old, old->size);
#else /* clang has it only on request */
        ::operator delete(old);
#endif
        break;
    case WAY_NEW_ALIGNED:
        ::operator delete (old, std::align_val_t{64});
        break;
    default:
        free(old);
    }
}

void *exercise(void *seed)
{
    uint64_t random = *static_cast<uint64_t *>(seed);
    for (unsigned step = 0; step < steps_per_thread; step++) {
        block *made = make_block(&random);
        /* acq_rel: the block's content travels to whichever thread takes it out. */
        block *old = shared_slots[random_next(&random) % slot_count].exchange(
            made, std::memory_order_acq_rel);
        release_block(old);
    }
    return nullptr;
}

void exercise_all(void)
{
    pthread_t threads[thread_count];
    uint64_t seeds[thread_count];
    for (unsigned i = 0; i < thread_count; i++) {
        seeds[i] = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
        check(pthread_create(&threads[i], nullptr, exercise, &seeds[i]) == 0,
              "a thread could not be started");
    }
    for (pthread_t thread : threads) {
        check(pthread_join(thread, nullptr) == 0, "a thread could not be joined");
    }
    for (auto &slot : shared_slots) {
        release_block(slot.exchange(nullptr, std::memory_order_acq_rel));
    }
}

void print_owner(const char *name, const char *symbol)
{
    Dl_info info;
    char path[PATH_MAX];
    void *address = dlsym(RTLD_DEFAULT, symbol);
    const char *file = "";
    if (address != nullptr && dladdr(address, &info) != 0 && info.dli_fname != nullptr) {
        const char *real = realpath(info.dli_fname, path);
        file = real != nullptr ? real : info.dli_fname;
    }
    printf("%s\t%s\n", name, file);
}

void print_serving(void)
{
    for (const char *name : {"malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc",
                             "posix_memalign", "malloc_usable_size"}) {
        print_owner(name, name);
    }
    print_owner("operator new", "_Znwm");
    print_owner("operator new[]", "_Znam");
    print_owner("operator delete", "_ZdlPv");
    print_owner("operator delete[]", "_ZdaPv");
}

/* google tcmalloc falls back to per-thread caches, silently, when glibc registered the thread's
 * restartable sequences before it; this function of its own tells. */
void print_per_cpu(void)
{
    void *address = dlsym(RTLD_DEFAULT, "MallocExtension_Internal_GetPerCpuCachesActive");
    if (address != nullptr) {
        printf("per_cpu\t%s\n", reinterpret_cast<bool (*)()>(address)() ? "true" : "false");
    }
}

} // namespace

int main()
{
    alarm(seconds_max);
    exercise_all();
    print_serving();
    print_per_cpu();
    return 0;
}
