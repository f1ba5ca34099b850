# SPDX-License-Identifier: MIT
# support.sh: sourced by the launcher's tests: one scratch directory, programs, and checks of a command's status and output.
set -u
: "${TEST_ROOT:=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)}"
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
launcher=$TEST_ROOT/hakmem
python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) # not a script that chooses one
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# try COMMAND...: sets `status`, `output` and `errors`; standard input is the caller's.
try() {
    "$@" >"$scratch/output" 2>"$scratch/errors"
    status=$?
    output=$(<"$scratch/output")
    errors=$(<"$scratch/errors")
}

# expect STATUS OUTPUT ERRORS COMMAND...: OUTPUT exactly; ERRORS as a regular expression.
expect() {
    local wanted_status=$1 wanted_output=$2 wanted_errors=$3
    shift 3
    try "$@"
    [[ $status == "$wanted_status" ]] || fail "status $status instead of $wanted_status: $* ($errors)"
    [[ $output == "$wanted_output" ]] || fail "output '$output' instead of '$wanted_output': $*"
    [[ $errors =~ $wanted_errors ]] || fail "errors '$errors' instead of '$wanted_errors': $*"
}

# succeed STATUS COMMAND...: with this status and without a message.
succeed() {
    local wanted_status=$1
    shift
    try "$@"
    [[ $status == "$wanted_status" && -z $errors ]] || fail "status $status instead of $wanted_status: $* ($errors)"
}

sentence='^hakmem: [^'$'\n'']+$'

# complain STATUS WORDS COMMAND...: one sentence on standard error with the words, a regular expression.
complain() {
    try "${@:3}"
    [[ $status == "$1" && $errors =~ $sentence && $errors =~ $2 ]] || fail "status $status, errors '$errors' instead of $1, '$2': ${*:3}"
}

# refuse STATUS WORDS COMMAND...: the same, and nothing on standard output.
refuse() {
    complain "$@"
    [[ -z $output ]] || fail "output '$output': ${*:3}"
}

# copy_checkout DIRECTORY: what a clone would hold.
copy_checkout() {
    mkdir -p -- "$1"
    (cd -- "$TEST_ROOT" && cp -R hakmem CMakeLists.txt CMakePresets.json cmake src include attach run python packaging tools "$1")
    mkdir -p -- "$1/docs" && cp -- "$TEST_ROOT/docs/options.md" "$1/docs/"
}

# build_quickly CHECKOUT: C without optimisation, for tests that ask where and when something is built, not what. (C++ would
# refer to libstdc++ then.)
build_quickly() {
    sed -i 's/"-O2 -g"/"-O1"/; /^endforeach/a set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O0")' "$1/cmake/hakmem_flags.cmake"
    grep -q '"-O1"' "$1/cmake/hakmem_flags.cmake" && grep -q '"-O0"' "$1/cmake/hakmem_flags.cmake" ||
        fail "cmake/hakmem_flags.cmake has no -O2, or no loop"
}

# has TEXT WORDS: a regular expression over the text.
has() {
    [[ $1 =~ $2 ]] || fail "no '$2' in: ${1:0:4000}"
}

# compile SOURCE OUTPUT FLAG...: of what standard input says; C++ if the name ends in .cc.
compile() {
    local compiler=cc
    [[ $1 != *.cc ]] || compiler=c++
    cat >"$1"
    $compiler "$1" -o "$2" "${@:3}" || fail "$1 does not compile"
}

# act [FLAG...]: the program ./acts, which does what its words say (acts.c).
act() {
    compile acts.c acts -O1 -g -fno-builtin -fno-optimize-sibling-calls -pthread "$@" -ldl <"$TEST_ROOT/tests/launcher/acts.c"
}

# await COMMAND...: until it succeeds. The bound is a guard against hangs only.
await() {
    local i
    for ((i = 0; i < 6000; i++)); do
        "$@" && return
        sleep 0.05
    done
    fail "in vain: $*"
    return 1
}

# end PID...: ends the processes.
end() {
    kill "$@"
    wait "$@" 2>/dev/null
}

# --- tools in the background, by name: they write NAME.output and NAME.errors ---

declare -A tools

# need_shm_and_signals: else the test is left out. `plainly`: before a command that Ctrl-C may end; bash starts jobs without.
need_shm_and_signals() {
    [[ -w /dev/shm ]] || { echo "skipped: there is no /dev/shm to ask programs by"; exit 77; }
    plainly=(env --default-signal=INT)
    "${plainly[@]}" true || { echo "skipped: this env cannot restore SIGINT"; exit 77; }
}

# ended NAME STATUS OUTPUT ERRORS: the tool ends so; regular expressions.
ended() {
    local status
    wait "${tools[$1]}"
    status=$?
    [[ $status == "$2" ]] || fail "$1: status $status instead of $2: $(<"$1.errors")"
    [[ $(<"$1.output") =~ $3 ]] || fail "$1: no '$3' in: $(<"$1.output")"
    [[ $(<"$1.errors") =~ $4 ]] || fail "$1: no '$4' in: $(<"$1.errors")"
}

# asked PROCESS COUNT: a tool has got so many answers from now on.
asked() {
    python3 - "$@" <<'END_PY'
import glob, struct, sys, time
def answers():
    for path in glob.glob(f"/dev/shm/hakmem.*.{sys.argv[1]}*"):
        with open(path, "rb") as file:
            return struct.unpack_from("=I", file.read(32), 28)[0]
    return 0
first = answers()
while answers() < first + int(sys.argv[2]):
    time.sleep(0.01)
END_PY
}

# on_terminal COMMAND...: standard input is what somebody types.
on_terminal() {
    "$python" -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@"
}

# python_tests NAME...: of python/tests/look, with the standard library alone. Pages are tried in a browser if there is one.
python_tests() {
    local name
    BROWSER=$(type -P chromium || type -P chromium-browser || type -P google-chrome)
    [[ -n $BROWSER ]] || echo "pages are not tried in a browser: chromium is not installed (Debian: chromium)"
    for name in "$@"; do
        (cd "$TEST_ROOT/python/tests/look" && BROWSER=$BROWSER PYTHONPATH=$TEST_ROOT/python python3 -B -m unittest -q "test_$name") ||
            fail "python/tests/look/test_$name.py"
    done
}

finish() {
    ((failures == 0)) || { echo "$failures failures" >&2; exit 1; }
    exit 0
}

# change_state FROM TO SED: a state of HAKMEM_LEARN with a right checksum.
change_state() {
    PYTHONPATH=$TEST_ROOT/python python3 - "$@" <<'END_PY'
import subprocess
import sys
from hakmem.look.learn_file import checksum
source, target, script = sys.argv[1:]
with open(source, "rb") as file:
    body = subprocess.run(["sed", script], input=file.read().rpartition(b"checksum ")[0], stdout=subprocess.PIPE, check=True).stdout
with open(target, "wb") as file:
    file.write(body + b"checksum %d\n" % checksum(body))
END_PY
}
