# SPDX-License-Identifier: MIT
"""cost: the arithmetic of the model, the readers of valgrind's files, and the driver itself."""

from pathlib import Path as FilePath

import pytest
from hakmem.lab import cli, cost, cost_measure, cost_model
from hakmem.lab.cost_measure import Driver
from hakmem.lab.cost_model import Model, Part, Path
from hakmem.lab.base import Problem

MACHINE = dict(instructions_per_cycle=4, near_cycles=5, l2_cycles=10, far_cycles=100, atomic_cycles=20,
               bytes_per_cycle=32, syscall_ns=200, map_ns=1000, fault_ns=500)
TOLERANCE = {"instructions": 0.25, "lines": 0.25, "atomics": 0.1, "syscalls": 0.1, "faults": 0.1, "cycles": 2,
             "machine": 1.5}
PARTS = {"first": Part("r", instructions=40, lines="a b", atomics=1), "second": Part("r", instructions=10, lines="b c"),
         "step": Part("r", instructions=2, lines_each=1), "store": Part("r", stored_each=1, repeated=7),
         "guarded": Part("r", instructions=10, atomics=1, locked=2), "map": Part("r", syscalls=1, maps=1, faults=2)}

ROUNDS, TRIES = 4, 20
"""A driver that is off the processor for 50 ms ticks early, and so takes another path than it should: few rounds, so
that one run in 20 meets none on a busy machine. One that never takes the path fails all the same."""

needs_driver = pytest.mark.skipif(not cost.DRIVER.exists(), reason="lab/paths is not built")


def model_of(**paths: Path) -> Model:
    return Model(MACHINE, TOLERANCE, PARTS, paths)


# ---- The model. ----


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ({"parts": {"first": 1, "second": 2}},  # shared lines count once: a, b, c
         {"instructions": 60, "lines": 3, "atomics": 1, "cycles": 60 / 4 + 20}),
        ({"parts": {"guarded": 3}}, {"atomics": 3}),  # locks of the only thread are plain stores
        ({"parts": {"guarded": 3}, "threads": 2}, {"atomics": 9, "cycles": 30 / 4 + 9 * 20}),
        ({"parts": {"step": 8}}, {"cycles": 16 / 4 + 8 * 5}),  # each waits for the one before
        ({"parts": {"store": 3}}, {"lines": 3, "cycles": 0, "instructions": 21}),  # as valgrind counts them
        ({"parts": {"map": 1}, "bytes": 64},
         {"syscalls": 1, "faults": 2, "cycles": 64 / 32 + (200 + 1000 + 2 * 500) * 2.0}),
    ],
)
def test_what_a_path_is_predicted_to_cost(path, expected):
    one = Path(name="p", title="t", **path)
    total = cost_model.predict(model_of(p=one), MACHINE, one, cycles_per_ns=2.0)
    assert {quantity: total[quantity] for quantity in expected} == expected


@pytest.mark.parametrize(
    ("quantity", "predicted", "measured", "wrong"),
    [
        ("instructions", 100, 125, False), ("instructions", 100, 126, True),
        ("instructions", 4, 10, False), ("instructions", 4, 11, True),  # never below 6
        ("lines", 4, 6, False), ("lines", 4, 7, True),
        ("atomics", 2, 2.05, False), ("atomics", 2, 3, True),
        ("syscalls", 0, 1, True), ("faults", 1, 1.09, False),
        ("cycles", 50, 100, False), ("cycles", 50, 101, True), ("cycles", 50, 24, True),
    ],
)
def test_what_contradicts_a_belief(quantity, predicted, measured, wrong):
    assert cost_model.is_wrong(quantity, predicted, measured, TOLERANCE[quantity]) is wrong


def test_the_measured_machine_replaces_the_believed_one_where_it_is_known():
    here = cost_model.measured_machine(MACHINE, {"atomic_cycles": 31.0, "far_cycles": 0.0, "cycles_per_ns": 2.6})
    assert here == {**MACHINE, "atomic_cycles": 31.0}
    beliefs = cost_model.judge_machine(model_of(), here)
    assert list(beliefs) == ["atomic_cycles"] and beliefs["atomic_cycles"].wrong


