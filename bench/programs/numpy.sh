#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# python3 with numpy: arrays of 10 kB to 30 MB that come and go with each expression.
#
# Imitates: data analysis. Every intermediate result is one large allocation that is freed a moment
# later: where memory goes back to the kernel each time, its pages are faulted and zeroed again.
#
# Does not show: several threads (the linear algebra is kept to one).
#
# packages: python3-numpy
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(python3)

# An interpreter that has numpy: the distribution's before others.
find_absent() {
    absent=numpy
    for python in /usr/bin/python3 python3; do
        "$python" -c 'import numpy' 2>/dev/null && absent= && return
    done
}

make_inputs() {
    "$python" -c 'import os, sys; print(os.path.realpath(sys.executable))' >interpreter || return
    cat >work.py <<'EOF'
import numpy as np

rng = np.random.default_rng(42)
table = rng.random((400_000, 8))
for step in range(12):
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    mixed = np.where(scaled > 0, scaled ** 2 + 1, -scaled) + table
    order = np.argsort(mixed[:, step % 8])
    table = mixed[order] / mixed.max()
    groups = [part.sum(axis=0) for part in np.array_split(table, 3000)]
    print(step, float(np.vstack(groups).sum()))
small = [rng.random(n) for n in range(1000, 4000)]
for _ in range(20):
    small = [np.concatenate((a[: len(a) // 2] * 1.5, b[len(b) // 2 :] + 0.5))
             for a, b in zip(small, small[1:] + small[:1])]
print(sum(float(a.sum()) for a in small))
EOF
}

run_program() {
    local python
    read -r python <"$inputs/interpreter"
    export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
    unset PYTHONMALLOC PYTHONPATH PYTHONHOME
    exec "$python" "$inputs/work.py" >/dev/null </dev/null
}

main "$@"
