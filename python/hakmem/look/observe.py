# SPDX-License-Identifier: MIT
"""./hakmem observe: Lets the other commands look into a process that was started without HAKMEM_OBSERVE=1."""
from .attach import connect
from .output import worded
from .processes import parse_pid


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", help="the process id")


def run(arguments):
    pid = parse_pid(arguments.pid)
    _, started = connect(pid)
    print(worded(f"process {pid} is observed{' from now on' if started else ' already'}: ./hakmem top {pid}"))
