#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# git: builds a repository, clones it, repacks it with several threads, checks it.
. "$(dirname "$0")/lib.sh"
need git

export HOME=$work GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_COMMITTER_DATE='1700000000 +0000'
git config --file "$work/.gitconfig" pack.threads 4
git config --file "$work/.gitconfig" safe.directory '*'
git config --file "$work/.gitconfig" protocol.file.allow always
git config --file "$work/.gitconfig" advice.detachedHead false

# A history of many small changes, as a stream for fast-import.
commits=$(scale 500 15000)
awk -v commits="$commits" 'BEGIN {
    srand(11)
    for (i = 1; i <= commits; i++) {
        text = ""
        for (j = 0; j < 40; j++) text = text "line " j " of change " int(rand() * 100000) "\n"
        message = "change " i "\n"
        print "commit refs/heads/main\ncommitter a <a@b>", 1600000000 + i, "+0000"
        printf "data %d\n%sM 100644 inline ", length(message), message
        printf "folder%d/file%d.txt\ndata %d\n%s\n", i % 20, i % 300, length(text), text
    }
}' >"$work/stream"

# use_repository SOURCE COMMAND...: all the work, with the command before each git; prints what must
# be the same.
use_repository() {
    local source=$1
    shift
    "$@" git clone -q --no-hardlinks --no-local "$source" clone || return
    (
        cd clone || exit
        "$@" git rev-list --objects --all | sort | cksum
        "$@" git gc -q --aggressive --prune=now || exit
        "$@" git fsck --full --strict 2>&1 || exit
        "$@" git log --stat --format='%H %s' | cksum
        "$@" git archive HEAD | cksum
        "$@" git grep -c 'of' HEAD | cksum
        "$@" git diff --stat "$(git rev-list --max-parents=0 HEAD | tail -1)" HEAD | tail -1
        "$@" git repack -q -a -d -f --threads=4 --depth=50 || exit
        "$@" git rev-list --objects --all | sort | cksum
        "$@" git status --porcelain
    )
}

import() {
    "$@" git init -q -b main imported && "$@" git -C imported fast-import --quiet <"$work/stream" &&
        "$@" git -C imported rev-parse main
}

prove git --version
run_in_place reference import env
mv "$work/place/imported" "$work/source"
run_in_place actual import on_hakmem || fail "fast-import: $(tail -3 "$work/actual.err")"
alike "fast-import" "$work/reference" "$work/actual"
run_in_place reference use_repository "$work/source" env || fail "without hakmem: $(cat "$work/reference.err")"
for ((run = 1; run <= $(scale 1 2); run++)); do # the threads of a repack come in another order each time
    run_in_place actual use_repository "$work/source" on_hakmem || fail "$(tail -3 "$work/actual.err")"
    alike "run $run" "$work/reference" "$work/actual"
done
say "alike"
