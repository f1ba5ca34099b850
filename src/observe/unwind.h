/* SPDX-License-Identifier: MIT */
/* unwind.h: the callers of the calling thread.
 *
 *   code with tables (.eh_frame, which C and C++ compilers write for nearly all code):
 *       unwind_tables.c finds what they say of an address, unwind_rules.c runs it
 *   the end of a signal handler without tables: the registers that the kernel has kept
 *   other code, such as what Java, node or `python3 -X perf` generate: by frame pointers
 *
 *     frame pointer -> | frame pointer of the caller | return address |   towards the stack's end
 *
 * Why not the unwinder of the compiler's runtime: it runs inside malloc of any program. That one
 * aborts where tables are wrong, and tables that a program registers at run time (__register_frame)
 * are behind a lock. Here such tables are not read; code that has no others is code without tables.
 *
 * Nothing is believed. Tables are read only inside the module that they describe, and only pages
 * that the kernel has found readable. Of the stack and of all else, a walk reads only pages that
 * were readable in this walk. Each loop has a bound. Whatever is wrong ends the walk.
 *
 * With glibc 2.35 or later no lock is taken. Nothing is allocated. So it may run inside malloc, in
 * a signal handler, in fork's child, and at a thread's end. A walk needs 4 KiB of stack.
 *
 * Lifetimes: the code of a frame will run on, so nobody unmaps its module, and the frames' memory
 * stays while they do. After wrong tables, or by a wrong frame pointer, a walk may come to an
 * address that nobody will run. Another thread might unmap what is there between the kernel's
 * answer and the read; nothing else can go wrong. */
#ifndef HAK_OBSERVE_UNWIND_H
#define HAK_OBSERVE_UNWIND_H

#include "base/arch.h"

#include <string.h>

/* Looks for the tables of the program's modules, which do not change their place later. False:
 * there are none, and hak__unwind finds nobody. Opens files in a static program; not inside malloc,
 * nor in two threads at once.
 * `locks`: with an older C library a walk takes the loader's lock (dl_iterate_phdr). */
HAK_HIDDEN bool hak__unwind_start(bool *locks);

/* Stores the return addresses of the caller's callers, innermost first, at most `depth_max`. Of a
 * frame that a signal interrupted it stores the address of the next instruction plus 1, and the
 * same of the frame before, which is the start of code that the handler returns to: so the byte
 * before each stored address belongs to what the frame runs. Returns their number. `more`: there
 * would be further ones. */
HAK_HIDDEN uint32_t hak__unwind(uintptr_t *addresses, uint32_t depth_max, bool *more);

/* --- between the files of the unwinder --- */

/* A part of a table. */
struct cursor {
    const unsigned char *at, *end;
    bool failed; /* something was read beyond the end, or is nonsense */
};

/* An unsigned number of 1, 2, 4 or 8 bytes. */
HAK_INLINE uint64_t cursor_take(struct cursor *cursor, size_t size)
{
    uint64_t value = 0; /* both processors are little-endian */
    if ((size_t)(cursor->end - cursor->at) < size) {
        cursor->failed = true;
        cursor->at = cursor->end;
        return 0;
    }
    memcpy(&value, cursor->at, size);
    cursor->at += size;
    return value;
}

/* The number with its highest bit as the sign. */
HAK_INLINE int64_t cursor_sign(uint64_t value, uint32_t bits)
{
    return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

/* LEB128 (DWARF 5, 7.6). */
HAK_HIDDEN int64_t hak__cursor_number(struct cursor *cursor, bool is_signed);

/* What the tables say of the function at an address: two programs (DWARF 5, 6.4). */
struct unwind_entry {
    struct cursor common, own; /* the second one begins where the first one has ended */
    uintptr_t start;           /* of the function */
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_register;
    bool is_signal; /* the caller was interrupted */
};

/* All segments of a program or library, and where its tables are. */
struct unwind_module {
    uintptr_t start, end;
    uintptr_t header; /* .eh_frame_hdr; 0: none */
    uint64_t key;     /* differs from those of modules that lay here before */
    uintptr_t pairs;  /* int32_t[pairs_count][2]: start of function and entry, minus pairs_base */
    uint64_t pairs_count;
    uintptr_t pairs_base;
    bool pairs_own; /* they are hakmem's: unwind_index.c */
};

/* False: the address lies in no module. */
HAK_HIDDEN bool hak__unwind_module_of(uintptr_t address, struct unwind_module *module);
/* False: no entry of the module's has the address. */
HAK_HIDDEN bool hak__unwind_find(const struct unwind_module *module, uintptr_t address,
                                 struct unwind_entry *entry);
/* The number of entries in the table at `at`, of which those are stored that `pairs` has room for;
 * sorted. */
HAK_HIDDEN uint64_t hak__unwind_list(struct unwind_module *module, uintptr_t at, size_t size);
/* A static program's pairs, made from the file's section .eh_frame. False: it has none. */
HAK_HIDDEN bool hak__unwind_index(struct unwind_module *module, uintptr_t bias);

struct unwind_walk {
    uintptr_t registers[ARCH_REGISTERS];
    uint64_t known;                        /* registers: a bit for each */
    uintptr_t low;                         /* frames of callers lie above */
    uintptr_t readable_low, readable_high; /* pages found readable in this walk */
    uintptr_t code_page;         /* one of code without a module that can be read; 0: none */
    uint32_t looks;              /* questions to the kernel so far */
    uint32_t falls;              /* frames that were not above the one before */
    bool interrupted;            /* the next instruction is not behind a call */
    bool by_pointers;            /* the last frame was found by a frame pointer */
    struct unwind_module module; /* that of the last address */
};

/* False: not all of these bytes can be read. */
HAK_HIDDEN bool hak__unwind_can_read(struct unwind_walk *walk, uintptr_t address, size_t size);
/* Reads a number of 1, 2, 4 or 8 bytes. */
HAK_HIDDEN bool hak__unwind_read(struct unwind_walk *walk, uintptr_t address, size_t size,
                                 uintptr_t *value);

/* What the tables say of nearly all addresses, in short: the frame's address is a register plus an
 * offset, and the registers of ARCH_KEPT_ORDER are the same or lie in memory below that. */
struct unwind_recipe {
    uint8_t frame_register;
    int32_t frame_offset;
    uint8_t words_below[16]; /* by the index in ARCH_KEPT_ORDER; 0: the same */
};
/* Recipes are remembered for all threads. False: there is none for the address. */
HAK_HIDDEN bool hak__unwind_recall(const struct unwind_module *module, uintptr_t address,
                                   struct unwind_recipe *recipe);
HAK_HIDDEN void hak__unwind_remember(const struct unwind_module *module, uintptr_t address,
                                     const struct unwind_recipe *recipe);
/* Changes the registers to those of the caller. False: something is wrong. */
HAK_HIDDEN bool hak__unwind_follow(struct unwind_walk *walk, const struct unwind_recipe *recipe);

/* Runs a program of DW_OP operations, which may begin with `first` on its stack. */
HAK_HIDDEN bool hak__unwind_evaluate(struct unwind_walk *walk, struct cursor program,
                                     const uintptr_t *first, uintptr_t *result);
/* Changes the registers to those of the caller by the entry that has `address`. False: something is
 * wrong, or there is no caller, and then the return address is 0; the registers are unusable. */
HAK_HIDDEN bool hak__unwind_apply(struct unwind_walk *walk, struct unwind_entry *entry,
                                  uintptr_t address);

#endif
