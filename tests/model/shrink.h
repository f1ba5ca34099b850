/* SPDX-License-Identifier: MIT */
/* shrink.h: the shortest program that still fails: delta debugging (Zeller and Hildebrandt, 2002)
 * over whole operations, then over single bytes. Each try is a process of its own, forked from one
 * in which the allocator has not been used.
 */
#ifndef TESTS_MODEL_SHRINK_H
#define TESTS_MODEL_SHRINK_H

#include "program.h"

#include <signal.h>
#include <sys/wait.h>

/* A call and its undoing can only leave together. */
enum { SHRINK_PAIRS = 3 };

/* Shared with the processes that try. */
struct program {
    char origin[300]; /* a file's name or a seed, for messages */
    uint32_t size;
    uint8_t bytes[PROGRAM_BYTES_MAX];
};

/* Runs `program` in a process of its own: true when it fails, also by a signal or after minutes.
 */
static bool program_fails(const struct program *program, bool quiet)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(280);
        if (quiet) {
            int nothing = open("/dev/null", O_WRONLY);
            dup2(nothing, STDOUT_FILENO);
            dup2(nothing, STDERR_FILENO);
        }
        program_init();
        program_run(program->bytes, program->size);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status != 0;
}

/* The program without [from, to). */
static struct program program_without(const struct program *program, size_t from, size_t to)
{
    struct program result = *program;
    memmove(result.bytes + from, result.bytes + to, program->size - to);
    result.size -= (uint32_t)(to - from);
    return result;
}

/* Leaves out `length` operations at a time wherever it still fails; true if anything went. */
static bool shrink_by(struct program *program, size_t length)
{
    bool shrunk = false;
    for (size_t first = 0; program_fails(program, true) && first < program_map->operations_count;) {
        size_t count = program_map->operations_count;
        size_t last = first + length < count ? first + length : count;
        struct program shorter =
            program_without(program, program_map->offsets[first], program_map->offsets[last]);
        if (program_fails(&shorter, true)) {
            *program = shorter;
            shrunk = true;
        } else {
            first = length <= SHRINK_PAIRS ? first + 1 : last;
        }
    }
    return shrunk;
}

/* Leaves out what lies behind the failure, and the operation that failed if the end shows it, too.
 */
static void shrink_tail(struct program *program)
{
    size_t size = program->size;
    REQUIRE(program_fails(program, true));
    for (program->size = program_map->offsets[program_map->operations_count];
         program->size < size && !program_fails(program, true); program->size++) {
    }
}

/* Shrinks a program that fails in a process of its own; the number of its operations. */
static size_t program_shrink(struct program *program)
{
    program_map = program_map == NULL ? mmap(NULL, sizeof *program_map, PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                                      : program_map;
    REQUIRE(program_map != MAP_FAILED);
    shrink_tail(program);
    REQUIRE(program_fails(program, true));
    for (size_t length = program_map->operations_count / 2; length > 1; length /= 2) {
        shrink_by(program, length);
    }
    for (size_t length = 1; length <= SHRINK_PAIRS; length++) {
        if (shrink_by(program, length)) {
            shrink_tail(program);
            length = 0;
        }
    }
    for (size_t i = 0; i < program->size; i++) {
        struct program simpler = *program;
        simpler.bytes[i] = 0;
        if (simpler.bytes[i] != program->bytes[i] && program_fails(&simpler, true)) {
            *program = simpler;
        }
    }
    shrink_tail(program);
    REQUIRE(program_fails(program, true));
    return program_map->operations_count;
}

#endif
