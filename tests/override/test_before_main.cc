/* SPDX-License-Identifier: MIT */
/* test_before_main.cc: the allocator before main: as the first thing a process does at all (each
 * function of the family once), in constructors of libraries before and after it, in C++ static
 * initialisers; the memory is freed in main and after it.
 *
 * ctest: no-qemu no-secure
 */
#include "override.h"

#include <malloc.h>
#include <string>
#include <thread>
#include <vector>

namespace
{

/* --- the very first call ------------------------------------------------------------------- */

/* .preinit_array runs before every constructor, libc's own included: there is no environ yet, and
 * nobody has called the allocator. */
const int first_calls_count = 17;

void make_first_call(int number)
{
    void *block = nullptr;
    switch (number) {
    case 0:
        free(opaque_pointer(nullptr));
        break; /* glibc 2.44 does this (mimalloc #1341) */
    case 1:
        block = malloc(opaque_size(10));
        break;
    case 2:
        block = calloc(opaque_size(10), opaque_size(10));
        break;
    case 3:
        block = realloc(opaque_pointer(nullptr), opaque_size(10));
        break;
    case 4:
        block = reallocarray(opaque_pointer(nullptr), opaque_size(10), opaque_size(10));
        break;
    case 5:
        block = memalign(opaque_size(4096), opaque_size(10));
        break;
    case 6:
        block = aligned_alloc(opaque_size(1 << 21), opaque_size(10));
        break;
    case 7:
        CHECK(posix_memalign(&block, opaque_size(64), opaque_size(10)) == 0);
        break;
    case 8:
        block = valloc(opaque_size(10));
        break;
    case 9:
        block = pvalloc(opaque_size(10));
        break;
    case 10:
        CHECK(malloc_usable_size(opaque_pointer(nullptr)) == 0);
        break;
    case 11:
        CHECK(malloc_trim(0) >= 0);
        break;
    case 12:
        CHECK(mallinfo2().uordblks < (size_t{1} << 40));
        break;
    case 13:
        CHECK(mallopt(M_TRIM_THRESHOLD, 100000) >= 0);
        break;
    case 14:
        block = malloc(opaque_size(100000000));
        break;
    case 15:
        block = ::operator new(opaque_size(50));
        break;
    default:
        CHECK(malloc(opaque_size(SIZE_MAX)) == nullptr);
        break;
    }
    free(opaque_pointer(block));
}

void *preinit_block;
char first_call_mode[] = "first-call";

void preinit(int argc, char **argv, char **)
{
    /* By hand: nothing of libc is set up. */
    if (argc == 3 && strcmp(argv[1], first_call_mode) == 0) {
        make_first_call((argv[2][0] - '0') * 10 + argv[2][1] - '0');
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

/* --- runs of this program ------------------------------------------------------------------ */

/* Runs this program with LD_PRELOAD=`preload`; its standard error must hold the announcement. */
void run_self(const char *self, const char *preload, const char *mode, const char *number)
{
    int channel[2];
    CHECK(pipe(channel) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char pid[20];
        snprintf(pid, sizeof pid, "%d", static_cast<int>(getpid()));
        CHECK(setenv("HAKMEM_ANNOUNCE", pid, 1) == 0);
        CHECK(setenv("LD_PRELOAD", preload, 1) == 0);
        CHECK(dup2(channel[1], 2) == 2);
        close(channel[0]);
        close(channel[1]);
        execl(self, self, mode, number, static_cast<char *>(nullptr));
        _exit(126);
    }
    close(channel[1]);
    std::string output;
    char buffer[4096];
    for (ssize_t length; (length = read(channel[0], buffer, sizeof buffer)) > 0;) {
        output.append(buffer, static_cast<size_t>(length));
    }
    close(channel[0]);
    std::string what = std::string(mode) + " " + number + " with LD_PRELOAD=" + preload;
    dprintf(2, "%s", output.c_str());
    wait_for_success(child, what.c_str());
    if (!any_server_will_do()) {
        /* One line and nothing else: options were read although the first call came so early. */
        bool announced = output.rfind("hakmem: ", 0) == 0 &&
                         output.find("serves process") != std::string::npos &&
                         output.find('\n') == output.size() - 1;
        if (!announced) {
            dprintf(2, "%s: not announced, or more was printed\n", what.c_str());
        }
        CHECK(announced);
    }
}

} // namespace

int main(int argc, char **argv)
{
    enum served served = prove_served();
    check_everything();
    CHECK(atexit(free_after_main) == 0);
    if (argc > 1) {
        /* One of the runs below, which only had to come this far. */
        CHECK(strcmp(argv[1], first_call_mode) == 0 ||
              dlsym(RTLD_DEFAULT, "plugin_ctor_check") != nullptr);
        return 0;
    }
    char self[TEST_PATH_SIZE];
    char plugin[TEST_PATH_SIZE];
    own_path(self);
    plugin_path("ctor", plugin);
    const std::string library = served == SERVED_BY_PRELOAD ? preloaded_library_path() : "";
    for (int i = 0; i < first_calls_count; i++) {
        const char number[] = {static_cast<char>('0' + i / 10), static_cast<char>('0' + i % 10), 0};
        run_self(self, library.c_str(), first_call_mode, number);
    }
    run_self(self, (library + ":" + plugin).c_str(), "plugin", "");
    run_self(self, (plugin + (":" + library)).c_str(), "plugin", "");
    return 0;
}
