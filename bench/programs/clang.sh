#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# clang++ -O1 on a file that uses much of the standard library.
#
# Imitates: builds with the LLVM compilers. One process parses, optimises and writes the object.
# Syntax trees and LLVM's instructions are small C++ objects; arenas, hash tables and vectors of all
# sizes come from malloc, and much is never freed.
#
# Does not show: linking, builds of many short runs (startup).
#
# packages: clang g++
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(clang++)

make_inputs() {
    local header i
    {
        for header in algorithm functional iostream map memory numeric random regex set string \
            tuple unordered_map vector; do
            echo "#include <$header>"
        done
        for ((i = 0; i < 2; i++)); do
            cat <<EOF
std::map<std::string, std::vector<std::tuple<int, std::string>>> table$i;
std::unordered_map<std::string, std::shared_ptr<std::set<long>>> index$i;
int work$i(const std::string &text)
{
    std::regex word("[a-z]+$i");
    std::mt19937 random($i);
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at) {
        table$i[at->str()].emplace_back(random() % 100, at->str());
        auto &entry = index$i[at->str()];
        if (!entry) entry = std::make_shared<std::set<long>>();
        entry->insert(at->position());
    }
    for (auto &[key, list] : table$i) std::sort(list.begin(), list.end(), std::greater<>());
    return std::accumulate(index$i.begin(), index$i.end(), 0,
                           [](int sum, auto &entry) { return sum + entry.second->size(); });
}
EOF
        done
    } >large.cc
    clang++ -std=c++17 -E large.cc -o large.ii
}

run_program() {
    exec clang++ -std=c++17 -O1 -w -c "$inputs/large.ii" -o /dev/null >/dev/null </dev/null
}

main "$@"
