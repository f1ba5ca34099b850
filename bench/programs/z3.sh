#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# z3 on three fixed problems: 60 and 100 stores into an array, each in two orders, and the factors
# of a product of 32 bits.
#
# Imitates: a solver inside a verifier or a compiler's test. Terms, clauses and the justifications
# of lemmas are small objects in great number that live until the search goes back; tables and
# queues grow to megabytes by doubling.
#
# Does not show: z3's small objects one by one (it keeps chunks of several KiB for many of them),
# other solvers, several threads.
#
# packages: z3
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(z3)

# The array is the same in whatever order different places are stored to: unsat.
print_stores() {
    local count=$1 i forward=a backward=a places=
    echo '(declare-const a (Array Int Int))'
    for ((i = 0; i < count; i++)); do
        echo "(declare-const i$i Int) (declare-const v$i Int)"
        forward="(store $forward i$i v$i)"
        backward="(store $backward i$((count - 1 - i)) v$((count - 1 - i)))"
        places+=" i$i"
    done
    echo "(assert (distinct$places)) (assert (not (= $forward $backward)))"
    echo '(check-sat) (reset)'
}

# Two factors of 16 bits: sat, and only by search.
print_product() {
    cat <<'END'
(declare-const p (_ BitVec 32))
(declare-const q (_ BitVec 32))
(assert (= (bvmul p q) (_ bv2536519301 32)))
(assert (and (bvugt p (_ bv1 32)) (bvult p (_ bv65536 32))))
(assert (and (bvugt q (_ bv1 32)) (bvult q (_ bv65536 32))))
(check-sat) (reset)
END
}

make_inputs() {
    { print_stores 60; print_stores 100; print_product; } >work.smt2
}

run_program() {
    exec z3 -smt2 "$inputs/work.smt2" >/dev/null </dev/null
}

main "$@"
