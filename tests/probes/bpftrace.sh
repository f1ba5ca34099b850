#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The same by the kernel: bpftrace attaches to every probe and counts what the report says.
. "$(dirname "$0")/lib.sh"
command -v bpftrace >/dev/null || skip "bpftrace is not installed (Debian: apt-get install bpftrace)"
compile
bpftrace -e 'BEGIN { exit(); }' >/dev/null 2>&1 || skip "bpftrace may not run here"
bpftrace -e "uprobe:$work/worked:main { printf(\"seen\\n\"); }" -c "$work/worked" 2>/dev/null | grep -q seen ||
    skip "bpftrace may not use uprobes here"

for probe in "${!summed[@]}"; do
    printf 'usdt:%s:hakmem:%s { @hits["%s"] = count(); @sum["%s"] = sum(arg%s); }\n' \
        "$work/worked" "$probe" "$probe" "$probe" "${summed[$probe]}"
done >"$work/script"
printf 'usdt:%s:hakmem:remap { @hits["remap"] = count(); @sum["remap"] = sum(%s); }\n' "$work/worked" "$(added arg)" \
    >>"$work/script"
# Without tracefs it says that it cannot detach, and is right otherwise.
bpftrace "$work/script" -c "$work/worked" >"$work/said" 2>"$work/errors"
status=$?
((status < 128)) || skip "$(bpftrace --version) is ended by signal $((status - 128)) here"
((status == 0)) || fail "bpftrace: $(tail -n 5 "$work/errors")"
awk -F '[][ :]+' '
    /^@hits/ { hits[$2] = $3 }
    /^@sum/ { sums[$2] = $3 }
    END { for (probe in hits) printf "%s %s %s\n", probe, hits[probe], sums[probe] }
' "$work/said" >"$work/counted"
compare
