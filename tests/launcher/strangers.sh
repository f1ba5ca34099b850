#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# What another user of the machine plants is never run, written through or believed: files in the current folder, a home
# folder that `sudo -E` keeps, build folders, folders of PATH. The other user is a number that nobody has; for root only.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
((EUID == 0)) || { echo "skipped: only root can be two users" && exit 77; }
stranger=64123
as_stranger=(setpriv --reuid $stranger --regid $stranger --clear-groups)
unset PYTHONPATH LD_PRELOAD ${!HAKMEM_*} ${!XDG_*}
export HOME=$scratch/home
mkdir -m 755 "$scratch/home" "$scratch/planted" "$scratch/checkout"
chmod 755 "$scratch" && chown $stranger "$scratch/planted"

# untouched WHAT: nothing that was planted has run, and the precious file is as it was.
echo precious >"$scratch/precious"
untouched() {
    [[ ! -e $scratch/ran ]] || fail "$1: ran $(sort -u "$scratch/ran")"
    [[ $(<"$scratch/precious") == precious ]] || fail "$1: wrote through a link"
    [[ $errors != *Traceback* ]] || fail "$1: $errors"
    rm -f "$scratch/ran"
}

# plant FILE: as the other user, a file that says that it ran, as Python and as a program.
plant() {
    "${as_stranger[@]}" mkdir -p -- "${1%/*}"
    if [[ $1 == *.py ]]; then
        "${as_stranger[@]}" tee -- "$1" >/dev/null <<<"open('$scratch/ran', 'a').write('$1\n')"
    else
        "${as_stranger[@]}" tee -- "$1" >/dev/null <<<"#!/bin/sh
echo '$1' >>'$scratch/ran'"
        "${as_stranger[@]}" chmod +x -- "$1"
    fi
}

# --- the current folder ---

cd -- "$scratch/planted" || exit 1
for name in ensurepip venv json argparse glob struct hakmem cli look lab runpy encodings site sitecustomize; do
    plant "$PWD/$name.py"
done
for name in cmake ninja python3 c++filt addr2line stat readlink getcap flock; do
    plant "$PWD/$name"
done
"${as_stranger[@]}" tee hakmem.trace >/dev/null </dev/null
"$launcher" build >/dev/null || fail "the library does not build"
for words in "top --once" "stat 1" "heap hakmem.trace" "learn show hakmem.trace" "profile hakmem.trace" "doctor --help" \
    "replay hakmem.trace --alloc nobody" "run --quiet -- true" "metrics 1 --once" "profile --sites 1 -- ls /"; do
    try env PATH=".::$PWD:$PATH" PYTHONPATH="$PWD" PYTHONSTARTUP="$PWD/site.py" PYTHONHOME= "$launcher" $words </dev/null
    untouched "$words"
    [[ $status == [0-9] || $status == 12[5-7] ]] || fail "$words: $status $errors"
done
[[ $(PATH=$PWD:$PATH "$launcher" run --quiet -- sh -c 'echo "$PATH"') == "$PWD:$PATH" ]] || fail "the program's PATH is another one"
rm -f "$scratch/ran"

# --- names in /dev/shm, and reports into what was planted ---

# victim COMMAND...: a third user's.
victim=$((stranger + 1))
victim() { setpriv --reuid $victim --regid $victim --clear-groups "$@"; }
library=$("$launcher" build)
mkdir -m 1777 "$scratch/public"
cp "$library" "$scratch/public/libhakmem.so" # where every user can read it
library=$scratch/public/libhakmem.so
mkfifo "$scratch/gate"
(
    victim bash -c 'echo $$; read -r _; exec env LD_PRELOAD="$1" HAKMEM_OBSERVE=1 sleep 1000' - "$library" <"$scratch/gate" >"$scratch/number"
) &
exec {gate}>"$scratch/gate"
await test -s "$scratch/number"
process=$(<"$scratch/number")
"${as_stranger[@]}" touch "/dev/shm/hakmem.$victim.$process"
"${as_stranger[@]}" mkfifo "/dev/shm/hakmem.$stranger.1"
"${as_stranger[@]}" touch "/dev/shm/hakmem.0.²" "/dev/shm/hakmem.0.1"
echo >&$gate
for ((i = 0; i < 600; i++)); do
    [[ $("$launcher" top --once </dev/null) != *" $process "* ]] || break
    sleep 0.1
