#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem run`: the program keeps its status, signals, input and process id; refusals are one clear sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

served='^hakmem: [0-9.]+ serves process [0-9]+ \(profile default\) from [^ ]*libhakmem[^ ]*\.so$'

expect 0 hello '^hakmem: .* from [^ ]*libhakmem-secure\.so$' "$launcher" run --secure -- /bin/echo hello

# The process is the program.
expect 0 hello "$served" "$launcher" run -- /bin/echo hello
expect 0 hello "$served" "$launcher" run /bin/echo hello
expect 0 '' '^$' "$launcher" run --quiet true
expect 7 '' "$served" "$launcher" run -- bash -c 'exit 7'
expect 143 '' '' bash -c '"$1" run --quiet -- bash -c "kill -TERM \$\$"; exit $?' _ "$launcher"
expect 0 'from outside' "$served" "$launcher" run -- cat <<<'from outside'
expect 0 same "$served" bash -c 'exec "$1" run -- bash -c "[[ \$\$ == $$ ]] && echo same"' _ "$launcher"
try "$launcher" run -- bash -c 'cat /proc/self/maps'
[[ $output == *libhakmem* ]] || fail "children are not served"
LD_PRELOAD=/nonexistent/other.so try "$launcher" run --quiet -- bash -c 'echo "$LD_PRELOAD"'
[[ $output == *libhakmem*.so:/nonexistent/other.so ]] || fail "an existing LD_PRELOAD became '$output'"
# A program that runs on hakmem may run another one on another form of it.
LD_PRELOAD=/nonexistent/libhakmem-secure.so:/nonexistent/other.so try "$launcher" run --quiet -- bash -c 'echo "$LD_PRELOAD"'
[[ $output == */libhakmem.so:/nonexistent/other.so ]] || fail "an existing LD_PRELOAD with hakmem became '$output'"

# The environment is the program's, also where the launcher has variables of the same names.
expect 0 'a b c d' '^$' env root=a path=b settings=c magic=d "$launcher" run --quiet -- \
    bash -c 'echo "$root $path $settings $magic"'

expect 0 '' '^$' bash -c 'trap "" PIPE; exec "$1" run --quiet -- bash -c true' _ "$launcher" # bash is larger than a pipe

# A caller that ignores SIGCHLD: the program's end is noticed, and it ignores the signal, too.
if [[ -n $python ]]; then
    ignoring=(timeout 600 "$python" -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])' "$launcher")
    expect 1 1 '^$' "${ignoring[@]}" run --quiet --fail-above 1g -- bash -c 'grep -c "^SigIgn:.*1....$" /proc/self/status; exit 1'
    expect 7 '' 'calls' "${ignoring[@]}" record -o ignored.trace -- bash -c 'exit 7'
    refuse 126 'does not run on hakmem' "${ignoring[@]}" stat $$
fi

# Functions of the environment replace no helper of the launcher, and are the program's.
helpers=(cd sed find python3 readlink dirname realpath stat grep printf declare)
(for name in "${helpers[@]}"; do eval "$name() { echo replaced >&2; return 9; }" && export -f "${name?}"; done
    expect 0 "" "^$" "$launcher" run --quiet -- true
    expect 0 "" replaced "$launcher" run --quiet -- bash -c "cd /; true"
    command [ "$failures" = 0 ]) || fail "functions of the environment"

# Options become variables of the library.
expect 0 'small 5' '^$' "$launcher" run --quiet --profile small --set purge_delay_ms=5 -- \
    bash -c 'echo "$HAKMEM_PROFILE $HAKMEM_PURGE_DELAY_MS"'
expect 0 '1m never' '^$' "$launcher" run --quiet --set BIN_BYTES=1m --set=HAKMEM_LIMIT=never -- \
    bash -c 'echo "$HAKMEM_BIN_BYTES $HAKMEM_LIMIT"'

