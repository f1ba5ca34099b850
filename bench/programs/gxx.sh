#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The C++ compiler with -O1 on a file that uses much of the standard library.
#
# Imitates: builds of C++ programs. `g++` itself is a driver that starts the compiler proper
# (cc1plus), an assembler and a linker and waits: what is measured here is cc1plus alone, as g++
# would start it, so that time and memory are of the process that allocates. Its input is
# preprocessed beforehand. Syntax trees live in the compiler's own collected pages; obstacks, hash
# tables and vectors of all sizes come from malloc and most are freed at the end of a pass.
#
# Does not show: preprocessing, assembling and linking, nor a build of many short runs (startup).
#
# packages: g++
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(g++)
types=2

print_source() {
    local header i
    for header in algorithm array functional map memory numeric optional queue set sstream \
        string tuple unordered_map variant vector; do
        echo "#include <$header>"
    done
    for ((i = 0; i < types; i++)); do
        cat <<END
struct value$i {
    std::map<std::string, std::vector<std::variant<int, double, std::string>>> table;
    std::unordered_map<int, std::shared_ptr<value$i>> links;
    std::optional<std::tuple<int, std::string>> extra;
    std::array<int, $((i + 1))> numbers{};
};
std::string work$i(value$i &v, int n)
{
    std::ostringstream out;
    std::priority_queue<std::pair<int, std::string>> queue;
    std::set<std::tuple<int, int, std::string, value$i *>> set;
    for (int j = 0; j < n; j++) {
        v.table["key" + std::to_string(j % 7)].emplace_back(j * 0.5);
        v.links[j] = std::make_shared<value$i>();
        queue.emplace(j % 13, std::to_string(j));
        set.emplace(j, n, "x", &v);
    }
    std::vector<std::string> words(v.table.size());
    std::transform(v.table.begin(), v.table.end(), words.begin(), [](auto &p) { return p.first; });
    std::sort(words.begin(), words.end(), [](auto &a, auto &b) { return a.size() > b.size(); });
    for (auto &word : words)
        if (word.find("$i") == 0) out << word << set.size() << queue.top().second;
    return out.str() + std::to_string(std::accumulate(v.numbers.begin(), v.numbers.end(), $i));
}
END
    done
}

make_inputs() {
    g++ -print-prog-name=cc1plus >compiler && print_source >large.cc &&
        g++ -std=c++17 -E large.cc -o large.ii
}

run_program() {
    local compiler
    read -r compiler <"$inputs/compiler"
    exec "$compiler" -quiet -fpreprocessed -std=c++17 -O1 "$inputs/large.ii" -o /dev/null \
        >/dev/null </dev/null
}

main "$@"
