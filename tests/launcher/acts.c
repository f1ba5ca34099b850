/* SPDX-License-Identifier: MIT */
/* acts.c: a program for tests of tools: each of its arguments is one act; `obey` does those on the
 * lines of its standard input, and answers each. FUNCTION:COUNT:SIZE lets one of the functions
 * below allocate blocks and keep them; NAME=ACT is done by a thread of that name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define BLOCKS 10000

static void *volatile blocks[BLOCKS];
static int first, last;
static volatile sig_atomic_t caught;
/* Tells the functions apart: compilers keep one of those that are the same code. */
static const char *volatile active;

#define KEEPS(name)                                                                                \
    NOINLINE void name(long count, long size)                                                      \
    {                                                                                              \
        active = #name;                                                                            \
        for (long i = 0; i < count; i++) {                                                         \
            blocks[last++ % BLOCKS] = memset(malloc((size_t)size), 1, (size_t)size);               \
        }                                                                                          \
    }
KEEPS(alpha)
KEEPS(beta)
KEEPS(gamma)
__attribute__((visibility("hidden"))) KEEPS(make) NOINLINE void load(long count, long size)
{
    make(count, size);
}
NOINLINE void parse(long count, long size)
{
    make(count, size);
}
NOINLINE void brief(long count, long size)
{
    for (long i = 0; i < count; i++) {
        free(blocks[BLOCKS - 1] = malloc((size_t)size));
    }
}

NOINLINE void slowly(long count, long size)
{
    for (; count > 0; count--) {
        blocks[last++ % BLOCKS] = malloc((size_t)size);
        usleep(1000);
    }
}

static void note(int number)
{
    (void)number;
    caught++;
}

static void write_pid(void)
{
    FILE *ready = fopen("ready.new", "w");
    fprintf(ready, "%d\n", (int)getpid());
    fclose(ready);
    rename("ready.new", "ready");
}

static long act(const char *word);

static void *act_as(void *word)
{
    char name[16] = "";
    brief(1, 1); /* a sample before it has its name */
    if (sscanf(word, "%15[a-z]", name) == 1) {
        pthread_setname_np(pthread_self(), name);
    }
    act(strchr(word, '=') + 1);
    return NULL;
}

static void obey(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        brief(20000, 100); /* a thread that allocates notices a change of the period */
        printf("%ld\n", act(line));
        fflush(stdout);
    }
}

/* What an answer says: the child of `child`, what chroot returned to `root`. */
static long act(const char *word)
{
    static const struct {
        const char *name;
        void (*allocate)(long count, long size);
    } functions[] = {{"alpha", alpha}, {"beta", beta},   {"gamma", gamma},  {"load", load},
                     {"parse", parse}, {"brief", brief}, {"slowly", slowly}};
    char name[32] = "";
    long number = 0, size = 0;
    pthread_t thread;
    if (strchr(word, '=') != NULL) {
        pthread_create(&thread, NULL, act_as, (void *)word);
        pthread_join(thread, NULL);
        return 0;
    }
    sscanf(word, "%31[a-z_]:%ld:%ld", name, &number, &size);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(name, functions[i].name) == 0) {
            functions[i].allocate(number, size);
            return 0;
        }
    }
    if (strcmp(name, "free") == 0) { /* the oldest */
        for (; number > 0; number--) {
            free(blocks[first++ % BLOCKS]);
        }
    } else if (strcmp(name, "exit") == 0) {
        exit((int)number);
    } else if (strcmp(name, "fork") == 0) { /* the child goes on */
        if (fork() != 0) {
            wait(NULL);
            exit(0);
        }
    } else if (strcmp(name, "child") == 0) {
        number = fork();
        return number != 0 ? number : pause();
    } else if (strcmp(name, "root") == 0) {
        return chroot("root");
    } else if (strcmp(name, "exec") == 0) {
        execlp("sleep", "sleep", "600", (char *)NULL);
    } else if (strcmp(name, "sleep_us") == 0) {
        usleep((useconds_t)number);
    } else if (strcmp(name, "sample") == 0) {
        ((int (*)(size_t))dlsym(RTLD_DEFAULT, "hak_profile_start"))((size_t)number);
    } else if (strcmp(name, "stop") == 0) {
        ((void (*)(void))dlsym(RTLD_DEFAULT, "hak_profile_stop"))();
    } else if (strcmp(name, "catch") == 0) {
        signal(SIGINT, note);
        signal(SIGTERM, note);
    } else if (strcmp(name, "wait") == 0) { /* for a signal, or a file `go` */
        write_pid();
        while (caught == 0) {
            if (access("go", F_OK) == 0) {
                _exit(5);
            }
            usleep(10000);
        }
        usleep(300000); /* a second signal would come now */
        printf("caught %d\n", (int)caught);
    } else if (strcmp(name, "threads") == 0) {
        for (; number > 0; number--) {
            act("=alpha:1:100");
        }
    } else if (strcmp(name, "stay") == 0) {
        puts("ready");
        fflush(stdout);
        for (;;) {
            act("churner=brief:2000:1000");
        }
    } else if (strcmp(name, "obey") == 0) {
        obey();
    }
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        act(argv[i]);
    }
    return 0;
}
