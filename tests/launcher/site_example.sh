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

cat >plain.c <<'END'
#include <hakmem/profile.h>
#include <stdio.h>
#include <stdlib.h>
static void print(void *unused, const char *text, size_t size)
{
    (void)unused;
    fwrite(text, 1, size, stdout);
}
__attribute__((noinline)) void *keep(size_t size)
{
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}
int main(void)
{
    hak_profile_start(1);
    for (int i = 0; i < 1000; i++) {
        free(keep(100));
    }
    void *blocks[4] = {keep(100), calloc(5, 1 << 20), realloc(NULL, 4 << 20), aligned_alloc(64, 3 << 20)};
    hak_report(HAK_REPORT_SUMMARY, print, NULL);
    for (int i = 0; i < 4; i++) {
        free(blocks[i]);
    }
    return 0;
}
END

# form NAME FLAGS...: builds and runs both programs. A site without a name is an address in the program.
form() {
    local name=$1
    shift
    c++ -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -I"$TEST_ROOT/include" "$example" -o "example-$name" "$@" \
        2>errors || { fail "$name: site_example.cc does not compile: $(<errors)"; return; }
    try env LD_LIBRARY_PATH="$TEST_BUILD" timeout 240 "./example-$name" alpha beta gamma
    [[ $status == 0 ]] || fail "$name: status $status: $errors"
    [[ $output =~ $'\n'"largest sites: buffer with 2.00 MiB, index with 0."[0-9]+" MiB, index.text with 0."[0-9]+" MiB ("estimated ]] ||
        fail "$name: $output"
    cc -O2 -Wall -Wextra -fno-builtin -I"$TEST_ROOT/include" plain.c -o "plain-$name" "$@" "${unwinder[@]}" 2>errors ||
        { fail "$name: plain.c does not compile: $(<errors)"; return; }
    try env LD_LIBRARY_PATH="$TEST_BUILD" timeout 240 "./plain-$name"
    [[ $output =~ $'\n'"largest sites: plain-$name+0x"[0-9a-f]+" with 5.00 MiB, plain-$name+0x"[0-9a-f]+" with 4.00 MiB, "\
"plain-$name+0x"[0-9a-f]+" with 3.00 MiB (" ]] || fail "$name: $output"
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
