# SPDX-License-Identifier: MIT
"""lying_trace.py FILE LANE THREAD: writes a trace of 184 bytes, with a right checksum, whose only frame is of this lane and
thread."""
import struct
import sys

MASK = (1 << 64) - 1
HEADER = struct.Struct("=8sII QQQ 16sII")
FRAME = struct.Struct("=I BBH IIIIIIIIII QQ 6I 6I Q")


def checksum(seed, data):
    """trace_checksum of trace/format.h."""
    multiplier = 0xC6A4A7935BD1E995
    value = seed ^ (len(data) * multiplier & MASK)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at:at + 8].ljust(8, b"\0"), "little") * multiplier & MASK
        value = (value ^ word ^ word >> 47) * multiplier & MASK
    return value ^ value >> 47


def trace(lane, thread):
    def frame(check):
        events = 1  # FRAME_EVENTS
        return FRAME.pack(0x4D415246, events, 0, 0, 0, lane, thread, thread, *[0] * 6, 0, 0, *[0] * 12, check)

    return HEADER.pack(b"HAKTRACE", 1, HEADER.size, 1, 0, 0, b"liar", 0, 0) + frame(checksum(checksum(0, frame(0)), b""))


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(trace(int(sys.argv[2]), int(sys.argv[3])))
