/* SPDX-License-Identifier: MIT */
/* test_unwind.c: hakmem's unwinder finds the same frames as that of the compiler's runtime, and
 * wrong tables, wrong registers and wrong memory end a walk and nothing else.
 *
 * ctest: no-tsan
 */
#include "unit.h"

#include "observe/unwind.h"

#include <unwind.h>

enum { DEPTH_MAX = 400 };

struct frames {
    uint32_t count;
    uintptr_t addresses[DEPTH_MAX];
};

static struct frames own, expected;
static size_t compared;

/* --- the same frames --- */

static _Unwind_Reason_Code note(struct _Unwind_Context *context, void *argument)
{
    int interrupted = 0;
    struct frames *frames = argument;
    uintptr_t address = _Unwind_GetIPInfo(context, &interrupted);
    if (address == 0 || frames->count == DEPTH_MAX) {
        return _URC_END_OF_STACK;
    }
    if (interrupted != 0 && frames->count != 0) {
        frames->addresses[frames->count - 1]++; /* unwind.h */
    }
    frames->addresses[frames->count++] = address + (interrupted != 0);
    return _URC_NO_REASON;
}

static uint32_t place_of(const struct frames *frames, uintptr_t address)
{
    uint32_t i = 0;
    while (i < frames->count && frames->addresses[i] != address) {
        i++;
    }
    return i;
}

/* Both, from the caller on. Also in signal handlers, so it says what is wrong later. */
static const char *wrong;
static __attribute__((noinline)) void compare(void)
{
    bool more;
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    own.count = hak__unwind(own.addresses, DEPTH_MAX, &more);
    expected.count = 0;
    _Unwind_Backtrace(note, &expected);
    uint32_t first = place_of(&own, caller), other = place_of(&expected, caller);
    uint32_t count = own.count - first;
    if (first == own.count || count != expected.count - other ||
        memcmp(own.addresses + first, expected.addresses + other, count * sizeof caller) != 0) {
        wrong = "the frames are not the same";
        for (uint32_t i = 0; i < (count > expected.count - other ? count : expected.count - other);
             i++) {
            print_message("%#zx %#zx\n", (size_t)(i < count ? own.addresses[first + i] : 0),
                          (size_t)(i < expected.count - other ? expected.addresses[other + i] : 0));
        }
    }
    compared++;
}

static void check_compared(size_t count)
{
    assert_null(wrong);
    assert_true(compared >= count);
    compared = 0;
}

/* Each step has a frame of another size, which is known only as it runs. */
static __attribute__((noinline)) size_t recurse(size_t depth)
{
    char *room = __builtin_alloca(16 + depth % 7 * 100);
    memset(room, 1, 16);
    if (depth == 0) {
        compare();
        return (size_t)room[3];
    }
    return recurse(depth - 1) + (size_t)room[hide_size(5)];
}

TEST(recursion)
{
    for (size_t depth = 0; depth < 60; depth++) {
        recurse(depth);
    }
    check_compared(60);
}

/* The frame starts at a multiple of 64, so the caller's cannot be found from its own registers. */
static __attribute__((noinline)) size_t aligned(size_t depth)
{
    char room[64] __attribute__((aligned(64)));
    char *more = __builtin_alloca(16 + depth * 10);
    memset(room, 1, sizeof room);
    memset(more, 1, 16);
    if (depth == 0) {
        compare();
    } else {
        aligned(depth - 1);
    }
    return (size_t)room[hide_size(3)] + (size_t)more[hide_size(3)];
}

TEST(aligned_frames)
{
    for (size_t depth = 0; depth < 20; depth++) {
        aligned(depth);
    }
    check_compared(20);
}

static int compare_numbers(const void *left, const void *right)
{
    compare();
    return *(const int *)left - *(const int *)right;
}

TEST(callback_of_a_library)
{
    int numbers[] = {3, 1, 2, 5, 4};
    qsort(numbers, COUNT_OF(numbers), sizeof numbers[0], compare_numbers);
    check_compared(5);
}

static void *run(void *argument)
{
    recurse(20);
    return argument;
}

TEST(thread)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_compared(1);
}

static char *closed; /* a page that cannot be read */
static volatile sig_atomic_t handled;

static void handle(int signal)
{
    recurse(3);
    if (handled++ == 0) {
        raise(SIGUSR2); /* its handler runs below this one */
    }
    if (signal == SIGSEGV) {
        (void)mprotect(closed, 4096, PROT_READ | PROT_WRITE);
    }
}

static __attribute__((noinline)) size_t fault(size_t depth)
{
    size_t result = depth != 0 ? fault(depth - 1) : (size_t) * (volatile char *)closed;
    return result + hide_size(1);
}

static void check_signals(int flags)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags}, before;
    closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(closed != MAP_FAILED);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    handled = 0;
    raise(SIGUSR1);
    fault(5);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(munmap(closed, 4096), 0);
    check_compared(3);
}

TEST(signals)
{
    check_signals(0);
}

