#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gawk counts and joins the words of generated log lines.
#
# Imitates: the evaluation of logs in a shell. Each field, each string and each element of an array
# is an object of gawk's own small blocks or a malloc call; arrays grow by doubling.
#
# Does not show: large numbers, input and output of many files.
#
# packages: gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(gawk)

make_inputs() {
    gawk 'BEGIN {
        for (i = 1; i <= 250000; i++) {
            state = (state * 1103 + 12345) % 1000003
            printf "%d host%d /part%d/part%d/%s %d\n", i, state % 5003, state % 401, state % 89,
                substr("abcdefghijklmnopqrstuvwxyz", 1 + state % 20), state % 100000
        }
    }' >lines
    cat >work.awk <<'EOF'
{
    count[$2]++
    size[$2] += $4
    paths[$2] = paths[$2] " " $3
    text = $3
    gsub(/part/, "p", text)
    parts = split(text, list, "/")
    for (i = 1; i <= parts; i++) words[list[i] ":" i]++
    seen[$2, $3] = NR
}
END {
    for (host in count) {
        longest = length(paths[host]) > longest ? length(paths[host]) : longest
        total += size[host]
    }
    n = asorti(words, order)
    print NR, length(count), length(seen), n, order[1], longest, total
}
EOF
}

run_program() {
    unset AWKPATH AWKLIBPATH POSIXLY_CORRECT
    exec gawk -f "$inputs/work.awk" "$inputs/lines" >/dev/null </dev/null
}

main "$@"
