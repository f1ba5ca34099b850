#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# git packs all objects of a generated repository, with two threads that look for deltas.
#
# Imitates: `git gc` and a server that answers a clone. Objects are unpacked into buffers of their
# size, compared, compressed and freed; the tables of objects grow to megabytes.
#
# Does not show: working with files, the network.
#
# packages: git gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(git gawk)

# One stream of commits for fast-import: each of 400 changes 6 of 300 files of some kB.
print_history() {
    gawk 'function number(limit) {
        state = (state * 1103 + 12345) % 1000003
        return state % limit
    }
    function file(name, lines,    text, i) {
        for (i = 0; i < lines; i++) text = text "line " i " of " name ": " number(1000003) "\n"
        content[name] = text
    }
    function put(name) {
        printf "M 100644 inline %s\ndata %d\n%s\n", name, length(content[name]), content[name]
    }
    BEGIN {
        for (c = 1; c <= 400; c++) {
            printf "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\n", 1700000000 + c
            printf "data 7\nchanges\n"
            for (i = 0; c == 1 && i < 300; i++) {
                file("dir" i % 17 "/file" i, 40 + i)
                put("dir" i % 17 "/file" i)
            }
            for (i = 0; i < 6; i++) {
                n = number(300)
                name = "dir" n % 17 "/file" n
                sub("line " number(40) " of", "changed " c " line of", content[name])
                content[name] = content[name] "added " c " " number(1000003) "\n"
                put(name)
            }
        }
    }'
}

make_inputs() {
    rm -rf repository && git init -q --bare repository &&
        print_history | git -C repository fast-import --quiet &&
        git -C repository rev-list --objects --all >objects
}

run_program() {
    export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_DIR=$inputs/repository
    exec git pack-objects --no-reuse-delta --no-reuse-object --threads=2 --window=50 --depth=50 -q \
        --stdout <"$inputs/objects" >/dev/null
}

main "$@"
