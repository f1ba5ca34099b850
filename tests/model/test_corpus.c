/* SPDX-License-Identifier: MIT */
/* test_corpus.c: programs of calls whose bytes fuzzers found, tests/model/corpus, then random ones.
 *
 *   test_corpus [--seconds N] [--seed N] [--programs N] [--file FILE] [--write FILE]
 *
 * All are run by one process, as a fuzzer does. A program that fails runs again in a process of its
 * own, its operations are printed, and `--write` keeps its bytes; `--file` runs only
 * one such program, printing what it does. One thread moves at a time, so there are no races.
 *
 * ctest: no-tsan
 */
#include "program.h"

/* Shared with the process that runs programs. */
struct program {
    char origin[300]; /* a file's name or a seed, for messages */
    uint32_t size;
    uint8_t bytes[PROGRAM_BYTES_MAX];
};

/* Runs `program` in a process of its own: true when it fails, also by a signal or after minutes.
 */
static bool program_fails(const struct program *program)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(280);
        program_init();
        program_run(program->bytes, program->size);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status != 0;
}

static struct program *current;

static const char *argument_text(int count, char **arguments, const char *name)
{
    for (int i = 1; i + 1 < count; i++) {
        if (strcmp(arguments[i], name) == 0) {
            return arguments[i + 1];
        }
    }
    return NULL;
}

static void program_read(struct program *program, const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, program->bytes, sizeof program->bytes);
    if (size < 0) {
        support_fail("model: %s cannot be read: %s\n", path, strerror(errno));
    }
    close(file);
    program->size = (uint32_t)size;
}

static void program_draw(struct program *program, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95);
    program->size = (uint32_t)random_size(&state, 14);
    for (size_t i = 0; i < program->size; i++) {
        program->bytes[i] = (uint8_t)(random_next(&state) >> 56);
    }
}

static size_t corpus_run(const char *root)
{
    char path[4096];
    size_t programs_count = 0;
    snprintf(path, sizeof path, "%s/tests/model/corpus", root);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        support_fail("model: there is no %s\n", path);
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/tests/model/corpus/%s", root, entry->d_name);
            program_read(current, path);
            snprintf(current->origin, sizeof current->origin, "%s", entry->d_name);
            program_run(current->bytes, current->size);
            programs_count++;
        }
    }
    closedir(directory);
    return programs_count;
}

static void all_run(uint64_t seconds, uint64_t programs)
{
    const char *root = getenv("TEST_ROOT");
    uint64_t count = 0;
    program_init();
    size_t files_count = corpus_run(root == NULL ? "." : root);
    time_t end = time(NULL) + (time_t)seconds;
    for (; count < programs && time(NULL) < end; count++) {
        program_draw(current, option_seed);
        snprintf(current->origin, sizeof current->origin, "seed %llu",
                 (unsigned long long)option_seed);
        program_run(current->bytes, current->size);
        option_seed++;
    }
    REQUIRE(files_count != 0 && (count != 0 || programs == 0));
    printf("model: no difference in %zu programs of the corpus and %llu random ones\n", files_count,
           (unsigned long long)count);
}

static void program_write(const struct program *program, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write(file, program->bytes, program->size) != (ssize_t)program->size) {
        support_fail("model: %s cannot be written: %s\n", path, strerror(errno));
    }
    close(file);
}

/* Runs the program once more, by itself, and prints what it does. */
static void failure_explain(const char *write_to)
{
    printf("model: the program of %s, %u bytes, fails; by itself:\n", current->origin,
           current->size);
    option_trace = true;
    if (!program_fails(current)) {
        printf("model: it does not fail by itself: what went before matters\n");
    }
    if (write_to != NULL) {
        program_write(current, write_to);
    }
}

int main(int count, char **arguments)
{
    const char *file = argument_text(count, arguments, "--file");
    option_seed = argument_number(count, arguments, "--seed", (uint64_t)time(NULL) * 1000);
    current =
        mmap(NULL, sizeof *current, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(current != MAP_FAILED);
    if (file != NULL) {
        option_trace = true;
        program_read(current, file);
        return program_fails(current);
    }
    printf("model: programs of seed %llu, level %d\n", (unsigned long long)option_seed, HAK_LEVEL);
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        all_run(argument_number(count, arguments, "--seconds", 5),
                argument_number(count, arguments, "--programs", UINT64_MAX));
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) {
        failure_explain(argument_text(count, arguments, "--write"));
    }
    return status != 0;
}
