#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Names are right however the linker lays out a program and a library: segments that share a page of the file, an image's
# own base, code below 1 KiB, holes, writable code. The truth is what each function is called; all tools must say it.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)
archive=$(dirname -- "$library")/libhakmem.a

# Functions around the right one, of whose names a wrong base gives one. The small form has less than 1 KiB of code.
cat >code.h <<'END'
#include <stdlib.h>
#include <string.h>
#define R4(x) x x x x
#ifdef SMALL
#define FILL(n) sink += n; sink ^= sink << 1;
#else
#define FILL(n) R4(R4(R4(sink ^= sink << 1; sink += n;)))
#endif
#define INNOCENT(name, n) __attribute__((noinline)) void name##n(void) { for (int i = 0; i < 3; i++) { sink += i * n; FILL(n) } }
static void *volatile keep[64];
static volatile int sink;
#define GUILTY(name) \
    __attribute__((noinline)) void name##_keeps(void) { for (int i = 0; i < 64; i++) keep[i] = malloc(10000); } \
    __attribute__((noinline)) void name##_reads(void) { volatile char *p = malloc(64); free((char *)p); sink += *p; }
END
cat >plugin.c <<'END'
#include "code.h"
INNOCENT(near_plugin, 1) INNOCENT(near_plugin, 2)
GUILTY(plugin)
INNOCENT(near_plugin, 3) INNOCENT(near_plugin, 4)
END
cat >program.c <<'END'
#include "code.h"
void plugin_keeps(void), plugin_reads(void);
INNOCENT(near_program, 1) INNOCENT(near_program, 2)
GUILTY(program)
INNOCENT(near_program, 3) INNOCENT(near_program, 4)
int main(int argc, char **argv)
{
    if (argc > 1) {
        if (argv[1][1] == 'r') program_reads();
        plugin_reads();
    }
    program_keeps();
    plugin_keeps();
    return 0;
}
END
# Without the headers among its segments: only the file has them.
cat >bare.ld <<'END'
PHDRS { text PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); dynamic PT_DYNAMIC FLAGS(6); }
SECTIONS {
    . = 0x3000;
    .hash : { *(.hash) } :text
    .gnu.hash : { *(.gnu.hash) } .dynsym : { *(.dynsym) } .dynstr : { *(.dynstr) }
    .rela.dyn : { *(.rela.*) } .plt : { *(.plt*) } .text : { *(.text*) } .rodata : { *(.rodata*) } .eh_frame : { KEEP(*(.eh_frame)) }
    .note : { *(.note*) }
    . = ALIGN(0x1000) + 0x2000;
    .dynamic : { *(.dynamic) } :data :dynamic
    .got : { *(.got*) } :data
    .data : { *(.data*) } .bss : { *(.bss*) *(COMMON) }
}
END

# linker_of NAME: sets `compiler`.
linker_of() {
    case $1 in
    lld) compiler=(clang -fuse-ld=lld) ;;
    mold) compiler=(gcc "-B$(dirname -- "$(ls -d /usr/libexec/mold/ld /usr/lib/mold/ld 2>/dev/null | head -n 1)")") ;;
    *) compiler=(gcc "-fuse-ld=$1") ;;
    esac
    echo 'int main(void) { return 0; }' >empty.c
    "${compiler[@]}" empty.c -o empty 2>/dev/null && ./empty &&
        { [[ $1 != mold ]] || readelf -p .comment empty | grep -q mold; }
}

flags=(-g -O1 -fno-builtin -w -I.)
layouts=()
# link LAYOUT FLAG...: a layout that this linker cannot make, or that does not run, is left out.
link() {
    local layout=$linker-$1 both=() program=() each
    for each in "${@:2}"; do
        case $each in --program) both=("${program[@]}") program=() ;; *) program+=("$each") ;; esac
    done
    mkdir "$layout"
    if "${compiler[@]}" "${flags[@]}" "${both[@]}" -shared -fPIC plugin.c -o "$layout/libplugin.so" &&
        "${compiler[@]}" "${flags[@]}" "${both[@]}" "${program[@]}" program.c "$layout/libplugin.so" -o "$layout/program" &&
        "$layout/program"; then
        layouts+=("$layout")
    fi 2>/dev/null
}

