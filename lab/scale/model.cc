// SPDX-License-Identifier: MIT
// model.cc: reads lackey's trace of scale.c and counts what caches that keep each other in step
// (MESI) would have to do, if each thread had a processor of its own.
//
// Private caches are endless, so a line moves only because another processor had it. Half of the
// processors are in each of two sockets. For a lock it counts how often it is taken, and the
// instructions, moved lines and locked instructions between taking it and releasing it.
//
// stdin: the trace and the lines that scale prints. Arguments: THREADS, then NAME=OFFSET of each
// lock in the library whose file name contains the last argument. stdout: JSON.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace
{

constexpr unsigned processors_max = 512;
constexpr unsigned none = ~0u;

enum cost { INSTRUCTIONS, ATOMICS, ATOMICS_SHARED, INVALIDATED, WITHIN, BETWEEN, COST_COUNT };
constexpr const char *cost_names[COST_COUNT] = {"instructions", "atomics", "atomics_shared",
                                                "invalidated",  "within",  "between"};
using costs = std::array<uint64_t, COST_COUNT>;

// sum += later - earlier
void add(costs &sum, const costs &later, const costs &earlier = {})
{
    for (unsigned i = 0; i < COST_COUNT; i++) {
        sum[i] += later[i] - earlier[i];
    }
}

void print(const char *name, const costs &each)
{
    const char *separator = "";
    std::printf("\"%s\": {", name);
    for (unsigned i = 0; i < COST_COUNT; i++) {
        std::printf("%s\"%s\": %lu", separator, cost_names[i], each[i]);
        separator = ", ";
    }
    std::printf("}");
}

struct line {
    std::array<uint64_t, processors_max / 64> sharers{};
    unsigned owner = none; // has it alone, or wrote it last
    uint64_t within = 0, between = 0;
    bool has(unsigned who) const
    {
        return (sharers[who / 64] >> who % 64 & 1) != 0;
    }
};

struct map {
    std::string name;
    uint64_t low, high, offset, base;
    std::vector<unsigned char> code;
};

struct lock {
    std::string name;
    uint64_t offset, address = 0, taken = 0;
    costs held{}, at_start{};
    unsigned holder = none;
};

unsigned thread_count;
std::unordered_map<uint64_t, line> lines;
std::vector<map> maps;
std::vector<std::array<uint64_t, 2>> own; // the program's data: its other memory are blocks
std::vector<lock> locks;
std::vector<costs> of_thread;
std::string library;
uint64_t base; // of the library
uint64_t marks, mark_bytes, mark_end;
unsigned current = none;        // whose turn it is
bool counted_code, locked_code; // of the instruction under way

int socket_of(unsigned who)
{
    return 2 * who >= thread_count ? 1 : 0;
}

// An instruction with the prefix lock, or xchg with memory, whose lock is implied.
bool is_locked(const map &where, uint64_t address)
{
    for (uint64_t at = address - where.low; at + 1 < where.code.size(); at++) {
        unsigned char byte = where.code[at];
        if (byte == 0xf0) {
            return true;
        }
        if (byte != 0x66 && byte != 0xf2 && byte != 0xf3 && (byte & 0xf0) != 0x40 && byte != 0x2e &&
            byte != 0x3e && byte != 0x64) {
            return (byte == 0x86 || byte == 0x87) && where.code[at + 1] < 0xc0;
        }
    }
    return false;
}

void instruction(uint64_t address)
{
    static std::unordered_map<uint64_t, unsigned> known; // bit 0: counted, bit 1: locked
    auto [found, fresh] = known.try_emplace(address, 1u);
    if (fresh) {
        for (const map &one : maps) {
            if (address >= one.low && address < one.high) {
                found->second = (one.name == "-" ? 0u : 1u) | (is_locked(one, address) ? 2u : 0u);
            }
        }
    }
    counted_code = (found->second & 1) != 0;
    locked_code = (found->second & 2) != 0;
    of_thread[current][INSTRUCTIONS] += counted_code;
    of_thread[current][ATOMICS] += counted_code && locked_code;
}

// What the allocator touches, and what the program touches of blocks.
bool is_counted(uint64_t number)
{
    return counted_code || std::none_of(own.begin(), own.end(), [&](const auto &range) {
               return number * 64 + 63 >= range[0] && number * 64 < range[1];
           });
}

void access_line(uint64_t number, bool writes)
{
    line &here = lines[number];
    bool has = here.has(current);
    costs &mine = of_thread[current];
    unsigned others = 0, nearest = none;
    if (has && (here.owner == current || !writes)) {
        return;
    }
    for (unsigned word = 0; word < here.sharers.size(); word++) {
        for (uint64_t left = here.sharers[word]; left != 0; left &= left - 1) {
            unsigned who = word * 64 + static_cast<unsigned>(__builtin_ctzll(left));
            if (who != current) {
                others++;
                nearest = nearest == none || socket_of(who) == socket_of(current) ? who : nearest;
            }
        }
    }
    if (others != 0 && is_counted(number)) {
        unsigned from = here.owner != none && here.owner != current ? here.owner : nearest;
        bool near = socket_of(from) == socket_of(current);
        if (!has) {
            mine[near ? WITHIN : BETWEEN]++;
            (near ? here.within : here.between)++;
        }
        mine[INVALIDATED] += writes ? others : 0;
        mine[ATOMICS_SHARED] += writes && locked_code && counted_code;
    }
    if (writes) {
        here.sharers = {};
    }
    here.owner = writes || others == 0 ? current : none;
    here.sharers[current / 64] |= UINT64_C(1) << current % 64;
}

// A lock is taken by the first locked instruction on its word and released by the next one: nobody
// else runs meanwhile, so nobody ever finds it taken.
void lock_word(uint64_t address, bool writes)
{
    for (lock &one : locks) {
        if (one.address != address || !locked_code || !writes) {
            continue;
        }
        if (one.holder == none) {
            one.holder = current;
            one.at_start = of_thread[current];
            one.taken++;
        } else if (one.holder == current) {
            add(one.held, of_thread[current], one.at_start);
            one.holder = none;
        }
    }
}

void begin_counting()
{
    std::fill(of_thread.begin(), of_thread.end(), costs{});
    for (auto &[number, one] : lines) {
        one.within = one.between = 0;
    }
    for (lock &one : locks) {
        one.taken = 0;
        one.held = costs{};
    }
}

void read_data(char kind, uint64_t address, uint64_t bytes)
{
    if (marks != 0 && kind == 'S' && address >= marks && address <= mark_end + mark_bytes) {
        if (address == mark_end) {
            current = none;
        } else if (address > mark_end) {
            begin_counting();
        } else {
            current = static_cast<unsigned>((address - marks) / mark_bytes);
        }
        return;
    }
    if (current == none) {
        return;
    }
    for (uint64_t number = address / 64; number <= (address + bytes - 1) / 64; number++) {
        access_line(number, kind != 'L');
    }
    lock_word(address, kind != 'L');
}

void read_map(const char *text)
{
    char name[4096];
    map one;
    if (std::sscanf(text, "map %4095s %lx %lx %lx %lx", name, &one.low, &one.high, &one.offset,
                    &one.base) != 5) {
        return;
    }
    one.name = name;
    int file = open(name[0] == '-' ? "/dev/null" : name, O_RDONLY | O_CLOEXEC);
    one.code.resize(one.high - one.low);
    if (file >= 0) {
        ssize_t got = pread(file, one.code.data(), one.code.size(), static_cast<off_t>(one.offset));
        one.code.resize(got > 0 ? static_cast<size_t>(got) : 0);
        close(file);
    }
    if (one.name.find(library) != std::string::npos) {
        base = one.base;
        for (lock &each : locks) {
            each.address = one.base + each.offset;
        }
    }
    maps.push_back(one);
}

void print(uint64_t operations)
{
    costs all{};
    for (const costs &one : of_thread) {
        add(all, one);
    }
    std::vector<std::pair<uint64_t, uint64_t>> moved; // moves and number, the most first
    for (const auto &[number, one] : lines) {
        moved.emplace_back(one.within + one.between, number);
    }
    std::sort(moved.rbegin(), moved.rend());
    moved.resize(std::min<size_t>(moved.size(), 4));
    std::printf("{\"operations\": %lu, \"lines\": [", operations);
    for (auto [moves, number] : moved) { // the offset in the library tells what is there
        std::printf("%s\n {\"offset\": %ld, \"within\": %lu, \"between\": %lu}",
                    number == moved[0].second ? "" : ",", static_cast<long>(number * 64 - base),
                    lines[number].within, lines[number].between);
    }
    std::printf("],\n");
    print("all", all);
    std::printf(",\n\"locks\": {");
    for (size_t i = 0; i < locks.size(); i++) {
        std::printf("%s\n \"%s\": {\"taken\": %lu, ", i == 0 ? "" : ",", locks[i].name.c_str(),
                    locks[i].taken);
        print("held", locks[i].held);
        std::printf("}");
    }
    std::printf("}}\n");
}

} // namespace

