#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# g++ compiles a large generated file that uses much of the standard library: hundreds of megabytes
# in the compiler's many small blocks; the object file must be the same bit by bit.
. "$(dirname "$0")/lib.sh"
need g++

types=$(scale 1 60)
{
    for header in algorithm array atomic chrono complex deque functional future iostream list map \
        memory mutex numeric optional queue random regex set sstream string thread tuple \
        unordered_map unordered_set variant vector; do
        echo "#include <$header>"
    done
    for ((i = 0; i < types; i++)); do
        cat <<END
struct value$i {
    std::map<std::string, std::vector<std::variant<int, double, std::string>>> table;
    std::unordered_map<int, std::shared_ptr<value$i>> links;
    std::optional<std::tuple<int, std::string, std::complex<double>>> extra;
    std::array<int, $((i + 1))> numbers{};
};
std::string work$i(value$i &v, int n)
{
    std::regex pattern("[a-z]+$i(\\\\d*)");
    std::ostringstream out;
    std::priority_queue<std::pair<int, std::string>> queue;
    std::set<std::tuple<int, int, std::string>> set;
    for (int j = 0; j < n; j++) {
        v.table["key" + std::to_string(j % 7)].emplace_back(j * 0.5);
        v.links[j] = std::make_shared<value$i>();
        queue.emplace(j % 13, std::to_string(j));
        set.emplace(j, n, "x");
    }
    std::vector<std::string> words(v.table.size());
    std::transform(v.table.begin(), v.table.end(), words.begin(), [](auto &p) { return p.first; });
    std::sort(words.begin(), words.end(), [](auto &a, auto &b) { return a.size() > b.size(); });
    for (auto &word : words)
        if (std::regex_match(word, pattern)) out << word << set.size() << queue.top().second;
    return out.str() + std::to_string(std::accumulate(v.numbers.begin(), v.numbers.end(), $i));
}
END
    done
} >"$work/large.cc"

# A function, as the object file is the output.
compile() {
    "$@" g++ -std=c++17 "-O$(scale 0 1)" -g -c "$work/large.cc" -o large.o && cat large.o
}

prove g++ --version
run_in_place reference compile env || skip "g++ cannot compile it here"
run_in_place actual compile on_hakmem || fail "$(tail -3 "$work/actual.err")"
alike "object file" "$work/reference" "$work/actual"
alike "messages" "$work/reference.err" "$work/actual.err"
say "object files alike ($(wc -c <"$work/actual") bytes)"
