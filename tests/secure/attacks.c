/* SPDX-License-Identifier: MIT */
/* attacks.c: what an attacker who has more than one bug can still do: a byte that leaks, a server
 * that forks, patience, or a pointer of his choice for free.
 *
 *   attacks --list                     a line each: name, runs of 20, title
 *   attacks NAME [RUNS [OUTCOME...]]   attacks RUNS times (1), each time in a process of its own
 *                                      under whatever allocator serves this one, and prints a line
 *                                      of JSON for each. With outcomes: status 1 if there was
 *                                      another one. Costly attacks run less often than asked.
 *
 * Outcomes:
 *   report    the allocator wrote a message, and the process ended
 *   ended     a signal or another status ended it without a word
 *   late      the same, but only when the program ended
 *   warning   the allocator wrote a message, and the program went on
 *   held      the attacker has given up
 *   nothing   the program went on, and nothing was noticed
 *   harm      the attacker has what he wanted
 *   measured  nothing is written or freed wrongly; there are figures
 *   failed    the run says nothing: no memory, or it took too long
 *
 * Figures are what an attack has counted before its end. Why an image of its own for each run: a
 * process that forks hands its addresses and secrets to its children. */
#include "attacks.h"

enum { SECONDS_MAX = 250 }; /* a run that hangs; run_child waits longer */

static const struct attack *const all[] = {canary_attacks, patience_attacks, reach_attacks,
                                           free_attacks};

static const struct attack *find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (const struct attack *one = all[i]; one->name != NULL; one++) {
            if (strcmp(one->name, name) == 0) {
                return one;
            }
        }
    }
    return NULL;
}

static void list(void)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (const struct attack *one = all[i]; one->name != NULL; one++) {
            printf("%s %u %s\n", one->name, one->runs_of_20 ? one->runs_of_20 : 20, one->title);
        }
    }
}

static void become(const void *name)
{
    execl("/proc/self/exe", "attacks", "--once", (const char *)name, (char *)NULL);
    _exit(STATUS_NO_MEMORY);
}

/* `returned`: the attack was over when the process ended. */
static const char *outcome_of(const struct child *child, bool returned)
{
    bool said = child->text[0] != '\0';
    int status = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : -1;
    if (status == STATUS_NO_MEMORY || strstr(child->text, "ERROR: ld.so") != NULL ||
        (WIFSIGNALED(child->status) && WTERMSIG(child->status) == SIGALRM)) {
        return "failed";
    }
    switch (status) {
    case 0:
        return said ? "warning" : "nothing";
    case STATUS_HARMED:
        return "harm";
    case STATUS_HELD:
        return "held";
    case STATUS_MEASURED:
        return "measured";
    }
    return returned ? "late" : said ? "report" : "ended";
}

/* The first line of a text, without what JSON would have to escape. */
static void print_line(const char *text)
{
    for (; *text != '\0' && *text != '\n'; text++) {
        putchar(*text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '?' : *text);
    }
}

/* Runs it once, prints the line, and returns the outcome. */
static const char *look(const struct attack *attack)
{
    char figures[4096];
    if (ftruncate(FIGURES, 0) != 0 || lseek(FIGURES, 0, SEEK_SET) != 0) {
        perror("figures");
        exit(2);
    }
    struct child child = run_child(become, attack->name);
    ssize_t length = pread(FIGURES, figures, sizeof figures - 1, 0);
    figures[length > 0 ? length : 0] = '\0';
    bool returned = strstr(figures, "returned 1\n") != NULL;
    const char *outcome = outcome_of(&child, returned);
    int signal = WIFSIGNALED(child.status) ? WTERMSIG(child.status) : 0;
    printf("{\"attack\": \"%s\", \"outcome\": \"%s\", \"signal\": %d, \"figures\": {", attack->name,
           outcome, signal);
    const char *comma = "", *at = figures;
    char name[64];
    size_t value;
    int used;
    for (; sscanf(at, "%63s %zu\n%n", name, &value, &used) == 2; at += used) {
        if (strcmp(name, "returned") != 0) {
            printf("%s\"%s\": %zu", comma, name, value);
            comma = ", ";
        }
    }
    printf("}, \"said\": \"");
    print_line(child.text);
    printf("\"}\n");
    fflush(stdout);
    return outcome;
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        list();
        return 0;
    }
    bool is_once = count == 3 && strcmp(arguments[1], "--once") == 0;
    const struct attack *attack = count > 1 ? find(arguments[is_once ? 2 : 1]) : NULL;
    if (attack == NULL) {
        fprintf(stderr, "usage: %s --list, or %s NAME [RUNS [OUTCOME...]]\n", arguments[0],
                arguments[0]);
        return 2;
    }
    if (is_once) {
        alarm(SECONDS_MAX);
        attack->run(attack);
        figure("returned", 1);
        return 0;
    }
    size_t runs = count > 2 ? strtoul(arguments[2], NULL, 10) : 1;
    runs = runs * (attack->runs_of_20 ? attack->runs_of_20 : 20) / 20;
    if (dup2(memfd_create("figures", 0), FIGURES) != FIGURES) {
        perror("figures");
        return 2;
    }
    int status = 0;
    for (size_t i = 0; i == 0 || i < runs; i++) {
        const char *outcome = look(attack);
        bool is_wanted = count <= 3;
        for (int k = 3; k < count; k++) {
            is_wanted |= strcmp(outcome, arguments[k]) == 0;
        }
        status |= !is_wanted;
    }
    return status;
}
