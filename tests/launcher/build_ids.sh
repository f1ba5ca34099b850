#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Names come from the file whose build id is that of what ran, wherever it is: a program that was replaced, in another mount
# name space, or rebuilt since the profile was written has its own names or offsets, never those of the other file.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)
export DEBUGINFOD_URLS=

cp "$TEST_ROOT/tests/launcher/acts.c" .
keeps=alpha:100:20000

# build FUNCTION OUTPUT FLAG...: acts with this name for alpha: the same code at the same addresses.
build() {
    cc -O1 -fno-builtin "${@:3}" "-Dalpha=$1" acts.c -o "$2" -pthread -ldl || fail "acts.c does not compile"
}

# shows PATTERN COMMAND...: the command succeeds and says this, and nothing of the stranger.
shows() {
    try "${@:2}"
    [[ $status == 0 ]] || fail "status $status: ${*:2} ($errors)"
    [[ $output =~ $1 ]] || fail "no '$1' of '${*:2}' in: ${output:0:3000}"
    [[ ! $output =~ stranger ]] || fail "another program's name: ${output:0:3000}"
}

# says WORDS
says() {
    [[ $output == *"$1"* ]] || fail "no '$1' in: ${output:0:3000}"
}

build own_function own -g
build stranger other -g
build own_function bare -g -Wl,--build-id=none
build stranger bare_other -g -Wl,--build-id=none
build own_function plain -g0
mkdir run root safe
profile="$launcher profile"
sampled="$launcher profile --period 8k"

# writes FILE COMMAND...: the process itself writes its profile, with addresses alone.
writes() {
    HAKMEM_PROFILE_FILE=$1 HAKMEM_SAMPLE_BYTES=8k LD_PRELOAD="$library" "${@:2}" >/dev/null || fail "profile of $2"
}

# --- the file of a profile, read after a rebuild ---
cp own run/prog
writes kept.profile run/prog $keeps
$profile --period 1 -o named.profile -- run/prog $keeps >/dev/null || fail "profile of run/prog"
HAKMEM_SAMPLE_BYTES=8k "$launcher" run --quiet --heap-map kept.map run/prog $keeps >/dev/null || fail "heap map of run/prog"
shows 'own_function \(.*acts\.c:[0-9]+\)' $profile kept.profile
cp --remove-destination other run/prog
shows 'blocks  prog\+0x[0-9a-f]+ \(prog\)' $profile kept.profile
says $'\n'"prog has offsets instead of names: its file is another one now ($scratch/run/prog; --symfs FOLDER"
# What `profile -o` has written keeps its names: memory that has not changed is no difference, only its other name is.
shows 'own_function \(.*acts\.c:[0-9]+\)' $profile named.profile
[[ $output != *"instead of names"* ]] || fail "a remark where nothing is missing: $output"
shows 'pprof' sh -c "$profile --pprof named.pb named.profile >/dev/null && zcat named.pb | strings | grep -c own_function && echo pprof"
build own_function again -g -O2
cp --remove-destination again run/prog
shows ' 0 bytes +1\.9 MiB +1\.9 MiB +0  all sites$' $profile --period 1 --compare named.profile -- run/prog $keeps
[[ $output != *prog+* ]] || fail "an address in: $output"
# Addresses alone say so, and are no addresses of the new build.
shows ' -[0-9.]+ MiB +[0-9.]+ MiB +0 bytes +-[0-9]+  prog\+0x[0-9a-f]+ of an older build' $sampled --compare kept.profile -- run/prog $keeps
says 'In the older profile, prog has offsets instead of names: its file is another one now'
says 'So memory of prog that has not changed may show as less at an address and as more at a function.'
cp --remove-destination other run/prog
shows 'The picture is in' "$launcher" heap kept.map -o page.html
! grep -q stranger page.html || fail "the heap page has another program's name"
grep -q 'its file is another one now' page.html || fail "the heap page does not say why there is no name"
cp own safe/prog
shows 'own_function \(.*acts\.c:[0-9]+\)' $profile --symfs safe kept.profile
shows 'The picture is in' "$launcher" heap --symfs safe kept.map -o page.html
grep -q own_function page.html || fail "the heap page has no name from --symfs"
rm run/prog
shows 'blocks  prog\+0x' $profile kept.profile
says 'its file is gone'
expect 2 "" '^hakmem: --symfs: .nowhere. is not a folder$' $profile --symfs nowhere kept.profile

