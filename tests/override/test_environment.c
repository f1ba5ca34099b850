/* SPDX-License-Identifier: MIT */
/* test_environment.c: HAKMEM_ names in the environment: each bad value and each unknown name is
 * reported in exactly one line on standard error, and the program runs on as if it were not there;
 * good ones print nothing.
 *
 * ctest: no-qemu
 */
#include "override.h"

enum { VARIABLES_MAX = 5, OUTPUT_SIZE = 65536 };

struct experiment {
    const char *variables[VARIABLES_MAX]; /* "NAME=value" */
    int lines_count;                      /* each of the first so many is named in one line */
};

static char long_value[5000] = "HAKMEM_PROFILE=";

static const struct experiment experiments[] = {
    {{NULL}, 0},
    /* unknown names */
    {{"HAKMEM_BOGUS=1"}, 1},
    {{"HAKMEM_X=1", "HAKMEM_PROFILES=fast", "HAKMEM_profile=fast"}, 3},
    /* bad values of known ones */
    {{"HAKMEM_PROFILE=fastest"}, 1},
    {{"HAKMEM_STATS=yes"}, 1},
    {{"HAKMEM_ANNOUNCE=-1"}, 1},
    {{"HAKMEM_STATS_PID=12monkeys"}, 1},
    {{"HAKMEM_PROFILE=", "HAKMEM_STATS=", "HAKMEM_ANNOUNCE="}, 0}, /* as if not set */
    {{"HAKMEM_BOGUS=1", "HAKMEM_PROFILE=fastest", "HAKMEM_STATS=yes", "HAKMEM_STATS_FILE=/tmp/x"},
     3},
    /* still one line */
    {{long_value}, 1},
    {{"HAKMEM_PROFILE=two\nlines"}, 1},
    {{"HAKMEM_TWO\nLINES=1"}, 1},
    {{"HAKMEM_"}, 0}, /* no variable at all */
    /* good ones */
    {{"HAKMEM_PROFILE=default"}, 0},
    {{"HAKMEM_PROFILE=fast"}, 0},
    {{"HAKMEM_PROFILE=small"}, 0},
    {{"HAKMEM_PROFILE=debug"}, 0},
    {{"HAKMEM_ANNOUNCE=1", "HAKMEM_STATS_PID=1", "HAKMEM_STATS=json"}, 0}, /* another process */
    /* not ours */
    {{"HAKMEM=1", "HAKMEMORY=1", "XHAKMEM_BOGUS=1", "hakmem_bogus=1", "HAKMEM_TEST_LONG=1"}, 0},
};

static void set_variable(const char *variable)
{
    char name[64] = {0};
    const char *equal = strchr(variable, '=');
    if (equal == NULL) {
        return;
    }
    CHECK((size_t)(equal - variable) < sizeof name);
    memcpy(name, variable, (size_t)(equal - variable));
    CHECK(setenv(name, equal + 1, 1) == 0);
}

/* Runs this program with the variables; what it printed on standard error goes to `output`. */
static void run_self(const struct experiment *experiment, const char *self, char *output)
{
    int errors[2];
    int results[2];
    CHECK(pipe(errors) == 0 && pipe(results) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < VARIABLES_MAX && experiment->variables[i] != NULL; i++) {
            set_variable(experiment->variables[i]);
        }
        CHECK(dup2(results[1], 1) == 1 && dup2(errors[1], 2) == 2);
        for (int i = 0; i < 2; i++) {
            close(errors[i]);
            close(results[i]);
        }
        execl(self, self, "run", (char *)NULL);
        _exit(126);
    }
    close(errors[1]);
    close(results[1]);
    size_t length = 0;
    for (ssize_t part; (part = read(errors[0], output + length, OUTPUT_SIZE - 1 - length)) > 0;) {
        length += (size_t)part;
    }
    output[length] = '\0';
    char answer[16] = {0};
    ssize_t answer_length = read(results[0], answer, sizeof answer - 1);
    close(errors[0]);
    close(results[0]);
    wait_for_success(child, experiment->variables[0] != NULL ? experiment->variables[0] : "plain");
    CHECK(answer_length == 3 && strcmp(answer, "ok\n") == 0);
}

/* One line for each of the first variables, beginning "hakmem: " and naming it. */
static bool is_as_expected(const struct experiment *experiment, const char *output)
{
    int lines_count = 0;
    for (const char *line = output; *line != '\0'; lines_count++) {
        const char *end = strchr(line, '\n');
        if (end == NULL || strncmp(line, "hakmem: ", 8) != 0 || end - line > 300) {
            return false;
        }
        line = end + 1;
    }
    for (int i = 0; i < experiment->lines_count; i++) {
        char name[32] = {0}; /* as far as it has printable characters */
        size_t length = strcspn(experiment->variables[i], "=\n");
        CHECK(length < sizeof name);
        memcpy(name, experiment->variables[i], length);
        const char *first = strstr(output, name);
        if (first == NULL) {
            return false;
        }
    }
    return lines_count == experiment->lines_count;
}

/* What the program itself does: uses the allocator and says so. */
static int run(void)
{
    for (size_t size = 0; size < 5000000; size = size * 2 + 1) {
        char *block = get_memory(size);
        CHECK(block != NULL);
        memset(block, 1, size);
        give_back(block);
    }
    puts("ok");
    return 0;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        return run();
    }
    size_t length = strlen(long_value);
    memset(long_value + length, 'x', sizeof long_value - 1 - length);
    char self[TEST_PATH_SIZE];
    own_path(self);
    int failures = 0;
    for (size_t i = 0; i < sizeof experiments / sizeof experiments[0]; i++) {
        static char output[OUTPUT_SIZE];
        run_self(&experiments[i], self, output);
        if (!is_as_expected(&experiments[i], output)) {
            dprintf(2, "experiment %zu (%.60s): expected %d lines, got:\n%s[end]\n", i,
                    experiments[i].variables[0], experiments[i].lines_count, output);
            failures++;
        }
    }
    CHECK(failures == 0 || (any_server_will_do() && find_server() == SERVED_BY_OTHER));
    return 0;
}
