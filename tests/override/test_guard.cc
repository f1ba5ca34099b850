/* SPDX-License-Identifier: MIT */
/* test_guard.cc: a program on hakmem with HAKMEM_GUARD finds its own errors, and the report names
 * the code: of the access, of the allocation and of the free. The option is read at start, so the
 * program runs itself anew with it.
 *
 * Four functions lie each in a section of its own, so that a frame is known by its address.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <csignal>
#include <string>
#include <thread>

#define PLANT(name) __attribute__((noinline, section("text_" #name)))
extern "C" {
extern const char __start_text_makes[], __stop_text_makes[];
extern const char __start_text_frees[], __stop_text_frees[];
extern const char __start_text_reads[], __stop_text_reads[];
extern const char __start_text_uses[], __stop_text_uses[];
}

static PLANT(makes) char *makes()
{
    auto *block = static_cast<char *>(opaque_pointer(new char[200]));
    block[0] = 1;
    return block;
}

static PLANT(frees) void frees(char *block)
{
    delete[] static_cast<char *>(opaque_pointer(block));
    __asm__ volatile("" : : : "memory"); /* no tail call */
}

static PLANT(reads) char reads(const volatile char *block)
{
    return block[100];
}

/* At a rate above 1 the error has to come often enough. */
static PLANT(uses) void use_after_free(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        char *block = makes();
        std::thread other([block] { frees(block); });
        other.join();
        (void)reads(static_cast<const char *>(opaque_pointer(block)));
    }
}

static std::string output_of(const char *option, const char *argument, int *status)
{
    static char text[100000];
    const char *const variables[] = {"HAKMEM_GUARD", option, nullptr};
    struct again program = start_again(argument, AGAIN_ERRORS, variables);
    read_to_end(program.ends[2], text, sizeof text);
    *status = status_of(program.process);
    return text;
}

/* True: a frame between the line that has `title` and the next title lies in the section. The
 * program writes first where its sections are, because each run has other addresses. */
static bool has_frame(const std::string &text, const std::string &title, const std::string &section)
{
    size_t known = text.find("section " + section + " "), at = text.find("hakmem:   " + title);
    unsigned long start = 0, stop = 0;
    CHECK(known != std::string::npos && at != std::string::npos);
    CHECK(sscanf(text.c_str() + known + 9 + section.size(), "%lx %lx", &start, &stop) == 2);
    const std::string frame = "hakmem:     #";
    for (at = text.find('\n', at) + 1; text.compare(at, frame.size(), frame) == 0;
         at = text.find('\n', at) + 1) {
        unsigned long address = strtoul(text.c_str() + text.find("0x", at), nullptr, 16);
        if (address >= start && address < stop) {
            return true;
        }
    }
    return false;
}

static void check_report(const char *option, const char *argument)
{
    int status = 0;
    std::string text = output_of(option, argument, &status);
    bool told = text.find("hakmem: fatal: use after free") != std::string::npos &&
                text.find(", 100 bytes inside a freed block of 200 bytes") != std::string::npos;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV || !told ||
        !has_frame(text, "accessed", "reads") || !has_frame(text, "accessed", "uses") ||
        !has_frame(text, "allocated", "makes") || !has_frame(text, "freed", "frees")) {
        dprintf(2, "HAKMEM_GUARD=%s %s: status %d, <%s>\n", option, argument, status, text.c_str());
        FAIL("a report with three stacks");
    }
}

static void write_section(const char *name, const char *start, const char *stop)
{
    dprintf(2, "section %s %lx %lx\n", name, reinterpret_cast<unsigned long>(start),
            reinterpret_cast<unsigned long>(stop));
}

int main(int argc, char **argv)
{
    (void)prove_served();
    if (argc > 1) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        write_section("makes", __start_text_makes, __stop_text_makes);
        write_section("frees", __start_text_frees, __stop_text_frees);
        write_section("reads", __start_text_reads, __stop_text_reads);
        write_section("uses", __start_text_uses, __stop_text_uses);
        use_after_free(atoi(argv[1]));
        return 0;
    }
    check_report("1", "1");
    /* A round without a guarded block has the probability 0.99, so 4,000 have 10 to the -17. */
    check_report("100", "4000");
    return 0;
}