TEST(signals_on_their_own_stack)
{
    stack_t stack = {.ss_size = (size_t)64 << 10}, none = {.ss_flags = SS_DISABLE};
    stack.ss_sp =
        mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack.ss_sp != MAP_FAILED);
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    check_signals(SA_ONSTACK);
    assert_int_equal(sigaltstack(&none, NULL), 0);
    assert_int_equal(munmap(stack.ss_sp, stack.ss_size), 0);
}

/* Operations that compilers use seldom: the frame by an expression, rows that are kept, a register
 * in another one, and a value that is an expression. */
#if defined(__x86_64__)
#define CALL_COMPARE "call call_compare\n\t"
__asm__(".text\n\t.globl seldom_tables\n\t.type seldom_tables, %function\n"
        "seldom_tables:\n\t.cfi_startproc\n\t"
        "push %rbx\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbx, -16\n\t"
        "push %r12\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %r12, -24\n\t"
        "lea 24(%rsp), %rbx\n\t.cfi_remember_state\n\t.cfi_def_cfa_register %rbx\n\t"
        ".cfi_restore_state\n\t.cfi_remember_state\n\t"
        /* DW_CFA_def_cfa_expression: DW_OP_breg3 (rbx) 8, DW_OP_lit8, DW_OP_minus */
        ".cfi_escape 0x0f, 0x04, 0x73, 0x08, 0x38, 0x1c\n\t"
        /* DW_CFA_val_expression: r13 is DW_OP_breg13 0; DW_CFA_register: r14 is in r14 */
        ".cfi_escape 0x16, 0x0d, 0x02, 0x7d, 0x00\n\t.cfi_register %r14, %r14\n\t"
        "sub $8, %rsp\n\t" CALL_COMPARE "add $8, %rsp\n\t.cfi_restore_state\n\t"
        "pop %r12\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %r12\n\t"
        "pop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\tret\n\t.cfi_endproc\n\t"
        ".size seldom_tables, . - seldom_tables");
#else
__asm__(".text\n\t.globl seldom_tables\n\t.type seldom_tables, %function\n"
        "seldom_tables:\n\t.cfi_startproc\n\t"
        "stp x19, x30, [sp, #-32]!\n\t.cfi_def_cfa_offset 32\n\t.cfi_offset x19, -32\n\t"
        ".cfi_offset x30, -24\n\tadd x19, sp, #32\n\t.cfi_remember_state\n\t"
        ".cfi_def_cfa_register x19\n\t.cfi_restore_state\n\t.cfi_remember_state\n\t"
        /* DW_CFA_def_cfa_expression: DW_OP_breg19 (x19) 8, DW_OP_lit8, DW_OP_minus */
        ".cfi_escape 0x0f, 0x04, 0x83, 0x08, 0x38, 0x1c\n\t"
        ".cfi_escape 0x16, 0x14, 0x02, 0x84, 0x00\n\t.cfi_register x21, x21\n\t"
        "bl call_compare\n\t.cfi_restore_state\n\t"
        "ldp x19, x30, [sp], #32\n\t.cfi_def_cfa_offset 0\n\t.cfi_restore x19\n\t"
        ".cfi_restore x30\n\tret\n\t.cfi_endproc\n\t.size seldom_tables, . - seldom_tables");
#endif
void seldom_tables(void);
void call_compare(void);
__attribute__((used, noinline)) void call_compare(void)
{
    recurse(2);
    recurse(2); /* the second time from what is remembered */
}

TEST(seldom_operations)
{
    seldom_tables();
    check_compared(2);
}

TEST(depth_is_bounded)
{
    bool more = false;
    uintptr_t addresses[3];
    assert_int_equal(hak__unwind(addresses, 2, &more), 2);
    assert_true(more);
    addresses[1] = addresses[0];
    assert_int_equal(hak__unwind(addresses, 1, &more), 1);
    assert_true(more);
}

/* --- what is wrong --- */

static uint64_t random_state = 1;

static uint64_t random_number(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return bits_mix(random_state);
}

/* Registers with addresses of this stack, of closed pages, and anything. */
static void random_registers(struct unwind_walk *walk)
{
    memset(walk, 0, sizeof *walk);
    for (uint32_t i = 0; i < ARCH_REGISTERS; i++) {
        uint64_t number = random_number();
        uintptr_t here = (uintptr_t)&number + (number & 0xffff) - 0x8000;
        walk->registers[i] = number >> 62 == 0   ? number
                             : number >> 62 == 1 ? (uintptr_t)closed + (number & 0x1fff)
                             : number >> 62 == 2 ? here & ~(uintptr_t)7
                                                 : here;
    }
    walk->known = random_number() | random_number();
    walk->low = walk->registers[ARCH_STACK_POINTER];
}

/* Any bytes, mostly of operations that are there. */
static void random_program(unsigned char *program, size_t size)
{
    static const unsigned char often[] = {0x0c, 0x0f, 0x10, 0x16, 0x0a, 0x0b, 0x86,
                                          0x90, 0x41, 0x06, 0x2f, 0x28, 0x73, 0x77,
                                          0x12, 0x22, 0x1b, 0x1d, 0x94, 0x15};
    for (size_t i = 0; i < size; i++) {
        uint64_t number = random_number();
        program[i] =
            (number & 0x300) != 0 ? often[number % COUNT_OF(often)] : (unsigned char)number;
    }
}

