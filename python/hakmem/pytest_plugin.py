# SPDX-License-Identifier: MIT
"""Marks of pytest that bound the memory of a test, if pytest runs on hakmem: docs/observability/profile.md."""
import ctypes
import gc
import os
import re

import pytest

MARKS = ("hakmem_growth(limit, warmups=1): the test, run once more after so many runs, may leave at most `limit` bytes in use",
         "hakmem_peak(limit): the test may need at most `limit` bytes more than the process had")
UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


class Heap:
    """The figures of hakmem in this process."""

    def __init__(self):
        library = ctypes.CDLL(None)
        self.read, self.reset_peaks = library.hak_stats_value, library.hak_stats_reset_peaks
        self.read.restype = ctypes.c_bool

    def value(self, name):
        number = ctypes.c_uint64()
        self.read(name, ctypes.byref(number))
        return number.value

    def in_use(self):
        gc.collect()
        return self.value(b"totals.bytes_in_use")

    def peak(self):
        return self.value(b"totals.peak_bytes_taken")


try:
    heap = Heap()
except AttributeError:
    heap = None


def parse_size(limit):
    """100000, "64k" or "1.5 MiB" in bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kmg]?)(?:i?b)?", str(limit).strip().lower())
    if not match:
        raise pytest.UsageError(f"hakmem: a limit is a number of bytes such as 4096, '64k' or '1 MiB', not {limit!r}")
    return int(float(match[1]) * (1 << UNITS[match[2]]))


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


def pytest_report_header():
    if heap is None:
        return "hakmem: not loaded, so no limit of memory is checked (hakmem run -- python -m pytest)"
    if os.environ.get("PYTHONMALLOC") != "malloc":
        return "hakmem: objects of up to 512 bytes are not counted (PYTHONMALLOC=malloc hakmem run -- python -m pytest)"
    return "hakmem: limits of memory are checked"


def limit_of(item, name):
    mark = item.get_closest_marker(name)
    if mark is None or heap is None:
        return None, 0
    if len(mark.args) != 1 or set(mark.kwargs) - {"warmups"}:
        raise pytest.UsageError(f"hakmem: {item.nodeid}: {name} takes a limit")
    return parse_size(mark.args[0]), mark.kwargs.get("warmups", 1)


def fail(outcome, text):
    error = pytest.fail.Exception(f"hakmem: {text}", pytrace=False)
    if not hasattr(outcome, "force_exception"):  # pluggy before 1.1 takes what a hook raises, newer ones warn
        raise error
    outcome.force_exception(error)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    growth, warmups = limit_of(item, "hakmem_growth")
    peak, _ = limit_of(item, "hakmem_peak")
    for _ in range(warmups if growth is not None else 0):  # caches fill when code runs for the first time
        item.runtest()
    before = heap.in_use() if growth is not None else 0
    if peak is not None:
        heap.reset_peaks()
        start = heap.peak()
    outcome = yield
    if outcome.excinfo is not None:  # a failure of the test itself comes first
        return
    grown, left = (heap.peak() - start if peak is not None else 0), (heap.in_use() - before if growth is not None else 0)
    if peak is not None and grown > peak:
        fail(outcome, f"the test needed {grown:,} bytes more than the process had; {peak:,} are allowed")
    elif growth is not None and left > growth:
        fail(outcome, f"the test left {left:,} bytes in use; {growth:,} are allowed")
