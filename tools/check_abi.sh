#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compares the binary interface of libhakmem.so (functions, and the types that they take) with the one that was recorded.
# Usage: check_abi.sh LIBRARY            status 1: it has changed; 77: there is no record for this processor, or no tool
#        check_abi.sh LIBRARY --record   records it, after a change that is meant
# Structs of include/hakmem with a size field may grow at their ends. New functions go into the newest version block of
# src/hakmem.map. Any other change needs a new soname, because programs that are built already would break.
set -u
library=$1
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
record=$root/tests/golden/abi-$(uname -m).xml

for tool in abidw abidiff; do
    type -P "$tool" >/dev/null || { echo "skipped: no $tool here (Debian: abigail-tools)"; exit 77; }
done

# FILE of malloc_info is the C library's, and programs have only pointers to struct hak_heap: what is in them may change.
suppressions=$(mktemp)
trap 'rm -f "$suppressions" "$suppressions.xml"' EXIT
printf '[suppress_type]\nname_regexp = ^(_IO_.*|hak_heap)$\n' >"$suppressions"

# Without what says where and by what it was built.
describe() {
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-architecture --no-elf-needed --no-write-default-sizes \
        --exported-interfaces-only --drop-undefined-syms --headers-dir "$root/include" --drop-private-types "$library" >"$1"
}

if [[ ${2:-} == --record ]]; then
    # A function or a field is a line.
    describe "$record" && sed -i "s|path='$root/|path='|" "$record" &&
        sed -zi 's/\n *<\(parameter\|return\|var-decl\|\/function-\|\/data-member\)/<\1/g' "$record" && echo "${record#"$root/"} is written; commit it"
    exit
fi
[[ -e $record ]] || { echo "skipped: no record for $(uname -m)"; exit 77; }
describe "$suppressions.xml" || exit 1
said=$(abidiff --suppressions "$suppressions" "$record" "$suppressions.xml" 2>&1)
status=$?
((status == 0)) && echo "the binary interface is the recorded one" && exit 0
if [[ $said == *'incompatible format version'* ]]; then
    echo "skipped: $(abidiff --version) cannot read the record"
    exit 77
fi
printf '%s\n' "$said"
echo "check_abi: the binary interface differs from ${record#"$root/"}." \
    "Functions or fields at the end were added: tools/check_abi.sh $library --record. Else see the head of this file." >&2
exit 1
