# SPDX-License-Identifier: MIT
# support.sh: sourced by the tests of docs/install.md: its commands, and a place to run them in.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset LD_PRELOAD ${!HAKMEM_*}
page=$TEST_ROOT/docs/install.md

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

# block TITLE LANGUAGE [NUMBER]: the first (or that) fenced block in that language of the section of that title.
block() {
    local text
    text=$(awk -v title="$1" -v fence="\`\`\`$2" -v wanted="${3:-1}" '
        /^```/ && inside { exit }
        inside { print }
        /^##+ / { here = ($0 ~ "^##+ " title "$") }
        here && $0 == fence && ++count == wanted { inside = 1 }' "$page")
    [[ -n $text ]] || fail "docs/install.md has no block $2 in '$1'"
    printf '%s\n' "$text"
}

# run_block TEXT: its commands, each of which must succeed.
run_block() {
    bash -euo pipefail -c "$1" || fail "status $? of: $1"
}

# expect PATTERN TEXT: a line of the text, as a regular expression of bash.
expect() {
    [[ $'\n'$2$'\n' =~ $'\n'($1)$'\n' ]] || fail "no line '$1' in: $2"
}

# link_checkout DIRECTORY: a checkout of links, in which commands may leave files.
link_checkout() {
    mkdir -p "$1"
    ln -s "$TEST_ROOT"/* "$1"
}

# copy_sources DIRECTORY: what a clone would hold, without what no package is made of. With little optimisation, which is
# quicker, of C none; what is compiled otherwise is the same. (C++ would refer to libstdc++ then.)
copy_sources() {
    mkdir -p "$1/docs" "$1/lab"
    (cd "$TEST_ROOT" && cp -R hakmem CMakeLists.txt CMakePresets.json pyproject.toml README.md LICENSE cmake src include attach run trace \
        python packaging tools "$1" && cp docs/options.md "$1/docs/")
    find "$1" -name __pycache__ -prune -exec rm -rf {} +
    sed -i 's/"-O2 -g"/"-O1 -g1"/; /^endforeach/a set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O0 -g1")' "$1/cmake/hakmem_flags.cmake"
    grep -q '"-O0 -g1"' "$1/cmake/hakmem_flags.cmake" || fail "cmake/hakmem_flags.cmake has no -O2"
}

# program DIRECTORY [HEADER]: the page's program.c.
program() {
    block 'How to see that it works' c | sed "s|<hakmem/hakmem.h>|${2:-<hakmem/hakmem.h>}|" >"$1/program.c"
}
# shellcheck disable=SC2034 # what programs of the page print
served='hakmem [0-9.]+ serves this program'
