#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The parts of the summary are the kernel's RSS, within 1 %, in up to six real programs at three moments each: while
# they work, a thread in them takes summaries between two looks at /proc/self/smaps_rollup. Prints a line for each, with
# how often the moment was taken until the sum fitted (summary_helper.c says why).
#
. "$(dirname "$0")/lib.sh"
need gcc python3
root=$(cd "$(dirname "$0")/../.." && pwd)
library=${TEST_BUILD:+$TEST_BUILD/libhakmem.so}
library=${library:-$("$HAKMEM" build)} || exit 1
gcc -O2 -shared -fPIC -I"$root/include" "$root/tests/programs/summary_helper.c" -o "$work/helper.so" "$library" ||
    fail "the helper does not build"
export SUMMARY_OUTPUT=$work/figures
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
seen=0

# watch NAME COMMAND...: runs the command in $work with the helper in the processes of that name. A program that hangs is
# killed, even if it has a handler of SIGTERM, and has no summaries.
watch() {
    local program=$1
    shift
    (cd "$work" && SUMMARY_PROGRAM=$program LD_PRELOAD="$library:$work/helper.so" timeout -k 10 300 "$@" >/dev/null 2>&1 </dev/null)
    local count
    count=$(grep -c "^$program " "$SUMMARY_OUTPUT" 2>/dev/null)
    ((count == 3)) || fail "$program: $count summaries instead of 3"
    seen=$((seen + 1))
}

cat >"$work/work.py" <<'END'
kept = {}
for i in range(10**9):
    kept[i % 300000] = [str(i), bytes(i % 3000)]
END
watch "$(basename "$python")" "$python" "$work/work.py"
if command -v sqlite3 >/dev/null; then
    watch sqlite3 sqlite3 :memory: 'create table t(a integer primary key, b text); create index i on t(b);
        with recursive n(x) as (select 1 union all select x + 1 from n where x < 100000000)
        insert into t select x, hex(randomblob(x % 200)) from n;'
fi
if command -v xz >/dev/null; then
    watch xz bash -c "head -c 2000000000 /dev/urandom | exec xz -6 -T2"
fi
if command -v g++ >/dev/null; then
    {
        echo '#include <bits/stdc++.h>'
        for i in {1..400}; do
            echo "struct s$i { int a[$i]; };
std::map<std::string, std::vector<s$i>> f$i(std::vector<std::string> &v) {
    std::map<std::string, std::vector<s$i>> m;
    std::regex r(\"a+b*$i\");
    for (auto &x : v) if (std::regex_match(x, r)) m[x].emplace_back();
    std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return a.size() + $i < b.size(); });
    return m;
}"
        done
    } >"$work/large.cc"
    watch cc1plus g++ -std=c++17 -O2 -S "$work/large.cc" -o "$work/large.s"
fi
redis=$(cache_directory)/redis-libc/redis-server
[[ -x $redis ]] || redis=$(command -v redis-server)
if [[ -n $redis ]] && command -v redis-benchmark >/dev/null; then
    (
        for i in {1..40}; do
            timeout 30 redis-benchmark -s "$work/socket" -q -n 20000 -c 20 -P 8 -d 300 -r 50000 -t set,lpush,hset,lpop
            sleep 0.05
        done
    ) >/dev/null 2>&1 &
    watch redis-server "$redis" --port 0 --unixsocket "$work/socket" --save '' --appendonly no
    kill $!
    wait
fi
if command -v java >/dev/null; then
    cat >"$work/Work.java" <<'END'
public class Work {
    public static void main(String[] arguments) {
        java.util.HashMap<Integer, byte[]> kept = new java.util.HashMap<>();
        for (int i = 0; ; i++) {
            kept.put(i % 20000, new byte[i % 2000]);
            java.util.zip.Deflater deflater = new java.util.zip.Deflater();
            deflater.end();
        }
    }
}
END
    watch java java -Xmx200m "$work/Work.java"
fi

python3 - "$SUMMARY_OUTPUT" <<'END' || fail "a summary and the kernel differ by more than 1 %"
import sys

worst, bad = 0, 0
print(f"{'program':14}{'kernel MiB':>11}{'sum MiB':>10}{'differ %':>10}{'tries':>7}   in use, rounding, caches, slabs, kept, tables, other (MiB)")
for line in open(sys.argv[1]):
    name, moment, known, tries, before, after, rss, *parts = line.split()
    *parts, requests = map(int, parts)
    before, after, rss, total = int(before), int(after), int(rss), sum(parts)
    low, high = min(before, after), max(before, after)
    differ = max(low - total, total - high, 0) / low * 100
    worst = max(worst, differ)
    bad += differ > 1 or known != "1" or total != rss
    shown = ", ".join(f"{part / 2**20:.1f}" for part in parts)
    print(f"{name:14}{(low + high) / 2**21:11.1f}{total / 2**20:10.1f}{differ:10.3f}{tries:>7}   {shown}")
print(f"worst difference {worst:.3f} %")
sys.exit(bad != 0)
END
((seen >= 3)) || skip "only $seen of the programs are installed"
say "passed: $seen programs"
