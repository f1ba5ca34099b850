#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gdb stops at every probe, reads the arguments, and counts what the report says.
. "$(dirname "$0")/lib.sh"
command -v gdb >/dev/null || skip "gdb is not installed (Debian: apt-get install gdb)"
compile
gdb -nx -batch -ex 'break main' -ex run "$work/worked" 2>/dev/null | grep -q 'Breakpoint 1, ' ||
    skip "gdb may not trace a process here"

# breakpoint PROBE WHAT-TO-ADD
breakpoint() {
    printf '%s\n' "set \$$1_hits = 0" "set \$$1_sum = 0" "break -probe-stap hakmem:$1" commands silent \
        "set \$$1_hits = \$$1_hits + 1" "set \$$1_sum = \$$1_sum + $2" continue end
}
{
    printf 'set %s\n' 'confirm off' 'pagination off' 'print thread-events off'
    for probe in "${!summed[@]}"; do
        breakpoint "$probe" "(long)\$_probe_arg${summed[$probe]}"
    done
    expression=$(added '$_probe_arg')
    breakpoint remap "(${expression//int64/long})"
    # At the end, by a breakpoint: newer versions of gdb go on behind `run` while the program runs.
    printf '%s\n' 'set breakpoint pending on' 'break _exit' commands silent
    for probe in "${!summed[@]}" remap; do
        printf 'printf "counted %s %%ld %%ld\\n", $%s_hits, $%s_sum\n' "$probe" "$probe" "$probe"
    done
    printf '%s\n' continue end run
} >"$work/commands"
gdb -nx -batch -x "$work/commands" "$work/worked" >"$work/said" 2>&1 || fail "gdb: $(tail -n 5 "$work/said")"
# gdb 18 takes the first stop of another thread for the end of `run`, and of the script.
grep -qE 'exited|received signal|^counted' "$work/said" || skip "$(gdb --version | head -n 1) leaves the program before its end"
grep -q 'exited normally' "$work/said" || fail "the program did not end well: $(tail -n 5 "$work/said")"
sed -n 's/^counted //p' "$work/said" >"$work/counted"
compare
