#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem record` and `./hakmem replay`: the program keeps its status, signals and output; one line says what was
# recorded; refusals are one clear sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

recorded='^hakmem: [0-9]+ calls of [0-9]+ threads?, [0-9]+ bytes in [^ ]*, [0-9.]+ bytes a call(; [0-9]+ calls of [0-9]+ other process(es)? in files [^ ]*\.PID)?$'

"$launcher" record true 2>/dev/null # builds it if need be, and may say so on a terminal
expect 0 hello "$recorded" "$launcher" record -- /bin/echo hello
[[ -s hakmem.trace ]] || fail "no hakmem.trace"
expect 0 hello "$recorded" "$launcher" record --alloc libc -o other /bin/echo hello
expect 7 '' "$recorded" "$launcher" record --output=other bash -c 'exit 7'
expect 143 '' '' bash -c '"$1" record -o other -- bash -c "kill -TERM \$\$"; exit $?' _ "$launcher"
expect 0 'from outside' "$recorded" "$launcher" record -o other -- cat <<<'from outside'
printf '#!/usr/bin/env bash\nexec /bin/echo "$@"\n' >script && chmod +x script
expect 0 'a b' "$recorded" "$launcher" record -o other ./script a b
"$launcher" replay other --summary >summary || fail "no summary of a script's program"
[[ $(<summary) == echo* ]] || fail "the trace is not of what the script became: $(head -n 1 summary)"
expect 0 x '^hakmem: [0-9]+ calls .*/with space,' "$launcher" record -o "with space" /bin/echo x
expect 0 '' '^hakmem: 0 calls: nothing was recorded' "$launcher" record -o other true # which makes no call
expect 0 "$scratch" "$recorded" "$launcher" record -o other pwd
try "$launcher" record -o other -- bash -c 'kill -TERM $PPID; sleep 100'
((status == 143)) || fail "a signal to the recorder's parent is not passed on: status $status"

"$launcher" record -o sample -- bash -c 'for i in {1..2000}; do x[i]=$i; done' 2>/dev/null
try "$launcher" replay sample
[[ $status == 0 && $output == *$'\n'hakmem\ * && $output == *$'\n'libc\ * ]] || fail "replay: $status: $output $errors"
try "$launcher" replay --runs 1 --alloc="$(dirname "$("$launcher" build)")/libhakmem.so" sample
[[ $status == 0 && $output == *libhakmem.so* ]] || fail "replay of a library: $status: $output $errors"

refuse 2 'which program' "$launcher" record
refuse 2 'which program' "$launcher" record -o x --
refuse 2 '-o needs a value' "$launcher" record -o
refuse 2 "no allocator 'nothing'" "$launcher" record --alloc nothing true
refuse 2 "no library './nothing.so'" "$launcher" record --alloc ./nothing.so true
refuse 127 "no program 'no-such-program'" "$launcher" record no-such-program
refuse 126 'is a directory' "$launcher" record /
refuse 126 'is there already and is not a trace' "$launcher" record -o script true
refuse 125 'cannot write' "$launcher" record -o "$scratch/no/such/folder" true
refuse 2 'which trace' "$launcher" replay
refuse 2 "one trace at a time" "$launcher" replay sample other
refuse 2 '--runs needs a number' "$launcher" replay sample --runs 0
refuse 2 '--alloc needs a value' "$launcher" replay sample --alloc
refuse 2 "no allocator 'nothing'" "$launcher" replay sample --alloc hakmem,nothing

# An allocator of `./hakmem peers`, as its list has it.
mkdir -p "$scratch/cache/hakmem/peers" "$scratch/a library"
cp "$(dirname "$("$launcher" build)")/libhakmem.so" "$scratch/a library/"
for place in "$(dirname "$("$launcher" build)")" "$scratch/a library" "$scratch/none"; do
    echo "{\"peers\": {\"mine\": {\"library\": \"$place/libhakmem.so\", \"environment\": {\"MINE\": \"yes\"}}}}" \
        >"$scratch/cache/hakmem/peers/manifest.json"
    XDG_CACHE_HOME=$scratch/cache try "$launcher" record --alloc mine -o other -- bash -c 'echo "$MINE"'
    case $place in
    */release) [[ $status == 0 && $output == yes && $errors =~ $recorded ]] || fail "record --alloc mine: $status $output $errors" ;;
    *library) [[ $status == 2 && $errors =~ $sentence && $errors == *'LD_PRELOAD cannot hold'* ]] || fail "a library: $errors" ;;
    *) [[ $status == 2 && $errors =~ $sentence && $errors == *"library of 'mine' is gone"* ]] || fail "no library: $errors" ;;
    esac
