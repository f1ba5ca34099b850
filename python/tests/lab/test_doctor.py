# SPDX-License-Identifier: MIT
"""The checks on made-up machines, and the doctor on this one."""

import json
from pathlib import Path

import pytest
from hakmem.lab import checks, doctor
from hakmem.lab.checks import Busy, System


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def levels(system: System, check: checks.Check) -> list[str]:
    return [finding.level for finding in check(system)]


def test_a_machine_without_faults(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/sys/kernel/randomize_va_space": "2\n", "proc/sys/vm/overcommit_memory": "0\n",
        "proc/sys/kernel/perf_event_paranoid": "2\n", "sys/bus/event_source/devices/cpu/type": "4\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n", "proc/cpuinfo": "flags : fpu tsc\n",
    })
    system = System(root=root, cores=8)
    found = [f for check in checks.CHECKS for f in check(system) if f.name != "valgrind"]
    assert {finding.level for finding in found} == {"ok"}


@pytest.mark.parametrize(
    ("check", "file", "content", "level"),
    [
        (checks.check_governor, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave", "warning"),
        (checks.check_turbo, "sys/devices/system/cpu/intel_pstate/no_turbo", "0", "warning"),
        (checks.check_turbo, "sys/devices/system/cpu/cpufreq/boost", "1", "warning"),
        (checks.check_clock, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", "warning"),
        (checks.check_huge_pages, "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "note"),
        (checks.check_aslr, "proc/sys/kernel/randomize_va_space", "0", "warning"),
        (checks.check_limits, "proc/sys/vm/overcommit_memory", "2", "warning"),
        (checks.check_options_file, "etc/hakmem.conf", "limit=1g", "warning"),
        (checks.check_steal, "proc/cpuinfo", "flags : fpu hypervisor", "note"),
    ],
)
def test_files_that_tell(tmp_path: Path, check: checks.Check, file: str, content: str, level: str) -> None:
    assert levels(System(root=write(tmp_path, {file: content})), check) == [level]


@pytest.mark.parametrize(
    ("check", "facts", "level"),
    [
        (checks.check_cores, {"cores": 1}, "warning"),
        (checks.check_load, {"cores": 4, "load_1min": 3.0}, "warning"),
        (checks.check_steal, {"steal": 0.01}, "warning"),
        (checks.check_steal, {"steal": 0.05}, "bad"),
        (checks.check_throttling, {"throttle_count": 2}, "bad"),
        (checks.check_power, {"on_battery": True}, "bad"),
        (checks.check_memory, {"available_gib": 3.0}, "warning"),
        (checks.check_memory, {"available_gib": 1.0}, "bad"),
        (checks.check_swap, {"swapped_pages": 5}, "bad"),
        (checks.check_limits, {"address_limit": 1 << 30}, "bad"),
        (checks.check_busy, {"busy": [Busy("x", 1, "u", 0.1)]}, "warning"),
        (checks.check_busy, {"busy": [Busy("x", 1, "u", 0.2), Busy("y", 2, "u", 0.2)]}, "bad"),
    ],
)
def test_what_was_seen(tmp_path: Path, check: checks.Check, facts: dict[str, object], level: str) -> None:
    assert levels(System(root=tmp_path, **facts), check) == [level]  # type: ignore[arg-type]


def test_quotas_of_the_group_and_above(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000",
        "sys/fs/cgroup/a/cpu.max": "150000 100000",
    })
    (finding,) = checks.check_quota(System(root=root, cores=4))
    assert finding.level == "bad" and "1.5 cores" in finding.sentence
    assert levels(System(root=root, cores=1), checks.check_quota) == ["warning"]
    assert levels(System(root=tmp_path / "none"), checks.check_quota) == []


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "measure_noise", lambda: [])
    monkeypatch.setattr(doctor, "observe", lambda: System(root=tmp_path, cores=4))
    assert doctor.run(as_json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fit"] is True
    monkeypatch.setattr(doctor, "observe", lambda: System(root=tmp_path, swapped_pages=9))
    assert doctor.run(as_json=False) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("bad") and "swaps" in out.splitlines()[0]
    assert "not fit for measuring" in out
