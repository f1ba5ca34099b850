#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gringo grounds a logic programme: from rules with variables it makes all rules without.
#
# Imitates: answer set programming, Datalog, rule engines. Terms are shared in hash tables, atoms
# and rules are C++ objects in vectors that grow to megabytes.
#
# Does not show: solving.
#
# packages: gringo
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(gringo)

make_inputs() {
    cat >work.lp <<'EOF'
node(1..220).
edge(X, Y) :- node(X), node(Y), (X * 7 + Y * 3) \ 23 < 2, X != Y.
{ take(X) } :- node(X).
reach(X, Y) :- edge(X, Y), take(X).
reach(X, Z) :- reach(X, Y), edge(Y, Z), take(Y).
:- reach(X, X), take(X), X < 30.
cost(X, f(Y, X * Y)) :- reach(X, Y), not take(Y).
EOF
}

run_program() {
    exec gringo "$inputs/work.lp" >/dev/null </dev/null
}

main "$@"
