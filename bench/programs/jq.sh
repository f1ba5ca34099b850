#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# jq filters, groups and rebuilds a JSON document of some MB.
#
# Imitates: the small transformations of data in shell scripts and pipelines. Every value, string,
# array and object of jq is one malloc call with a reference count, freed when the count is zero.
#
# Does not show: streams of many small documents.
#
# packages: jq gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(jq gawk)

make_inputs() {
    gawk 'BEGIN {
        printf "["
        for (i = 0; i < 30000; i++) {
            state = (state * 1103 + 12345) % 1000003
            printf "%s{\"id\":%d,\"name\":\"customer %d\",\"city\":\"city%d\",\"total\":%d.%d,", \
                i == 0 ? "" : ",", i, state, state % 211, state % 1000, state % 7
            printf "\"items\":[{\"key\":\"k%d\",\"count\":%d},{\"key\":\"k%d\",\"count\":%d}],", \
                state % 97, state % 5, state % 89, state % 3
            text = substr("a longer text of the record", state % 9)
            printf "\"text\":\"%s\",\"more\":null}\n", text
        }
        print "]"
    }' >data.json
}

run_program() {
    exec jq -c '[.[] | select(.total > 100) | {id, name, n: ([.items[].count] | add),
        words: (.text | split(" ") | map(ascii_upcase))}] | group_by(.n) |
        map({n: .[0].n, count: length, longest: (map(.name | length) | max), ids: map(.id)})' \
        "$inputs/data.json" >/dev/null </dev/null
}

main "$@"