done
XDG_CACHE_HOME=$scratch/cache refuse 2 "no allocator 'other'" "$launcher" replay sample --alloc other

refuse 126 "no file 'nothing'" "$launcher" replay nothing
refuse 126 'script is not a trace of hakmem' "$launcher" replay script
refuse 126 'script is not a trace of hakmem' "$launcher" replay script --summary
refuse 126 'script is not a trace of hakmem' "$launcher" timeline script
refuse 126 'cannot write' "$launcher" timeline sample -o none/page.html
refuse 2 'it is read, too' "$launcher" timeline sample -o ./sample
refuse 126 'no file .nothing' "$launcher" timeline nothing
refuse 2 'FILE is missing' "$launcher" timeline

# Memory over time: what was allocated when, by function, and until when.
act
for words in '' sleep_us:700000; do
    "$launcher" record -o phases.trace -- ./acts alpha:100:10000 brief:5000:3000 free:90 $words beta:50:2000 2>/dev/null
    try "$launcher" timeline phases.trace -o phases.json
    [[ $status == 0 && -z $errors && $output == 'acts (process '*'at most 9'[78]?.?' KiB in use, '* ]] || fail "timeline: $status: $output $errors"
    WORDS=$words python3 - <<'END' || fail "the timeline of phases ${words:-at once}: $(cut -c 1-2000 phases.json)"
import json, os
timeline = json.load(open("phases.json"))
sites = {site["name"]: site for site in timeline["sites"]}
moments = timeline["moments"]
def cells(name, wanted):
    return [sum(cell[part] for cell in sites[name]["cells"] if wanted(*cell[:2])) for part in (2, 3)]
