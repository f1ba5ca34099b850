#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile` names functions right: generated code with names in /tmp/perf-PID.map and its callers, native
# functions that Python calls by ctypes, code of a stripped library (as library and offset), code whose place changes or
# is taken by another library.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

# profile ARGUMENT...: sets `output`; it must succeed without a message.
profile() {
    succeed 0 "$launcher" profile "$@"
}

# library NAME [FLAG...]: acts as a library, whose function `load` calls the hidden function `make`.
library() {
    act "${@:2}" -O2 -fPIC -shared && mv acts "$1"
}
library libnative.so
strip --strip-all -o libstripped.so libnative.so || fail "libnative.so cannot be stripped"

profile --period 8k --stacks -- python3 -c 'import ctypes; ctypes.CDLL("./libnative.so").load(1000, 10000)'
has "$output" 'make \(.*acts\.c:[0-9]+\)'
has "$output" 'load \(.*acts\.c:[0-9]+\)'
# By a small program: a profile of python takes seconds where python has debug information.
compile loader.c loader -O1 <<'END'
#include <dlfcn.h>
int main(void)
{
    void *library = dlopen("./libstripped.so", RTLD_NOW);
    ((void (*)(long, long))dlsym(library, "load"))(1000, 10000);
    return 0;
}
END
profile --period 1k --stacks -o kept -- ./loader
has "$output" 'libstripped\.so\+0x[0-9a-f]+ \(libstripped\.so\)'$'\n''([^'$'\n'']*'$'\n'')? *load \(libstripped\.so\)'
[[ ! $output =~ make ]] || fail "a stripped name: $output"

# The function that the offset is in, by the library that was not stripped.
[[ $output =~ libstripped\.so\+(0x[0-9a-f]+) ]]
where=$(addr2line -fe libnative.so "${BASH_REMATCH[1]}")
has "$where" '^make'$'\n''.*acts\.c:[0-9]+'

case $(uname -m) in
x86_64) # push rbp; mov rbp, rsp; call rdi; pop rbp; ret
    code='0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3' ;;
aarch64) # stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret
    code='0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6' ;;
esac
compile generated.c generated -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls <<END
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
__attribute__((noinline)) int descend(int depth, void (*code)(void (*)(void)))
{
    return depth == 0 ? outer(code) : 1 + descend(depth - 1, code);
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
    return descend(*kind == 'm' ? 400 : 0, (void (*)(void (*)(void)))code) ? 0 : 1;
}
END
for kind in private shared memfd; do # two entries share the address: the later one counts
    profile --period 8k --stacks -o generated.profile -- ./generated $kind
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" 'leaf \(.*generated\.c:12\)'$'\n'' *py::generated_here:script\.py( \(.*\))?'$'\n'' *outer \(.*generated\.c:17\)'$'\n'' *descend \('
    case $kind in
    memfd) has "$output" ' descend \([^'$'\n'']*'$'\n'' *outer frames cut'$ ;; # the rest was read by frame pointers
    *) has "$output" ' descend \([^'$'\n'']*'$'\n'' *main \(.*\)' ;;
    esac
done

# Python's own generated code, from version 3.12 on.
python=$(for each in python3.13 python3.12 python3; do
    "$each" -c 'import sys; hasattr(sys, "activate_stack_trampoline") and print(sys.executable)' 2>/dev/null
done | head -n 1)
if [[ -n $python ]]; then
    profile --period 8k --stacks -- "$python" -X perf -c '
import ctypes
def python_caller():
    return ctypes.CDLL("./libnative.so").load(1000, 10000)
python_caller()'
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" 'load.*py::python_caller'
    profile --period 8k -- "$python" -X perf -c '
import os
def script_caller():
    return [bytearray(10000) for i in range(1000)]
kept = script_caller()
os._exit(0)'
    [[ $output =~ process\ ([0-9]+) ]]
    rm -f "/tmp/perf-${BASH_REMATCH[1]}.map"
    has "$output" ' % +[0-9]+ blocks? +py::script_caller:<string>'$'\n'
else
    echo "python3 -X perf was not tried: there is no Python with it"
fi

# Libraries that come to one place one after the other, code that was moved to other memory, the C library's callbacks,
# and a function that a signal interrupts at its first instruction: the byte before belongs to another function.
for name in alpha_fill beta_fill gamma_fill; do
    library $name.so -Dmake=$name -Dload=plugin_run
