/* SPDX-License-Identifier: MIT */
/* test_generated_code.c: stacks through code without unwind tables. With a frame pointer its
 * callers are in the profile, also theirs, which have tables and no frame pointer. With any other
 * value in that register nothing crashes, nor with wrong tables that the program registers. On the
 * first thread, on another, and on stacks of makecontext.
 *
 * ctest: no-tsan
 */
#include "../collect.h"

#include <hakmem/profile.h>
#include <ucontext.h>

/* The generated functions: `callee` gets `argument`. The third one puts `argument` in the register
 * of the frame pointer first. */
typedef void generated_callee(uintptr_t argument);
typedef void generated_function(generated_callee *callee, uintptr_t argument);
enum { WITH_FRAME_POINTER, WITHOUT, WITH_VALUE, FUNCTIONS_COUNT };
enum { FUNCTION_SIZE = 32 }; /* bytes */

#if defined(__x86_64__)
static const unsigned char machine_code[FUNCTIONS_COUNT][FUNCTION_SIZE] = {
    /* push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
    {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3},
    /* sub rsp, 8; mov rax, rdi; mov rdi, rsi; call rax; add rsp, 8; ret */
    {0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08,
     0xc3},
    /* push rbp; mov rbp, rsi; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
    {0x55, 0x48, 0x89, 0xf5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3},
};
#else
static const uint32_t machine_code[FUNCTIONS_COUNT][FUNCTION_SIZE / 4] = {
    /* stp x29, x30, [sp, #-16]!; mov x29, sp; mov x9, x0; mov x0, x1; blr x9;
     * ldp x29, x30, [sp], #16; ret */
    {0xa9bf7bfd, 0x910003fd, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c17bfd, 0xd65f03c0},
    /* the same without mov x29, sp */
    {0xa9bf7bfd, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c17bfd, 0xd65f03c0},
    /* the same with mov x29, x1 */
    {0xa9bf7bfd, 0xaa0103fd, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c17bfd, 0xd65f03c0},
};
#endif

static unsigned char *code; /* a page */

static generated_function *generated(int index)
{
    return (generated_function *)(uintptr_t)(code + (size_t)index * FUNCTION_SIZE);
}

/* A new thread notices the profile after some allocations. */
static void warm_up(void)
{
    for (size_t i = 0; i < 10000; i++) {
        hak_free(hak_malloc(100));
    }
}

static int make_code(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    code = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(code != MAP_FAILED);
    memcpy(code, machine_code, sizeof machine_code);
    assert_int_equal(mprotect(code, page, PROT_READ | PROT_EXEC), 0);
    __builtin___clear_cache((char *)code, (char *)code + page);
    assert_in_range(hak_profile_start(1), 0, 0); /* every block, with stacks */
    warm_up();
    return 0;
}

/* --- the profile --- */

static struct collected taken;

static size_t count_in_code(const char *frames)
{
    size_t count = 0;
    for (const char *word = frames; word != NULL; word = strchr(word, ' ')) {
        uintptr_t address = strtoull(word += word != frames, NULL, 16);
        count += address - (uintptr_t)code < sizeof machine_code;
    }
    return count;
}

static bool has_frame(const char *frames, uintptr_t address)
{
    char word[32];
    snprintf(word, sizeof word, "0x%llx", (unsigned long long)address);
    const char *at = strstr(frames, word);
    return at != NULL && (at[strlen(word)] == ' ' || at[strlen(word)] == '\0');
}

/* Samples of all stacks with exactly `count` frames in the generated code, and the frame `wanted`,
 * unless that is 0. */
static uint64_t samples_with(size_t count, uintptr_t wanted)
{
    static const char key[] = "\"frames\": \"", samples_key[] = "\"samples\": ";
    static char frames[16384];
    uint64_t samples = 0;
    taken.length = 0;
    hak_profile_write(collect, &taken);
    for (char *at = taken.text; (at = strstr(at, key)) != NULL;) {
        at += strlen(key);
        size_t length = strcspn(at, "\"");
        REQUIRE_SIZE(length, <, sizeof frames);
        memcpy(frames, at, length);
        frames[length] = '\0';
        if (count_in_code(frames) == count && (wanted == 0 || has_frame(frames, wanted))) {
            const char *number = strstr(at, samples_key);
            REQUIRE(number != NULL);
            samples += strtoull(number + strlen(samples_key), NULL, 10);
        }
    }
    return samples;
}

