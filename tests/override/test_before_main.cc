/* SPDX-License-Identifier: MIT */
/* test_before_main.cc: the allocator before main: as the first thing a process does at all (each
 * function of the family once), in constructors of libraries before and after it, in C++ static
 * initialisers; the memory is freed in main and after it.
 *
 * ctest: no-qemu no-secure
 */
#include "override.h"

#include <string>
#include <thread>
#include <vector>

namespace
{

/* --- the very first call ------------------------------------------------------------------- */

/* .preinit_array runs before every constructor, libc's own included: there is no environ yet, and
 * nobody has called the allocator. */
void *(*const first_calls[])() = {
    [] { return opaque_pointer(nullptr); }, /* free, as glibc 2.44 does (mimalloc #1341) */
    [] { return malloc(opaque_size(10)); },
    [] { return calloc(opaque_size(10), opaque_size(10)); },
    [] { return realloc(opaque_pointer(nullptr), opaque_size(10)); },
    [] { return reallocarray(opaque_pointer(nullptr), opaque_size(10), opaque_size(10)); },
    [] { return memalign(opaque_size(4096), opaque_size(10)); },
    [] { return aligned_alloc(opaque_size(1 << 21), opaque_size(10)); },
    [] {
        void *block;
        CHECK(posix_memalign(&block, opaque_size(64), opaque_size(10)) == 0);
        return block;
    },
    [] { return valloc(opaque_size(10)); },
    [] { return pvalloc(opaque_size(10)); },
    [] {
        CHECK(malloc_usable_size(opaque_pointer(nullptr)) == 0 && malloc_trim(0) >= 0);
        return opaque_pointer(nullptr);
    },
    [] {
        CHECK(mallinfo2().uordblks < (size_t{1} << 40) && mallopt(M_TRIM_THRESHOLD, 100000) >= 0);
        return opaque_pointer(nullptr);
    },
    [] { return malloc(opaque_size(100000000)); },
    [] { return ::operator new(opaque_size(50)); },
    [] {
        CHECK(malloc(opaque_size(SIZE_MAX)) == nullptr);
        return opaque_pointer(nullptr);
    },
};

void *preinit_block;

const char first_call_mark = 'A'; /* and the number, from it on */

void preinit(int argc, char **argv, char **)
{
    /* By hand: nothing of libc is set up. */
    if (argc == 2 && argv[1][0] == first_call_mark) {
        free(first_calls[argv[1][1] - first_call_mark]());
    }
    preinit_block = malloc(opaque_size(1000));
    CHECK(preinit_block != nullptr);
    memset(preinit_block, 0x11, 1000);
}

__attribute__((section(".preinit_array"), used)) void (*const preinit_entry)(int, char **,
                                                                             char **) = preinit;

/* --- constructors and static objects ------------------------------------------------------- */

unsigned char *constructor_block;

__attribute__((constructor(101))) void early_constructor()
{
    free(opaque_pointer(nullptr));
    constructor_block = static_cast<unsigned char *>(malloc(opaque_size(30000)));
    CHECK(constructor_block != nullptr);
    memset(constructor_block, 0x22, 30000);
}

__attribute__((destructor(101))) void late_destructor()
{
    for (size_t i = 0; i < 30000; i++) {
        CHECK(constructor_block[i] == 0x22);
    }
    free(constructor_block);
    free(opaque_pointer(malloc(opaque_size(123))));
}

std::string static_string(5000, 's');
std::vector<std::string> static_vector(300, std::string(300, 'v'));

/* Threads before main: their caches are born and die before the program proper starts. */
struct thread_user {
    std::vector<std::vector<char>> made;
    thread_user() : made(4)
    {
        std::vector<std::thread> threads;
        for (auto &one : made) {
            threads.emplace_back([&one] { one.assign(100000, 't'); });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    ~thread_user()
    {
        for (auto &one : made) {
            CHECK(one.size() == 100000 && one[99999] == 't');
        }
    }
};
thread_user static_threads;

void check_everything()
{
    for (size_t i = 0; i < 1000; i++) {
        CHECK(static_cast<unsigned char *>(preinit_block)[i] == 0x11);
    }
    CHECK(static_string == std::string(5000, 's'));
    CHECK(static_vector.size() == 300 && static_vector[299] == std::string(300, 'v'));
    auto plugin_check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "plugin_ctor_check"));
    CHECK(plugin_check == nullptr || plugin_check() == 6);
}

void free_after_main()
{
    check_everything();
    free(preinit_block);
}

/* Runs this program with LD_PRELOAD=`preload`. What hakmem says of an option shows that it read
 * them although the first call came so early. */
void run_self(const std::string &preload, const char *argument)
{
    static char said[100000];

    const char *const variables[] = {"HAKMEM_BOGUS", "1", "LD_PRELOAD", preload.c_str(), nullptr};
    struct again program = start_again(argument, AGAIN_ERRORS, variables);
    read_to_end(program.ends[2], said, sizeof said);
    wait_for_success(program.process, argument);
    /* One line and nothing else. */
    CHECK(strcmp(said, "hakmem: HAKMEM_BOGUS=1 ignored: unknown option\n") == 0);
}

} // namespace

int main(int argc, char **argv)
{
    enum served served = prove_served();
    check_everything();
    CHECK(atexit(free_after_main) == 0);
    if (argc > 1) {
        /* One of the runs below, which only had to come this far. */
        CHECK(argv[1][0] == first_call_mark || dlsym(RTLD_DEFAULT, "plugin_ctor_check") != nullptr);
        return 0;
    }
    char plugin[TEST_PATH_SIZE];
    plugin_path("ctor", plugin);
    const std::string library = served == SERVED_BY_PRELOAD ? preloaded_library_path() : "";
    for (size_t i = 0; i < COUNT_OF(first_calls); i++) {
        const char argument[] = {first_call_mark, static_cast<char>(first_call_mark + i), 0};
        run_self(library, argument);
    }
    run_self(library + ":" + plugin, "plugin");
    run_self(plugin + (":" + library), "plugin");
    return 0;
}
