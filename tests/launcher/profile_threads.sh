#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile --threads`: which thread allocated, in the table, in files for other programs, in a living process.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

compile threads.c threads -O1 -g -pthread -D_GNU_SOURCE <<'END'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) static void *keep(size_t size)
{
    return memset(malloc(size), 1, size);
}
static void *churn(void *argument)
{
    pthread_setname_np(pthread_self(), "churner");
    for (int i = 0; i < 2000; i++) {
        free(keep(1000));
    }
    return argument;
}
static void *grow(void *argument)
{
    free(keep(1)); /* a sample before it has its name */
    pthread_setname_np(pthread_self(), "grower");
    for (int i = 0; i < 300; i++) {
        ((void **)argument)[i] = keep(5000);
        usleep(1000);
    }
    return NULL;
}
static void *one(void *argument)
{
    *(void **)argument = keep(100);
    return NULL;
}
static void *kept[1000];
static void run(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, argument);
    pthread_join(thread, NULL);
}
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "many") == 0) {
        for (int i = 0; i < 600; i++) {
            run(one, &kept[i]);
        }
        return 0;
    }
    run(churn, NULL);
    run(grow, kept);
    if (argc > 1) {
        (void)!write(1, "ready\n", 6);
        for (;;) {
            run(churn, NULL);
        }
    }
    return 0;
}
END

try "$launcher" profile --threads --period 1 -o kept --folded folded --pprof pprof --html page -- ./threads
[[ $status == 0 && -z $errors ]] || fail "status $status ($errors)"
has "$output" 'By the threads? that allocated:'$'\n'' +1\.4 MiB +[0-9.]+ % +300 blocks  grower, thread [0-9]+'
has "$output" 'grew all through the run: .*'$'\n'' +1\.4 MiB in keep \(.*threads\.c:7\)'
[[ $output != *churner* ]] || fail "churner holds nothing: $output"
has "$(<folded)" '^\[grower, thread [0-9]+\];.*grow;keep 1500000'
gzip -dc pprof | tr -c '[:print:]' '\n' >words
for word in thread thread_id churner grower; do
    grep -q "^${word}2*$" words || fail "pprof has no $word"
done
grep -q '<h2>Threads</h2>.*grower' page || fail "the page has no table of threads"

try "$launcher" profile --threads --allocated kept
has "$output" '1\.9 MiB +[0-9.]+ % +2000 blocks  churner'
try "$launcher" profile kept
[[ $status == 0 && $output != *grower* ]] || fail "threads without --threads: $output"

# Threads beyond those that are told apart keep their stacks.
try "$launcher" profile --threads --period 1 --sites 600 -- ./threads many
has "$output" ' 600 blocks  keep '
has "$output" ' [1-9][0-9]+ blocks  other threads'

# A profile without threads says how to have them.
"$launcher" profile --period 1 -o plain -- ./threads many >/dev/null || fail "no plain profile"
try "$launcher" profile --threads plain
[[ $status == 126 && $errors == *HAKMEM_PROFILE_THREADS=1* ]] || fail "status $status ($errors)"
try "$launcher" profile --threads --compare kept plain
[[ $status == 2 && $errors == *--threads* ]] || fail "status $status ($errors)"

# A living process.
mkfifo ready
HAKMEM_OBSERVE=1 "$launcher" run --quiet -- ./threads stay >ready &
process=$!
read -r _ <ready
try "$launcher" profile --threads --allocated --period 1 --seconds 1 "$process"
kill "$process"
[[ $status == 0 ]] || fail "status $status ($errors)"
has "$output" ' blocks  churner, thread [0-9]+'
finish
