#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# What is installed when: by `run` and `test` with one apt-get that no signal cuts, by other commands only after a yes; names
# and arguments come first. Here apt-get is a stand-in, and cmake, gcc and the like are there only after it has "installed" them.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
((EUID == 0)) || { echo "skipped: only root installs"; exit 77; }
unset LD_PRELOAD LABORATORY_PYTHON ${!HAKMEM_*}
export HOME=$scratch/home XDG_CACHE_HOME=$scratch/home/cache
mkdir -p "$HOME" "$scratch/bin"
place=$scratch/checkout
copy_checkout "$place"
cp -R "$TEST_ROOT/trace" "$TEST_ROOT/lab" "$place"
ln -s "$TEST_ROOT/tests" "$TEST_ROOT/bench" "$place" # for the names of tests
echo "exit 1" >"$place/tools/debian_source.sh"

# The programs of this machine, but for those.
hidden='^(apt-get|cmake|ctest|ninja|gcc|g\+\+|cc|c\+\+|python3.*|clang.*|pkg-config|spin|gdb)$'
for file in /usr/local/bin/* /usr/bin/* /usr/sbin/*; do
    [[ ${file##*/} =~ $hidden ]] || ln -sf "$file" "$scratch/bin/"
done
cat >"$scratch/apt-get" <<END
#!/usr/bin/env bash
words="\$*"
case " \$words " in
*' update '*) echo update >>"$scratch/calls" ;;
*' -s '*) [[ " \$words " != *' bpftrace '* ]] ;;
*)
    echo "install\${words#*recommends}" >>"$scratch/calls"
    cut -d ' ' -f 6 /proc/self/stat >"$scratch/session"
    [[ ! -e $scratch/fail ]] || { echo 'E: no network here'; exit 100; }
    if [[ -e $scratch/wait ]]; then
        touch "$scratch/begun"
        for ((i = 0; i < 600; i++)); do
            [[ ! -e $scratch/go ]] || break
            sleep 0.1
        done
        touch "$scratch/ended"
    fi
    for name in cmake ninja gcc g++; do
        [[ ! -e $scratch/bin/\$name ]] || continue
        printf '#!/bin/sh\necho "%s \$*" >>$scratch/built\nexit 1\n' \$name >$scratch/bin/\$name
        chmod +x $scratch/bin/\$name
    done ;;
esac
END
chmod +x "$scratch/apt-get"
cp "$scratch/apt-get" "$scratch/bin/apt-get"
export PATH=$scratch/bin

# forget: as on a fresh machine.
forget() {
    rm -rf "$scratch"/{calls,built,begun,go,ended,wait,fail,session,bin/cmake,bin/ninja,bin/gcc,bin/g++} "$place/build" "$HOME/cache"
}
untouched() {
    [[ ! -e $scratch/calls ]] || fail "$1 has called apt-get: $(<"$scratch/calls")"
    [[ ! -e $scratch/built && -z $(find "$HOME" -type f) ]] || fail "$1 has built something: $(find "$HOME" -type f | head -n 3)"
}
hakmem=$place/hakmem

# have_python BODY: from here on there is one, whose venv does that.
have_python() {
    cat >"$scratch/bin/python3" <<END
#!/bin/sh
case \$* in
*'-m venv'*) $1 ;;
*) exec "$python" "\$@" ;;
esac
END
    chmod +x "$scratch/bin/python3"
}

# Names and arguments first.
have_python 'exit 1'
expect 2 '' "no test's name matches 'zzz'" "$hakmem" test --only zzz
expect 2 '' "no test's name matches 'release/unit/zzz'" "$hakmem" test --only release/unit/zzz
expect 2 '' "no test in C has a case 'zzz'" "$hakmem" test --only unit/flush:zzz
expect 2 '' 'unknown option' "$hakmem" test --quik
expect 2 '' 'no preset' "$hakmem" build --preset zzz
expect 125 '' '^hakmem: missing to build hakmem: cmake ninja-build gcc .*type: apt-get install' "$hakmem" build </dev/null
expect 2 '' "^hakmem: run: unknown option '--zzz'" "$hakmem" run --quiet --zzz -- true
expect 2 '' "^hakmem: record: unknown option '--zzz=1'" "$hakmem" record -o x --zzz=1 true
expect 2 '' "^hakmem: replay: unknown option '--zzz'" "$hakmem" replay /etc/passwd --zzz
expect 127 '' "no program 'zzz'" "$hakmem" run -- zzz
expect 2 '' "no option 'zzz'" "$hakmem" run --set zzz=1 -- true
expect 127 '' "no program 'zzz'" "$hakmem" record -- zzz
expect 2 '' "no allocator 'zzz'" "$hakmem" record --alloc zzz -- true
expect 2 '' "no allocator 'zzz'" "$hakmem" replay --alloc zzz /etc/passwd
untouched 'a wrong command line'
rm "$scratch/bin/python3"

