#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs with a malloc of their own that lacks parts of the family: who serves which function. "own" is the program's
# block, "other" is another one. Then wrappers of hakmem's functions, and jemalloc before hakmem.
. "$(dirname "$0")/lib.sh"
need g++
build=${TEST_BUILD:-${HAKMEM%/*}/build/release}
cat >"$work/family.cc" <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <initializer_list>
#include <malloc.h>
#include <new>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define API extern "C" __attribute__((used, visibility("default")))
#ifndef WRAP
#define WRAP 0
#endif
static unsigned frees; // of the program's own blocks
#ifdef OWN
static char pool[64 << 20] __attribute__((aligned(4096)));
static size_t used;
static bool mine(const void *p) { return (uintptr_t)p - (uintptr_t)pool < sizeof pool; }
static void *take(size_t alignment, size_t size)
{
    alignment = alignment < 16 ? 16 : alignment;
    used = (used + 16 + alignment - 1) & ~(alignment - 1);
    void *block = pool + used;
    used += size;
    return block;
}
API void *malloc(size_t size) { return take(16, size); }
API void free(void *p) { frees += mine(p); }
#if OWN >= 2
API void *calloc(size_t count, size_t size) { return take(16, count * size); }
API void *realloc(void *p, size_t size)
{
    void *q = take(16, size);
    if (p != nullptr) memcpy(q, p, size);
    return q;
}
#endif
#if OWN >= 3
API void *memalign(size_t alignment, size_t size) { return take(alignment, size); }
#endif
#if OWN >= 4 // what jemalloc 5.3 has
API void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
API int posix_memalign(void **p, size_t alignment, size_t size) { *p = take(alignment, size); return 0; }
API void *valloc(size_t size) { return take(4096, size); }
API size_t malloc_usable_size(void *) { return 1234; }
#endif
#elif WRAP // counts, and puts 16 bytes before each block
static bool mine(const void *) { return false; }
static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) _exit(9);
    return found;
}
API void *malloc(size_t size) { return 16 + ((char *(*)(size_t))next("malloc"))(size + 16); }
API void free(void *p)
{
    if (p == nullptr) return;
    frees++;
    ((void (*)(void *))next("free"))((char *)p - 16);
}
API void *calloc(size_t a, size_t b) { return 16 + ((char *(*)(size_t, size_t))next("calloc"))(1, a * b + 16); }
API void *realloc(void *p, size_t size)
{
    return 16 + ((char *(*)(void *, size_t))next("realloc"))(p ? (char *)p - 16 : nullptr, size + 16);
}
#else
static bool mine(const void *) { return false; }
#endif
static void *keep(void *p) { __asm__ volatile("" : "+r"(p)); return p; }
static void *say(const char *name, void *p)
{
    memset(p, 1, 100);
    printf(" %s:%s", name, mine(p) ? "own" : "other");
    return keep(p);
}
static unsigned freed_since;
static void gone(const char *name) { printf(" %s:%u", name, frees - freed_since); freed_since = frees; }
int main()
{
    setvbuf(stdout, nullptr, _IONBF, 0);
    void *p = say("reallocarray", reallocarray(nullptr, 10, 20));
    p = say("grown", reallocarray(p, 100, 20));
    printf(" overflow:%d", reallocarray(p, SIZE_MAX / 2, 4) == nullptr && errno == ENOMEM);
    freed_since = frees;
    free(p);
    gone("free");
    void *s = say("strndup", strndup("a text that is a hundred bytes long at the very least, because each block gets as "
                                     "many ones as that is", 200));
    free(s);
#if !WRAP // such a wrapper cannot free aligned blocks with any malloc
    free(say("aligned_alloc", aligned_alloc(64, 128)));
    free(say("aligned_alloc16", aligned_alloc(16, 128)));
    free(say("memalign", memalign(256, 128)));
    void *aligned;
    if (posix_memalign(&aligned, 64, 128) != 0) return 3;
    free(say("posix_memalign", aligned));
    free(say("valloc", valloc(128)));
    free(say("pvalloc", pvalloc(128)));
    printf(" usable:%zu", mine(p) ? malloc_usable_size(p) : 0);
#endif
    freed_since = frees;
    void (*deletes[])(void *) = {[](void *q) { operator delete(q); },
                                 [](void *q) { operator delete[](q); },
                                 [](void *q) { operator delete(q, (size_t)128); },
                                 [](void *q) { operator delete[](q, (size_t)128); },
                                 [](void *q) { operator delete(q, std::nothrow); }};
    void *news[] = {operator new(128), operator new[](128), operator new(128), operator new[](128),
                    operator new(128, std::nothrow)};
    for (int i = 0; i < 5; i++) deletes[i](say("new", news[i]));
    gone("delete");
    auto align = std::align_val_t(64);
    operator delete(say("aligned_new", operator new(128, align)), align);
    gone("aligned_delete");
    for (int i = 0; i < 2000; i++) { // caches must not mix them up
        void *q = operator new(100 + (i & 15)), *r = malloc(100 + (i & 15));
        operator delete(q);
        free(r);
    }
    freed_since = frees;
    for (const char *name : {"cfree", "free_sized", "free_aligned_sized"}) {
        void (*release)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, name);
        bool aligned_too = name[5] == 'a';
        if (release != nullptr) release(malloc(128), aligned_too ? 16 : 128, 128);
    }
    gone("sized");
    puts("");
    return 0;
}
END
# check NAME EXPECTED FLAG...: builds it and compares what it says on both forms.
check() {
    local what=$1 expected=$2 form said
    shift 2
    g++ -std=c++17 -O1 -w -fno-builtin "$@" "$work/family.cc" -o "$work/family" -ldl || fail "$what: does not build"
    for form in "" -secure; do
        said=$(LD_PRELOAD=$build/libhakmem$form.so "$work/family" 2>&1 | tr -s ' \n' ' ')
        [[ $said == "$expected" ]] || fail "$what $form: says $said, not $expected"
    done
    say "$what: right"
}
news() { printf ' new:%s' "$1" "$1" "$1" "$1" "$1"; }
aligned() { printf ' %s' "aligned_alloc:$1" aligned_alloc16:"$2" "memalign:$1" "posix_memalign:$1" "valloc:$1" "pvalloc:$1"; }
check "malloc, free" \
    " reallocarray:other grown:other overflow:1 free:0 strndup:own$(aligned other own) usable:0$(news own) delete:5 aligned_new:other aligned_delete:0 sized:3 " \
    -DOWN=1
check "malloc, free, calloc, realloc" \
    " reallocarray:own grown:own overflow:1 free:1 strndup:own$(aligned other own) usable:0$(news own) delete:5 aligned_new:other aligned_delete:0 sized:3 " \
    -DOWN=2
check "and memalign" \
    " reallocarray:own grown:own overflow:1 free:1 strndup:own$(aligned own own) usable:0$(news own) delete:5 aligned_new:own aligned_delete:1 sized:3 " \
    -DOWN=3
check "as jemalloc" \
    " reallocarray:own grown:own overflow:1 free:1 strndup:own$(aligned own own) usable:1234$(news own) delete:5 aligned_new:own aligned_delete:1 sized:3 " \
    -DOWN=4
# One block finds out that they are wrappers, and goes back.
check "wrappers" \
    " reallocarray:other grown:other overflow:1 free:1 strndup:other$(news other) delete:1 aligned_new:other aligned_delete:0 sized:3 " \
    -DWRAP=1
jemalloc=$(ldconfig -p 2>/dev/null | sed -n 's/.*libjemalloc\.so\.2 .*=> //p' | head -1)
if [[ -n $jemalloc ]]; then
    g++ -std=c++17 -O1 -w -fno-builtin "$work/family.cc" -o "$work/family" -ldl || fail "jemalloc: does not build"
    said=$(LD_PRELOAD=$jemalloc:$build/libhakmem.so "$work/family" 2>&1) &&
        [[ $said != *hakmem:* ]] || fail "jemalloc before hakmem: $said"
    say "jemalloc: right"
fi
