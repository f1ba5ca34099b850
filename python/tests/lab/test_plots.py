# SPDX-License-Identifier: MIT
"""plots.py: the right pictures, of a sensible size, none without data."""

from pathlib import Path

import matplotlib.image
import matplotlib.pyplot
import matplotlib.text
import synthetic
from hakmem.lab.plots import write_plots


def test_writes_a_picture_of_each_kind(tmp_path: Path):
    session = synthetic.session(synthetic.CASE_NAMES[:5], failing=[("replace_400", "glibc")])
    paths = write_plots(session, tmp_path / "new")
    assert [path.name for path in paths] == ["speed-1.png", "memory-1.png", "time-memory.png"]
    for path in paths:
        height, width, _ = matplotlib.image.imread(path).shape
        assert 500 < width < 2500 and 300 < height < 2500


def test_dollars_in_a_command_are_no_formula(tmp_path: Path):
    name = r"sh -c 'echo $HOME \frac $PATH'"
    assert len(write_plots(synthetic.session([name], kind="program"), tmp_path)) == 3


def test_without_samples_there_is_no_picture(tmp_path: Path):
    session = synthetic.session(["one"])
    session.samples = []
    assert write_plots(session, tmp_path) == []
