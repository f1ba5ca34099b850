/* SPDX-License-Identifier: MIT */
/* output.c: see output.h. The file is opened for each frame: a program may close descriptors that
 * it does not know, and open others under their numbers. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "lock.h"
#include "modules.h"

#define ATTEMPTS_MAX 1000

static char output_name[PATH_MAX]; /* written once, before `shared_made` is set */
static uint64_t output_parent;     /* pid of the process that forked this one */
static _Atomic bool shared_made;   /* the file is there, with a header */
static _Atomic bool shared_failed;
static _Atomic uint32_t shared_opening; /* lock of who makes the file */
static _Atomic uint32_t shared_listing;
static char *modules_text; /* TRACE_MODULES_MAX bytes for the payload, and as many for the maps */
static uint64_t modules_checksum; /* of the modules that the file knows */
/* A page that fork fills with zeros. NULL: not there yet. */
static _Atomic(uint32_t *) shared_mark;

static long os_open(const char *name, int flags)
{
    return syscall(SYS_openat, AT_FDCWD, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static uint32_t os_pid(void)
{
    return (uint32_t)syscall(SYS_getpid);
}

static const char *variable(const char *name)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const char *rest = hak__text_after(*entry, name);
        if (rest != NULL && *rest == '=') {
            return rest + 1;
        }
    }
    return NULL;
}

bool output_is_wanted(void)
{
    const char *file = variable(OUTPUT_FILE_VARIABLE);
    return file != NULL && file[0] == '/' && strlen(file) < PATH_MAX - 32;
}

long output_read_file(const char *name, char *buffer, size_t room)
{
    size_t length = 0;
    long descriptor = os_open(name, O_RDONLY | O_NONBLOCK), got;
    if (descriptor < 0) {
        return -1;
    }
    do {
        got = syscall(SYS_read, (int)descriptor, buffer + length, room - length);
        length += got > 0 ? (size_t)got : 0;
    } while (got > 0 && length < room);
    syscall(SYS_close, (int)descriptor);
    return (long)length;
}

static void fill_header(struct trace_header *header)
{
    struct timespec now = {0};
    long length;
    *header = (struct trace_header){.version = TRACE_VERSION, .header_bytes = sizeof *header};
    memcpy(header->magic, TRACE_MAGIC, sizeof header->magic);
    header->pid = os_pid();
    header->forked_from = output_parent;
    clock_gettime(CLOCK_REALTIME, &now);
    header->start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    length = output_read_file("/proc/self/comm", header->program, sizeof header->program - 1);
    if (length > 0 && header->program[length - 1] == '\n') {
        header->program[length - 1] = 0;
    }
}

/* FILE.<pid>, FILE.<pid>.2 and so on: the `attempt`th name, from 1 on. */
static void put_own_name(char *to, const char *file, unsigned attempt)
{
    if (attempt > 1) {
        hak__text_make(to, PATH_MAX, "%s.%u.%u", file, os_pid(), attempt);
    } else {
        hak__text_make(to, PATH_MAX, "%s.%u", file, os_pid());
    }
}

/* The process has become another program, which is the one that FILE is for: the trace of the
 * program before, often a shell that only started it, gets another name. */
static bool move_older(const char *file)
{
    static char name[PATH_MAX]; /* under shared_opening */
    long status = -1;
    for (unsigned attempt = 1; attempt < ATTEMPTS_MAX; attempt++) {
        put_own_name(name, file, attempt);
        status = syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, name, RENAME_NOREPLACE);
        if (status == 0 || errno != EEXIST) {
            break;
        }
    }
    return status == 0;
}

#define CREATE_FLAGS (O_WRONLY | O_CREAT | O_EXCL | O_APPEND)

/* Opens a file that was not there, named `output_name`. */
static long create_file(void)
{
    const char *file = variable(OUTPUT_FILE_VARIABLE), *pid = variable(OUTPUT_PID_VARIABLE);
    char own[24];
    long descriptor = -1;
    if (!output_is_wanted()) {
        errno = ENOENT;
        return -1;
    }
    hak__text_make(own, sizeof own, "%u", os_pid());
    if (pid != NULL && strcmp(pid, own) == 0) {
        hak__text_make(output_name, PATH_MAX, "%s", file);
        descriptor = os_open(output_name, CREATE_FLAGS);
        if (descriptor < 0 && errno == EEXIST && move_older(file)) {
            descriptor = os_open(output_name, CREATE_FLAGS);
        }
    } else {
        for (unsigned attempt = 1; attempt < ATTEMPTS_MAX; attempt++) {
            put_own_name(output_name, file, attempt);
            descriptor = os_open(output_name, CREATE_FLAGS);
            if (descriptor >= 0 || errno != EEXIST) {
                break;
            }
        }
    }
    return descriptor;
}

/* --- writing --- */

/* Writes all or nothing. Returns 0, or errno; a write beyond a limit of the file's size sends no
 * signal. `descriptor` appends, so that its position afterwards is the end of what it wrote. */
static int write_whole(int descriptor, const void *data, size_t bytes)
{
    const uint64_t limit_signal = UINT64_C(1) << (SIGXFSZ - 1);
    const struct timespec now = {0};
    uint64_t before, pending = 0;
    long written, rest;
    int error = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &limit_signal, &before, sizeof before);
    syscall(SYS_rt_sigpending, &pending, sizeof pending);
    written = syscall(SYS_write, descriptor, data, bytes);
    if (written < 0) {
        error = errno;
    } else if ((size_t)written != bytes) {
        /* Only the next write says why. Another thread may have written in between, so that even a
         * success is none. */
        long end = syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
        rest =
            syscall(SYS_write, descriptor, (const char *)data + written, bytes - (size_t)written);
        error = rest < 0 ? errno : EIO;
        syscall(SYS_ftruncate, descriptor, end - written);
    }
    if (error == EFBIG && (pending & limit_signal) == 0) {
        syscall(SYS_rt_sigtimedwait, &limit_signal, NULL, &now, sizeof limit_signal);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return error;
}

