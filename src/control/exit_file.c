/* SPDX-License-Identifier: MIT */
/* exit_file.c: see exit_file.h. */
#include "control/exit_file.h"

#include "base/text.h"
#include "core/diagnose.h"
#include "core/gate.h"
#include "core/limits.h"
#include "core/own_stack.h"

#include <string.h>

bool hak__exit_file_varies(const char *name)
{
    for (const char *at = name; at != NULL && *at != '\0'; at++) {
        if (*at == '%' && *++at == 'p') { /* the option lets only %p and %% pass */
            return true;
        }
    }
    return false;
}

void hak__exit_file_path(const char *name, char path[EXIT_PATH_SIZE])
{
    struct text text = {path, EXIT_PATH_SIZE - 1, 0};
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '%' && *++at == 'p') {
            hak__text_format(&text, "%u", hak__os_process_id());
        } else {
            hak__text_put_part(&text, at, 1);
        }
    }
    path[text.length] = '\0';
}

void hak__exit_file_open(struct exit_file *file)
{
    char path[EXIT_PATH_SIZE];
    file->process = hak__os_process_id();
    if (*file->name == NULL) {
        file->kept = hak__os_keep(2);
    } else if (!file->replaces) {
        hak__exit_file_path(*file->name, path);
        file->kept = hak__os_keep_append(path);
    }
}

void hak__exit_file_close(struct exit_file *file)
{
    if (file->kept.descriptor >= 0 && hak__os_is_kept(&file->kept)) {
        hak__os_close(file->kept.descriptor);
    }
    file->kept.descriptor = -1;
}

/* A document under way. */
struct exit_document {
    char *data; /* mapped */
    size_t size;
    size_t length;
    int descriptor;
    bool collects; /* false: each piece is written as it comes */
    int error;     /* of the last write that failed; 0: all is written */
};

static void exit_write(struct exit_document *document, const char *data, size_t size)
{
    int error = 0;
    if (document->descriptor == 2) {
        hak__os_write_error(data, size);
    } else {
        error = hak__os_write(document->descriptor, data, size);
    }
    document->error = error != 0 ? error : document->error;
}

/* Writes what is collected, and unmaps the memory. */
static void exit_flush(struct exit_document *document)
{
    exit_write(document, document->data, document->length);
    if (document->size != 0) {
        hak__os_discard(document->data, document->size);
    }
    document->data = NULL;
    document->size = 0;
    document->length = 0;
}

/* Doubles the memory. False: there is none. */
static bool exit_grow(struct exit_document *document)
{
    /* Bytes for a document at first; it doubles. Most reports fit. Half: long ones are copied once
     * more. */
    size_t size = document->size == 0 ? METADATA_CHUNK_SIZE : 2 * document->size;
    void *grown;
    if (hak__os_map(size, hak__os_page_size(), &grown) != 0) {
        return false;
    }
    if (document->size != 0) {
        memcpy(grown, document->data, document->length);
        hak__os_discard(document->data, document->size);
    }
    document->data = grown;
    document->size = size;
    return true;
}

/* The sink. Pieces are smaller than the first size (observe/report_writer.h). */
static void exit_put(void *argument, const char *piece, size_t size)
{
    struct exit_document *document = argument;
    if (document->collects && document->size - document->length < size && !exit_grow(document)) {
        exit_flush(document);
        document->collects = false;
    }
    if (!document->collects) {
        exit_write(document, piece, size);
        return;
    }
    memcpy(document->data + document->length, piece, size);
    document->length += size;
}

static int exit_write_to(int descriptor, const struct exit_file *file)
{
    struct exit_document document = {.descriptor = descriptor, .collects = !file->replaces};
    file->write(exit_put, &document);
    exit_flush(&document);
    return document.error;
}

void hak__exit_file_complain(const char *what, const char *path, int error)
{
    DIAGNOSE_SAY(EXIT_PATH_SIZE + 128, "hakmem: cannot write the %s to %s: %s", what, path,
                 hak__os_file_error(error));
}

/* True: the writers may begin operations. False: a signal interrupted one in this thread, or a fork
 * in another thread takes long. */
static bool exit_may_begin(void)
{
    hak__own.refused = false;
    if (!hak__gate_enter(GATE_PATIENTLY)) {
        return false;
    }
    hak__gate_leave();
    return true;
}

static bool exit_write_file(struct exit_file *file)
{
    char path[EXIT_PATH_SIZE];
    bool kept = hak__os_is_kept(&file->kept);
    if (*file->name == NULL) {
        return exit_write_to(kept ? file->kept.descriptor : 2, file) == 0;
    }
    hak__exit_file_path(*file->name, path);
    /* A forked child that has not opened a file of its own has its parent's. */
    kept = kept && (file->process == hak__os_process_id() || !hak__exit_file_varies(*file->name));
    int descriptor = kept             ? file->kept.descriptor
                     : file->replaces ? hak__os_open_new(path)
                                      : hak__os_open_append(path);
    int error = descriptor < 0 ? descriptor : exit_write_to(descriptor, file);
    if (error != 0) {
        hak__exit_file_complain(file->what, path, error);
    }
    if (descriptor >= 0 && !(file->stays && kept)) {
        hak__os_close(descriptor);
    }
    return error == 0;
}

struct exit_request {
    struct exit_file *file;
    bool done;
};

static void exit_serve(void *argument)
{
    struct exit_request *request = argument;
    if (!exit_may_begin()) {
        DIAGNOSE_SAY(EXIT_PATH_SIZE + 128,
                     "hakmem: no %s: the process ends inside hakmem, or while it forks",
                     request->file->what);
        return;
    }
    request->done = exit_write_file(request->file);
    if (hak__own.refused) {
        request->done = false;
        DIAGNOSE_SAY(EXIT_PATH_SIZE + 128,
                     "hakmem: the %s is not complete: the process forked meanwhile",
                     request->file->what);
    }
}

/* On a stack of its own: a signal's handler or a thread that ends the process may have little. */
bool hak__exit_file_write(struct exit_file *file)
{
    struct exit_request request = {file, false};
    hak__own_stack_try(exit_serve, &request);
    return request.done;
}
