#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks the checkers: a tree with one fault of each kind must be refused for each of them.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# refuses TOOL PATTERN: the tool fails on the scratch tree and says so.
refuses() {
    local said
    if said=$(python3 "tools/$1" "$scratch"); then
        echo "$1 accepts the bad tree" >&2
        failures=$((failures + 1))
    fi
    grep -qE -- "$2" <<<"$said" || { echo "$1 does not say '$2'" >&2; failures=$((failures + 1)); }
}

mkdir -p "$scratch"/src/{base,core,slab,large,cache,front} "$scratch"/include/hakmem "$scratch"/docs/decisions
marker=TO
{
    echo '#include "core/up.h"'
    echo '#include <assert.h>'
    echo "/* ${marker}DO */"
    echo '#if defined(__linux__)'
    echo '#endif'
    printf '/* %0120d */\n' 0
    echo 'void f(void)'
    echo '{'
    for ((i = 0; i < 80; i++)); do echo '    printf("%d", 1);'; done
    echo '    char *p = malloc(1);'
    echo '}'
} >"$scratch/src/base/low.c"
echo '#include "large/span.h"' >"$scratch/src/slab/slab.c"
for ((i = 0; i < 501; i++)); do echo 'int x;'; done >"$scratch/src/cache/long.c"
echo >"$scratch/src/front/long.c"
printf '#include "slab/slab.c"\n#include "base/low.c"\n#include "base/gone.c"\n' >"$scratch/src/hakmem.c"
for pattern in 'base/ may not include core/' 'slab/ may not include large/' 'assert.h' 'does not belong in the tree' \
    'low.c:4: #if defined' 'columns' 'function of 81 lines' 'calls printf' 'calls malloc' '501 lines' \
    '2 files of this name' 'does not include cache/long.c' 'gone.c, which does not exist' 'lower layers first'; do
    refuses check_layers.py "$pattern"
done

refuses check_license.py "low.c: no line 'SPDX"

cat >"$scratch/README.md" <<'END'
See `src/base/gone.c`, `gone_function()`, `no_such_name`, `HAKMEM_NOT_THERE`, `--not-there`, `struct not_there`,
`./hakmem fly`, [this](docs/gone.md) and [that](#gone). Good: `src/base/low.c`, `low.c`, `f()`.
END
printf '%0130d\n| %0130d |\n[%0130d](README.md)\n```\n%0130d\n```\n' 0 0 0 0 >>"$scratch/README.md"
printf 'It once\nwas so until\n0001.\n```\nformerly\n```\nno\nlonger\n' >"$scratch/docs/past.md"
printf '/* It was\n * replaced. It is no longer free. */\n/* base/low.c base/gone.h */\n' >"$scratch/src/core/past.h"
printf '# A\nformerly\n## Context\n## Decision\n' >"$scratch/docs/decisions/0001-a.md"
printf '# B\n## Question\n' >"$scratch/docs/decisions/0003-b.md"
printf '# C\n## Context\n## Decision\n## Consequences\n' >"$scratch/docs/decisions/0003-c.md"
seq 52000 >"$scratch/docs/long.md"
row='- [0001](0001-a.md) question: kept'
printf '%s\n%s\n' "$row" "$row" >"$scratch/docs/decisions/README.md"
for pattern in 'src/base/gone.c' 'gone_function' 'no_such_name' 'HAKMEM_NOT_THERE' '--not-there' 'struct not_there' \
    'no command fly' 'docs/gone.md' '#gone: there is no such heading' 'CHANGELOG.md: missing' "0001-a.md: no section 'consequences'" \
    "0003-b.md: no section 'learned'" 'number 3 is also' 'README.md:3: line of 130 columns' \
    "past.md:1: 'once was'" "past.md:2: 'until 0001'" "past.md:7: 'no longer'" "past.h:1: 'was \\* replaced'" 'past.h:3: no file src/base/gone.h' \
    'Markdown files have 52[0-9]* words, at most 52000' '0003-b.md stands in 0 lines' '0001-a.md stands in 2 lines'; do
    refuses check_docs.py "$pattern"
done
if python3 tools/check_docs.py "$scratch" | grep -E 'low\.c|`f\(\)`|README.md:[4-9]: line|formerly|past.h:2'; then
    echo "check_docs.py refuses what exists" >&2
    failures=$((failures + 1))
fi
((failures == 0))
