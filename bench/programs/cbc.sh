#!/usr/bin/env bash
# cbc solves a small integer programme by branch and cut.
#
# Imitates: planning of routes, shifts and cuts. The COIN libraries are C++ with many vectors: of
# rows, columns, cuts and nodes of the tree, some bytes to some hundred kB, that come and go with
# each node.
#
# Does not show: large models, several threads.
#
# packages: coinor-cbc gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(cbc gawk)

# A knapsack of several sizes with rivals that exclude each other, in the LP format.
make_inputs() {
    gawk 'function number(limit) {
        state = (state * 1103 + 12345) % 1000003
        return state % limit
    }
    BEGIN {
        items = 100; sizes = 10
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
    # It ends with status 0 whatever is wrong with the model.
    [[ $(cbc model.lp -quit) != *ERROR* ]]
}

run_program() {
    exec cbc "$inputs/model.lp" -maxNodes 3000 -solve -quit >/dev/null </dev/null
}

main "$@"