done
try "$launcher" top --once
[[ $status == 0 && $output == *" $process "* && $errors != *Traceback* ]] || fail "a name that was taken: top: $status $output $errors"
expect 0 "$("$launcher" stat --full "$process" >"$scratch/said" && head -c 0 "$scratch/said")" '^$' grep -q '^hakmem' "$scratch/said"
kill -9 "$process" 2>/dev/null
wait 2>/dev/null
rm -f "/dev/shm/hakmem.$victim.$process"* "/dev/shm/hakmem.$stranger.1" "/dev/shm/hakmem.0."{²,1}
exec {gate}>&-

# What is planted under a report's name is neither followed nor waited for.
cd "$scratch/public" || exit 1
"${as_stranger[@]}" ln -s "$scratch/precious" link
"${as_stranger[@]}" mkfifo -m 666 pipe
"${as_stranger[@]}" sh -c 'exec cat pipe >/dev/null' &
for name in link pipe; do
    for variable in HAKMEM_STATS_FILE HAKMEM_PROFILE_FILE HAKMEM_HEAP_MAP_FILE HAKMEM_LEARN; do
        try timeout 60 env LD_PRELOAD="$library" HAKMEM_STATS=full HAKMEM_SAMPLE_BYTES=4k $variable="$PWD/$name" ls /
        [[ $status == 0 ]] || fail "$variable in a planted $name: $status $errors"
        untouched "$variable in a planted $name"
    done
done
(umask 0 && LD_PRELOAD=$library HAKMEM_STATS=full HAKMEM_STATS_FILE=$PWD/report HAKMEM_HEAP_MAP_FILE=$PWD/map HAKMEM_SAMPLE_BYTES=4k \
    HAKMEM_PROFILE_FILE=$PWD/profile ls / >/dev/null 2>&1)
[[ $(stat -c %a report map profile) == $'600\n600\n600' ]] || fail "modes: $(stat -c '%a %n' report map profile)"
cd -- "$scratch/planted" || exit 1

# --- a home folder of another user ---

theirs=$scratch/planted/home
sum_of() { { cat -- "$TEST_ROOT/$1/requirements.txt" && python3 -V; } 2>/dev/null | cksum; }
for name in python:lab observe:observe; do
    sum=$(sum_of "${name#*:}") place=$theirs/.cache/hakmem/${name%:*}-${sum// /-}
    plant "$place/bin/python"
    plant "$place/complete"
    "${as_stranger[@]}" ln -s "$scratch/precious" "$place.lock"
done
for variable in HOME XDG_CACHE_HOME; do
    place=$theirs
    [[ $variable == HOME ]] || place+=/.cache
    try env "$variable=$place" "$launcher" doctor --help
    untouched "$variable: doctor --help"
    [[ $status == 0 && $output == *doctor* ]] || fail "$variable: doctor --help: $status $output $errors"
done
expect 0 "$theirs" '^$' env HOME="$theirs" "$launcher" run --quiet -- sh -c 'echo "$HOME"'

# --- a build folder of another user ---

place=$scratch/checkout
copy_checkout "$place"
chmod -R a+rX "$place"
mkdir -p "$place/build" "$scratch/bin" && chown $stranger "$place/build"
printf '#!/bin/sh\necho no building today\nexit 1\n' >"$scratch/bin/cmake" && chmod +x "$scratch/bin/cmake"
for name in libhakmem.so libhakmem-secure.so libhakmem.a; do
    plant "$place/build/release/$name"
done
"${as_stranger[@]}" touch "$place/build/.release-stamp"
"${as_stranger[@]}" ln -s "$scratch/precious" "$place/build/.lock"
try env PATH="$scratch/bin:$PATH" "$place/hakmem" run -- true
[[ $status == 125 && $errors == *'no building today'* ]] || fail "a planted library: $status $output $errors"
untouched "a build folder of another user"

# A lock of one's own that is a link is not followed either.
chown 0 "$place/build" && rm -f "$place/build/.release-stamp"
try env PATH="$scratch/bin:$PATH" "$place/hakmem" run -- true
[[ $status == 125 && $errors == *'.lock is not a plain file'* ]] || fail "a lock that is a link: $status $errors"
untouched "a lock that is a link"
finish
