/* SPDX-License-Identifier: MIT */
/* diagnose.c: see diagnose.h. */
#include "core/diagnose.h"

#include "base/check.h"
#include "base/text.h"
#include "core/gate.h"
#include "os/os.h"

#define LINE_SIZE 256 /* the longest message is about 150 characters */

/* The program's handler of SIGABRT may allocate. So this thread is marked as inside: its later slow
 * operations are refused and use emergency memory. */
void hak__diagnose_abort(void)
{
    hak__inside |= INSIDE_REPORT;
    hak__thread_give_up();
    hak__os_abort();
}

/* Which process it is, and how to learn more. A second line, so that a log's first line says what
 * happened. */
static void diagnose_place(bool is_ours)
{
    char line[LINE_SIZE];
    struct text text = {line, sizeof line, 0};
    const char *program = hak__os_program();
    hak__text_put(&text, "hakmem: in process ");
    hak__text_put_unsigned(&text, hak__os_process_id());
    hak__text_put(&text, is_ours ? "; HAKMEM_GUARD=1 may show who allocated and freed it; program "
                                 : "; program ");
    hak__text_put(&text, program != NULL ? program : "unknown");
    text.length -= text.length == sizeof line; /* cut: room for the end of the line */
    hak__text_put(&text, "\n");
    hak__os_write_error(line, text.length);
}

static void diagnose_what(const char *what, const void *pointer, size_t object_size,
                          uint32_t heap_id)
{
    char line[LINE_SIZE];
    struct text text = {line, sizeof line, 0};
    hak__text_put(&text, "hakmem: fatal: ");
    hak__text_put(&text, what);
    hak__text_put(&text, ": pointer ");
    hak__text_put_hex(&text, (uintptr_t)pointer);
    if (object_size != 0) {
        hak__text_put(&text, ", size class ");
        hak__text_put_unsigned(&text, object_size);
        hak__text_put(&text, " bytes");
    }
    if (heap_id != 0) {
        hak__text_put(&text, ", owned by heap ");
        hak__text_put_unsigned(&text, heap_id);
    }
    hak__text_put(&text, "\n");
    hak__os_write_error(line, text.length);
}

void hak__diagnose_report(const char *what, const void *pointer, size_t object_size,
                          uint32_t heap_id)
{
    diagnose_what(what, pointer, object_size, heap_id);
    diagnose_place(true);
}

void hak__diagnose_foreign(const char *what, const void *pointer)
{
    diagnose_what(what, pointer, 0, 0);
    diagnose_place(false);
    hak__diagnose_abort();
}

void hak__diagnose_fatal(const char *what, const void *pointer, size_t object_size,
                         uint32_t heap_id)
{
    hak__diagnose_report(what, pointer, object_size, heap_id);
    hak__diagnose_abort();
}

void hak__diagnose_warn(const char *what, const void *pointer)
{
    char line[LINE_SIZE];
    struct text text = {line, sizeof line, 0};
    hak__text_put(&text, "hakmem: warning: ");
    hak__text_put(&text, what);
    if (pointer != NULL) {
        hak__text_put(&text, ": pointer ");
        hak__text_put_hex(&text, (uintptr_t)pointer);
    }
    hak__text_put(&text, "\n");
    hak__os_write_error(line, text.length);
}

void hak__assert_fail(const char *text, const char *file, int line)
{
    char buffer[LINE_SIZE];
    struct text message = {buffer, sizeof buffer, 0};
    hak__text_put(&message, "hakmem: fatal: assertion failed: ");
    hak__text_put(&message, text);
    hak__text_put(&message, " (");
    hak__text_put(&message, file);
    hak__text_put(&message, ":");
    hak__text_put_unsigned(&message, (uint64_t)line);
    hak__text_put(&message, ")\n");
    hak__os_write_error(buffer, message.length);
    hak__diagnose_abort();
}
