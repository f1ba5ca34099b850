/* SPDX-License-Identifier: MIT */
/* unwind_expression.c: the expressions of unwind tables (DWARF 5, 2.5), which run on a stack of
 * words. Entries of procedure linkage tables and the end of a signal handler have some. See
 * unwind.h. */
#include "observe/unwind.h"

/* Words on the stack. glibc's tables need 4. */
#define EXPRESSION_WORDS 32u
/* Operations that run at most: an expression may go back. Those of glibc run 12. */
#define EXPRESSION_STEPS 256u

struct expression {
    struct unwind_walk *walk;
    struct cursor cursor;
    const unsigned char *start;
    uint32_t count;
    uintptr_t words[EXPRESSION_WORDS];
};

static void expression_push(struct expression *expression, uintptr_t word)
{
    if (expression->count == EXPRESSION_WORDS) {
        expression->cursor.failed = true;
    } else {
        expression->words[expression->count++] = word;
    }
}

static uintptr_t expression_pop(struct expression *expression)
{
    if (expression->count == 0) {
        expression->cursor.failed = true;
        return 0;
    }
    return expression->words[--expression->count];
}

/* The word that lies `depth` below the top one. */
static uintptr_t *expression_at(struct expression *expression, uint64_t depth)
{
    if (depth >= expression->count) {
        expression->cursor.failed = true;
        return &expression->words[0];
    }
    return &expression->words[expression->count - 1 - depth];
}

static void expression_push_register(struct expression *expression, uint64_t number, int64_t offset)
{
    const struct unwind_walk *walk = expression->walk;
    if (number >= ARCH_REGISTERS || (walk->known >> number & 1) == 0) {
        expression->cursor.failed = true;
    } else {
        expression_push(expression, walk->registers[number] + (uintptr_t)offset);
    }
}

/* Operations that push a constant or a register. False: `operation` is none of them. */
static bool expression_constant(struct expression *expression, uint8_t operation)
{
    struct cursor *cursor = &expression->cursor;
    uint64_t number;
    if (operation >= 0x30 && operation <= 0x4f) { /* DW_OP_lit0 and on */
        expression_push(expression, operation - 0x30);
    } else if (operation >= 0x50 && operation <= 0x6f) { /* DW_OP_reg0 and on */
        expression_push_register(expression, operation - 0x50, 0);
    } else if (operation >= 0x70 && operation <= 0x8f) { /* DW_OP_breg0 and on */
        expression_push_register(expression, operation - 0x70, hak__cursor_signed(cursor));
    } else if (operation == 0x90) { /* DW_OP_regx */
        expression_push_register(expression, hak__cursor_number(cursor), 0);
    } else if (operation == 0x92) { /* DW_OP_bregx */
        number = hak__cursor_number(cursor);
        expression_push_register(expression, number, hak__cursor_signed(cursor));
    } else if (operation == 0x03 || operation == 0x0e || operation == 0x0f) { /* DW_OP_addr */
        expression_push(expression, cursor_take(cursor, 8)); /* DW_OP_const8u, const8s */
    } else if (operation == 0x08) {                          /* DW_OP_const1u */
        expression_push(expression, cursor_take(cursor, 1));
    } else if (operation == 0x09) { /* DW_OP_const1s */
        expression_push(expression, (uintptr_t)cursor_sign(cursor_take(cursor, 1), 8));
    } else if (operation == 0x0a) { /* DW_OP_const2u */
        expression_push(expression, cursor_take(cursor, 2));
    } else if (operation == 0x0b) { /* DW_OP_const2s */
        expression_push(expression, (uintptr_t)cursor_sign(cursor_take(cursor, 2), 16));
    } else if (operation == 0x0c) { /* DW_OP_const4u */
        expression_push(expression, cursor_take(cursor, 4));
    } else if (operation == 0x0d) { /* DW_OP_const4s */
        expression_push(expression, (uintptr_t)cursor_sign(cursor_take(cursor, 4), 32));
    } else if (operation == 0x10) { /* DW_OP_constu */
        expression_push(expression, hak__cursor_number(cursor));
    } else if (operation == 0x11) { /* DW_OP_consts */
        expression_push(expression, (uintptr_t)hak__cursor_signed(cursor));
    } else {
        return false;
    }
    return true;
}

/* Operations that move words of the stack, and those that have one operand. False: `operation` is
 * none of them. */