/* --- callees and callers --- */

static _Thread_local uintptr_t caller_address; /* to which the generated code returns */
static _Thread_local size_t block_size;

static void *allocate(void)
{
    return hide(hak_malloc(block_size));
}

/* Its own frame, the generated function's, and the return address behind that. */
static __attribute__((noinline)) void allocate_and_note(uintptr_t argument)
{
    uintptr_t *own = __builtin_frame_address(0);
    uintptr_t *of_generated = (uintptr_t *)own[0];
    caller_address = of_generated[1];
    hak_free(allocate());
}

static __attribute__((noinline)) void just_allocate(uintptr_t argument)
{
    hak_free(allocate());
}

static void *shared_frame;

/* At the start and the end of a function: it has a frame pointer, and its last call is no jump. */
static inline __attribute__((always_inline)) void keep_frame(void)
{
    __atomic_store_n(&shared_frame, __builtin_frame_address(0), __ATOMIC_RELAXED);
}

static __attribute__((noinline)) void call(int index, generated_callee *callee, uintptr_t argument)
{
    keep_frame();
    generated(index)(callee, argument);
    keep_frame();
}

static __attribute__((noinline)) void call_nested(uintptr_t depth)
{
    keep_frame();
    if (depth == 0) {
        call(WITH_FRAME_POINTER, allocate_and_note, 0);
    } else {
        call(WITH_FRAME_POINTER, call_nested, depth - 1);
    }
    keep_frame();
}

/* --- on a thread's own stack --- */

static void check_callers(size_t size)
{
    block_size = size;
    caller_address = 0;
    call(WITH_FRAME_POINTER, allocate_and_note, 0);
    uint64_t samples = samples_with(1, caller_address);
    uint64_t nested = samples_with(6, caller_address);
    call(WITH_FRAME_POINTER, allocate_and_note, 0);
    REQUIRE_SIZE(samples_with(1, caller_address), ==, samples + 1);
    call_nested(5);
    REQUIRE_SIZE(samples_with(6, caller_address), ==, nested + 1);
}

TEST(frame_pointer)
{
    check_callers(1000);
}

static void *run_thread(void *argument)
{
    warm_up();
    ((void (*)(size_t))(uintptr_t)argument)(1100);
    return argument;
}

static void run_in_thread(void (*body)(size_t size))
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, run_thread, (void *)(uintptr_t)body) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

TEST(thread)
{
    run_in_thread(check_callers);
}

/* --- callers without a frame pointer --- */

static uintptr_t outer_address;

static __attribute__((noinline)) int call_inner(int value)
{
    generated(WITH_FRAME_POINTER)(allocate_and_note, 0);
    return value + (int)hide_size(1);
}

static __attribute__((noinline)) int call_outer(int value)
{
    outer_address = (uintptr_t)__builtin_return_address(0);
    return call_inner(value + 1) + (int)hide_size(1);
}

static void check_tables_go_on(size_t size)
{
    block_size = size;
    REQUIRE(call_outer(1) == 4);
    REQUIRE_SIZE(samples_with(1, caller_address), >=, 1);
    REQUIRE_SIZE(samples_with(1, outer_address), >=, 1);
}

TEST(tables_go_on)
{
    check_tables_go_on(1150);
    run_in_thread(check_tables_go_on);
}

/* --- registered tables --- */

void __register_frame(void *tables);
void __deregister_frame(void *tables);

#if defined(__x86_64__)
enum { BACK = 16 }; /* the return address's number */
#else
enum { BACK = 30 };
#endif
/* Entries of .eh_frame for the generated code: a common one, one of the function, and an end. */
struct registered {
    uint32_t size, id;
    unsigned char common[16]; /* version, letters, factors, register, encoding, operations */
    uint32_t own_size, back;
    uintptr_t start, length;
    unsigned char own[8]; /* size of what follows, operations */
    uint32_t end;
} __attribute__((packed));

/* An operation that there is none of, a frame by a register that there is none of, a frame
 * nowhere, and a letter that there is none of. */
