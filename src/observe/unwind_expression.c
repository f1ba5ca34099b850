/* SPDX-License-Identifier: MIT */
/* unwind_expression.c: the expressions of unwind tables (DWARF 5, 2.5), which run on a stack of
 * words. Entries of procedure linkage tables, frames with an alignment of their own and the end of
 * a signal handler have some. Only the operations are here that compilers, linkers and the C
 * library use in tables; another one ends the walk. See unwind.h. */
#include "observe/unwind.h"

struct expression {
    struct cursor cursor;
    uint32_t count;
    /* Words on the stack. glibc's tables need 4. */
    uintptr_t words[32];
};

static void expression_push(struct expression *expression, uintptr_t word)
{
    if (expression->count == HAK_COUNT_OF(expression->words)) {
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

static uintptr_t expression_register(struct expression *expression, const struct unwind_walk *walk,
                                     uint32_t number)
{
    uintptr_t offset = (uintptr_t)hak__cursor_number(&expression->cursor, true);
    if (number >= ARCH_REGISTERS || (walk->known >> number & 1) == 0) {
        expression->cursor.failed = true;
        return 0;
    }
    return walk->registers[number] + offset;
}

/* A constant of 1, 2, 4 or 8 bytes, without and with a sign in turn. */
static uintptr_t expression_constant(struct expression *expression, uint8_t operation)
{
    uint32_t size = 1u << (operation - 0x08) / 2;
    uint64_t value = cursor_take(&expression->cursor, size);
    return operation % 2 == 0 ? value : (uintptr_t)cursor_sign(value, 8 * size);
}

/* An operation of the two top words. */
static uintptr_t expression_two(struct expression *expression, uint8_t operation)
{
    uintptr_t right = expression_pop(expression), left = expression_pop(expression);
    switch (operation) {
    case 0x1a: /* DW_OP_and */
        return left & right;
    case 0x1c: /* DW_OP_minus */
        return left - right;
    case 0x1e: /* DW_OP_mul */
        return left * right;
    case 0x22: /* DW_OP_plus */
        return left + right;
    case 0x24: /* DW_OP_shl */
        return right < 64 ? left << right : 0;
    case 0x2a: /* DW_OP_ge */
        return (intptr_t)left >= (intptr_t)right;
    default:
        expression->cursor.failed = true;
        return 0;
    }
}

/* What the operation pushes. */
static uintptr_t expression_step(struct expression *expression, struct unwind_walk *walk)
{
    struct cursor *cursor = &expression->cursor;
    uint8_t operation = (uint8_t)cursor_take(cursor, 1);
    uintptr_t word;
    if (operation >= 0x30 && operation <= 0x4f) { /* DW_OP_lit0 and on */
        return operation - 0x30u;
    }
    if (operation >= 0x70 && operation <= 0x8f) { /* DW_OP_breg0 and on */
        return expression_register(expression, walk, operation - 0x70u);
    }
    if (operation >= 0x08 && operation <= 0x0f) { /* DW_OP_const1u and on */
        return expression_constant(expression, operation);
    }
    if (operation == 0x06) { /* DW_OP_deref */
        word = expression_pop(expression);
        cursor->failed |= !hak__unwind_read(walk, word, sizeof word, &word);
        return word;
    }
    if (operation == 0x23) { /* DW_OP_plus_uconst */
        word = expression_pop(expression);
        return word + (uintptr_t)hak__cursor_number(cursor, false);
    }
    return expression_two(expression, operation);
}

bool hak__unwind_evaluate(struct unwind_walk *walk, struct cursor program, const uintptr_t *first,
                          uintptr_t *result)
{
    struct expression expression = {.cursor = program};
    if (first != NULL) {
        expression_push(&expression, *first);
    }
    while (expression.cursor.at < expression.cursor.end && !expression.cursor.failed) {
        uintptr_t word = expression_step(&expression, walk);
        expression_push(&expression, word);
    }
    *result = expression_pop(&expression);
    return !expression.cursor.failed;
}
