/* SPDX-License-Identifier: MIT */
/* test_left_flags.c: what a program leaves on memory that it frees (a protection, MADV_DONTFORK, a
 * lock) does not reach the next owner of a block above 64 KiB.
 *
 * ctest: secure-too no-qemu
 */
#include "override.h"

#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, SPAN_MAX = 2 << 20 };

/* The secure form lets up to 16 spans rest, and reuses no huge allocation soon. */
static int rounds_of(size_t size)
{
    return size <= SPAN_MAX ? 20 : 3;
}

enum left { READ_ONLY, CLOSED, CODE, WIPED, NOT_FORKED, LOCKED, KEYED, LEFT_COUNT };

/* False: the kernel or the processor lacks it. */
static bool leave(enum left left, char *start, size_t size)
{
    switch (left) {
    case READ_ONLY:
        return mprotect(start, size, PROT_READ) == 0;
    case CLOSED:
        return mprotect(start, size, PROT_NONE) == 0;
    case CODE:
        return mprotect(start, size, PROT_READ | PROT_EXEC) == 0;
    case WIPED:
        return madvise(start, size, MADV_WIPEONFORK) == 0;
    case NOT_FORKED:
        return madvise(start, size, MADV_DONTFORK) == 0;
    case LOCKED:
        return mlock(start, size) == 0;
    case KEYED: {
        int key = pkey_alloc(0, PKEY_DISABLE_WRITE);
        return key >= 0 && pkey_mprotect(start, size, PROT_READ | PROT_WRITE, key) == 0;
    }
    default:
        return false;
    }
}

/* The whole block can be written, and a child sees it. */
static void check_block(unsigned char *block, size_t size)
{
    memset(block, 2, size);
    IN_CHILD("a child that reads the next owner's block") {
        for (size_t i = 0; i < size; i += 512) {
            CHECK_EQUAL(block[i], 2);
        }
    }
}

static char *pages_of(char *block)
{
    return (char *)(((uintptr_t)block + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
}

/* Leaves it on blocks of the size: on all whole pages, or on one in the middle. */
static void run(enum left left, size_t size, bool one_page)
{
    for (int round = 0; round < rounds_of(size); round++) {
        char *block = get_memory(size);
        CHECK(block != NULL);
        memset(block, 1, size);
        char *start = pages_of(block);
        size_t length = (size_t)(block + size - start) & ~(size_t)(PAGE - 1);
        if (one_page) {
            start += length / 2 & ~(size_t)(PAGE - 1);
            length = PAGE;
        }
        if (!leave(left, start, length)) {
            return;
        }
        give_back(block);
        unsigned char *next = get_memory(size);
        CHECK(next != NULL);
        if (round % 16 == 2) {
            check_block(next, size);
        }
        memset(next, 3, size);
        give_back(next);
        if (left == LOCKED && !is_secure()) {
            CHECK_EQUAL(proc_bytes("/proc/self/status", "VmLck:"), 0);
        }
    }
}

/* A program that undoes what it did goes on as before. */
static void run_undone(size_t size)
{
    for (int round = 0; round < 3; round++) {
        char *block = get_memory(size);
        memset(block, 1, size);
        CHECK(mprotect(pages_of(block), 3 * PAGE, PROT_READ) == 0);
        CHECK(mprotect(pages_of(block), 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
        CHECK(madvise(pages_of(block), 3 * PAGE, MADV_DONTFORK) == 0);
        CHECK(madvise(pages_of(block), 3 * PAGE, MADV_DOFORK) == 0);
        check_block((unsigned char *)block, size);
        char *more = realloc(opaque_pointer(block), opaque_size(size + size / 4));
        CHECK(more != NULL && more[0] == 2 && more[size - 1] == 2);
        give_back(more);
    }
}

/* Grown or moved by realloc, the block is new memory, and its old addresses are. */
static void run_realloc(size_t size)
{
    for (int round = 0; round < 3; round++) {
        unsigned char *block = get_memory(size);
        memset(block, 1, size);
        CHECK(madvise(pages_of((char *)block), PAGE, MADV_WIPEONFORK) == 0);
        unsigned char *more = realloc(opaque_pointer(block), opaque_size(3 * size));
        CHECK(more != NULL && more[size - 1] == 1);
        unsigned char *next = get_memory(size);
        check_block(next, size);
        give_back(next);
        give_back(more);
    }
}

static char *handled;

/* mprotect is called in handlers, such as those of collectors. */
static void handle(int signal)
{
    int saved = errno;
    CHECK(mprotect(handled, PAGE, PROT_READ) == 0);
    CHECK(mprotect(handled, PAGE, PROT_READ | PROT_WRITE) == 0);
    errno = saved;
}

static void *churn(void *argument)
{
    for (size_t i = 0; i < 300; i++) {
        size_t size = i % 2 == 0 ? (size_t)3 << 20 : 300000;
        char *block = get_memory(size);
        CHECK(block != NULL);
        block[0] = block[size - 1] = 1;
        give_back(block);
    }
    return argument;
}

static void run_signals(void)
{
    struct sigaction action = {.sa_handler = handle};
    pthread_t thread;
    handled = pages_of(get_memory((size_t)4 << 20));
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, churn, NULL) == 0);
    for (size_t i = 0; i < 300; i++) {
        pthread_kill(thread, SIGUSR1); /* as many as possible in the middle of malloc and free */
        char *block = get_memory((size_t)3 << 20);
        CHECK(block != NULL && mprotect(pages_of(block), PAGE, PROT_READ) == 0);
        give_back(block);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

/* The calls answer as the C library's do. */
static void check_answers(void)
{
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    errno = 0;
    CHECK(mprotect(own + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(madvise(own, PAGE, 12345) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(munlock((char *)4096, PAGE) == -1 && errno == ENOMEM);
    errno = 77;
    CHECK(mprotect(own, PAGE, PROT_NONE) == 0 && errno == 77);
    CHECK(munmap(own, PAGE) == 0);
}

int main(void)
{
    static const size_t sizes[] = {90000, 500000, (size_t)3 << 20};
    prove_served();
    check_answers();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int left = 0; left < LEFT_COUNT; left++) {
            /* each in a process of its own: hakmem is surest where there is one kind only */
            dprintf(2, "%d on blocks of %zu bytes\n", left, sizes[i]);
            IN_CHILD("next owner") {
                run((enum left)left, sizes[i], false);
                run((enum left)left, sizes[i], true);
            }
        }
        run_realloc(sizes[i]);
        run_undone(sizes[i]);
    }
    run_signals();
    return 0;
}