last = len(moments)
assert timeline["timed"] or not os.environ["WORDS"]
assert cells("alpha", lambda born, ended: True) == [1000000, 100]
assert cells("alpha", lambda born, ended: ended == last) == [100000, 10]
assert cells("beta", lambda born, ended: ended == last) == [100000, 50]
assert cells("beta", lambda born, ended: born < last // 2) == [0, 0]
assert cells("alpha", lambda born, ended: born > last // 2) == [0, 0]
assert sites["brief"]["temporary"] == [5000, 15000000] and sites["beta"]["temporary"] == [0, 0]
assert [(thread["name"], sum(cell[3] for cell in thread["cells"])) for thread in timeline["threads"]] == [("thread 1", 5150)]
assert [ms for ms, *_ in moments] == sorted(ms for ms, *_ in moments)
for moment, (_, live, most, _) in enumerate(moments):
    assert most >= live == sum(size for site in sites.values() for born, ended, size, _ in site["cells"] if born <= moment < ended)
END
done
# Sites are the program's own functions: not those of C++'s standard library, in the program as in libstdc++, nor those that
# only pass allocations on. Optimised, they are inlined.
cat >owners.cc <<'END'
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>
extern "C" {
__attribute__((noinline)) void *my_malloc(size_t size) { void *got = malloc(size); return got ? got : (abort(), got); }
__attribute__((noinline)) void preallocate_pool() { static void *volatile pool = malloc(5000000); (void)pool; }
__attribute__((noinline)) void take_by_mine() { static void *volatile pool = my_malloc(6000000); (void)pool; }
}
std::vector<int> numbers;
std::map<std::string, std::string> words;
std::vector<std::shared_ptr<int>> shared;
__attribute__((noinline)) void fill_vector() { for (int i = 0; i < 300000; i++) numbers.push_back(i); }
__attribute__((noinline)) void fill_map() { for (int i = 0; i < 300; i++) words[std::to_string(i)] = std::string(1000, 'y'); }
__attribute__((noinline)) void fill_shared() { for (int i = 0; i < 3000; i++) shared.push_back(std::make_shared<int>(i)); }
int main()
{
    fill_vector();
    fill_map();
    fill_shared();
    preallocate_pool();
    take_by_mine();
}
END
for optimised in 0 2; do
    c++ -std=c++17 -O$optimised -g owners.cc -o owners || fail "owners.cc does not compile"
    "$launcher" record -o owners.trace -- ./owners 2>/dev/null
    try "$launcher" timeline owners.trace -o owners.json
    for name in 'fill_vector\(\)' 'fill_map\(\)' 'fill_shared\(\)' preallocate_pool take_by_mine; do
        has "$output" "$name"
    done
    [[ ! $output =~ std::|my_malloc|_Z ]] || fail "the timeline names functions of libraries (-O$optimised): $output"
done
# A plug-in that is loaded with RTLD_DEEPBIND frees the program's blocks, and is recorded, too.
compile bound.c bound.so -O1 -fno-builtin -shared -fPIC <<'END'
#include <stdlib.h>
void *change(void *block)
{
    free(block);
    return malloc(7777);
}
END
compile binds.c binds -O1 -fno-builtin -ldl <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
int main(void)
{
    void *library = dlopen("./bound.so", RTLD_NOW | RTLD_DEEPBIND);
    void *(*change)(void *) = library ? (void *(*)(void *))dlsym(library, "change") : NULL;
    for (int i = 0; change != NULL && i < 1000; i++) {
        free(change(malloc(3333)));
    }
    return change == NULL;
}
END
for alloc in hakmem libc; do
    try "$launcher" record --alloc $alloc -o binds.trace -- ./binds
    ((status == 0)) || fail "a program with RTLD_DEEPBIND, under $alloc: $status $errors"
done
"$launcher" record -o binds.trace -- ./binds 2>/dev/null
has "$("$launcher" replay --summary binds.trace)" 'bound\.so\+0x'
cc -shared -fPIC "$TEST_ROOT/trace/caller_names.c" -o caller_names.so || fail "caller_names.c does not compile"
PYTHONPATH=$TEST_ROOT/python python3 -B - <<'END' || fail "recorder and tools know other names"
import ctypes, itertools
from hakmem.look.owners import BEHIND, USES, is_allocating, is_of_library
from hakmem.look.sites import Frame
passes = ctypes.CDLL("./caller_names.so").caller_name_passes
passes.restype = ctypes.c_bool
words = ["malloc", "xstrdup", "prealloc", "Realloc", "callocz", "PyMem", "aligned", "alloc", "table", "RAW", "64", *sorted(BEHIND | USES)]
for parts in itertools.chain(*(itertools.product(words[:12], words, words[:9], repeat=1), itertools.product(words))):
    for joint in "_", "":
        name = joint.join(parts)
        assert bool(passes(name.encode())) == is_allocating(name), name
rust = "_ZN5alloc7raw_vec11finish_grow17h0123456789abcdefE", "_RNvNtCs1234_5alloc7raw_vec11finish_grow", \
    "_ZN70_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE", "__rdl_alloc", "_ZNSt6vectorIiE4growEv"
others = "_ZN5alloc4growEv", "_ZN4core6Engine4loadEi", "_RNvCs1234_3app4load", "_ZN3app4load17h0123456789abcdefE", "start", "_ZN5StuffC1Ev"
assert all(passes(name.encode()) for name in rust) and not any(passes(name.encode()) for name in others)
END
head -c -3 phases.trace >cut_phases.trace
try "$launcher" timeline cut_phases.trace -o cut_phases.html
[[ $status == 0 && $output == *'The file is cut'* ]] || fail "timeline of a cut trace: $status: $output $errors"
try "$launcher" timeline phases.trace -o phases.html
[[ $status == 0 && $output == *'The page is in phases.html' ]] || fail "timeline: $status: $output $errors"
PAGE=$scratch/phases.html python_tests timeline_page
finish
