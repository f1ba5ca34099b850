/* SPDX-License-Identifier: MIT */
/* test_stack_use.c: how much stack the functions need, measured on stacks that were painted before:
 * at most 2 KiB, whatever the path, so that coroutines of 4 KiB can allocate, also when blocks are
 * sampled or guarded, or the learner works. Reports, which write into buffers on the stack, and a
 * fatal message are not among them.
 *
 * ctest: no-tsan no-asan
 */
#include "threads.h"

#include "hakmem/profile.h"

enum { STACK_SIZE = 128 * 1024, PAINT = 0xa5, STACK_MAX = HAK_LEVEL >= 2 ? 4096 : 2048 };

struct measured {
    void (*body)(void);
    uintptr_t frame; /* where the body's caller stands */
};

static void nothing(void)
{
}

static void small_blocks(void)
{
    static void *blocks[3000];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(1 + i * 21);
        REQUIRE(blocks[i] != NULL);
    }
    FREE_ALL(blocks, COUNT_OF(blocks));
}

static void spans(void)
{
    static void *blocks[100];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_calloc(1, 70000 + i * 19000);
        REQUIRE(blocks[i] != NULL);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_realloc(blocks[i], 60000 + i * 20000);
        REQUIRE(blocks[i] != NULL);
    }
    FREE_ALL(blocks, COUNT_OF(blocks));
}

/* More than the cache holds, so that it evicts; a look at what is resident. */
static void huge(void)
{
    static char *blocks[50];
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            blocks[i] = round % 2 == 0 ? hak_malloc(MIB * (3 + i % 9)) : hak_calloc(3 + i, MIB);
            REQUIRE(blocks[i] != NULL);
            blocks[i][0] = 1;
            blocks[i] = hak_realloc(blocks[i], MIB * (4 + i % 9));
            REQUIRE(blocks[i] != NULL);
        }
        FREE_ALL(blocks, COUNT_OF(blocks));
    }
}

static void *kept_by_others[2000];

static void keep_for_others(void)
{
    for (size_t i = 0; i < COUNT_OF(kept_by_others); i++) {
        kept_by_others[i] = hak_malloc(1 + i * 30);
        REQUIRE(kept_by_others[i] != NULL);
    }
}

static void remote_frees(void)
{
    FREE_ALL(kept_by_others, COUNT_OF(kept_by_others));
}

static void give_back(void)
{
    void *block = hak_memalign(8 * MIB, 5 * MIB);
    REQUIRE(block != NULL);
    hak_free(block);
    hak_trim(0);
    REQUIRE(hide(hak_malloc(hide_size(PTRDIFF_MAX))) == NULL);
    REQUIRE(hide(hak_malloc(hide_size((size_t)1 << 46))) == NULL); /* reclaims, then fails */
}

static void *run_body(void *argument)
{
    struct measured *measured = argument;
    measured->frame = (uintptr_t)__builtin_frame_address(0);
    measured->body();
    return NULL;
}

/* Bytes below the frame of run_body that were written to. */
static size_t stack_used(void (*body)(void))
{
    unsigned char *stack = support_map(STACK_SIZE);
    struct measured measured = {body, 0};
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, PAINT, STACK_SIZE);
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack, STACK_SIZE) == 0);
    REQUIRE(pthread_create(&thread, &attributes, run_body, &measured) == 0);
    thread_join(thread);
    pthread_attr_destroy(&attributes);
    size_t lowest = 0;
    while (stack[lowest] == PAINT) {
        lowest++;
    }
    size_t used = measured.frame - (uintptr_t)stack - lowest;
    munmap(stack, STACK_SIZE);
    return used;
}

TEST(every_path)
{
    static const struct {
        const char *name;
        void (*body)(void);
    } paths[] = {{"small blocks", small_blocks},
                 {"spans", spans},
                 {"huge blocks", huge},
                 {"remote frees", remote_frees},
                 {"giving back", give_back}};
    keep_for_others();
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        paths[i].body(); /* binding a function at its first call takes 3 KiB, and is the loader's */
    }
    keep_for_others();
    size_t none = stack_used(nothing); /* what a thread's end needs by itself */
    print_message("nothing: %zu bytes\n", none);
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        size_t used = stack_used(paths[i].body);
        print_message("%s: %zu bytes\n", paths[i].name, used);
        REQUIRE_SIZE(used, <=, STACK_MAX);
    }
}

/* In a process of its own with the learner and HAKMEM_GUARD: every second block is guarded, every
 * one sampled. */
TEST(observed)
{
    SKIP_IF(getenv("HAKMEM_GUARD") == NULL);
    REQUIRE(hak_profile_start(1) == 0);
    test_every_path(state);
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    if (failed == 0 && getenv("HAKMEM_GUARD") == NULL && !SUPPORT_EMULATED) {
        REQUIRE(setenv("HAKMEM_GUARD", "2", 1) == 0 && setenv("HAKMEM_LEARN", "on", 1) == 0);
        execl("/proc/self/exe", "test_stack_use", (char *)NULL);
        failed = 126;
    }
    return failed;
}
