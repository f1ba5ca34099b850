#!/usr/bin/env bash
# `./hakmem profile` names functions right: generated code with names in /tmp/perf-PID.map and its callers, native
# functions that Python calls by ctypes, code of a stripped library (as library and offset), and pprof agrees.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

has() {
    [[ $1 =~ $2 ]] || fail "no '$2' in: $1"
}

# profile ARGUMENT...: sets `output`; it must succeed without a message.
profile() {
    try "$launcher" profile "$@"
    [[ $status == 0 && -z $errors ]] || fail "status $status: profile $* ($errors)"
}

cat >native.c <<'END'
#include <stdlib.h>
void *native_keep[1000];
static __attribute__((noinline)) void *hidden_get(int i)
{
    native_keep[i] = malloc(10000);
    return native_keep[i];
}
__attribute__((noinline)) int native_fill(void)
{
    int got = 0;
    for (int i = 0; i < 1000; i++) {
        got += hidden_get(i) != NULL;
    }
    return got;
}
END
cc -O2 -g -fPIC -shared -fvisibility=default native.c -o libnative.so || fail "native.c does not compile"
strip --strip-all -o libstripped.so libnative.so || fail "libnative.so cannot be stripped"

profile --period 8k --stacks -- python3 -c 'import ctypes; ctypes.CDLL("./libnative.so").native_fill()'
has "$output" 'hidden_get \(.*native\.c:5\)'
has "$output" 'native_fill \(.*native\.c:12\)'
profile --period 1k --stacks -o kept -- python3 -c 'import ctypes; ctypes.CDLL("./libstripped.so").native_fill()'
has "$output" 'libstripped\.so\+0x[0-9a-f]+ \(libstripped\.so\)'$'\n''([^'$'\n'']*'$'\n'')? *native_fill \(libstripped\.so\)'
[[ ! $output =~ hidden_get ]] || fail "a stripped name: $output"

# The function that the offset is in, by the library that was not stripped.
[[ $output =~ libstripped\.so\+(0x[0-9a-f]+) ]]
where=$(addr2line -fe libnative.so "${BASH_REMATCH[1]}")
has "$where" '^hidden_get'$'\n''.*native\.c:5'

case $(uname -m) in
x86_64) # push rbp; mov rbp, rsp; call rdi; pop rbp; ret
    code='0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3' ;;
aarch64) # stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret
    code='0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6' ;;
esac
cat >generated.c <<END
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static const unsigned char bytes[] = {$code};
void *keep[1000];
__attribute__((noinline)) void leaf(void)
{
    for (int i = 0; i < 1000; i++) {
        keep[i] = malloc(10000);
    }
}
__attribute__((noinline)) int outer(void (*code)(void (*)(void)))
{
    code(leaf);
    return keep[999] != NULL;
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "private";
    char name[64];
    int file = *kind == 'm' ? memfd_create("code", 0) : -1;
    int flags = *kind == 'm' ? MAP_SHARED : (*kind == 's' ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
    if (file >= 0 && ftruncate(file, 4096) != 0) {
        return 2;
    }
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, file, 0);
    memcpy(code, bytes, sizeof bytes);
    __builtin___clear_cache(code, (char *)code + sizeof bytes);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx 100 py::before:script.py\nno entry\n", (unsigned long)code);
    fprintf(map, "%lx %x py::generated_here:script.py\n", (unsigned long)code, (unsigned)sizeof bytes);
    fclose(map);
    return outer((void (*)(void (*)(void)))code) ? 0 : 1;
}
END
cc -O1 -g -fno-omit-frame-pointer generated.c -o generated || fail "generated.c does not compile"
for kind in private shared memfd; do # two entries share the address: the later one counts
    profile --period 8k --stacks -o generated.profile -- ./generated $kind
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" 'leaf \(.*generated\.c:12\)'$'\n'' *py::generated_here:script\.py( \(.*\))?'$'\n'' *outer \(.*generated\.c:17\)'$'\n'' *main \(.*\)'
done

# Python's own generated code, from version 3.12 on.
if python3 -X perf -c 'import sys; sys.exit(not hasattr(sys, "activate_stack_trampoline"))' 2>/dev/null; then
    profile --period 8k --stacks -- python3 -X perf -c '
import ctypes
def python_caller():
    return ctypes.CDLL("./libnative.so").native_fill()
python_caller()'
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" 'native_fill.*py::python_caller'
    profile --period 8k -- python3 -X perf -c '
import os
def script_caller():
    return [bytearray(10000) for i in range(1000)]
kept = script_caller()
os._exit(0)'
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" ' % +[0-9]+ blocks  py::script_caller:<string>'$'\n'
else
    echo "python3 -X perf was not tried: this Python has no such option"
fi

# A program that is linked with libhakmem.a, in a folder whose name is not ASCII: hakmem's functions are left out.
mkdir größe
cat >own.c <<'END'
#include <stdlib.h>
void *volatile keep[1000];
__attribute__((noinline)) static void take(void)
{
    for (int i = 0; i < 1000; i++) {
        keep[i] = malloc(10000);
    }
}
int main(void)
{
    take();
    return 0;
}
END
library=$("$launcher" build)
cc -O1 -g own.c -o größe/own "${library%/*}/libhakmem.a" -pthread || fail "own.c does not compile"
profile --period 8k --folded own.folded -- größe/own
has "$output" '/größe/own \(process [0-9]+\): about .* 100\.0 %  *[0-9]+ blocks  take \(.*own\.c:6\)$'
[[ $(<own.folded) =~ ';main;take '[0-9]+$ ]] || fail "folded stacks of an archive's program: $(<own.folded)"

# pprof itself.
if type -P go >/dev/null && try "$launcher" profile --pprof heap.pb.gz kept && [[ $status == 0 ]]; then
    top=$(HOME=$scratch GOFLAGS=-mod=mod go tool pprof -top -unit=MB -sample_index=inuse_space heap.pb.gz 2>pprof.err) || fail "pprof: $(<pprof.err)"
    has "$top" '9\.[0-9]+MB .* libstripped\.so\+0x[0-9a-f]+'
    has "$top" ' native_fill'
else
    echo "pprof was not tried: there is no Go"
fi
finish
