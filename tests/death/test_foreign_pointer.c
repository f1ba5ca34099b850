/* SPDX-License-Identifier: MIT */
/* test_foreign_pointer.c: a free of memory that is not hakmem's is reported in one line and
 * ignored. In the debug profile, or given to realloc, it is fatal, as is always the free of an
 * address that no allocator returns: on the stack, in a program or library, odd, or not mapped. */
#include "../child.h"

static char global_bytes[64];

enum foreign {
    FOREIGN_STACK,
    FOREIGN_THREAD_STACK,
    FOREIGN_GLOBAL,
    FOREIGN_TEXT,
    FOREIGN_CODE,
    FOREIGN_LIBC,
    FOREIGN_ODD,
    FOREIGN_LOW,
    FOREIGN_UNMAPPED,
    FOREIGN_MAPPED,  /* from here on it may be another allocator's */
    FOREIGN_IN_HEAP, /* among hakmem's own addresses, which grew past it */
    FOREIGN_IN_HOLE, /* where hakmem has unmapped what was free */
    FOREIGN_COUNT
};

/* A mapping of the program's in the way of the heap. */
static void *mapping_in_heap(void)
{
    char *block = hak_malloc(100);
    REQUIRE(block != NULL);
    uintptr_t place = ((uintptr_t)block & ~(uintptr_t)(2 * MIB - 1)) + 16 * MIB;
    char *mapping = mmap((void *)place, MIB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(mapping == (char *)place);
    for (char *last = block; last < mapping;) {
        last = hak_malloc(180000);
        REQUIRE(last != NULL);
    }
    REQUIRE(hak_owns(block) && !hak_owns(mapping) && !hak_owns(mapping + MIB));
    REQUIRE(hak_usable_size(mapping) == 0);
    return mapping;
}

/* The first address of 8 MiB of blocks that were freed and unmapped. */
static char *unmapped_in_heap(void)
{
    enum { COUNT = 8192 };
    static char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(1000);
        REQUIRE(blocks[i] != NULL);
    }
    char *middle = blocks[COUNT / 2];
    FREE_ALL(blocks, COUNT);
    hak_trim(0);
    REQUIRE(!hak_owns(middle));
    return middle;
}

/* A mapping of the program's in such a hole. */
static void *mapping_in_hole(void)
{
    char *place = unmapped_in_heap();
    place -= (uintptr_t)place % MIB;
    char *mapping = mmap(place, MIB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(mapping == place && hak_usable_size(mapping) == 0);
    return mapping;
}

static void *foreign_pointer(enum foreign kind, void *on_stack)
{
    switch (kind) {
    case FOREIGN_STACK:
    case FOREIGN_THREAD_STACK:
        return on_stack;
    case FOREIGN_GLOBAL:
        return global_bytes;
    case FOREIGN_TEXT:
        return (void *)(uintptr_t) "a constant";
    case FOREIGN_CODE:
        return (void *)(uintptr_t)&mapping_in_heap;
    case FOREIGN_MAPPED:
        return support_map(4 * MIB);
    case FOREIGN_LIBC:
        return stdout;
    case FOREIGN_IN_HEAP:
        return mapping_in_heap();
    case FOREIGN_IN_HOLE:
        return mapping_in_hole();
    case FOREIGN_ODD:
        return (char *)support_map(MIB) + 1;
    case FOREIGN_UNMAPPED: {
        void *mapping = support_map(MIB);
        REQUIRE(munmap(mapping, MIB) == 0);
        return mapping;
    }
    case FOREIGN_LOW:
    case FOREIGN_COUNT:
        break;
    }
    return (void *)(uintptr_t)0x10;
}

static void *free_one(void *argument)
{
    char on_stack[64] = {0};
    void *pointer = hide(foreign_pointer(*(enum foreign *)argument, on_stack));
    errno = ERRNO_UNTOUCHED;
    hak_free(pointer);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    return NULL;
}

static void free_foreign(void *argument)
{
    if (*(enum foreign *)argument == FOREIGN_THREAD_STACK) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, free_one, argument) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    } else {
        free_one(argument);
    }
    void *block = hak_malloc(100); /* and the program goes on */
    REQUIRE(block != NULL);
    hak_free(block);
    hak_trim(0);
}

static void free_unmapped(void *argument)
{
    hak_free(unmapped_in_heap());
    (void)argument;
}

TEST(freed_again_after_it_was_unmapped)
{
    SKIP_IF(SUPPORT_SANITIZED);
    REQUIRE_DEATH(free_unmapped, NULL, "^hakmem: fatal: invalid pointer .*double free");
}

static size_t lines_count(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

TEST(what_no_allocator_returns_is_fatal)
{
    for (enum foreign kind = 0; kind < FOREIGN_MAPPED; kind++) {
        REQUIRE_DEATH(free_foreign, &kind,
                      "^hakmem: fatal: free of a foreign pointer [^\n]*0x[0-9a-f]+");
    }
}

TEST(reported_and_ignored)
{
    for (enum foreign kind = FOREIGN_MAPPED; kind < FOREIGN_COUNT; kind++) {
        struct child_end end;
        child_fork(free_foreign, &kind, &end);
        REQUIRE_EXIT(&end, "^hakmem: .*foreign pointer.*0x[0-9a-f]+");
        assert_int_equal(lines_count(end.text), 1);
    }
}

static void free_many(void *argument)
{
    for (size_t i = 0; i < 100; i++) {
        free_foreign(argument);
    }
}

TEST(many_are_not_all_named)
{
    enum foreign kind = FOREIGN_MAPPED;
    struct child_end end;
    child_fork(free_many, &kind, &end);
    REQUIRE_EXIT(&end, "foreign pointer.*nor are further ones named: pointer 0x[0-9a-f]+$");
    assert_int_equal(lines_count(end.text), 10);
}

static void realloc_foreign(void *argument)
{
    char on_stack[64] = {0};
    void *pointer = hide(foreign_pointer(*(enum foreign *)argument, on_stack));
    pointer = hide(hak_realloc(pointer, 100));
}

TEST(realloc_is_fatal)
{
    for (enum foreign kind = 0; kind < FOREIGN_COUNT; kind++) {
        /* The guard knows nothing of such a pointer, so nobody is sent there. */
        REQUIRE_DEATH(realloc_foreign, &kind,
                      "^hakmem: fatal: [^\n]*foreign pointer[^\n]*0x[0-9a-f]+\n"
                      "hakmem: in process [0-9]+; program ");
    }
}

CHILD(foreign)
{
    enum foreign mapped = FOREIGN_MAPPED;
    free_foreign(&mapped);
}

TEST(debug_profile_aborts)
{
    static char debug[] = "HAKMEM_PROFILE=debug";
    struct child_end end;
    child_exec("foreign", child_put, debug, &end);
    REQUIRE_ABORT(&end, "^hakmem: fatal: .*foreign pointer.*0x[0-9a-f]+");
}

TESTS(NULL)