static void map_closed(void)
{
    closed = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(closed != MAP_FAILED);
    assert_int_equal(mprotect(closed + 4096, 4096, PROT_NONE), 0);
}

/* The program ends where memory does, so that each read behind it crashes. */
TEST(any_program)
{
    struct unwind_walk walk;
    map_closed();
    for (size_t i = 0; i < 300000; i++) {
        size_t size = random_number() % 48, own_size = size == 0 ? 0 : random_number() % size;
        const unsigned char *start = (unsigned char *)closed + 4096 - size, *end = start + size;
        random_program((unsigned char *)closed + 4096 - size, size);
        struct unwind_entry entry = {.common = {start, end - own_size, false},
                                     .own = {end - own_size, end, false},
                                     .start = 4096,
                                     .code_factor = 1,
                                     .data_factor = -8,
                                     .return_register =
                                         i % 2 == 0 ? ARCH_RETURN_ADDRESS : random_number() % 40};
        random_registers(&walk);
        (void)hak__unwind_apply(&walk, &entry, 4096 + random_number() % 64);
    }
    assert_int_equal(munmap(closed, 8192), 0);
}

/* A copy of this program's module with closed pages around it. What cannot be read stays closed. */
static struct unwind_module copy_module(void)
{
    struct unwind_module module;
    assert_true(hak__unwind_module_of((uintptr_t)copy_module, &module));
    size_t size = bits_align_up(module.end - module.start, 4096);
    char *copy = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(copy != MAP_FAILED);
    for (size_t at = 0; at < size; at += 4096) {
        if (hak__os_is_readable(module.start + at)) {
            assert_int_equal(mprotect(copy + 4096 + at, 4096, PROT_READ | PROT_WRITE), 0);
            memcpy(copy + 4096 + at, (const void *)(module.start + at), 4096);
        }
    }
    uintptr_t moved = (uintptr_t)copy + 4096 - module.start;
    module.start += moved;
    module.end = module.start + size;
    module.header += moved;
    module.pairs += moved;
    module.pairs_base += moved;
    module.key++;
    return module;
}

/* 16 wrong bytes at a time, in the copy of .eh_frame_hdr and what lies behind it. */
TEST(damaged_tables)
{
    struct unwind_walk walk;
    struct unwind_entry entry;
    struct unwind_module real, module = copy_module();
    assert_true(hak__unwind_module_of((uintptr_t)copy_module, &real));
    size_t found = 0, size = bits_align_up(real.pairs_count * 8 * 6, 4096),
           moved = module.start - real.start;
    size_t room = (real.end & ~(uintptr_t)4095) - real.header;
    size = size < room ? size : room;
    while (!hak__unwind_can_read(memset(&walk, 0, sizeof walk), real.header, size)) {
        size /= 2;
    }
    uintptr_t wanted = (uintptr_t)copy_module + moved;
    assert_true(hak__unwind_find(&module, wanted, &entry));
    map_closed();
    for (size_t i = 0; i < 200000; i++) {
        if (i % 16 == 0) {
            memcpy((void *)module.header, (const void *)real.header, size);
        }
        *(unsigned char *)(module.header + random_number() % size) = (unsigned char)random_number();
        uintptr_t address = wanted - 0x1000 + random_number() % 0x2000;
        if (hak__unwind_find(&module, address, &entry)) {
            random_registers(&walk);
            walk.module = module;
            (void)hak__unwind_apply(&walk, &entry, address);
            found++;
        }
    }
    assert_true(found > 1000);
    /* nor is anything outside the module read */
    module.pairs += 0x10000000;
    assert_false(hak__unwind_find(&module, wanted, &entry));
    module.pairs_count = UINT32_MAX;
    (void)hak__unwind_find(&module, wanted, &entry);
}

/* What static programs use: the list of .eh_frame gives the same functions as .eh_frame_hdr. */
TEST(index)
{
    struct unwind_module module, indexed;
    struct unwind_entry entry, other;
    uintptr_t here = (uintptr_t)note;
    assert_true(hak__unwind_module_of(here, &module));
    indexed = module;
    extern const char __executable_start[];
    SKIP_IF(!hak__unwind_index(&indexed, (uintptr_t)__executable_start)); /* stripped */
    assert_true(indexed.pairs_count >= module.pairs_count);
    for (size_t i = 0; i < 20000; i += 7) {
        bool has = hak__unwind_find(&module, here + i, &entry);
        assert_int_equal(hak__unwind_find(&indexed, here + i, &other), has);
        assert_true(!has || (entry.start == other.start && entry.own.at == other.own.at));
    }
}

static int group_start(void **state)
{
    bool locks;
    return hak__unwind_start(&locks) ? unit_start(state) : -1;
}

TESTS(group_start)