static void check_registered(size_t size)
{
    static const unsigned char operations[][8] = {
        {0, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f},
        {0, 0x0c, 0xff, 0x7f, 0x08, 0x00, 0x00, 0x00},
        {0, 0x0e, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x00},
        {0, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b},
    };
    static struct registered tables; /* some unwinders keep the address */
    block_size = size;
    for (size_t i = 0; i < COUNT_OF(operations); i++) {
        tables = (struct registered){
            .size = 20,
            .common = {1, 'z', 'R', 0, 1, 0x78, BACK, 1, 0, 0x0c, 7, 8, 0x80 | (BACK & 0x3f), 1},
            .own_size = 28,
            .back = offsetof(struct registered, back),
            .start = (uintptr_t)code,
            .length = sizeof machine_code};
        memcpy(tables.own, operations[i], sizeof tables.own);
        uint64_t samples = samples_with(1, caller_address);
        __register_frame(&tables);
        call(WITH_FRAME_POINTER, allocate_and_note, 0);
        __deregister_frame(&tables);
        REQUIRE_SIZE(samples_with(1, caller_address), >, i == 0 ? 0 : samples);
    }
}

TEST(registered_tables)
{
    check_registered(1170);
}

/* --- other values in the register --- */

/* Addresses that cannot be read, that are no frames, and such as a frame could have. */
static void check_values(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *closed = mmap(NULL, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(closed != MAP_FAILED);
    REQUIRE(munmap(closed + page, page) == 0);
    uintptr_t record[2] = {(uintptr_t)closed, 8},
              loop[2] = {(uintptr_t)loop, (uintptr_t)closed + 9};
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    const uintptr_t values[] = {0, UINTPTR_MAX - 7, (uintptr_t)1 << 63, here + page,
                                here + ((uintptr_t)16 << 20)};
    const void *const addresses[] = {closed, closed + page - 8,  closed + page, code,    record,
                                     loop,   (char *)record + 1, environ,       &environ};
    block_size = size;
    uint64_t samples = samples_with(1, 0);
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        call(WITH_VALUE, just_allocate, values[i]);
    }
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        call(WITH_VALUE, just_allocate, (uintptr_t)addresses[i]);
    }
    call(WITH_VALUE, just_allocate, (uintptr_t)pthread_self());
    for (uintptr_t at = here & ~(page - 1); at < here + 4 * page; at += 8) {
        call(WITH_VALUE, just_allocate, at); /* any word of the stack, and perhaps above it */
    }
    call(WITHOUT, just_allocate, 0);
    REQUIRE_SIZE(samples_with(1, 0), >=, samples + COUNT_OF(values) + COUNT_OF(addresses));
    REQUIRE(munmap(closed, page) == 0);
}

TEST(values)
{
    check_values(1200);
    run_in_thread(check_values);
}

/* --- other stacks --- */

static ucontext_t context_main, context_other;

static void on_other_stack(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    call(WITH_FRAME_POINTER, allocate_and_note, 0);
    call(WITHOUT, just_allocate, 0);
    for (uintptr_t at = here - 4096; at < here + 8192; at += 8) { /* also above the stack */
        call(WITH_VALUE, just_allocate, at & ~(uintptr_t)7);
    }
}

/* The stack's neighbours cannot be read. */
static void check_other_stack(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), stack_size = 64 * page;
    block_size = size;
    for (int i = 0; i < 3; i++) {
        uint64_t samples = samples_with(1, 0);
        char *stack =
            mmap(NULL, stack_size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(stack != MAP_FAILED);
        REQUIRE(mprotect(stack + page, stack_size, PROT_READ | PROT_WRITE) == 0);
        REQUIRE(getcontext(&context_other) == 0);
        context_other.uc_stack.ss_sp = stack + page;
        context_other.uc_stack.ss_size = stack_size;
        context_other.uc_link = &context_main;
        makecontext(&context_other, on_other_stack, 0);
        REQUIRE(swapcontext(&context_main, &context_other) == 0);
        REQUIRE_SIZE(samples_with(1, 0), >=, samples + 2);
        check_callers(size + 1); /* the own stack is still known */
        REQUIRE(munmap(stack, stack_size + 2 * page) == 0);
    }
}

TEST(makecontext)
{
    check_other_stack(1300);
    run_in_thread(check_other_stack);
}

TESTS(make_code)
