#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The form for fuzzers builds, and libFuzzer, which begins with the corpus, finds no difference in 200 runs.
set -eu
if ! echo 'int LLVMFuzzerTestOneInput(const char *bytes, unsigned long size) { return bytes == 0 && size; }' |
    clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then
    echo "skipped: no clang with libFuzzer here (Debian: libclang-rt-dev)"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$TEST_ROOT"
cmake --preset fuzz -B "$scratch/fuzz" >"$scratch/log" && cmake --build "$scratch/fuzz" --target fuzz_model >>"$scratch/log" || {
    cat "$scratch/log"
    exit 1
}
mkdir "$scratch/found"
# What it finds stays, its name is among libFuzzer's last lines.
"$scratch/fuzz/tests/model/fuzz_model" -runs=200 -max_len=4096 -len_control=0 -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$TEST_BUILD/fuzz-" "$scratch/found" tests/model/corpus
