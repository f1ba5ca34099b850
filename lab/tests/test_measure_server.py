"""lab/measure.c: a load starts when the server accepts connections, not before."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem_lab.measure import MEASURE

SERVER = """
import socket, sys, time
time.sleep(0.6)
family, address = (socket.AF_UNIX, sys.argv[1]) if "/" in sys.argv[1] else (
    socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, (sys.argv[1], int(sys.argv[2])))
s = socket.socket(family)
s.bind(address)
s.listen()
time.sleep(30)
"""
# As impatient as redis-benchmark: a first refusal is final, and it never ends.
LOAD = """
import socket, sys, time
family, address = (socket.AF_UNIX, sys.argv[1]) if "/" in sys.argv[1] else (
    socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, (sys.argv[1], int(sys.argv[2])))
try:
    socket.socket(family).connect(address)
except OSError:
    time.sleep(60)
"""


def free_port(family: socket.AddressFamily, host: str) -> str:
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("kind", ["tcp", "tcp6", "unix"])
@pytest.mark.skipif(not MEASURE.exists(), reason="lab/measure is not built")
def test_an_impatient_load_waits_for_the_server(kind: str, tmp_path: Path):
    if kind == "unix":
        where = [str(tmp_path / "socket")]
    else:
        host = "127.0.0.1" if kind == "tcp" else "::1"
        try:
            where = [host, free_port(socket.AF_INET if kind == "tcp" else socket.AF_INET6, host)]
        except OSError:
            pytest.skip("this machine has no such addresses")
    load = [word for part in (sys.executable, "-c", LOAD, *where) for word in ("--load", part)]
    command = [str(MEASURE), "--timeout-s", "10", *load, "--", sys.executable, "-c", SERVER, *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout)["end"] == "stopped"