/* The file with its header, which is made once. */
static long open_file(int *error)
{
    struct trace_header header;
    long descriptor = -1;
    *error = 0;
    if (!atomic_load_explicit(&shared_made, memory_order_acquire)) {
        if (!lock_take(&shared_opening)) {
            *error = EDEADLK;
            return -1;
        }
        if (!atomic_load_explicit(&shared_made, memory_order_relaxed)) {
            descriptor = create_file();
            *error = descriptor < 0 ? errno : 0;
            if (descriptor >= 0) {
                fill_header(&header);
                *error = write_whole((int)descriptor, &header, sizeof header);
            }
            atomic_store_explicit(&shared_made, *error == 0, memory_order_release);
        }
        lock_give(&shared_opening);
    }
    if (descriptor < 0 && *error == 0) {
        descriptor = os_open(output_name, O_WRONLY | O_APPEND);
        *error = descriptor < 0 ? errno : 0;
    }
    return descriptor;
}

/* The program has used up its descriptors for now, or this call interrupted who makes the file. */
static bool is_passing(int error)
{
    return error == EMFILE || error == ENFILE || error == EDEADLK;
}

/* Recording is over. The header says why; its place is in the file already, so that a full disk
 * does not matter. */
static void note_failure(int reason)
{
    uint32_t stopped_by = (uint32_t)reason;
    long descriptor;
    if (atomic_exchange(&shared_failed, true) || !atomic_load(&shared_made)) {
        return;
    }
    descriptor = os_open(output_name, O_WRONLY);
    if (descriptor >= 0) {
        syscall(SYS_pwrite64, (int)descriptor, &stopped_by, sizeof stopped_by,
                (long)offsetof(struct trace_header, stopped_by));
        syscall(SYS_close, (int)descriptor);
    }
}

bool output_append(const void *frame, size_t bytes)
{
    long descriptor;
    int error;
    if (output_has_failed()) {
        return false;
    }
    descriptor = open_file(&error);
    if (descriptor >= 0) {
        error = error != 0 ? error : write_whole((int)descriptor, frame, bytes);
        syscall(SYS_close, (int)descriptor);
    }
    if (error != 0 && !is_passing(error)) {
        note_failure(error);
    }
    return error == 0;
}

bool output_has_failed(void)
{
    return atomic_load_explicit(&shared_failed, memory_order_relaxed);
}

bool output_has_file(void)
{
    return atomic_load_explicit(&shared_made, memory_order_relaxed);
}

/* --- forks --- */

void output_start(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t *mark = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED) {
        return;
    }
    *mark = 1;
    if (madvise(mark, page, MADV_WIPEONFORK) != 0) {
        munmap(mark, page);
        mark = NULL;
    }
    atomic_store_explicit(&shared_mark, mark, memory_order_release);
}

bool output_is_foreign(void)
{
    const uint32_t *mark = atomic_load_explicit(&shared_mark, memory_order_acquire);
    return mark != NULL && *mark == 0;
}

/* --- modules --- */

/* False: the file knows them already. */
static bool list_modules(struct encoder *encoder)
{
    char *maps;
    long length;
    uint64_t checksum;
    if (modules_text == NULL) {
        char *text = mmap(NULL, 2 * TRACE_MODULES_MAX, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (text == MAP_FAILED) {
            return false;
        }
        modules_text = text;
    }
    maps = modules_text + TRACE_MODULES_MAX;
    length = output_read_file("/proc/thread-self/maps", maps, TRACE_MODULES_MAX - 1);
    if (length <= 0) {
        return false;
    }
    maps[length] = 0;
    length = modules_list(modules_text, maps);
    checksum = trace_checksum(0, modules_text, (size_t)length);
    if (checksum == modules_checksum) {
        return false;
    }
    if (output_append(encoder->output,
                      encode_frame(encoder, FRAME_MODULES, modules_text, (uint32_t)length))) {
        modules_checksum = checksum;
    } else {
        modules_forget(); /* the next frame tries again */
    }
    return true;
}

bool output_modules(struct encoder *encoder)
{
    bool written = false;
    if (!lock_take(&shared_listing)) {
        return false;
    }
    for (uint32_t i = 0; i < encoder->shape_count; i++) {
        if (!modules_have(trace_site(encoder->shapes[i]))) {
            written = list_modules(encoder);
            break; /* a site that is still in no module is generated code */
        }
    }
    lock_give(&shared_listing);
    return written;
}

/* --- the process --- */

void output_forked(void)
{
    output_parent = (uint64_t)syscall(SYS_getppid);
    atomic_store(&shared_made, false);
    modules_forget();
    modules_checksum = 0;
    output_start();
    atomic_store(&shared_opening, 0);
    atomic_store(&shared_listing, 0);
}

uint64_t output_resident(void)
{
    char text[128] = "";
    const char *at = text;
    if (output_read_file("/proc/thread-self/statm", text, sizeof text - 1) <= 0) {
        return 0;
    }
    (void)hak__text_number(&at); /* size */
    at += *at == ' ';
    uint64_t resident = hak__text_number(&at);
    at += *at == ' ';
    uint64_t shared = hak__text_number(&at);
    return resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
