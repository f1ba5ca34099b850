#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# LuaJIT: machine code without unwind tables that others can read, which calls malloc by FFI, and callbacks from C into
# it. Every block is sampled or guarded, in compiled loops and in the interpreter, and by ./hakmem profile PID.
. "$(dirname "$0")/lib.sh"
need luajit

cat >"$work/work.lua" <<'END'
local ffi = require "ffi"
ffi.cdef [[
void *malloc(size_t n); void free(void *p); int usleep(unsigned us);
typedef int (*compare)(const void *, const void *); void qsort(void *, size_t, size_t, compare);
]]
local sum, kept = 0, {}
for i = 1, tonumber(arg[1]) do ffi.C.free(ffi.C.malloc(100 + i % 50)); sum = sum + i % 7 end
local numbers = ffi.new("int[100]")
for i = 0, 99 do numbers[i] = 100 - i end
local compare = ffi.cast("compare", function(x, y)
    kept[#kept + 1] = ffi.C.malloc(4096)
    return ffi.cast("const int *", x)[0] - ffi.cast("const int *", y)[0]
end)
ffi.C.qsort(numbers, 100, 4, compare)
local caught = 0
for i = 1, 100 do caught = caught + (pcall(error, "wrong") and 0 or 1) end
print(sum, #kept, numbers[0], numbers[99], caught)
if arg[2] then
    io.stdout:flush()
    while true do for i = 1, 1000 do ffi.C.free(ffi.C.malloc(10000)) end; ffi.C.usleep(1000) end
end
END

count=$(scale 20000 500000)
for set in sample_bytes=1 sample_bytes=1k guard=1; do
    on_hakmem=("$HAKMEM" run --quiet ${TEST_SECURE:+--secure} --set "$set" --)
    same 1 luajit "$work/work.lua" "$count"
    same 1 luajit -joff "$work/work.lua" "$count"
done

on_hakmem=("$HAKMEM" run --quiet ${TEST_SECURE:+--secure} --)
"${on_hakmem[@]}" luajit "$work/work.lua" "$count" stay >"$work/actual" &
server_pids+=($!)
for _ in {1..600}; do
    [[ -s $work/actual ]] && break
    sleep 0.1
done
"$HAKMEM" profile --seconds 1 --period 1k $! >"$work/profile" 2>&1 || fail "profile of a living program: $(<"$work/profile")"
grep -q 'in use' "$work/profile" || fail "the profile says: $(<"$work/profile")"
kill -0 $! 2>/dev/null || fail "the profile has ended the program"
