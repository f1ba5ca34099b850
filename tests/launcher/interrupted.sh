#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# A first build that SIGINT ends at three moments goes on where it stopped: what is there then is whole, no process is left,
# and the program runs. And without a network commands do their work; tests/launcher/lab.sh asks those of the laboratory.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
unset LD_PRELOAD ${!HAKMEM_*}
export HOME=$scratch/home XDG_CACHE_HOME=$scratch/home/cache
mkdir -p "$HOME" "$scratch/bin"
place=$scratch/checkout
copy_checkout "$place"
cp -R "$TEST_ROOT/trace" "$TEST_ROOT/lab" "$place"
build_quickly "$place"

# cmake, ninja and gcc count their calls in all; at the chosen one the launcher's group gets the signal.
for name in cmake ninja gcc g++; do
    program=$(type -P "$name")
    cat >"$scratch/bin/$name" <<END
#!/usr/bin/env bash
echo "$name \$*" >>"$scratch/calls"
if [[ -e $scratch/moment && \$(wc -l <"$scratch/calls") -ge \$(<"$scratch/moment") ]]; then
    rm -f "$scratch/moment"
    kill -INT -- "-\$(<"$scratch/group")"
fi
exec "$program" "\$@"
END
    chmod +x "$scratch/bin/$name"
done

# start COMMAND...: in a group of its own, whose number stands in a file, and with SIGINT as a terminal's programs have it.
start() {
    python3 -c '
import os, signal, sys
os.setsid()
open(sys.argv[1], "w").write(str(os.getpid()))
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])' "$scratch/group" "$@"
}

# is_empty: no process of the session is left.
is_empty() {
    ! cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$(<"$scratch/group")" '$6 == session && $3 != "Z" { left = 1 } END { exit !left }'
}

for moment in 1 5 12; do
    rm -f "$scratch/calls"
    echo "$moment" >"$scratch/moment"
    PATH=$scratch/bin:$PATH try start "$place/hakmem" run --quiet -- echo hello
    if [[ -e $scratch/moment ]]; then # fewer calls than that were left
        [[ $status == 0 && $output == hello ]] || fail "a build that was interrupted does not go on: $status $errors"
        break
    fi
    [[ $status == 130 && -z $output ]] || fail "moment $moment: $status '$output' '$errors'"
    await is_empty # whoever waits for nobody may end a little later
done
rm -f "$scratch/moment"
expect 0 hello '^$' "$place/hakmem" run --quiet -- echo hello
[[ ! -e $place/build/release/libhakmem.a && ! -e $place/build/release/hakmem-attach ]] || fail "run builds more than one library"
expect 0 secure '^$' "$place/hakmem" run --quiet --secure -- echo secure
expect 0 "$place/build/release/libhakmem.so" '' "$place/hakmem" build
[[ -e $place/build/release/libhakmem.a && ! -e $place/build/release/bench && ! -e $place/build/release/tests ]] || fail "build makes more, or less, than the libraries"
try cmake --install "$place/build/release" --prefix "$scratch/installed"
[[ $status == 0 && -z $errors && -n $(find "$scratch/installed" -name libhakmem.a) ]] || fail "cmake --install after build: $status $errors"

# On a terminal it says what it does.
touch "$place/src/override/early.c"
said=$(on_terminal "$place/hakmem" run -- true </dev/null)
[[ $said == *'hakmem: building hakmem in '*'/build/release; the first time'*'hakmem: built in '*' s'* ]] || fail "a terminal sees '$said'"

# --- without a network ---

alone=()
unshare --net true 2>/dev/null && alone=(unshare --net)
"$place/hakmem" run --quiet --set observe=1 -- sleep 1000 &
pid=$!
find_observer() { [[ -n $(find /dev/shm -name "hakmem*$pid*" 2>/dev/null) ]]; }
await find_observer
cd "$scratch" || exit 1
without() {
    try "${alone[@]}" "$place/hakmem" "$@" </dev/null
    [[ $errors != *Traceback* && $output != *Traceback* ]] || fail "$*: $errors"
}
for words in 'run --stats -- true' 'record -o trace -- sort --version' 'replay trace' 'profile -o kept --pprof pprof.gz -- true' \
    'profile --pprof pprof.gz kept' "profile --seconds 1 --pprof pprof.gz $pid" 'profile --html page.html --folded folded kept' \
    "stat $pid" "top --once $pid" 'top' "metrics --once $pid" "heap -o heap.html $pid" "observe $pid" 'version' 'help' 'build'; do
    without $words
    [[ $status == 0 ]] || fail "without network: $words: $status $errors"
done
[[ -s kept && -s pprof.gz && -s page.html && -s heap.html ]] || fail "files are missing: $(ls -l)"
end "$pid"
finish
