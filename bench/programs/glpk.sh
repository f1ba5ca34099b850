#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# glpsol solves a small integer programme by branch and cut.
#
# Imitates: planning of routes, shifts and cuts. Nodes of the tree, cuts and the rows and columns of
# each subproblem come from pools of blocks of 8 kB; vectors of the factorised matrix are separate.
#
# Does not show: large models, several threads.
#
# packages: glpk-utils gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(glpsol gawk)

# A knapsack of several sizes with rivals that exclude each other, in the LP format.
make_inputs() {
    gawk 'function number(limit) {
        state = (state * 1103 + 12345) % 1000003
        return state % limit
    }
    BEGIN {
        items = 80; sizes = 8
        print "Maximize"
        printf " value:"
        for (i = 0; i < items; i++) printf " + %d x%d\n", 20 + number(60), i
        print "Subject To"
        for (s = 0; s < sizes; s++) {
            printf " size%d:", s
            for (i = 0; i < items; i++) printf " + %d x%d\n", 5 + number(45), i
            print "<= " items * 9
        }
        for (i = 0; i + 1 < items; i++) {
            third = (i * 7 + 3) % items
            if (third == i || third == i + 1) continue
            printf " rival%d: x%d + x%d + x%d <= 2\n", i, i, i + 1, third
        }
        print "Binary"
        for (i = 0; i < items; i++) print " x" i
        print "End"
    }' >model.lp
    glpsol --check --lp model.lp
}

run_program() {
    exec glpsol --lp "$inputs/model.lp" --cuts >/dev/null </dev/null
}

main "$@"
