#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The example of docs/observability/profile.md, preloaded, linked with the archive, and static: the names in the summary,
# and addresses for what has no name.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
: "${TEST_BUILD:=$TEST_ROOT/build/release}"
example=$TEST_ROOT/tests/launcher/site_example.cc
cd -- "$scratch" || exit 1
command -v c++ >/dev/null || { echo "no c++"; exit 77; }

# form NAME FLAGS...: builds and runs it, and a program without names. A site without a name is an address in the program.
form() {
    local name=$1
    shift
    c++ -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -I"$TEST_ROOT/include" "$example" -o "example-$name" "$@" \
        2>errors || { fail "$name: site_example.cc does not compile: $(<errors)"; return; }
    try env LD_LIBRARY_PATH="$TEST_BUILD" timeout 240 "./example-$name" alpha beta gamma
    [[ $status == 0 ]] || fail "$name: status $status: $errors"
    [[ $output =~ $'\n'"largest sites: buffer with 2.00 MiB, index with 0."[0-9]+" MiB, index.text with 0."[0-9]+" MiB ("estimated ]] ||
        fail "$name: $output"
    cc -O2 -fno-builtin "$TEST_ROOT/tests/launcher/acts.c" -o "plain-$name" "$@" "${unwinder[@]}" -pthread -ldl 2>errors ||
        { fail "$name: acts.c does not compile: $(<errors)"; return; }
    try env LD_LIBRARY_PATH="$TEST_BUILD" HAKMEM_STATS=summary HAKMEM_SAMPLE_BYTES=1 timeout 240 \
        "./plain-$name" brief:1000:100 alpha:1:5242880 beta:1:4194304 gamma:1:3145728
    [[ $errors =~ $'\n'"largest sites: plain-$name+0x"[0-9a-f]+" with 5.00 MiB, plain-$name+0x"[0-9a-f]+" with 4.00 MiB, "\
"plain-$name+0x"[0-9a-f]+" with 3.00 MiB (" ]] || fail "$name: $errors"
}

unwinder=(-Wl,--no-as-needed -lgcc_s)
form shared -L"$TEST_BUILD" -lhakmem
form archive "$TEST_BUILD/libhakmem.a"
if [[ -e $(cc -print-file-name=libc.a) && -e $(c++ -print-file-name=libstdc++.a) ]]; then
    unwinder=(-lgcc_eh)
    form static -static "$TEST_BUILD/libhakmem.a"
    # Sampling from the start: the unwinder of a static program is ready only in its constructors.
    try env HAKMEM_SAMPLE_BYTES=1 timeout 240 ./example-static alpha
    [[ $status == 0 && -z $errors ]] || fail "static, sampled from the start: status $status: $errors"
fi
finish