# What asks the library about a value writes no file of this name.
mkdir "$scratch/profiles"
expect 0 '' '' "$launcher" run --quiet --set profile_file="$scratch/profiles/%p" true
files=("$scratch"/profiles/*)
[[ ${#files[@]} == 1 ]] || fail "one process writes ${#files[@]} heap profiles"

# A profile may be a file: its settings are variables, those of --set win, and so do the file's over the environment.
profile() {
    printf "$@" >"$scratch/my.profile"
}
profile '# Profile for hakmem\n\n \tHAKMEM_PROFILE=small \r\npurge_delay_ms=5\nStats_File=/tmp/a b=c'
show='echo "$HAKMEM_PROFILE $HAKMEM_PURGE_DELAY_MS $HAKMEM_STATS_FILE"'
HAKMEM_PURGE_DELAY_MS=9 expect 0 'small 5 /tmp/a b=c' '^$' "$launcher" run --quiet --profile "$scratch/my.profile" -- bash -c "$show"
expect 0 'fast 7 /tmp/a b=c' '^$' "$launcher" run --quiet --set profile=fast --set PURGE_DELAY_MS=7 \
    --profile="$scratch/my.profile" -- bash -c "$show"
expect 0 'small 5 /tmp/a b=c' '^$' "$launcher" run --quiet --profile my.profile -- bash -c "$show" # of this directory
expect 0 '' '.' "$launcher" run --quiet --stats -- true
expect 0 /dev/null . "$launcher" run --quiet --stats -- ls /dev/null # which closes standard error at its end
try "$launcher" run --quiet --stats=json -- bash -c 'bash -c :; true'
((status == 0)) && python3 -m json.tool <<<"$errors" >"$scratch/json" || fail "--stats=json is not one JSON text"
"$launcher" run --quiet --stats-file report -- bash -c 'cd /' || fail "--stats-file"
[[ -s $scratch/report ]] || fail "--stats-file wrote nothing to a relative path"
mkdir "$scratch/tree" # %p: the program, a shell, and its child, each in a file of its own
(cd "$scratch/tree" && "$launcher" run --quiet --stats-file '%p.%%' -- bash -c 'bash -c :; echo $$ >../program; true') ||
    fail "--stats-file with %p"
files=("$scratch"/tree/*)
[[ ${#files[@]} == 2 && -s $scratch/tree/$(<"$scratch/program").% ]] || fail "--stats-file with %p wrote ${files[*]}"
grep -q 'resident memory (RSS)' "${files[@]}" || fail "--stats-file wrote no summary"
# A shell ends by _exit. With --stats the program alone reports, with --all-processes its children, too.
expect 3 '' 'resident memory' "$launcher" run --quiet --stats -- sh -c 'exit 3'
leave='import os; child = os.fork(); child and os.waitpid(child, 0); os._exit(7 if child else 4)'
for wanted in 1 2; do
    try "$launcher" run --quiet --stats $( ((wanted == 2)) && echo --all-processes) -- "$python" -c "$leave"
    [[ $status == 7 && $(grep -c 'resident memory' <<<"$errors") == "$wanted" ]] || fail "os._exit: $status $errors"
done
try "$launcher" run --quiet --stats -- true
[[ $(wc -l <<<"$errors") -lt 16 && $errors == *'not hakmem'* ]] || fail "--stats is no summary: $errors"
# Why a small heap has no huge pages: the machine's setting, or a filter of a container, comes before hakmem's own reasons.
[[ $errors =~ $'\n'huge\ pages:\ none\;\ (the heap is below huge_threshold .4.0 MiB.|.*/sys/kernel/|.*filter) ]] || fail "--stats: $errors"
expect 0 '' 'huge pages: none; (huge_threshold is never|.*/sys/kernel/|.*filter)' "$launcher" run --quiet --stats --set huge_threshold=never true
echo 'always madvise [never]' >"$scratch/never"
mode=/sys/kernel/mm/transparent_hugepage/enabled
if unshare --mount mount --bind "$scratch/never" $mode 2>/dev/null; then # elsewhere no test can change the setting
    expect 0 '' "huge pages: none; $mode is never" unshare --mount bash -c \
        'mount --bind "$1" "$2" && exec "$3" run --quiet --stats true' _ "$scratch/never" $mode "$launcher"
fi
try "$launcher" run --quiet --stats -- "$python" -c \
    'import mmap, os; own = mmap.mmap(-1, 50 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); own[::4096] = b"x" * 12800; os._exit(0)'
