#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs test files of the laboratory in one process. Usage: check_lab.sh python/tests/lab/test_NAME.py...
# LABORATORY_PYTHON is the interpreter with the laboratory's packages: `./hakmem test` prepares it.
# TEST_BUILD is the build's directory. Status 77: there is no such interpreter.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1

if [[ ! -x ${LABORATORY_PYTHON:-} ]]; then
    echo "skipped: LABORATORY_PYTHON is not set; ./hakmem test prepares the laboratory's Python" >&2
    exit 77
fi
build=${TEST_BUILD:-$PWD/build/release}
export LABORATORY_ROOT=$PWD LABORATORY_BUILD=${build%/*} PYTHONPATH=$PWD/python
exec "$LABORATORY_PYTHON" -m pytest -q -p no:cacheprovider "$@"
