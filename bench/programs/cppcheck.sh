#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cppcheck looks for mistakes in a C source of some ten thousand lines.
#
# Imitates: static analysis. Each token is a C++ object with strings, and carries lists of possible
# values: small allocations in great number that live as long as the file is looked at.
#
# Does not show: several processes at once, C++ templates.
#
# packages: cppcheck
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(cppcheck)

# Functions that are alike but not the same.
make_inputs() {
    local i
    for ((i = 0; i < 300; i++)); do
        cat <<EOF
struct node$i { struct node$i *next; int values[$((i + 3))]; char *name; };
static int sum$i(const struct node$i *list, int limit)
{
    int sum = 0;
    for (const struct node$i *at = list; at != 0; at = at->next) {
        for (int j = 0; j < $((i + 3)); j++) {
            if (at->values[j] > limit && (j % 2 == 0 || at->name != 0))
                sum += at->values[j] * $i;
            else if (at->values[j] == $i)
                sum -= at->name ? at->name[0] : limit;
        }
        switch (sum % 4) {
        case 0: sum++; break;
        case 1: sum += limit; break;
        default: if (sum > 1000) return sum; break;
        }
    }
    return sum;
}
int use$i(struct node$i *list, int count)
{
    int result = 0;
    while (count-- > 0 && result < 100000) {
        result += sum$i(list, count);
        if (list && list->next) list = list->next;
    }
    return result;
}
EOF
    done >work.c
}

run_program() {
    exec cppcheck --enable=style --inconclusive --quiet --max-configs=1 "$inputs/work.c" \
        >/dev/null 2>&1 </dev/null
}

main "$@"