def test_the_beliefs_are_whole():
    model = cost_model.load(cost.MODEL)
    used = {name for path in model.paths.values() for name in path.parts}
    assert used == set(model.parts)
    assert all(part.reason for part in model.parts.values())
    assert set(model.tolerance) == {*cost_model.QUANTITIES, "machine"}


@pytest.mark.parametrize(
    ("edit", "said"),
    [(lambda text: text + "]", "is not valid TOML"),
     (lambda text: text.replace("near_cycles = 4", "neer_cycles = 4"), "is not a cost model"),
     (lambda text: text.replace("\n    \"malloc_hit\"]", "\n    \"no_part\"]", 1), "no_part")],
)
def test_a_broken_model_is_one_sentence(tmp_path, edit, said):
    file = tmp_path / "model.toml"
    file.write_text(edit(cost.MODEL.read_text()))
    with pytest.raises(Problem, match=said):
        cost_model.load(file)
    with pytest.raises(Problem, match="cannot read"):
        cost_model.load(tmp_path / "none.toml")


# ---- Valgrind's files. ----

CALLGRIND = """\
# callgrind format
part: 1
events: Ir Ge
fl=a.c
fn=paths_measured
10 100 0
cfn=malloc
calls=2 5
11 60 4
+1 7
fn=malloc
5 20
6 12 1
fn=slow
9 28 3
totals: 160 4
part: 2
events: Ir Ge
fn=paths_measured
10 100 0
cfn=malloc
calls=2 5
11 33 0
fn=malloc
5 33
totals: 133 0
part: 3
desc: Trigger: Program termination
events: Ir Ge
totals: 0
"""


def test_callgrind_costs_are_the_functions_own():
    assert cost_measure.self_costs(CALLGRIND.splitlines()) == [
        {"malloc": {"Ir": 32, "Ge": 1}, "slow": {"Ir": 28, "Ge": 3}},
        {"malloc": {"Ir": 33, "Ge": 0}},
    ]
    with pytest.raises(Problem):
        cost_measure.self_costs([])


def test_lines_are_counted_between_the_marks():
    said = {"mark_operation": 0x5000, "mark_end": 0x5008, "image": [0x4000, 0x6000], "stack": 0x1FFF000000}
    trace = b"""\
I  7000,3
 L 9000,8
 S 5000,8
 L 9000,8
 S 9008,8
 M 90fc,8
 L 4100,8
 S 1ffeffff00,8
 S 5000,8
 S 5008,8
 L a000,8
"""
    # 0x9000 and 0x9008 share a line, 0x90fc crosses into the next
    assert cost_measure.touched_lines(trace.splitlines(), said) == [3, 0]
    with pytest.raises(Problem):
        cost_measure.touched_lines([], said)


def test_ticks_are_a_mean_without_what_an_interrupt_hit():
    assert cost_measure.typical_ticks([10, 12, 14, 1000]) == 12


# ---- The driver and the command. ----


@needs_driver
def test_the_driver_knows_the_paths_of_the_model():
    assert set(Driver(cost.DRIVER).paths) == set(cost_model.load(cost.MODEL).paths)


@needs_driver
def test_every_path_is_taken_as_often_as_claimed():
    driver, model = Driver(cost.DRIVER), cost_model.load(cost.MODEL)
    for name, path in model.paths.items():
        for tries in range(TRIES):
            try:
                counts = cost_measure.count(driver, path, ROUNDS, 3, folder=None)
                strays = cost_model.stray_counters(path.counters, counts.counters)
            except Problem:
                if tries == TRIES - 1:
                    raise
                continue
            if strays == {}:
                break
        assert strays == {}, name


def test_bad_input_is_one_sentence(monkeypatch, capsys):
    assert cli.main(["cost", "--paths", "nothing_*"]) == 2
    assert "no path is called 'nothing_*'" in capsys.readouterr().err
    monkeypatch.setattr(cost, "DRIVER", FilePath("/nonexistent/paths"))
    assert cli.main(["cost"]) == 1
    said = capsys.readouterr().err
    assert "type: ./hakmem build" in said and said.count("\n") == 1
