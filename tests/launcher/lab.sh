#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# The laboratory's commands: the Python environment is made once, again after a kill or a failure, and never needs
# the network when it is there. Here with a stand-in for python3; at the end, where `./hakmem test` has prepared the
# real one, with that.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
export XDG_CACHE_HOME="$scratch/cache" REAL_PYTHON=${LABORATORY_PYTHON:-}
real_cache=${REAL_PYTHON%/hakmem/python-*}
unset PYTHONPATH LD_PRELOAD ${!HAKMEM_*}
mkdir -p "$scratch/bin" "$scratch/cache"
place=$scratch/checkout
copy_checkout "$place"
mkdir -p "$place/lab"
echo 'package==1' >"$place/lab/requirements.txt"

# python3 as the package calls it; what it makes is itself. Files in $scratch change what it does.
cat >"$scratch/bin/python3" <<END
#!/usr/bin/env bash
[[ \$1 != -I ]] || shift
case \$* in
-V) cat "$scratch/version" ;;
-c*'(3, 11)'*) [[ ! -e "$scratch/is-old" ]] ;;
-c*) ;;
'-m venv -- '*) mkdir -p "\$4/bin" && cp "\$0" "\$4/bin/python" && echo venv >>"$scratch/calls" ;;
'-m pip install --require-hashes '*) # nothing else is installed, whatever PyPI serves
    echo pip >>"$scratch/calls"
    [[ ! -e "$scratch/kill-us" ]] || kill -9 \$PPID
    [[ ! -e "$scratch/no-network" ]] || { echo 'no route to anywhere' >&2; exit 1; } ;;
*/checkout/python/hakmem/cli.py' --lab '*)
    shift 2
    echo "lab \$# \$* root=\$LABORATORY_ROOT build=\$LABORATORY_BUILD"
    exit 7 ;;
*/checkout/python/hakmem/cli.py' '*) exec "$python" -I "\$@" ;;
*) echo "unexpected: \$*" >&2; exit 99 ;;
esac
END
chmod +x "$scratch/bin/python3"
echo 'Python 3.11.2' >"$scratch/version"
export PATH=$scratch/bin:$PATH

# calls N: the environment has been made N times in all.
calls() {
    local count=0
    [[ ! -e $scratch/calls ]] || count=$(grep -c venv "$scratch/calls")
    ((count == $1)) || fail "the environment was made $count times, not $1: ${2:-}"
}

# Neither help nor a wrong option makes it. tests/launcher/help.sh reads the helps.
for words in 'bench --help' 'compare -h' 'peers add --help'; do
    try "$place/hakmem" $words
    [[ $status == 0 && $output == "Usage: ./hakmem ${words%% *}"* && -z $errors ]] || fail "$words: $status '$output' '$errors'"
done
expect 2 '' "^hakmem: bench: unknown option '--sute' \(./hakmem bench --help\)$" "$place/hakmem" --install bench --sute core
calls 0 'help'
[[ ! -e $place/build ]] || fail "help made a build directory"

lab="lab 2 doctor --json root=$place build=$place/build"
touch "$scratch/is-old"
expect 125 '' '^hakmem: the laboratory needs Python 3.11 or newer' "$place/hakmem" --install doctor --json
rm "$scratch/is-old"
calls 0

# Not without a yes.
for words in 'doctor --json' '--no-install doctor' 'doctor --no-install' 'bench' 'peers list'; do
    expect 125 '' '^hakmem: the laboratory needs Python packages .*; type: ./hakmem --install (doctor|bench|peers)$' \
        "$place/hakmem" $words </dev/null
done
calls 0 'without a yes'

touch "$scratch/no-network"
expect 125 '' 'no route to anywhere.*the Python packages could not be installed' "$place/hakmem" doctor --json --install
calls 1 'without network'
rm "$scratch/no-network"

touch "$scratch/kill-us"
"$place/hakmem" --install doctor --json >/dev/null 2>&1
calls 2 'killed'
rm "$scratch/kill-us"

expect 7 "$lab" '^hakmem: preparing Python packages' "$place/hakmem" --install doctor --json
calls 3 'after a kill'
touch "$scratch/no-network"
expect 7 "$lab" '^$' "$place/hakmem" doctor --json
calls 3 'it is there'
LD_PRELOAD=/nonexistent.so expect 7 "$lab" '' "$place/hakmem" doctor --json
rm "$scratch/no-network"

# Arguments arrive as they are.
expect 7 "lab 4 peers add a  b  root=$place build=$place/build" '' "$place/hakmem" peers add 'a ' 'b '
[[ ! -e $place/build/release ]] || fail "doctor and peers have built something"

# Other packages, or another Python, are another environment; two first runs at once make one.
echo 'package==2' >"$place/lab/requirements.txt"
"$place/hakmem" --install doctor >/dev/null 2>&1 &
"$place/hakmem" --install doctor >/dev/null 2>&1
wait
calls 4 'other packages'
echo 'Python 3.12.0' >"$scratch/version"
"$place/hakmem" --install doctor >/dev/null 2>&1
calls 5 'another Python'

# The real thing.
if [[ -x $REAL_PYTHON ]]; then
    PATH=${PATH#*:} XDG_CACHE_HOME=$real_cache
    try "$launcher" bench --list --workload random_mixed_400
    [[ $status == 0 && $output == *random_mixed_400* ]] || fail "bench --list: $status $output $errors"
    expect 2 '' '^hakmem: bench: there is no suite .huge. \(./hakmem bench --help\)$' "$launcher" bench --suite huge
fi
finish