[[ $errors =~ hakmem\'s\ +(5[0-9]|6[0-9])\..*$'\n    anonymous '\ +5[0-9]\. ]] || fail "--stats does not tell the program's own mappings: $errors"
try "$launcher" run --quiet --stats=full -- true
[[ $errors == *'not hakmem'*malloc_slow* ]] || fail "--stats=full lacks something"
expect 143 '' 'resident memory' "$launcher" run --quiet --stats --set stats_signal=1 -- bash -c 'kill -TERM $$; sleep 1'
# --fail-above: a status for tests, by the bytes that are in use at the end.
act
above='^hakmem: .*acts had [0-9]+ bytes in use at its end, more than 65536 \(.*profile --leaks shows where\)$'
expect 0 '' '^$' "$launcher" run --quiet --fail-above 64k -- ./acts
expect 1 '' "$above" "$launcher" run --quiet --fail-above=64k -- ./acts alpha:1:100000
expect 9 '' '^$' "$launcher" run --quiet --fail-above 64k -- ./acts alpha:1:100000 exit:9
expect 127 '' 'there is no program' "$launcher" run --quiet --fail-above 64k -- "$scratch/no-program"
expect 137 '' '^$' "$launcher" run --quiet --fail-above 64k -- bash -c 'kill -KILL $$'
expect 5 ready '^$' "$launcher" run --quiet --fail-above 1g -- bash -c 'trap "exit 5" TERM; echo ready; kill -TERM $PPID; while :; do sleep 0.1; done'
for wrong in '' -1 1x 64kb 99999999999999999999; do
    expect 2 '' "a number of bytes .* not '${wrong:0:60}'" "$launcher" run --quiet --fail-above="$wrong" true
done
expect 2 '' 'does not go with --stats' "$launcher" run --fail-above 1 --stats true
mkfifo "$scratch/pipe"
exec {reader}<>"$scratch/pipe"
expect 0 '' '^$' "$launcher" run --quiet --stats=json --stats-file "$scratch/pipe" true
read -r -t 60 -u $reader line
[[ $line == '{"hakmem"'* ]] || fail "--stats-file wrote nothing to a pipe"
exec {reader}>&-
expect 0 '' 'cannot write the report .*: it is a pipe that nobody reads$' "$launcher" run --quiet --stats-file "$scratch/pipe" true

# Refusals: of the command line,
refuse 2 'which program' "$launcher" run
refuse 2 'which program' "$launcher" run --
refuse 2 'which program' "$launcher" run ''
refuse 2 '--set needs a value' "$launcher" run --set
refuse 2 "NAME=VALUE, not 'purge_delay'" "$launcher" run --set purge_delay echo hello
refuse 2 "no option 'purge_delay'" "$launcher" run --set purge_delay=5 echo hello
refuse 2 "purge_delay_ms must be never or a number .*, not '-5'" "$launcher" run --set purge_delay_ms=-5 echo hello
refuse 2 "stats must be none, summary, full or json" "$launcher" run --set stats=xml echo hello
refuse 2 "--quiet" "$launcher" run --set announce=1 echo hello
refuse 2 "--heap-map" "$launcher" run --set heap_map_file=map echo hello
refuse 2 "--all-processes" "$launcher" run --set stats_pid=1 echo hello
refuse 2 "profile must be default, fast, small or debug, not 'huge'" "$launcher" run --profile huge echo hello
refuse 2 'the name of a file has a dot or a slash' "$launcher" run --profile huge echo hello
refuse 2 "the profile $scratch/none does not exist" "$launcher" run --profile "$scratch/none" echo hello
refuse 2 'the profile /dev/zero is not a file' "$launcher" run --profile /dev/zero echo hello
refuse 2 "line 1: '\?ELF.*' is not NAME=VALUE" "$launcher" run --profile /bin/true echo hello
# refuse_profile WORDS FORMAT: of a file with this content.
refuse_profile() {
    profile "$2"
    refuse 2 "the profile $scratch/my.profile[, ]$1" "$launcher" run --profile "$scratch/my.profile" echo hello
}
refuse_profile 'holds no setting' ''
refuse_profile " line 2: 'arenas' is not NAME=VALUE" 'arenas=1\narenas\n'
refuse_profile " line 2: there is no option 'purge'" '# mine\npurge=1\n'
refuse_profile ' line 1: announce cannot be set here: use --quiet' 'announce=1\n'
refuse 2 'needs a name' "$launcher" run --profile= echo hello
refuse 2 "summary, full or json, not 'xml'" "$launcher" run --stats=xml echo hello
refuse 2 'name of a file' "$launcher" run --stats-file= echo hello
refuse 2 "$scratch/none/report: No such file or directory$" "$launcher" run --stats-file "$scratch/none/report" echo hello
refuse 2 "$scratch: Is a directory$" "$launcher" run --stats-file "$scratch" echo hello
refuse 2 'No such file or directory$' "$launcher" run --stats-file none/report echo hello
refuse 2 '% needs a p behind it' "$launcher" run --stats-file "$scratch/%d" echo hello
refuse 2 "$scratch/none%[0-9]+/x: No such file or directory$" "$launcher" run --stats-file "$scratch/none%%%p/x" echo hello
refuse 2 "unknown argument 'more'" "$launcher" version more
refuse 2 "no command 'no-such-command'" "$launcher" help no-such-command
refuse 2 "unknown argument 'more'" "$launcher" help run more
for option in --soak --fuzz; do
    for minutes in 0 1.5 -1 ten '' 10000000; do
        refuse 2 "$option needs a whole number of minutes, from 1 to 999999, not '$minutes'" "$launcher" test $option "$minutes"
    done
    refuse 2 "$option needs a value" "$launcher" test $option
    refuse 2 "$option goes with no other" "$launcher" test --quick $option 1
done
refuse 2 '--only needs' "$launcher" test --only
refuse 2 "unknown argument 'unit'" "$launcher" test unit
refuse 2 "no preset 'huge'; there are: release" "$launcher" build --preset huge
refuse 2 '--preset needs' "$launcher" build --preset
refuse 2 "unknown argument 'more'" "$launcher" build more

# of the program.
refuse 127 "'no-such-program' in PATH" "$launcher" run no-such-program
refuse 127 "no program './no-such-program'" "$launcher" run ./no-such-program
refuse 126 'is not executable' "$launcher" run "$TEST_ROOT/CMakeLists.txt"
touch "$scratch/plain"
refuse 126 'is not executable' "$launcher" run "$scratch/plain"
refuse 126 'is a directory' "$launcher" run "$scratch"

# Programs the loader would not load hakmem into.
echo 'int main(void) { return 0; }' >"$scratch/one.c"
for link in -static -static-pie; do
    if gcc "$link" "$scratch/one.c" -o "$scratch/static" 2>/dev/null; then
        expect 126 '' 'statically linked' "$launcher" run "$scratch/static"
        printf '#!%s\n' "$scratch/static" >"$scratch/script-of-static" && chmod +x "$scratch/script-of-static"
        expect 126 '' 'statically linked' "$launcher" run "$scratch/script-of-static"
    fi
done
if ((EUID == 0)) && cp /bin/true "$scratch/setuid" && chown 65534 "$scratch/setuid" && chmod u+s "$scratch/setuid"; then
    expect 126 '' "another user's rights" "$launcher" run "$scratch/setuid"
fi
printf '\x7fELF\x01\x01\x01' >"$scratch/elf32" && head -c 100 /dev/zero >>"$scratch/elf32" && chmod +x "$scratch/elf32"
expect 126 '' '64-bit' "$launcher" run "$scratch/elf32"

# Scripts: with an interpreter, through env, without a first line, with a missing interpreter.
script() {
    printf '%s\n' "$@" >"$scratch/script" && chmod +x "$scratch/script"
}
script '#!/bin/bash' 'echo "script $1"'
expect 0 'script one' "$served" "$launcher" run "$scratch/script" one
script '#!/usr/bin/env bash' 'echo "env $1"'
expect 0 'env one' '' "$launcher" run "$scratch/script" one
script 'echo "plain $1"'
expect 0 'plain one' "$served" "$launcher" run "$scratch/script" one
: >"$scratch/script"
expect 0 '' "$served" "$launcher" run "$scratch/script"
script '#!/no/such/interpreter'
refuse 126 '/no/such/interpreter, which is not there' "$launcher" run "$scratch/script"
script "#!$scratch/plain"
refuse 126 'plain, which is not an executable file' "$launcher" run "$scratch/script"
script "#!$scratch"
refuse 126 'which is not an executable file' "$launcher" run "$scratch/script"
script '#!/usr/bin/env no-such-interpreter'
refuse 127 'no-such-interpreter, which is not in PATH' "$launcher" run "$scratch/script"
script '#!/usr/bin/env -S -u NAME bash -e' 'echo "env $1"'
expect 0 'env one' '' "$launcher" run "$scratch/script" one
script '#!/usr/bin/env -Sbash -e' 'echo "env $1"'
expect 0 'env one' '' "$launcher" run "$scratch/script" one
script $'#!/bin/bash\r' 'echo hello'
refuse 126 'carriage return' "$launcher" run "$scratch/script"

# Help: output.sh asks each command for it.
try "$launcher" run --help
for name in $(sed -n 's/^| `HAKMEM_\([A-Z_]*\)`.*/\1/p' "$TEST_ROOT/docs/options.md"); do
    [[ ${name,,} == @(profile|stats*|heap_map_file|announce) || $output == *$'\n'"  ${name,,} "* ]] || fail "run --help lacks ${name,,}"
done
expect 0 "$("$launcher" version)" '^$' "$launcher" --version
expect 0 "$("$launcher" help)" '^$' "$launcher"
finish
