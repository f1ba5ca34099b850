/* SPDX-License-Identifier: MIT */
/* test_learn_state.c: learn/learn_file: what is written is read again, and no other text is. */
#include "unit.h"

#include "learn/learner.h"

enum { MUTATIONS = SUPPORT_SLOW ? 2000 : 20000 };

struct sheet {
    char text[LEARN_FILE_MAX];
    size_t size;
};

static void write_sheet(struct sheet *sheet, const struct learn_state *state)
{
    struct text text = {sheet->text, sizeof sheet->text, 0};
    hak__learn_state_write(state, &text);
    REQUIRE(text.length < text.size);
    sheet->size = text.length;
}

static const struct learn_point usual = {.purge_delay_ms = 1000,
                                         .bin_bytes_max = 524288,
                                         .cache_bytes = 32 << 20,
                                         .huge_cache_bytes = UINT64_MAX,
                                         .huge_threshold = 8 << 20};

/* With more decisions than are kept, each with as many pairs as there may be. */
static void fill(struct learn_state *state)
{
    memset(state, 0, sizeof *state);
    state->options = state->champion = usual;
    state->champion.purge_delay_ms = UINT32_MAX;
    state->runs = 7;
    state->memory_percent = 100;
    snprintf(state->program, sizeof state->program, "program with = and \"");
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i += 2) { /* free places between them */
        snprintf(state->sites[i], SITE_NAME_SIZE,
                 "site %u with a name that is as long as it may be: 6%u", 10 + i, 10 + i);
    }
    for (uint32_t i = 0; i < LEARN_DECISIONS_MAX + 5; i++) {
        struct learn_test test = {.move = i % LEARN_MOVES_ALL, .point = usual};
        test.pairs = i % (LEARN_PAIRS_MAX + 1);
        for (uint32_t pair = 0; pair < test.pairs; pair++) {
            test.time[pair] = (int16_t)((int)(pair * 613) % 4001 - 2000);
            test.memory[pair] = (int16_t)(2000 - (int)pair);
        }
        hak__learn_state_add(state, LEARN_ADOPTED + i % 5, &test, 10 * i);
    }
}

static struct sheet sheet, again;
static struct learn_state whole, parsed;

static void write_state(void)
{
    fill(&whole);
    write_sheet(&sheet, &whole);
}

TEST(written_is_read)
{
    write_state();
    assert_true(hak__learn_state_parse(sheet.text, sheet.size, &parsed));
    assert_int_equal(parsed.runs, 7);
    assert_int_equal(parsed.decisions_count, LEARN_DECISIONS_MAX);
    assert_true(hak__learn_point_equal(&parsed.champion, &whole.champion));
    assert_non_null(strstr(parsed.decisions[0], "run=7 s=50 ")); /* the oldest that was kept */
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i++) { /* without free places between them */
        bool used = i < LEARN_SITES_MAX / 2;
        assert_string_equal(parsed.sites[i], used ? whole.sites[2 * i] : "");
    }
    write_sheet(&again, &parsed);
    assert_int_equal(again.size, sheet.size);
    assert_memory_equal(again.text, sheet.text, sheet.size);
}

TEST(every_part_is_too_short)
{
    write_state();
    for (size_t size = 0; size < sheet.size; size += SUPPORT_SLOW ? 17 : 1) {
        assert_false(hak__learn_state_parse(sheet.text, size, &parsed));
    }
}

TEST(every_change_is_noticed)
{
    uint64_t random = 42;
    write_state();
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        uint64_t bits = random_next(&random);
        size_t at = bits % sheet.size;
        char change = (char)(1 + (bits >> 50) % 255), before = sheet.text[at];
        sheet.text[at] = (char)(before + change);
        assert_false(hak__learn_state_parse(sheet.text, sheet.size, &parsed));
        sheet.text[at] = before;
    }
}

/* A right checksum over values that the library cannot have written. */
TEST(values_out_of_bounds)
{
    static const char *const lines[] = {
        "decision \n",
        "decision adopted\tback\n",
        "decision caf\303\251\n",
        "apart \n",
        "apart one\tmore\n",
        "apart a name of more than the 63 bytes that hak_site_register leaves of it ever\n",
        "apart1 a\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[1024];
        struct sheet made;
        whole = (struct learn_state){.options = usual, .champion = usual, .runs = 1};
        write_sheet(&made, &whole);
        size_t kept = made.size;
        while (made.text[kept - 2] != '\n') {
            kept--;
        }
        kept--;
        int length = snprintf(text, sizeof text, "%.*s%s", (int)kept, made.text, lines[i]);
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (int at = 0; at < length; at++) {
            hash = (hash ^ (unsigned char)text[at]) * UINT64_C(0x100000001b3);
        }
        length += snprintf(text + length, sizeof text - (size_t)length, "checksum %llu\n",
                           (unsigned long long)hash);
        assert_false(hak__learn_state_parse(text, (size_t)length, &parsed));
    }
}

/* What a file may ask for: what moves lead to from the options. */
TEST(points_out_of_reach)
{
    struct learn_point point = usual, next;
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t move = 0; move < LEARN_MOVES; move++) {
            if (hak__learn_point_move((move + round) % LEARN_MOVES, &point, &next)) {
                assert_true(hak__learn_point_is_reached(&usual, &next));
                point = next;
            }
        }
    }
    const struct learn_point bad[] = {
        {1000, 1, 32 << 20, UINT64_MAX, 8 << 20},
        {1000, 524288, UINT64_MAX - 1, UINT64_MAX, 8 << 20},
        {1000, 524288 * 16, 512 << 20, UINT64_MAX, 8 << 20},
        {0, 524288, 32 << 20, UINT64_MAX, 8 << 20},
        {1000, 524288, 32 << 20, 1, 8 << 20},
        {1000, 524288, 32 << 20, UINT64_MAX, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(hak__learn_point_is_reached(&usual, &bad[i]));
    }
}

TESTS(NULL)