# Other commands name the line.
for words in 'build' 'record -- true' 'replay /etc/passwd' 'stat 1' 'top' 'heap 1' 'profile 1' 'metrics 1' 'observe 1' \
    'learn show x' 'bench' 'compare -- true' 'doctor' 'peers list' 'tune -- true' '--no-install run -- true' \
    'run --no-install -- true' '--no-install test' 'test --no-install' '--no-install --no-install build'; do
    expect 125 '' '^hakmem: missing .*; install them, type: apt-get install -y [a-z]' "$hakmem" $words </dev/null
    untouched "$words"
done

# `run` and `test` call apt-get once, and say what for.
expect 125 '' '^hakmem: installing with apt-get to build hakmem: cmake ninja-build gcc g\+\+'$'\n' "$hakmem" run -- true
[[ $(<"$scratch/calls") == $'update\ninstall cmake ninja-build gcc g++' ]] || fail "run installs: $(<"$scratch/calls")"
[[ $(<"$scratch/session") != "$(cut -d ' ' -f 6 /proc/self/stat)" ]] || fail "apt-get runs in the session of the terminal"
forget
expect 125 '' 'missing for test: python3; install them' "$hakmem" test
[[ $(<"$scratch/calls") == $'update\ninstall python3' ]] || fail "test installs: $(<"$scratch/calls")"
forget
have_python 'exit 1'
try "$hakmem" --install build
[[ $(<"$scratch/calls") == $'update\ninstall cmake ninja-build gcc g++' ]] || fail "--install build installs: $(<"$scratch/calls")"
forget

# What is not to be had is left out, with the line; what the command cannot do without ends it.
touch "$scratch/fail"
expect 125 '' 'E: no network here.*missing to build hakmem: cmake ninja-build gcc g\+\+; install them, type: apt-get install -y cmake' \
    "$hakmem" run -- true
forget
try "$hakmem" test --only release/check
[[ $errors == *'installing with apt-get to build and test hakmem: '*'what needs '*' bpftrace '*' is left out; to get it, type: apt-get install'* ||
    $errors == *'what needs pkg-config clang'*' is left out'* ]] || fail "test without bpftrace says: $errors"
[[ $(grep -c install "$scratch/calls") == 1 && $(<"$scratch/calls") == *'install '*cmake*spin* ]] || fail "test installs: $(<"$scratch/calls")"
forget

# What `test` prepares beside its builds ends with it.
for name in cmake ninja gcc g++; do
    printf '#!/bin/sh\nfor i in $(seq 600); do [ ! -s %s/preparing ] || break; sleep 0.1; done\nexit 1\n' "$scratch" >"$scratch/bin/$name"
    chmod +x "$scratch/bin/$name"
done
have_python "echo \$\$ >'$scratch/preparing'; exec sleep 1000"
try "$hakmem" test --quick
[[ $status == 1 && $output == *'release does not build'* || $errors == *'release does not build'* ]] || fail "test: $status $errors"
[[ -s $scratch/preparing ]] || fail "test prepares nothing beside its builds"
has_ended() { ! kill -0 "$(<"$scratch/preparing")" 2>/dev/null; }
await has_ended
have_python 'exit 1'
forget

# On a terminal it asks.
for answer in n '' q; do
    on_terminal "$hakmem" build <<<"$answer" >/dev/null
    [[ $? == 125 ]] || fail "answer '$answer': status"
    untouched "answer '$answer'"
done
on_terminal "$hakmem" build <<<y >/dev/null
[[ $(<"$scratch/calls") == *install*cmake* ]] || fail "answer y installs nothing"
forget

# A signal does not cut apt-get, whoever gets it; it is obeyed afterwards.
for whom in '' -; do
    touch "$scratch/wait"
    setsid bash -c 'trap - INT; exec "$@"' - "$python" -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hakmem" run -- true 2>"$scratch/said" &
    process=$!
    await test -e "$scratch/begun"
    for ((i = 0; i < 3; i++)); do
        kill -INT -- "$whom$process"
        sleep 0.1
    done
    [[ ! -e $scratch/ended ]] && kill -0 "$process" || fail "the signal has ended something (kill $whom)"
    touch "$scratch/go"
    wait "$process"
    status=$?
    [[ $status == 130 && -e $scratch/ended && ! -e $scratch/built ]] || fail "after apt-get the launcher goes on: $status $(<"$scratch/said")"
    forget
done
finish
