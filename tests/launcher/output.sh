#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Output that cannot be written is one sentence and a status, whatever prints it: the launcher itself, the tools that look
# into processes, and those that read traces.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

# full STATUS COMMAND [ARGUMENT...]: to a device on which there is never room.
full() {
    local wanted=$1
    shift
    "$launcher" "$@" >/dev/full 2>errors </dev/null
    status=$?
    errors=$(<errors)
    [[ $status == "$wanted" && $errors =~ (^|$'\n')'hakmem: cannot write '[^$'\n']*$ ]] ||
        fail "$* >/dev/full: status $status: '$errors'"
}

"$launcher" record -o trace true 2>/dev/null # builds it if need be
"$launcher" record -o trace pwd >/dev/null 2>&1
for words in help version 'version --help' 'help run' 'run --help' 'record --help' 'replay --help' \
    'build --help' 'test --help' 'replay trace --summary' 'replay trace --runs 1'; do
    full 125 $words
done

if type -P python3 >/dev/null; then
    for words in 'stat --help' 'help heap'; do
        "$launcher" $words >/dev/full 2>errors
        status=$?
        [[ $status != 0 && $(<errors) == 'hakmem: cannot write the output'* ]] || fail "$words: status $status: $(<errors)"
    done
    HAKMEM_OBSERVE=1 "$launcher" run --quiet sleep 1000 &
    process=$!
    await "$launcher" stat "$process" >/dev/null 2>&1
    for words in stat 'stat --full' 'stat --json' 'metrics --once' 'top --once' observe heap 'profile --seconds 1' \
        'profile --seconds 1 --output /dev/full'; do
        full 126 $words "$process"
    done
    full 126 heap --output /dev/full "$process"
    full 126 profile --seconds 1 --folded /dev/full "$process"
    "$launcher" stat "$process" >&- 2>errors
    status=$?
    [[ $status == 126 && $(<errors) == 'hakmem: standard output is closed' ]] || fail "stat >&-: status $status: $(<errors)"
    "$launcher" stat --full "$process" 2>errors | head -n 1 >/dev/null
    [[ ! -s errors ]] || fail "stat | head: $(<errors)"
    end "$process"

    # Whatever a program, its thread and a function are called, each stack is a line, and JSON is JSON.
    chmod 755 . # as root, binutils reads as nobody where others may write to a folder above
    odd=$'a\nb\tc\e[31m\xff; \xc2\x9b"\\{} }'
    compile odd.c "$odd" -O1 -pthread -ldl <<'END'
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
static void *run(void *library)
{
    prctl(PR_SET_NAME, "t\n\t\033[31m\377;\"\\}");
    return ((void *(*)(int))dlsym(dlopen(library, RTLD_NOW), "lib_take"))(1 << 20);
}
int main(int argc, char **argv)
{
    pthread_t thread;
    pthread_create(&thread, NULL, run, argv[argc - 1]);
    return pthread_join(thread, NULL);
}
END
    name=$(printf 'x%.0s' {1..300})
    compile library.c library.so -O1 -shared -fPIC <<END
#include <stdlib.h>
__attribute__((noinline)) void *$name(int size) { void *volatile p = malloc(size); return p; }
void *lib_take(int size) { void *volatile p = $name(size); return p; }
END
    try "$launcher" profile --period 64k --threads --stacks --folded folded --pprof odd.gz --html odd.html -- "./$odd" ./library.so
    [[ $status == 0 && -z $errors && $output != *[$'\e\t']* && $output == *' 1 block '* && $output == *"$name"* ]] ||
        fail "odd names: $status $errors $output"
    [[ $(wc -l <folded) == "$(grep -cP '^\[t[^;]*, thread \d+\](;[^;]+)+ \d+$' folded)" && -s folded && $(<folded) != *[$'\e\t']* ]] ||
        fail "odd names break folded stacks: $(<folded)"
    gzip -t odd.gz && ! grep -qP '[\e\x07]' odd.html || fail "odd names break pprof or the page"
    try env HAKMEM_SAMPLE_BYTES=64k "$launcher" run --quiet --stats=json --stats-file report --heap-map map -- "./$odd" ./library.so
    python3 -c 'import json; [json.load(open(name)) for name in ("report", "map")]' || fail "odd names break JSON"
    try "$launcher" heap --text map
    [[ $status == 0 && $output != *$'\e'* ]] || fail "odd names break the map: $errors"
    echo nothing >"$odd.file"
    "$launcher" timeline trace >/dev/null 2>&1 # builds it if need be
    for words in replay 'replay --summary' timeline heap profile 'learn show' 'record --output'; do
        [[ $words != record* ]] || set -- true
        LC_ALL=C refuse 126 'is (there already and is )?not a' "$launcher" $words "$odd.file" "$@"
        [[ $errors != *[$'\e\t']* ]] || fail "$words: a name's control characters: $errors"
    done
fi
# A Python that is too old is named.
mkdir "$scratch/old"
cat >"$scratch/old/python3" <<END
#!/usr/bin/env bash
exec $(type -P python3) -c 'import runpy, sys
sys.version_info = (3, 8, 1)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")' "\$@"
END
chmod +x "$scratch/old/python3"
refuse 125 '^hakmem: stat needs Python 3.9 or newer; python3 is ' env PATH="$scratch/old:$PATH" "$launcher" stat 1
finish
