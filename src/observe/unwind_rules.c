/* SPDX-License-Identifier: MIT */
/* unwind_rules.c: runs what the unwind tables say of a function up to an address: how its frame's
 * address follows from the registers, and where those of the caller are (DWARF 5, 6.4; the
 * extensions are those of the Linux Standard Base). See unwind.h. */
#include "observe/unwind.h"

enum rule_kind {
    RULE_SAME,
    RULE_UNDEFINED,
    RULE_AT_OFFSET,     /* in memory, from the frame's address */
    RULE_REGISTER,      /* in another register */
    RULE_AT_EXPRESSION, /* in memory; the value is the address of the expression's block */
    RULE_EXPRESSION,
};

struct unwind_row {
    uint8_t kinds[ARCH_REGISTERS]; /* enum rule_kind */
    bool frame_is_expression;
    uint64_t frame_register;
    int64_t frame_offset; /* or the address of the expression's block */
    int64_t values[ARCH_REGISTERS];
};

struct rules {
    struct unwind_row row;
    struct unwind_row first; /* as it was when the function's own program began */
    /* Rows that a program may keep at the same time. Compilers keep one; each takes 176 bytes, on
     * aarch64 320. */
    struct unwind_row kept[4];
    uint32_t kept_count;
    const struct unwind_entry *entry;
    uintptr_t location;
};

