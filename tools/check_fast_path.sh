#!/usr/bin/env bash
# Holds the instructions counted on the fast paths against the golden file.
# Usage: check_fast_path.sh COUNTER LIBRARY COMPILER GOLDEN
# Golden lines are "COMPILER FUNCTION(SIZE) COUNT"; "any FUNCTION COUNT" holds for compilers without lines of their
# own. Fails above a golden count, and on any executed call, push or locked instruction. Status 77 as the counter's.
set -u
counter=$1 library=$2 compiler=$3 golden=$4

counted=$("$counter" "$library")
status=$?
((status == 0)) || exit "$status"

awk -v compiler="$compiler" '
    NR == FNR { if ($1 == compiler || $1 == "any") limit[$1, $2] = $3; next }
    {
        path = $1
        function_name = path
        sub(/\(.*/, "", function_name)
        golden = (compiler, path) in limit ? limit[compiler, path] : limit["any", function_name]
        verdict = golden == "" ? " FAILED: no golden count" : $2 > golden + 0 ? " FAILED: the golden count is " golden : ""
        if ($3 != "") verdict = verdict " FAILED: executes a " $3 " instruction"
        else if (verdict == "" && $2 < golden + 0) better = 1
        if (verdict != "") failed = 1
        print compiler, path, $2 verdict
    }
    END {
        if (!failed && better) print "some counts are below the golden ones: tighten the golden file with these lines"
        exit failed
    }
' "$golden" - <<<"$counted"
