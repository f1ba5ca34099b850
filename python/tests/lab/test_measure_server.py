# SPDX-License-Identifier: MIT
"""lab/measure.c: a load starts when the server accepts connections, not before."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem.lab.measure import MEASURE

SERVER = """
import socket, sys, time
kind, path, after_s = sys.argv[1:]
time.sleep(float(after_s))
s = socket.socket({"unix": socket.AF_UNIX, "tcp": socket.AF_INET, "tcp6": socket.AF_INET6}[kind])
s.bind(path if kind == "unix" else ("127.0.0.1" if kind == "tcp" else "::1", 0))
if kind != "unix":
    with open(path, "w") as file:
        file.write(repr(s.getsockname()[:2]))
s.listen()
time.sleep(600)
"""
# As impatient as redis-benchmark: a first refusal is final, and it never ends.
LOAD = """
import ast, socket, sys, time
kind, path, _ = sys.argv[1:]
family = {"unix": socket.AF_UNIX, "tcp": socket.AF_INET, "tcp6": socket.AF_INET6}[kind]
try:
    address = path if kind == "unix" else ast.literal_eval(open(path).read())
    socket.socket(family).connect(address)
except OSError:
    time.sleep(600)
"""


@pytest.mark.parametrize(("kind", "after_s"), [("tcp", "0.1"), ("tcp6", "0.1"), ("unix", "2.2")])
@pytest.mark.skipif(not MEASURE.exists(), reason="lab/measure is not built")
def test_an_impatient_load_waits_for_the_server(kind: str, after_s: str, tmp_path: Path):
    if kind == "tcp6":
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no such addresses")
    words = [kind, str(tmp_path / "place"), after_s]
    load = [word for part in (sys.executable, "-c", LOAD, *words) for word in ("--load", part)]
    command = [str(MEASURE), "--timeout-s", "120", "--ready-ms", "60000", *load]
    command += ["--", sys.executable, "-c", SERVER, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout)["end"] == "stopped"
