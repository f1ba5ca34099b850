/* SPDX-License-Identifier: MIT */
/* replay_all.c: starts a process for each allocator and run, in turns, and prints a table. */
#define _GNU_SOURCE
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remarks.h"
#include "replay_image.h"

#define ARMS_MAX 32
#define RUNS_MAX 101

struct arm {
    const char *name, *library,
        *environment; /* environment: NAME=VALUE words with spaces between */
    struct replay_result results[RUNS_MAX];
};

static void set_environment(const struct arm *arm)
{
    char words[1024], *word, *rest = words;
    snprintf(words, sizeof words, "%s", arm->environment);
    while ((word = strsep(&rest, " ")) != NULL) {
        if (strchr(word, '=') != NULL) {
            putenv(strdup(word));
        }
    }
    if (*arm->library != 0) {
        setenv("LD_PRELOAD", arm->library, 1);
    } else {
        unsetenv("LD_PRELOAD");
    }
}

static _Noreturn void become_replay(const struct arm *arm, int image, int output)
{
    char image_text[16], output_text[16];
    char self[] = "/proc/self/exe", verb[] = "replay-run";
    char *words[] = {self, verb, image_text, (char *)(uintptr_t)arm->library, output_text, NULL};
    snprintf(image_text, sizeof image_text, "%d", image);
    snprintf(output_text, sizeof output_text, "%d", output);
    fcntl(image, F_SETFD, 0);
    fcntl(output, F_SETFD, 0);
    prctl(PR_SET_PDEATHSIG,
          SIGKILL); /* nobody waits for the result of a replay that goes on alone */
    set_environment(arm);
    execv(self, words);
    _exit(125);
}

/* False: it failed, and has said why. */
static bool run_once(const struct arm *arm, int image, struct replay_result *result)
{
    int ends[2], status = 0;
    pid_t pid;
    bool fine;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        become_replay(arm, image, ends[1]);
    }
    close(ends[1]);
    fine = pid > 0 && read(ends[0], result, sizeof *result) == sizeof *result;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFSIGNALED(status)) {
        remarks_say("replay: %s: died by signal %d (%s)", arm->name, WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        return false;
    }
    return fine && status == 0;
}

static int compare_numbers(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* The median over the runs of the number at `offset` in a result. */
static uint64_t median(const struct arm *arm, unsigned runs, size_t offset)
{
    uint64_t numbers[RUNS_MAX];
    for (unsigned i = 0; i < runs; i++) {
        memcpy(&numbers[i], (const char *)&arm->results[i] + offset, sizeof *numbers);
    }
    qsort(numbers, runs, sizeof *numbers, compare_numbers);
    return numbers[runs / 2];
}

static void print_table(const struct arm *arms, unsigned count, unsigned runs)
{
    static const double mib = 1 << 20;
    printf("\n%-16s %10s %10s %14s %14s  %s\n", "allocator", "time s", "CPU s", "peak RSS MiB",
           "RSS at peak", "live bytes at the peak");
    for (unsigned i = 0; i < count; i++) {
        const struct arm *arm = &arms[i];
#define MEDIAN(field) ((double)median(arm, runs, offsetof(struct replay_result, field)))
        printf("%-16s %10.3f %10.3f %14.2f %14.2f  %" PRIu64 "\n", arm->name, MEDIAN(wall_ns) / 1e9,
               MEDIAN(cpu_ns) / 1e9, MEDIAN(peak_resident) / mib, MEDIAN(resident_then) / mib,
               arm->results[0].live_bytes);
    }
    printf(
        "\nMedian of %u run%s. RSS: anonymous memory beyond the start. \"RSS at peak\": where the "
        "program had the\nmost live bytes.\n",
        runs, runs == 1 ? "" : "s");
}

static int run_arms(const struct replay_image *head, int image, unsigned runs, struct arm *arms,
                    unsigned count)
{
    for (unsigned run = 0; run < runs; run++) {
        for (unsigned i = 0; i < count; i++) {
            const struct replay_result *result = &arms[i].results[run];
            if (!run_once(&arms[i], image, &arms[i].results[run])) {
                remarks_say("replay: the replay under %s failed", arms[i].name);
                return 125;
            }
            if (result->live_bytes != head->peak_bytes || result->calls != head->calls) {
                remarks_say("replay: %s: the replay differs from the trace", arms[i].name);
                return 125;
            }
        }
    }
    return 0;
}

int replay_all(const char *name, unsigned runs, char **words, unsigned count)
{
    static struct arm arms[ARMS_MAX];
    struct replay_image head;
    struct trace_file file;
    int image, status;
    if (runs == 0 || runs > RUNS_MAX || count == 0 || count > ARMS_MAX) {
        remarks_say("replay: 1 to %d runs, 1 to %d allocators", RUNS_MAX, ARMS_MAX);
        return STATUS_FAILED;
    }
    for (unsigned i = 0; i < count; i++) {
        arms[i].name = words[3 * i];
        arms[i].library = words[3 * i + 1];
        arms[i].environment = words[3 * i + 2];
    }
    image = image_make(&file, name, NULL, &head);
    status = -image;
    if (image >= 0) {
        printf("%s: %" PRIu64 " calls of %" PRIu64 " thread%s, %" PRIu64 " handed over, %" PRIu64
               " left out; peak %" PRIu64 " live bytes\n",
               file.header.program, head.calls, head.threads, head.threads == 1 ? "" : "s",
               head.shared_slots, head.skipped, head.peak_bytes);
        if (file.end.threads != 0) {
            printf(
                "when it was recorded, the program had %.2f MiB of anonymous memory at most, its "
                "own mappings and stacks among them\n",
                (double)file.end.peak_resident / (1 << 20));
        }
        remarks_print_end(stdout, "", &file);
        remarks_print_repairs(stdout, &file, &head.repairs);
        fflush(stdout);
        status = run_arms(&head, image, runs, arms, count);
        if (status == 0) {
            print_table(arms, count, runs);
        }
    }
    trace_close(&file);
    return status;
}