done
compile places.c places -O1 -g -w <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <search.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
static void *volatile keep[2000];
static int n;
static void by_handler(int s, siginfo_t *i, void *context)
{
    keep[n++] = malloc(10000);
#ifdef __x86_64__
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
}
#ifdef __x86_64__
__asm__(".globl neighbour\n.type neighbour,@function\nneighbour:\n.cfi_startproc\nnop\nret\n.cfi_endproc\n"
        ".size neighbour,.-neighbour\n.globl victim\n.type victim,@function\nvictim:\n.cfi_startproc\nud2\nret\n"
        ".cfi_endproc\n.size victim,.-victim\n");
void victim(void);
#else
static void victim(void) { raise(SIGILL); }
#endif
__attribute__((noinline, section("moved_text"), aligned(4096))) void by_moved(void)
{
    for (int i = 0; i < 200; i++) {
        keep[n++] = malloc(10000);
    }
}
static void by_walk(const void *node, VISIT visit, int depth) { keep[n++] = malloc(10000); }
static int compare(const void *a, const void *b) { return (a > b) - (a < b); }
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW);
        ((void (*)(long, long))dlsym(plugin, "plugin_run"))(200, 10000);
        dlclose(plugin);
    }
    struct sigaction action = {.sa_sigaction = by_handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    for (int i = 0; i < 200; i++) {
        victim();
    }
    void *root = NULL, *page = (void *)by_moved;
    for (long i = 1; i <= 100; i++) {
        tsearch((void *)i, &root, compare);
    }
    twalk(root, by_walk);
    void *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, page, 4096);
    mprotect(copy, 4096, PROT_READ | PROT_EXEC);
    mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page);
    by_moved();
    return 0;
}
END
profile --stacks --period 8k -o places.profile -- ./places ./alpha_fill.so ./beta_fill.so ./gamma_fill.so
for name in alpha_fill beta_fill gamma_fill by_handler by_moved by_walk; do
    has "$output" '% +[0-9]+ blocks? +'$name' \(.*(acts|places)\.c:[0-9]+\)'
done
if [[ $(uname -m) == x86_64 ]]; then
    has "$output" ' by_handler \(.*'$'\n'' *[^ ]* \(libc\..*\)'$'\n'' *victim \(places\)'
    [[ ! $output =~ neighbour ]] || fail "a neighbour's name: $output"
fi
try "$launcher" run --set stats=json --set sample_bytes=8k -- \
    ./places ./alpha_fill.so ./beta_fill.so ./gamma_fill.so
for name in alpha_fill beta_fill gamma_fill; do
    has "$errors" "$name\\.so \\(closed\\)\""
done
[[ ! $errors =~ (alpha|beta|gamma)_fill\.so\" ]] || fail "a library that was closed is named as one that is there: $errors"

# A plugin that is loaded again and again, each time at another place, is one file with one name.
compile reload.c reload -O1 -g -w <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
    for (int i = 0; i < 1100; i++) {
        struct link_map *plugin = dlopen(argv[1], RTLD_NOW);
        ((void (*)(long, long))dlsym(plugin, "plugin_run"))(2, 10000);
        void *place = (void *)plugin->l_addr;
        dlclose(plugin);
        mmap(place, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    return argc == 0;
}
END
library reloaded.so -Dmake=reloaded -Dload=plugin_run
profile --period 1 -- ./reload ./reloaded.so
has "$output" ' 2200 blocks +reloaded \(.*acts\.c:[0-9]+\)'
[[ ! $output =~ reloaded\.so ]] || fail "a plugin that was loaded again has lost its name: $output"

# Another file has the path of a library that was closed: the file of `profile -o` keeps its names, but one of addresses,
# which the process itself has written, gets none of its functions.
HAKMEM_PROFILE_FILE=places.addresses HAKMEM_SAMPLE_BYTES=8k LD_PRELOAD="$("$launcher" build) libgcc_s.so.1" \
    ./places ./alpha_fill.so ./beta_fill.so ./gamma_fill.so
cp beta_fill.so alpha_fill.so
profile places.profile
has "$output" '% +[0-9]+ blocks? +alpha_fill \(.*acts\.c:[0-9]+\)'
profile places.addresses
has "$output" '% +[0-9]+ blocks? +alpha_fill\.so\+0x[0-9a-f]+ \(alpha_fill\.so\)'
[[ ! $output =~ alpha_fill\ \( && $output =~ beta_fill\ \( ]] || fail "the name of a file that was replaced: $output"

# Stripped, the program's own code is the site all the same. A function that the user names is none.
strip places
profile places.addresses
[[ ! $output =~ blocks?\ +[^$'\n']*(twalk|trecurse|libc\.so) ]] || fail "a site in the C library: $output"
profile --wrappers 'beta_*' places.profile
has "$output" ' plugin_run \(.*acts\.c:[0-9]+\)'

# Lines of inlined functions, and names of Rust, against gdb.
python_tests symbols

finish
