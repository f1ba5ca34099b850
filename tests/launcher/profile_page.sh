#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile --html`: the page of a real program's profile, and the page in a browser if there is one.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

cat >work.py <<'END'
import json
texts = [json.dumps({"numbers": list(range(i)), "name": f"text {i}" * 20}) for i in range(300)]
blocks = [bytearray(100_000 + i * 1000) for i in range(40)]
del texts[::3], blocks[::2]
END
try "$launcher" profile --period 16k -o profile.json --html page.html -- python3 work.py
((status == 0)) && [[ -z $errors ]] || fail "status $status: $errors"
[[ $(<page.html) == '<!doctype html>'*'Heap profile of python3'*'</html>' ]] || fail "no page"
[[ $(<page.html) == *'about one block in every 16,384 bytes'* ]] || fail "no sentence about the samples"

try "$launcher" profile --html none/page.html profile.json
((status == 126)) && [[ $errors == "hakmem: cannot write 'none/page.html': No such file or directory" ]] ||
    fail "status $status: $errors"

browser=$(type -P chromium || type -P chromium-browser || type -P google-chrome)
[[ -n $browser ]] || echo "the page is not tried in a browser: chromium is not installed (Debian: chromium)"
BROWSER=$browser PROFILE=$scratch/profile.json PYTHONDONTWRITEBYTECODE=1 \
    python3 "$TEST_ROOT/python/tests/look/test_profile_page.py" || fail "python/tests/look/test_profile_page.py"
finish