int main(int argc, char **argv)
{
    thread_count = argc >= 3 ? static_cast<unsigned>(std::atoi(argv[1])) : 0;
    if (thread_count == 0 || thread_count > processors_max) {
        std::fputs("usage: scale_model THREADS [LOCK=OFFSET]... LIBRARY < TRACE\n", stderr);
        return 2;
    }
    library = argv[argc - 1];
    for (int i = 2; i < argc - 1; i++) {
        const char *equals = std::strchr(argv[i], '=');
        if (equals != nullptr) {
            lock one;
            one.name.assign(argv[i], static_cast<size_t>(equals - argv[i]));
            one.offset = std::strtoull(equals + 1, nullptr, 16);
            locks.push_back(one);
        }
    }
    of_thread.resize(thread_count);
    static char text[8192];
    uint64_t operations = 0;
    while (std::fgets(text, sizeof text, stdin) != nullptr) {
        char *end;
        if (text[0] == 'I') {
            if (current != none) {
                instruction(std::strtoull(text + 2, nullptr, 16));
            }
        } else if (text[0] == ' ') {
            uint64_t address = std::strtoull(text + 3, &end, 16);
            read_data(text[1], address, *end == ',' ? std::strtoull(end + 1, nullptr, 10) : 1);
        } else if (std::strncmp(text, "map ", 4) == 0) {
            read_map(text);
        } else if (std::strncmp(text, "own ", 4) == 0) {
            std::array<uint64_t, 2> range{};
            if (std::sscanf(text, "own %lx %lx", &range[0], &range[1]) == 2) {
                own.push_back(range);
            }
        } else if (std::strncmp(text, "marks ", 6) == 0) {
            uint64_t count = 0;
            if (std::sscanf(text, "marks %lx %lu %lu", &marks, &mark_bytes, &count) == 3) {
                mark_end = marks + count * mark_bytes;
            }
        } else {
            (void)std::sscanf(text, "operations %lu", &operations);
        }
    }
    if (operations == 0) {
        std::fputs("scale_model: the trace shows no operation\n", stderr);
        return 1;
    }
    print(operations);
    return 0;
}
