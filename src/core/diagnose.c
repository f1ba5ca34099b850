/* SPDX-License-Identifier: MIT */
/* diagnose.c: see diagnose.h. */
#include "core/diagnose.h"

#include "base/check.h"
#include "base/text.h"
#include "core/gate.h"
#include "os/os.h"

/* The program's handler of SIGABRT may allocate. So this thread is marked as inside: its later slow
 * operations are refused and use emergency memory. */
void hak__diagnose_abort(void)
{
    hak__inside |= INSIDE_REPORT;
    hak__thread_give_up();
    hak__os_abort();
}

void hak__diagnose_line(char *line, size_t size, const char *format, ...)
{
    struct text text = {line, size - 1, 0};
    va_list values;
    va_start(values, format);
    hak__text_put_list(&text, format, values);
    va_end(values);
    line[text.length++] = '\n';
    hak__os_write_error(line, text.length);
}

/* Which process it is, and how to learn more. A second line, so that a log's first line says what
 * happened. */
static void diagnose_place(bool is_ours)
{
    const char *program = hak__os_program();
    DIAGNOSE_SAY(TEXT_LINE_SIZE, "hakmem: in process %u%s; program %s", hak__os_process_id(),
                 is_ours ? "; HAKMEM_GUARD=1 may show who allocated and freed it" : "",
                 program != NULL ? program : "unknown");
}

static void diagnose_what(const char *what, const void *pointer, size_t bytes, uint32_t arena_id)
{
    char size[48] = "", arena[32] = "";
    if (bytes != 0) {
        hak__text_make(size, sizeof size, ", in a block of %zu bytes", bytes);
    }
    if (arena_id != 0) {
        hak__text_make(arena, sizeof arena, ", owned by arena %u", arena_id);
    }
    DIAGNOSE_SAY(TEXT_LINE_SIZE, "hakmem: fatal: %s: pointer %#lx%s%s", what, (uintptr_t)pointer,
                 size, arena);
}

void hak__diagnose_report(const char *what, const void *pointer, size_t bytes, uint32_t arena_id)
{
    diagnose_what(what, pointer, bytes, arena_id);
    diagnose_place(true);
}

void hak__diagnose_foreign(const char *what, const void *pointer)
{
    diagnose_what(what, pointer, 0, 0);
    diagnose_place(false);
    hak__diagnose_abort();
}

void hak__diagnose_fatal(const char *what, const void *pointer, size_t bytes, uint32_t arena_id)
{
    hak__diagnose_report(what, pointer, bytes, arena_id);
    hak__diagnose_abort();
}

void hak__diagnose_given(const char *what, size_t given, const void *pointer, size_t bytes)
{
    char text[TEXT_LINE_SIZE];
    hak__text_make(text, sizeof text, "%s (%zu)", what, given);
    hak__diagnose_fatal(text, pointer, bytes, 0);
}

void hak__diagnose_warn(const char *what, const void *pointer)
{
    if (pointer != NULL) {
        DIAGNOSE_SAY(TEXT_LINE_SIZE, "hakmem: warning: %s: pointer %#lx", what, (uintptr_t)pointer);
    } else {
        DIAGNOSE_SAY(TEXT_LINE_SIZE, "hakmem: warning: %s", what);
    }
}

void hak__assert_fail(const char *text, const char *file, int line)
{
    DIAGNOSE_SAY(TEXT_LINE_SIZE, "hakmem: fatal: assertion failed: %s (%s:%u)", text, file,
                 (unsigned)line);
    hak__diagnose_abort();
}
