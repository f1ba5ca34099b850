/* SPDX-License-Identifier: MIT */
/* test_crash_handler.c: handlers of SIGABRT and SIGSEGV that allocate, as crash reporters do, after
 * a slow operation of their own thread found a broken list or crashed on one. Others of the program
 * hang when such a handler waits for the lock under which that happened. */
#include "override.h"

enum { OBJECTS = 4000, OBJECT_BYTES = 2000 };

static void *objects[OBJECTS];

/* All tiers, and the class whose list is broken. */
static void report(int number)
{
    static const size_t sizes[] = {1, 100, 3000, 5000, 60000, 100000, 3000000};
    void *kept[sizeof sizes / sizeof *sizes];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < 100; j++) {
            kept[i] = get_memory(sizes[i]);
            CHECK(kept[i] != NULL);
            memset(kept[i], 1, sizes[i]);
            if (j < 99) {
                give_back(kept[i]);
            }
        }
        kept[i] = realloc(kept[i], sizes[i] * 2);
        CHECK(kept[i] != NULL && *(char *)kept[i] == 1);
        give_back(kept[i]);
    }
    if (number == SIGABRT) {
        for (size_t j = 0; j < 1000; j++) { /* of the class whose list is broken */
            CHECK(get_memory(OBJECT_BYTES) != NULL);
        }
    }
    give_back(objects[OBJECTS - 1]);           /* the program's own blocks */
    IN_CHILD("the child of a crash handler") { /* and a debugger is started */
        CHECK(get_memory(100) != NULL);
    }
    _exit(0);
}

static void break_a_list(void *link)
{
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = get_memory(OBJECT_BYTES);
        CHECK(objects[i] != NULL);
    }
    give_back(objects[0]);
    memcpy(objects[0], &link, sizeof link); /* a write after free */
    for (size_t i = 1; i < OBJECTS - 1; i++) {
        give_back(objects[i]);
    }
}

/* `link`: what the program writes into a freed object; who follows it, a flush or malloc. */
static void run(void *link, bool by_malloc)
{
    IN_CHILD("a crash") {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        alarm(240);
        signal(SIGABRT, report);
        signal(SIGSEGV, report);
        signal(SIGBUS, report);
        if (by_malloc) {
            void *block = get_memory(OBJECT_BYTES);
            give_back(block);
            memcpy(block, &link, sizeof link);
            give_back(get_memory(OBJECT_BYTES));
            CHECK(get_memory(OBJECT_BYTES) != NULL && get_memory(OBJECT_BYTES) != NULL);
        }
        break_a_list(link);
        FAIL("nothing was noticed");
    }
}

int main(void)
{
    prove_served();
    run((void *)0x1234560, false);
    run((void *)0x1234560, true);
    run((void *)((uintptr_t)1 << 60), false); /* not even an address */
    run((void *)((uintptr_t)1 << 60), true);
    return 0;
}
