#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Holds the instructions counted on the fast paths against the golden file.
# Usage: check_fast_path.sh COUNTER LIBRARY COMPILER GOLDEN
# Golden lines are "COMPILER FUNCTION(SIZE) COUNT"; "any FUNCTION(SIZE) COUNT" and "any FUNCTION COUNT" hold for
# compilers without lines of their own. Fails above a golden count, and on any executed call, push or locked instruction. Status 77 as the counter's.
set -u
counter=$1 library=$2 compiler=$3 golden=$4

counted=$("$counter" "$library")
status=$?
((status == 0)) || exit "$status"

awk -v compiler="$compiler" '
    NR == FNR { if ($1 == compiler || $1 == "any") limit[$1, $2] = $3; next }
    !($1 in least) || $2 < least[$1] { least[$1] = $2; forbidden[$1] = $3 }
    END {
        for (path in least) check(path, least[path], forbidden[path])
        if (failed) print "move the new work off this path; if it must stay, raise the golden count and measure the cost (CONTRIBUTING.md)"
        if (!failed && better) print "some counts are below the golden ones: tighten the golden file with these lines"
        exit failed
    }
    function check(path, count, forbidden,    function_name, golden, verdict) {
        function_name = path
        sub(/\(.*/, "", function_name)
        golden = (compiler, path) in limit ? limit[compiler, path] \
            : ("any", path) in limit ? limit["any", path] : limit["any", function_name]
        verdict = golden == "" ? " FAILED: no golden count" : count > golden + 0 ? " FAILED: the golden count is " golden : ""
        if (forbidden != "") verdict = verdict " FAILED: executes a " forbidden " instruction"
        else if (verdict == "" && count < golden + 0) better = 1
        if (verdict != "") failed = 1
        print compiler, path, count verdict
    }
' "$golden" - <<<"$counted"