int64_t hak__cursor_number(struct cursor *cursor, bool is_signed)
{
    uint64_t value = 0, byte;
    uint32_t shift = 0;
    do {
        byte = cursor_take(cursor, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        shift += shift < 64 ? 7 : 0;
    } while ((byte & 0x80) != 0);
    bool is_negative = is_signed && (byte & 0x40) != 0 && shift < 64;
    return (int64_t)(is_negative ? value | UINT64_MAX << shift : value);
}

static uint64_t rules_number(struct cursor *cursor)
{
    return (uint64_t)hak__cursor_number(cursor, false);
}

/* The address of a block in the program, which is passed over. */
static int64_t rules_block(struct cursor *cursor)
{
    const unsigned char *block = cursor->at;
    uint64_t size = rules_number(cursor);
    if (size > (size_t)(cursor->end - cursor->at)) {
        cursor->failed = true;
        return 0;
    }
    cursor->at += size;
    return (int64_t)(uintptr_t)block;
}

/* Registers that are not followed, such as those of vectors, have no rule. */
static void rules_set(struct rules *rules, uint64_t number, enum rule_kind kind, int64_t value)
{
    if (number < ARCH_REGISTERS) {
        rules->row.kinds[number] = (uint8_t)kind;
        rules->row.values[number] = value;
    }
}

static void rules_restore(struct rules *rules, uint64_t number)
{
    if (number < ARCH_REGISTERS) {
        rules_set(rules, number, rules->first.kinds[number], rules->first.values[number]);
    }
}

static void rules_frame(struct rules *rules, uint64_t number, int64_t offset)
{
    rules->row.frame_is_expression = false;
    rules->row.frame_register = number;
    rules->row.frame_offset = offset;
}

static int64_t rules_factored(const struct rules *rules, struct cursor *cursor, bool is_signed)
{
    uint64_t number = (uint64_t)hak__cursor_number(cursor, is_signed);
    return (int64_t)(number * (uint64_t)rules->entry->data_factor);
}

/* The operations that say where the frame is. False: `operation` is none of them. */
static bool rules_run_frame(struct rules *rules, struct cursor *cursor, uint8_t operation)
{
    struct unwind_row *row = &rules->row;
    uint64_t number;
    switch (operation) {
    case 0x0c: /* DW_CFA_def_cfa */
    case 0x0e: /* DW_CFA_def_cfa_offset */
        number = operation == 0x0c ? rules_number(cursor) : row->frame_register;
        rules_frame(rules, number, hak__cursor_number(cursor, false));
        return true;
    case 0x12: /* DW_CFA_def_cfa_sf */
    case 0x13: /* DW_CFA_def_cfa_offset_sf */
        number = operation == 0x12 ? rules_number(cursor) : row->frame_register;
        rules_frame(rules, number, rules_factored(rules, cursor, true));
        return true;
    case 0x0d: /* DW_CFA_def_cfa_register */
        rules_frame(rules, rules_number(cursor), row->frame_is_expression ? 0 : row->frame_offset);
        return true;
    case 0x0f: /* DW_CFA_def_cfa_expression */
        row->frame_is_expression = true;
        row->frame_offset = rules_block(cursor);
        return true;
    default:
        return false;
    }
}

/* The operations that say where a register is, and those without a rule of their own. */
static void rules_run_other(struct rules *rules, struct cursor *cursor, uint8_t operation)
{
    uint64_t number;
    switch (operation) {
    case 0x05: /* DW_CFA_offset_extended */
    case 0x11: /* DW_CFA_offset_extended_sf */
        number = rules_number(cursor);
        rules_set(rules, number, RULE_AT_OFFSET, rules_factored(rules, cursor, operation == 0x11));
        break;
    case 0x06: /* DW_CFA_restore_extended */
        rules_restore(rules, rules_number(cursor));
        break;
    case 0x07: /* DW_CFA_undefined */
    case 0x08: /* DW_CFA_same_value */
        rules_set(rules, rules_number(cursor), operation == 0x07 ? RULE_UNDEFINED : RULE_SAME, 0);
        break;
    case 0x09: /* DW_CFA_register */
        number = rules_number(cursor);
        rules_set(rules, number, RULE_REGISTER, hak__cursor_number(cursor, false));
        break;
    case 0x10: /* DW_CFA_expression */
    case 0x16: /* DW_CFA_val_expression */
        number = rules_number(cursor);
        rules_set(rules, number, operation == 0x10 ? RULE_AT_EXPRESSION : RULE_EXPRESSION,
                  rules_block(cursor));
        break;
    case 0x02: /* DW_CFA_advance_loc1 */
    case 0x03: /* DW_CFA_advance_loc2 */
    case 0x04: /* DW_CFA_advance_loc4 */
        rules->location +=
            cursor_take(cursor, (size_t)1 << (operation - 0x02)) * rules->entry->code_factor;
        break;
    case 0x0a: /* DW_CFA_remember_state */
        cursor->failed |= rules->kept_count == HAK_COUNT_OF(rules->kept);
        if (!cursor->failed) {
            rules->kept[rules->kept_count++] = rules->row;
        }
        break;
    case 0x0b: /* DW_CFA_restore_state */
        cursor->failed |= rules->kept_count == 0;
        if (!cursor->failed) {
            rules->row = rules->kept[--rules->kept_count];
        }
        break;
    case 0x2e: /* DW_CFA_GNU_args_size */
        (void)rules_number(cursor);
        break;
    case 0x00: /* DW_CFA_nop */
    case 0x2c: /* DW_CFA_AARCH64_negate_ra_state_with_pc */
    case 0x2d: /* DW_CFA_AARCH64_negate_ra_state: signatures are taken off at each address */
        break;
    default:
        cursor->failed = true;
    }
}

/* Runs the program up to the row that holds for the address. */
static bool rules_run(struct rules *rules, struct cursor *cursor, uintptr_t address)
{
    while (cursor->at < cursor->end && !cursor->failed && rules->location <= address) {
        uint8_t operation = (uint8_t)cursor_take(cursor, 1), low = operation & 0x3f;
        switch (operation >> 6) {
        case 1: /* DW_CFA_advance_loc */
            rules->location += low * rules->entry->code_factor;
            break;
        case 2: /* DW_CFA_offset */
            rules_set(rules, low, RULE_AT_OFFSET, rules_factored(rules, cursor, false));
            break;
        case 3: /* DW_CFA_restore */
            rules_restore(rules, low);
            break;
        default:
            if (!rules_run_frame(rules, cursor, operation)) {
                rules_run_other(rules, cursor, operation);
            }
        }
    }
    return !cursor->failed;
}

/* --- the caller's registers --- */

/* The expression of a block, whose size comes first. rules_block has looked at it. */
static struct cursor rules_expression(int64_t block)
{
    struct cursor cursor = {(const unsigned char *)(uintptr_t)block, NULL, false};
    cursor.end = cursor.at + 10; /* no size takes more bytes */
    uint64_t size = rules_number(&cursor);
    cursor.end = cursor.at + size;
    return cursor;
}

static bool rules_frame_address(struct unwind_walk *walk, const struct unwind_row *row,
                                uintptr_t *frame)
{
    if (row->frame_is_expression) {
        return hak__unwind_evaluate(walk, rules_expression(row->frame_offset), NULL, frame);
    }
    if (row->frame_register >= ARCH_REGISTERS || (walk->known >> row->frame_register & 1) == 0) {
        return false;
    }
    *frame = walk->registers[row->frame_register] + (uintptr_t)row->frame_offset;
    return true;
}

/* Reads the register that was not the same, as its rule says. False: it cannot be known. */
static bool rules_register(struct unwind_walk *walk, const struct unwind_row *row, uint32_t number,
                           uintptr_t frame, uintptr_t *value)
{
    int64_t rule = row->values[number];
    uintptr_t address = frame + (uintptr_t)rule;
    switch (row->kinds[number]) {
    case RULE_AT_OFFSET:
        return hak__unwind_read(walk, address, sizeof *value, value);
    case RULE_REGISTER:
        *value = (uint64_t)rule < ARCH_REGISTERS ? walk->registers[rule] : 0;
        return (uint64_t)rule < ARCH_REGISTERS && (walk->known >> rule & 1) != 0;
    case RULE_AT_EXPRESSION:
        return hak__unwind_evaluate(walk, rules_expression(rule), &frame, &address) &&
               hak__unwind_read(walk, address, sizeof *value, value);
    case RULE_EXPRESSION:
        return hak__unwind_evaluate(walk, rules_expression(rule), &frame, value);
    default:
        return false;
    }
}

/* The frame is that of the row. All rules see the registers as they were. */
static void rules_apply(struct unwind_walk *walk, const struct unwind_row *row, uintptr_t frame)
{
    uintptr_t values[ARCH_REGISTERS];
    uint64_t known = 0;
    for (uint32_t i = 0; i < ARCH_REGISTERS; i++) {
        if (row->kinds[i] == RULE_SAME) {
            values[i] = walk->registers[i];
            known |= walk->known & UINT64_C(1) << i;
        } else if (rules_register(walk, row, i, frame, &values[i])) {
            known |= UINT64_C(1) << i;
        }
    }
    if (row->kinds[ARCH_STACK_POINTER] == RULE_SAME) {
        values[ARCH_STACK_POINTER] = frame;
        known |= UINT64_C(1) << ARCH_STACK_POINTER;
    }
    for (uint32_t i = 0; i < ARCH_REGISTERS; i++) {
        walk->registers[i] = (known >> i & 1) != 0 ? values[i] : 0;
    }
    walk->known = known;
}

/* False: the row is of a seldom kind. */
static bool rules_shorten(const struct unwind_row *row, const struct unwind_entry *entry,
                          struct unwind_recipe *recipe)
{
    static const uint8_t kept[] = ARCH_KEPT_ORDER;
    int64_t word = sizeof(uintptr_t);
    memset(recipe, 0, sizeof *recipe);
    recipe->frame_register = (uint8_t)row->frame_register;
    recipe->frame_offset = (int32_t)row->frame_offset;
    for (uint32_t i = 0; i < sizeof kept; i++) {
        int64_t below = row->kinds[kept[i]] == RULE_AT_OFFSET ? -row->values[kept[i]] : 0;
        recipe->words_below[i] = (uint8_t)(below / word);
        if ((row->kinds[kept[i]] != RULE_SAME && recipe->words_below[i] == 0) ||
            below != recipe->words_below[i] * word) {
            return false;
        }
    }
    return !row->frame_is_expression && recipe->frame_register == row->frame_register &&
           recipe->frame_offset == row->frame_offset &&
           row->kinds[ARCH_STACK_POINTER] == RULE_SAME && !entry->is_signal &&
           entry->return_register == ARCH_RETURN_ADDRESS;
}

bool hak__unwind_apply(struct unwind_walk *walk, struct unwind_entry *entry, uintptr_t address)
{
    struct unwind_recipe recipe;
    struct rules rules;
    uintptr_t frame, back = (uintptr_t)entry->return_register;
    memset(&rules.row, 0, sizeof rules.row);
    rules.row.frame_register = ARCH_REGISTERS;
    rules.first = rules.row;
    rules.kept_count = 0;
    rules.entry = entry;
    rules.location = entry->start;
    if (back >= ARCH_REGISTERS || !rules_run(&rules, &entry->common, address)) {
        return false;
    }
    rules.first = rules.row;
    rules.location = entry->start;
    if (!rules_run(&rules, &entry->own, address)) {
        return false;
    }
    if (rules.row.kinds[back] == RULE_UNDEFINED) { /* the first function of a thread */
        walk->registers[ARCH_NEXT_INSTRUCTION] = 0;
        return false;
    }
    if (rules.row.kinds[back] == RULE_SAME && back == ARCH_NEXT_INSTRUCTION) {
        return false; /* no register has a return address */
    }
    if (rules_shorten(&rules.row, entry, &recipe)) {
        hak__unwind_remember(&walk->module, address, &recipe);
    }
    if (!rules_frame_address(walk, &rules.row, &frame) || frame % sizeof(uintptr_t) != 0) {
        return false;
    }
    rules_apply(walk, &rules.row, frame);
    if ((walk->known >> back & 1) == 0) {
        return false;
    }
    walk->registers[ARCH_NEXT_INSTRUCTION] = arch_strip_signature(walk->registers[back]);
    walk->known |= UINT64_C(1) << ARCH_NEXT_INSTRUCTION;
    return true;
}
