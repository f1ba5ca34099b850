#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks a built libhakmem.so: what it needs, what it exports, what it takes of every thread.
# Usage: check_library.sh LIBRARY
set -u
library=$1
failures=0

fail() {
    printf '%s: %s\n' "${library##*/}" "$1" >&2
    failures=$((failures + 1))
}

# It must load into any C program, also where there is no libstdc++.
needed=$(readelf -d -W -- "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
[[ $needed == 'libc.so.6 ' ]] || fail "needs '$needed', expected only libc.so.6"

# Weak references are for libstdc++, if it happens to be there; all others are the C library's.
strangers=$(readelf --dyn-syms -W -- "$library" |
    awk '$7 == "UND" && $5 != "WEAK" && $8 != "" && $8 !~ /@/ {print $8}' | tr '\n' ' ')
[[ -z $strangers ]] || fail "strong references to symbols without a version (not the C library's): $strangers"

# What it refers to, and when it is called. src/override/direct.c binds functions of the C library to the C library, so a
# program's own functions of these names are not called, ready or not; a new name belongs to one of these lists, and, if it
# enters the kernel, to those that tests/fault wraps (cmake/hakmem_tests.cmake, tests/fault/fault.h).
start='__cxa_at_quick_exit __register_atfork dl_iterate_phdr dlsym getauxval pthread_key_create' # the constructors
allocate='__errno_location bcmp madvise memcmp memcpy memmove memset mincore mmap mremap munmap pthread_setspecific syscall'
options='memchr open close sigaction sigaddset sigemptyset sigfillset strchr strchrnul strlen strncmp strrchr strstr'
threads='pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_create pthread_detach pthread_self
    pthread_sigmask'                                                     # background threads, if an option asks for one
end='__cxa_finalize abort fflush pthread_setcancelstate raise'           # at exit, or at a fatal error
asked='fputs fwrite'                                                     # malloc_info, which the program calls
variables='__environ __libc_single_threaded __libc_stack_end __rseq_offset __rseq_size _r_debug environ hak_options hakmem_recorder_range'
sanitizers='__asan_init __lsan_init __msan_init __sanitizer_set_report_path __tsan_init' # weak: only whether they exist
compilers='_ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __getauxval __gmon_start__'
cxx='_ZNSt9bad_allocD1Ev _ZSt15get_new_handlerv _ZSt9terminatev _ZTISt9bad_alloc _ZTVSt9bad_alloc _Unwind_.*
    __cxa_allocate_exception __cxa_begin_catch __cxa_call_terminate __cxa_end_catch __cxa_throw __gxx_personality_v0'
known="$start $allocate $options $threads $end $asked $variables $sanitizers $compilers $cxx"
unknown=$(readelf --dyn-syms -W -- "$library" | awk '$7 == "UND" && $8 != "" {sub(/@.*/, "", $8); print $8}' |
    grep -vxE "$(xargs <<<"$known" | tr ' ' '|')" | tr '\n' ' ')
[[ -z $unknown ]] || fail "refers to names that this file does not know: $unknown"
# A stub would be bound at its first call. These are in static parts of the C library and the compiler, or of the C++
# library, for which clang makes stubs in cxx.cc: direct.c binds the C library's functions alone.
stubs=$(readelf -r -W -- "$library" | awk '$3 ~ /JUMP_SLOT/ {sub(/@.*/, "", $5); print $5}' |
    grep -vxE '__cxa_at_quick_exit|__register_atfork|__cxa_finalize|__getauxval|__gmon_start__'"|$(xargs <<<"$cxx _ZdlPv" | tr ' ' '|')" | tr '\n' ' ')
[[ -z $stubs ]] || fail "calls by stubs, which src/override/direct.c does not bind: $stubs"
# The resolver of src/override/early.c runs there, and must find the other relocations done.
last=$(readelf -r -W -- "$library" | awk '$3 ~ /^R_/ && $3 !~ /JUMP_SLOT/ {last = $3} END {print last}')
[[ $last == *IRELATIVE ]] || fail "its last relocation is $last, expected the resolver of src/override/early.c"

# Nothing but the malloc family, operators new and delete, the hak_ API, and at most four names that docs/install.md
# explains may be seen from outside.
root=$(dirname -- "${BASH_SOURCE[0]}")/..
family='malloc|free|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|pvalloc|cfree'
family+='|free_sized|free_aligned_sized|malloc_usable_size|malloc_trim|malloc_stats|malloc_info|mallinfo2?|mallopt'
family+='|__libc_(malloc|free|calloc|realloc|reallocarray|memalign|valloc|pvalloc|cfree)|__posix_memalign'
exported=$(readelf --dyn-syms -W -- "$library" | awk '$4 != "SECTION" && $5 != "LOCAL" && $7 != "UND" && $7 ~ /^([0-9]+|ABS)$/ && $8 !~ /^HAKMEM_[0-9.]+$/ {print $8}')
others=$(grep -Ev "^(($family)|hak_[a-z0-9_]+|_Zn[wa][A-Za-z0-9_]+|_Zd[la][A-Za-z0-9_]+)(@.*)?$" <<<"$exported" | sort | xargs)
explained=$(sed -n '/^## Names that the library defines/,/^## [^N]/s/^| `\(\w*\)` |.*/\1/p' "$root/docs/install.md" | sort | xargs)
[[ $others == "$explained" ]] || fail "exports '$others' besides malloc's names; docs/install.md explains '$explained'"
(($(wc -w <<<"$others") <= 4)) || fail "exports more than four names besides malloc's: $others"
for name in malloc free calloc realloc memalign aligned_alloc posix_memalign malloc_usable_size hak_malloc hak_free \
    _Znwm _ZdlPv; do
    grep -qE "^$name(@@HAKMEM_.*)?$" <<<"$exported" || fail "does not export $name"
done

# What a program may call is in a header, from which the manual hakmem(3) is made.
while read -r name; do
    grep -qw -- "$name" "$root"/include/hakmem/*.h || fail "exports $name, which no header declares"
done < <(sed -n 's/^\(hak_[a-z0-9_]*\).*/\1/p' <<<"$exported")
# hakmem's own names have a version, and no other name has one (src/hakmem.map).
wrong=$({ grep '^hak_' <<<"$exported" | grep -Ev '@@HAKMEM_[0-9]+\.[0-9]+$'; grep -v '^hak_' <<<"$exported" | grep @; } |
    tr '\n' ' ')
[[ -z $wrong ]] || fail "has symbols with the wrong version: $wrong"
soname=$(readelf -d -W -- "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[[ $soname =~ ^libhakmem(-secure)?\.so\.[0-9]+$ ]] || fail "has the soname '$soname'"

# The loader keeps little static TLS for libraries that are loaded late (512 bytes with default tunables for all).
tls_bytes=$(($(readelf -l -W -- "$library" | awk '$1 == "TLS" {print $6}') + 0))
((tls_bytes <= 64)) || fail "takes $tls_bytes bytes of static TLS, at most 64 expected"

if readelf -d -W -- "$library" | grep -q TEXTREL; then
    fail "has text relocations"
fi
if readelf -l -W -- "$library" | grep -q 'GNU_STACK.* RWE '; then
    fail "asks for an executable stack"
fi
((failures == 0)) && printf '%s: needs %sexports %s names, static TLS %s bytes\n' "${library##*/}" "$needed" \
    "$(wc -l <<<"$exported")" "$tls_bytes"
((failures == 0))