static bool expression_move(struct expression *expression, uint8_t operation)
{
    struct cursor *cursor = &expression->cursor;
    uintptr_t *top = expression_at(expression, 0), word = *top;
    switch (operation) {
    case 0x06: /* DW_OP_deref */
        cursor->failed |= !hak__unwind_read(expression->walk, word, sizeof word, top);
        return true;
    case 0x94: /* DW_OP_deref_size */
        cursor->failed |=
            !hak__unwind_read(expression->walk, word, (size_t)cursor_take(cursor, 1), top);
        return true;
    case 0x12: /* DW_OP_dup */
        expression_push(expression, word);
        return true;
    case 0x13: /* DW_OP_drop */
        (void)expression_pop(expression);
        return true;
    case 0x14: /* DW_OP_over */
        expression_push(expression, *expression_at(expression, 1));
        return true;
    case 0x15: /* DW_OP_pick */
        expression_push(expression, *expression_at(expression, cursor_take(cursor, 1)));
        return true;
    case 0x16: /* DW_OP_swap */
        *top = *expression_at(expression, 1);
        *expression_at(expression, 1) = word;
        return true;
    case 0x17: /* DW_OP_rot */
        *top = *expression_at(expression, 1);
        *expression_at(expression, 1) = *expression_at(expression, 2);
        *expression_at(expression, 2) = word;
        return true;
    case 0x19: /* DW_OP_abs */
        *top = (intptr_t)word < 0 ? -word : word;
        return true;
    case 0x1f: /* DW_OP_neg */
        *top = -word;
        return true;
    case 0x20: /* DW_OP_not */
        *top = ~word;
        return true;
    case 0x23: /* DW_OP_plus_uconst */
        *top = word + hak__cursor_number(cursor);
        return true;
    default:
        return false;
    }
}

/* Operations of the two top words. False: `operation` is none of them. */
static bool expression_two(uint8_t operation, uintptr_t left, uintptr_t right, uintptr_t *result)
{
    intptr_t left_signed = (intptr_t)left, right_signed = (intptr_t)right;
    bool shifts = right < 64, divides = right != 0 && right != UINTPTR_MAX;
    switch (operation) {
    case 0x1a: /* DW_OP_and */
        *result = left & right;
        return true;
    case 0x1b: /* DW_OP_div */
        *result = divides ? (uintptr_t)(left_signed / right_signed) : -left;
        return right != 0;
    case 0x1c: /* DW_OP_minus */
        *result = left - right;
        return true;
    case 0x1d: /* DW_OP_mod */
        *result = right != 0 ? left % right : 0;
        return right != 0;
    case 0x1e: /* DW_OP_mul */
        *result = left * right;
        return true;
    case 0x21: /* DW_OP_or */
        *result = left | right;
        return true;
    case 0x22: /* DW_OP_plus */
        *result = left + right;
        return true;
    case 0x24: /* DW_OP_shl */
        *result = shifts ? left << right : 0;
        return true;
    case 0x25: /* DW_OP_shr */
        *result = shifts ? left >> right : 0;
        return true;
    case 0x26: /* DW_OP_shra */
        *result = (uintptr_t)(left_signed >> (shifts ? right : 63));
        return true;
    case 0x27: /* DW_OP_xor */
        *result = left ^ right;
        return true;
    case 0x29: /* DW_OP_eq */
        *result = left == right;
        return true;
    case 0x2a: /* DW_OP_ge */
        *result = left_signed >= right_signed;
        return true;
    case 0x2b: /* DW_OP_gt */
        *result = left_signed > right_signed;
        return true;
    case 0x2c: /* DW_OP_le */
        *result = left_signed <= right_signed;
        return true;
    case 0x2d: /* DW_OP_lt */
        *result = left_signed < right_signed;
        return true;
    case 0x2e: /* DW_OP_ne */
        *result = left != right;
        return true;
    default:
        return false;
    }
}

/* DW_OP_skip, and DW_OP_bra, which goes elsewhere if the top word is not 0. */
static void expression_go(struct expression *expression, bool always)
{
    struct cursor *cursor = &expression->cursor;
    int64_t distance = cursor_sign(cursor_take(cursor, 2), 16);
    if (!always && expression_pop(expression) == 0) {
        return;
    }
    if (distance < expression->start - cursor->at || distance > cursor->end - cursor->at) {
        cursor->failed = true;
    } else {
        cursor->at += distance;
    }
}

static void expression_step(struct expression *expression)
{
    uint8_t operation = (uint8_t)cursor_take(&expression->cursor, 1);
    uintptr_t result = 0;
    if (operation == 0x2f || operation == 0x28) {
        expression_go(expression, operation == 0x2f);
    } else if (operation == 0x96 || expression_constant(expression, operation)) {
        return; /* DW_OP_nop does nothing */
    } else if (expression->count == 0) {
        expression->cursor.failed = true;
    } else if (!expression_move(expression, operation)) {
        uintptr_t right = expression_pop(expression), left = expression_pop(expression);
        expression->cursor.failed |= !expression_two(operation, left, right, &result);
        if (!expression->cursor.failed) {
            expression_push(expression, result);
        }
    }
}

bool hak__unwind_evaluate(struct unwind_walk *walk, struct cursor program, const uintptr_t *first,
                          uintptr_t *result)
{
    struct expression expression = {.walk = walk, .cursor = program, .start = program.at};
    uint32_t steps = 0;
    if (first != NULL) {
        expression_push(&expression, *first);
    }
    while (expression.cursor.at < expression.cursor.end && !expression.cursor.failed &&
           steps++ < EXPRESSION_STEPS) {
        expression_step(&expression);
    }
    if (expression.cursor.failed || expression.cursor.at < expression.cursor.end ||
        expression.count == 0) {
        return false;
    }
    *result = expression.words[expression.count - 1];
    return true;
}