missing=
for linker in bfd gold lld mold; do
    linker_of $linker || { missing+=" $linker"; continue; }
    base=--image-base=0x70000000
    [[ $linker == [bg]* ]] && base=-Ttext-segment=0x70000000
    link default --program
    link small -DSMALL --program
    link base --program -no-pie -Wl,$base
    link moved --program -no-pie -Wl,-Ttext=0x10000000
    link whole -Wl,-z,noseparate-code --program
    link apart -Wl,-z,separate-code --program
    link holes -Wl,-z,max-page-size=0x200000 --program
    link small-holes -DSMALL -Wl,-z,max-page-size=0x10000 --program
    link fixed -DSMALL --program -no-pie
    link writable --program -no-pie -Wl,-N -Wl,-Bdynamic
done
linker=bfd
if linker_of bfd; then
    mkdir bfd-bare
    "${compiler[@]}" "${flags[@]}" -shared -fPIC -nostdlib -Wl,-T,bare.ld plugin.c -o bfd-bare/libplugin.so 2>/dev/null &&
        "${compiler[@]}" "${flags[@]}" program.c bfd-bare/libplugin.so -o bfd-bare/program 2>/dev/null && bfd-bare/program &&
        layouts+=(bfd-bare)
fi
((${#layouts[@]} > 4)) || fail "only these layouts could be made: ${layouts[*]}"
[[ -z $missing ]] || echo "not tried, for want of the linkers:$missing"

# named LAYOUT TEXT FUNCTION WHERE
named() {
    [[ $2 == *"$3"* ]] || fail "$1: no $3 in $4: ${2:0:1500}"
    [[ $2 != *near_* ]] || fail "$1: the name of a neighbour in $4: ${2:0:1500}"
}

# The profiles of all, read at once: by process in their order.
for layout in "${layouts[@]}"; do
    HAKMEM_PROFILE_FILE=all.profile HAKMEM_SAMPLE_BYTES=1k LD_PRELOAD="$library libgcc_s.so.1" "$layout/program"
done
"$launcher" profile --stacks all.profile >all.text || fail "profile of all"
for layout in "${layouts[@]}"; do
    text=$(sed -n "\\|^$scratch/$layout/program |,/^\$/p;\\|^$layout/program |,/^\$/p" all.text)
    named "$layout" "$text" program_keeps "the profile"
    named "$layout" "$text" plugin_keeps "the profile"
done

# lines_named TEXT PATTERN: the functions at FILE+ADDRESS, one a line, of what the pattern's two groups hold.
lines_named() {
    local line
    while read -r line; do
        [[ $line =~ $2 ]] && addr2line -fe "$layout/${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    done <<<"$1"
}

for layout in "${layouts[@]}"; do
    "$launcher" record -o trace "$layout/program" 2>/dev/null || fail "$layout: record"
    text=$(lines_named "$("$launcher" replay --summary trace)" '(program|libplugin\.so)\+(0x[0-9a-f]+)$')
    named "$layout" "$text" program_keeps "the trace"
    named "$layout" "$text" plugin_keeps "the trace"
    case $layout in *small | *small-* | bfd-bare) wanted=plugin_reads ;; *) wanted=program_reads ;; esac
    errors=$(LD_PRELOAD="$library libgcc_s.so.1" HAKMEM_GUARD=1 "$layout/program" $wanted 2>&1)
    [[ $errors == *"use after free"* ]] || fail "$layout: no report: $errors"
    named "$layout" "$(lines_named "$errors" '/(program|libplugin\.so)\+(0x[0-9a-f]+)$')" $wanted "the report"
done

# Linked with libhakmem.a, without a loader.
for linker in bfd gold lld mold; do
    linker_of $linker && "${compiler[@]}" "${flags[@]}" -static plugin.c program.c "$archive" -pthread -o static 2>/dev/null || continue
    HAKMEM_PROFILE_FILE=static.profile HAKMEM_SAMPLE_BYTES=1k ./static || continue
    named "$linker static" "$("$launcher" profile static.profile)" program_keeps "the profile"
    rm static.profile
done

echo "${#layouts[@]} layouts: ${layouts[*]}"
finish
