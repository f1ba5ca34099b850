/* SPDX-License-Identifier: MIT */
/* words.c: see launch.h. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum { CAPTURE_SIZE = 65536 };

/* --- messages --- */

/* A file's name may hold what a terminal obeys: bytes below a space, and the same in UTF-8. */
static void clean(char *text)
{
    char *to = text;
    for (const char *from = text; *from != 0; from++) {
        unsigned char byte = (unsigned char)*from, next = (unsigned char)from[1];
        bool is_wide_control = byte == 0xc2 && next >= 0x80 && next <= 0x9f;
        *to++ = byte < 0x20 || byte == 0x7f || is_wide_control ? '?' : *from;
        from += is_wide_control;
    }
    *to = 0;
}

/* An installed hakmem is called by its name. */
static void print_worded(const char *text)
{
    static const char *const worded[][2] = {{"./hakmem", "hakmem"},
                                            {"docs/options.md", "hakmem(7)"}};
    while (*text != 0) {
        const char *put = NULL;
        for (size_t i = 0; i < sizeof worded / sizeof *worded && launch.installed; i++) {
            size_t length = strlen(worded[i][0]);
            if (put == NULL && strncmp(text, worded[i][0], length) == 0) {
                put = worded[i][1];
                text += length;
            }
        }
        if (put != NULL) {
            fputs(put, stderr);
        } else {
            fputc(*text++, stderr);
        }
    }
}

static char *format_list(const char *format, va_list list)
{
    char *text;
    if (vasprintf(&text, format, list) < 0) {
        fputs("hakmem: out of memory\n", stderr);
        exit(STATUS_FAILED);
    }
    return text;
}

static _Noreturn void die(int status, const char *before, char *text)
{
    static char buffer[BUFSIZ];
    setvbuf(stderr, buffer, _IOFBF, sizeof buffer); /* one write, one line */
    clean(text);
    fprintf(stderr, "hakmem: %s%s", before, before[0] != 0 ? ": " : "");
    print_worded(text);
    fputc('\n', stderr);
    exit(status);
}

void words_die(int status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    die(status, "", format_list(format, list));
}

void words_refuse(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    die(STATUS_USAGE, launch.command, format_list(format, list));
}

void words_misuse(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    words_refuse("%s (./hakmem %s --help)", format_list(format, list), launch.command);
}

/* --- options --- */

const char *words_value(char ***words, const char *option)
{
    const char *word = **words;
    size_t length = strlen(option);
    if (strncmp(word, option, length) != 0) {
        return NULL;
    }
    if (word[length] == '=' && option[1] == '-') {
        return word + length + 1;
    }
    if (word[length] != 0) {
        return NULL;
    }
    if ((*words)[1] == NULL) {
        words_misuse("%s needs a value", option);
    }
    return *++*words;
}

bool words_skip(const char *word)
{
    return strcmp(word, "--install") == 0 || strcmp(word, "--no-install") == 0;
}

/* --- texts --- */

char *words_join(const char *format, ...)
{
    va_list list;
    char *text;
    va_start(list, format);
    text = format_list(format, list);
    va_end(list);
    return text;
}

/* Each character as `change` gives it. */
static char *changed(char *text, int (*change)(int character))
{
    for (char *at = text; *at != 0; at++) {
        *at = (char)change((unsigned char)*at);
    }
    return text;
}

static int printable(int character)
{
    return isprint(character) ? character : '?';
}

char *words_shown(const char *text)
{
    return changed(words_join("%.60s", text), printable);
}

char *words_small(const char *text)
{
    return changed(words_join("%s", text), tolower);
}

char *words_large(const char *text)
{
    return changed(words_join("%s", text), toupper);
}

char *words_absolute(const char *name)
{
    char *folder = name[0] != '/' ? get_current_dir_name() : NULL;
    if (name[0] == '/') {
        return words_join("%s", name);
    }
    if (folder == NULL) {
        words_die(STATUS_FAILED, "the current folder has no name: %s", strerror(errno));
    }
    return words_join("%s/%s", folder, name);
}

char *words_file(void)
{
    const char *folder = getenv("TMPDIR");
    char *file =
        words_join("%s/hakmem-report-XXXXXX", folder != NULL && folder[0] == '/' ? folder : "/tmp");
    int descriptor = mkstemp(file);
    if (descriptor < 0) {
        words_die(STATUS_FAILED, "cannot write %s: %s", file, strerror(errno));
    }
    close(descriptor);
    return file;
}

/* --- programs that are asked --- */

static _Noreturn void become_asked(char *const words[], char *const environment[], int output,
                                   bool errors)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(output, STDOUT_FILENO);
    dup2(errors ? output : nowhere, STDERR_FILENO);
    execvpe(words[0], words, environment != NULL ? environment : environ);
    _exit(STATUS_NOT_FOUND);
}

char *words_capture(char *const words[], char *const environment[], bool errors)
{
    char *text = malloc(CAPTURE_SIZE);
    size_t length = 0;
    ssize_t got;
    int ends[2], status = 0; /* stays so where SIGCHLD is ignored */
    pid_t pid;
    if (text == NULL || pipe(ends) != 0 || (pid = fork()) < 0) {
        words_die(STATUS_FAILED, "cannot start a process: %s", strerror(errno));
    }
    if (pid == 0) {
        become_asked(words, environment, ends[1], errors);
    }
    close(ends[1]);
    while (length < CAPTURE_SIZE - 1 &&
           ((got = read(ends[0], text + length, CAPTURE_SIZE - 1 - length)) > 0 ||
            (got < 0 && errno == EINTR))) {
        length += got > 0 ? (size_t)got : 0;
    }
    close(ends[0]);
    text[length] = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : NULL;
}
