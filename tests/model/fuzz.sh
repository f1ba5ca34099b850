#!/usr/bin/env bash
# The form for fuzzers builds, and libFuzzer, which begins with the corpus, finds no difference in 20 seconds.
set -eu
fuzzer=$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null) || true
if [[ ! -e $fuzzer ]]; then
    echo "skipped: no clang with libFuzzer here (Debian: libclang-rt-dev)"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$TEST_ROOT"
cmake --preset fuzz -B "$scratch/fuzz" >"$scratch/log" && cmake --build "$scratch/fuzz" >>"$scratch/log" || {
    cat "$scratch/log"
    exit 1
}
mkdir "$scratch/found"
"$scratch/fuzz/tests/model/fuzz_model" -max_total_time=20 -max_len=4096 -len_control=0 -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$scratch/" "$scratch/found" tests/model/corpus