# A folder with only the debug file, by its build id; then the answer of a server.
id=$(readelf -n own | sed -n 's/.*Build ID: //p')
mkdir -p "debug/.build-id/${id:0:2}" bin
debug=$scratch/debug/.build-id/${id:0:2}/${id:2}.debug
objcopy --only-keep-debug own "$debug"
shows 'own_function \(.*acts\.c:[0-9]+\)' $profile --symfs debug kept.profile
printf '#!/bin/sh\n[ "$1 $2" = "debuginfo %s" ] && echo %s\n' "$id" "$debug" >bin/debuginfod-find
chmod +x bin/debuginfod-find
shows 'own_function \(.*acts\.c:[0-9]+\)' env "PATH=$scratch/bin:$PATH" DEBUGINFOD_URLS=http://nowhere.invalid $profile kept.profile
shows 'blocks  prog\+0x' env "PATH=$scratch/bin:$PATH" $profile kept.profile # without DEBUGINFOD_URLS nobody is asked

# --- no build id: the same inode, which nobody has touched ---
cp bare run/bare
sleep 1 # a profile says the second in which it was written
writes bare.profile run/bare $keeps
shows 'own_function \(.*acts\.c:[0-9]+\)' $profile bare.profile
cp --remove-destination bare_other run/bare
touch -d tomorrow run/bare # the inode may be the same again
shows 'blocks  bare\+0x[0-9a-f]+ \(bare\)' $profile bare.profile
says 'its build id is not known'

# --- symbols in a file of their own ---
for form in own plain; do
    [[ $form == own ]] && wanted='own_function \(.*acts\.c:[0-9]+\)' || wanted='own_function \(split\)'
    objcopy --only-keep-debug $form run/split.debug
    strip -s -o run/split $form
    (cd run && objcopy --add-gnu-debuglink=split.debug split)
    shows "$wanted" $sampled -- run/split $keeps
    mkdir -p run/.debug && mv run/split.debug run/.debug/
    shows "$wanted" $sampled -- run/split $keeps
    objcopy --only-keep-debug other run/.debug/split.debug # of another build
    shows 'blocks  split\+0x' $sampled -- run/split $keeps
    rm run/.debug/split.debug
done
objcopy -S --keep-symbol=own_function plain mini
python3 -c 'import lzma; open("mini.xz", "wb").write(lzma.compress(open("mini", "rb").read()))'
strip -s -o run/mini plain && objcopy --add-section .gnu_debugdata=mini.xz run/mini
shows 'own_function \(mini\)' $sampled -- run/mini $keeps

# --- a living process whose file is replaced, and one in another mount name space ---
# living COMMAND...: starts it as `pid`.
living() {
    local line
    coproc service { HAKMEM_OBSERVE=1 HAKMEM_SAMPLE_BYTES=8k exec "$@"; }
    pid=$service_PID
    echo $keeps >&"${service[1]}"
    read -r -t 300 line <&"${service[0]}" && [[ $line == 0 ]] || fail "'$*' says '$line'"
}

# names: the process's views have its own names. It is then let go.
names() {
    shows 'own_function \(.*acts\.c:[0-9]+\)' $profile "$pid"
    shows 'own_function \(acts\.c:[0-9]+\)' "$launcher" stat "$pid"
    end "$pid"
}

for form in own bare; do
    cp --remove-destination $form run/prog
    living env "LD_PRELOAD=$library" run/prog obey
    cp --remove-destination other run/prog
    if [[ $form == own ]]; then # one place names the sites of reports and of maps
        shows 'own_function \(acts\.c:[0-9]+\)' "$launcher" top --once "$pid"
        shows 'The picture is in' "$launcher" heap "$pid" -o page.html
        grep -q own_function page.html || fail "the heap page of a process has no name"
    fi
    names
done
if unshare -m true 2>/dev/null; then
    cp own root/prog
    living unshare -m sh -c "mount --bind root run; LD_PRELOAD='$library' exec run/prog obey"
    names
else
    echo "other mount name spaces were not tried: no rights"
fi

python_tests binaries
finish
