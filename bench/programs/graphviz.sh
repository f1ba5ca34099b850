#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# dot lays out a graph of a thousand nodes in layers.
#
# Imitates: documentation tools and debuggers that draw graphs. Nodes, edges, attributes and the
# points of splines are malloc calls of some ten to hundred bytes; lists grow by realloc.
#
# Does not show: drawing of pictures (the output is the laid out graph).
#
# packages: graphviz gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(dot gawk)

make_inputs() {
    gawk 'BEGIN {
        print "digraph work {\n  node [shape=box, fontname=Courier];"
        for (i = 1; i < 1000; i++) {
            state = (state * 1103 + 12345) % 1000003
            printf "  n%d [label=\"node %d\\n%d\"];\n", i, i, state
            printf "  n%d -> n%d [label=\"%d\"];\n", int(i / 2.7), i, state % 10
            if (i % 3 == 0) printf "  n%d -> n%d;\n", state % i, i
        }
        print "}"
    }' >graph.dot
}

run_program() {
    exec dot -Tdot "$inputs/graph.dot" >/dev/null </dev/null
}

main "$@"
