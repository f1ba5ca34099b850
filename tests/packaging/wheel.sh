#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/install.md: `pip install .` in a fresh environment gives the command, which runs programs with all its tools.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "no Python that can make environments (Debian: python3-venv)"
copy_sources "$scratch/checkout"
cd "$scratch/checkout"

export PIP_DISABLE_PIP_VERSION_CHECK=1
commands=$(block 'Python wheel' sh)
last=$(tail -n 1 <<<"$commands")
if ! bash -euo pipefail -c "${commands%$'\n'*}" >log 2>&1; then
    if grep -qiE 'no matching distribution|connection|temporary failure|retrying|timed out|incompleteread|http error|sslerror' log; then
        skip "pip cannot get scikit-build-core"
    fi
    cat log >&2
    fail "pip install"
fi
export PATH=$PWD/environment/bin:$PATH
expect True "$(run_block "$last" 2>said)"
expect 'hakmem: [0-9.]+ serves process .*' "$(<said)"
rm -rf src build # nothing of the checkout is needed any more
cd "$scratch"
[[ $(hakmem version) == "hakmem $(python -c 'import hakmem; print(hakmem.__version__)')" ]] || fail "$(hakmem version)"
grep -rqx 'License-Expression: MIT' checkout/environment/lib/python3*/site-packages/hakmem-*/METADATA || fail "the wheel names no licence"
cat >app.py <<'END_OF_PROGRAM'
import hakmem, os, subprocess, sys
words = [str(number) for number in range(100000)]
maps = open("/proc/self/maps").read()
child = subprocess.run([sys.executable, "-c", "print(open('/proc/self/maps').read().count('libhakmem') > 0)"],
                       env=hakmem.environment(purge_delay_ms=100), stdout=subprocess.PIPE, text=True)
print(os.getpid(), hakmem.library() in maps, child.stdout.strip())
sys.exit(7)
END_OF_PROGRAM
status=0
said=$(hakmem run --quiet -- python app.py) || status=$?
[[ $status == 7 && $said == *' True True' ]] || fail "status $status: $said"
hakmem run --quiet --secure -- python -c 'print(1)' >/dev/null || fail "run --secure: $?"
python -m hakmem run --quiet --stats -- python -c 'print(1)' >/dev/null 2>report
grep -q 'in use' report || fail "no report: $(<report)"
hakmem record -o trace sort --version >/dev/null 2>/dev/null
expect '.*calls.*' "$(hakmem replay trace --summary)"
hakmem run --quiet --heap-map map true
hakmem heap map >/dev/null
[[ -s map.html ]] || fail "heap writes no page"
hakmem profile -- python -c 'words = [str(n) for n in range(100000)]' >profile 2>&1 || fail "profile: $(<profile)"
[[ -s environment/share/man/man1/hakmem.1 || -s checkout/environment/share/man/man1/hakmem.1 ]] || fail "no manual"
said=$(hakmem compare -- true 2>&1) && fail "compare works without a checkout"
expect "hakmem: compare needs hakmem's source tree.*" "$said"
echo "the wheel works: $(pip show hakmem | sed -n 2p)"
