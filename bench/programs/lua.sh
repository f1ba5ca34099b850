#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lua5.4 with a program of tables, strings and closures, all of which are garbage soon.
#
# Imitates: an embedded scripting language, as in games, proxies and editors. Lua has no allocator
# of its own: each object is one realloc or free, mostly of 16 to 100 bytes; tables grow by
# doubling; the collector frees in the order of its lists, long after the program has let go.
#
# Does not show: threads, C libraries, programs whose objects stay.
#
# packages: lua5.4
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(lua5.4)

make_inputs() {
    cat >work.lua <<'END'
local state = 42
local function random(limit)
    state = (state * 1103515245 + 12345) % 2147483648
    return (state >> 8) % limit + 1
end

local function tree(depth)
    if depth == 0 then return { label = "leaf" .. random(1000) } end
    return { tree(depth - 1), tree(depth - 1), label = "node" .. depth }
end

local function count(node)
    return node[1] and 1 + count(node[1]) + count(node[2]) or 1
end

local function words(n)
    local list, seen = {}, {}
    for i = 1, n do
        local word = string.rep(string.char(96 + random(26)), random(12)) .. i % 977
        list[i] = word
        seen[word] = (seen[word] or 0) + 1
    end
    table.sort(list)
    return table.concat(list, " "):gsub("%a+", string.upper):len()
end

local function closures(n)
    local calls = {}
    for i = 1, n do
        local sum = 0
        calls[i % 1000 + 1] = function(x) sum = sum + x + i return sum end
    end
    return calls[1](1) + calls[2](2)
end

for round = 1, 6 do
    local trees = count(tree(14))
    assert(trees == 2 ^ 15 - 1)
    print(round, trees, words(60000), closures(200000))
end
END
}

run_program() {
    unset LUA_INIT LUA_INIT_5_4
    exec lua5.4 "$inputs/work.lua" >/dev/null </dev/null
}

main "$@"
