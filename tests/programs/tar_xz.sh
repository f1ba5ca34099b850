#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tar | xz -T2: large buffers that go from thread to thread; the archive must be the same bit by
# bit.
. "$(dirname "$0")/lib.sh"
need tar xz awk

# A tree with text that compresses and some that does not.
mkdir -p "$work/tree"
awk -v files="$(scale 60 400)" -v tree="$work/tree" 'BEGIN {
    srand(7)
    for (i = 0; i < files; i++) {
        file = sprintf("%s/file%03d.txt", tree, i)
        for (j = 0; j < 4000; j++) {
            kind = j % 7 ? "some text" : "other"
            printf "%d line %d of file %d: %s\n", rand() * 1000000, j, i, kind > file
        }
        close(file)
    }
}'
pack() {
    "$@" tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf - tree |
        "$@" xz -3 -T2 --block-size=2MiB -c
}

prove xz --version
prove tar --version
pack env | cksum >"$work/reference"
for run in 1 2; do
    pack on_hakmem >"$work/archive.tar.xz"
    cksum <"$work/archive.tar.xz" >"$work/actual"
    alike "archive of run $run" "$work/reference" "$work/actual"
    # And back.
    mkdir "$work/back"
    on_hakmem xz -T2 -dc "$work/archive.tar.xz" | on_hakmem tar -C "$work/back" -xf - ||
        fail "unpacking"
    diff -r "$work/tree" "$work/back/tree" || fail "other files came out"
    rm -rf "$work/back"
done
say "2 archives alike: $(cat "$work/actual")"
