#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs with a sanitizer, preloaded and linked with the archive: what docs/install.md says of each. A program either
# works, with one malloc or the other, or is refused with a sentence.
. "$(dirname "$0")/lib.sh"
need gcc
build=${TEST_BUILD:-${HAKMEM%/*}/build/release}
cat >"$work/program.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *run(void *argument)
{
    void *blocks[300];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 300; i++) memset(blocks[i] = malloc(i * 20 + 1), round, i * 20 + 1);
        for (int i = 0; i < 300; i++) free(blocks[i]);
    }
    free(calloc(1, 5000000));
    return argument;
}
int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    char *text = strdup("x");
    int (*owns)(const void *) = (int (*)(const void *))dlsym(RTLD_DEFAULT, "hak_owns");
    puts(owns != 0 && (owns(text) & 1) ? "hakmem serves" : "another serves");
    free(text);
    return 0;
}
END
serves="hakmem serves"
other="another serves"
order="ASan runtime does not come first"
refused="sanitizer must serve its memory"
tried=0
# look WHAT EXPECTED COMMAND...
look() {
    local what=$1 expected=$2 status
    shift 2
    ("$@") >"$work/said" 2>&1
    status=$?
    grep -q "$expected" "$work/said" || fail "$what: status $status, says '$(head -3 "$work/said")', not '$expected'"
    if [[ $expected == *serves ]]; then
        ((status == 0)) && (($(wc -l <"$work/said") == 1)) || fail "$what: status $status: $(head -5 "$work/said")"
    else
        ((status != 0 && status < 128)) || fail "$what: status $status"
    fi
    tried=$((tried + 1))
}
# try COMPILER SANITIZER PRELOADED LINKED WHOLE: what comes of it.
try() {
    local compile=("$1" -O1 -g -w "-fsanitize=$2" "$work/program.c" -o "$work/program") form
    if ! "${compile[@]}" -pthread -ldl 2>/dev/null || ! ("$work/program") 2>/dev/null | grep -q "$other"; then
        say "left out: $1 has no -fsanitize=$2 that works here"
        return
    fi
    for form in "" -secure; do
        look "$1 $2, preloaded$form" "$3" env "LD_PRELOAD=$build/libhakmem$form.so" "$work/program"
    done
    "${compile[@]}" "$build/libhakmem.a" -pthread -ldl -rdynamic 2>/dev/null || fail "$1 $2: cannot be linked"
    look "$1 $2, linked" "$4" "$work/program"
    "${compile[@]}" -Wl,--whole-archive "$build/libhakmem.a" -Wl,--no-whole-archive -pthread -ldl -rdynamic 2>/dev/null ||
        fail "$1 $2: cannot be linked whole"
    [[ $5 == - ]] || look "$1 $2, linked whole" "$5" "$work/program"
    say "$1 $2: as docs/install.md says"
}
try gcc address "$order" "$other" -
ASAN_OPTIONS=verify_asan_link_order=0 try gcc address "$refused" "$other" "$refused"
try gcc thread "$refused" "$other" "$refused"
try gcc undefined "$serves" "$serves" "$serves"
try gcc leak "$refused" "$other" "$refused"
try clang address "$other" "$other" -
try clang thread "$other" "$other" "$refused"
try clang undefined "$serves" "$serves" "$serves"
try clang leak "$other" "$other" "$refused"
try clang memory "$other" "$other" "$refused"
# The sanitizer's library before hakmem.
runtime=$(gcc -print-file-name=libtsan.so)
if [[ $runtime == /* ]] && gcc -O1 -w -fsanitize=thread "$work/program.c" -o "$work/program" -pthread -ldl 2>/dev/null &&
    ("$work/program") 2>/dev/null | grep -q "$other"; then
    for form in "" -secure; do
        look "libtsan.so before hakmem" "$other" env "LD_PRELOAD=$runtime:$build/libhakmem$form.so" "$work/program"
    done
fi
((tried > 0)) || skip "no sanitizer works here"
