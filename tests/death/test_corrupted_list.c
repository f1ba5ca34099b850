/* test_corrupted_list.c: a program that writes to memory it has freed is told so at level 2, not
 * just crashed. A release build promises nothing here. */
#include "../child.h"

struct corruption {
    size_t size;
    int byte;
    bool use_next; /* allocate afterwards; else give the lists back */
};

static void write_after_free(void *argument)
{
    const struct corruption *corruption = argument;
    char *blocks[12];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hide(hak_malloc(corruption->size));
        REQUIRE(blocks[i] != NULL);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        hak_free(blocks[i]);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        memset(hide(blocks[i]), corruption->byte, 16);
    }
    if (corruption->use_next) {
        for (size_t i = 0; i < 2 * COUNT_OF(blocks); i++) {
            blocks[0] = hide(hak_malloc(corruption->size));
        }
    }
    hak_trim(0);
}

static void test_write_after_free(void **state)
{
    static struct corruption cases[] = {{16, 'A', true},    {16, 'A', false},  {100, 0xff, true},
                                        {100, 0xff, false}, {1000, 'x', true}, {5000, 'A', true},
                                        {5000, 1, false}};
    (void)state;
    if (HAK_LEVEL < 2) {
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(write_after_free, &cases[i],
                      "^hakmem: fatal: .*corrupted.*pointer 0x[0-9a-f]+");
    }
}

/* The overwritten link points at another, living object: a forged list. */
static void forge_link(void *argument)
{
    char **blocks[8];
    char *victim = hide(hak_malloc(4000));
    (void)argument;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hide(hak_malloc(64));
        REQUIRE(blocks[i] != NULL);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        hak_free(blocks[i]);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        *(char **)hide(blocks[i]) = victim + 32;
    }
    for (size_t i = 0; i < 3 * COUNT_OF(blocks); i++) {
        blocks[0] = hide(hak_malloc(64));
    }
    hak_trim(0);
}

static void test_forged_link(void **state)
{
    (void)state;
    if (HAK_LEVEL < 2) {
        skip();
    }
    REQUIRE_DEATH(forge_link, NULL, "^hakmem: fatal: .*corrupted.*pointer 0x[0-9a-f]+");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_after_free),
        cmocka_unit_test(test_forged_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
