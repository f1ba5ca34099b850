# SPDX-License-Identifier: MIT
# support.sh: sourced by the launcher's tests: one scratch directory, and checks of a command's status and output.
set -u
: "${TEST_ROOT:=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)}"
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
launcher=$TEST_ROOT/hakmem
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

sentence='^hakmem: [^'$'\n'']+$'

# refuse STATUS WORDS COMMAND...: nothing on standard output, and one sentence on standard error with the words, a regular
# expression.
refuse() {
    local wanted_status=$1 words=$2
    shift 2
    expect "$wanted_status" '' "$sentence" "$@"
    [[ $errors =~ $words ]] || fail "errors '$errors' instead of '$words': $*"
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
