# SPDX-License-Identifier: MIT
"""The checks on made-up machines, and the doctor on this one."""

import json
from pathlib import Path

import pytest
from hakmem.lab import doctor
from hakmem.lab.doctor import Busy, System, check


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def levels(system: System, name: str) -> list[str]:
    return [finding.level for finding in check(system) if finding.name == name]


def test_a_machine_without_faults(tmp_path: Path) -> None:
    root = write(tmp_path, {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
                            "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
                            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
                            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
                            "proc/sys/kernel/randomize_va_space": "2\n", "proc/sys/vm/overcommit_memory": "0\n",
                            "sys/fs/cgroup/cpu.max": "max 100000\n", "proc/cpuinfo": "flags : fpu tsc\n"})
    found = [finding for finding in check(System(root=root, cores=8)) if finding.name != "valgrind"]
    assert {finding.level for finding in found} == {"ok"}


@pytest.mark.parametrize(("name", "file", "content", "level"), [
    ("governor", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave", "warning"),
    ("turbo", "sys/devices/system/cpu/intel_pstate/no_turbo", "0", "warning"),
    ("turbo", "sys/devices/system/cpu/cpufreq/boost", "1", "warning"),
    ("clock", "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", "warning"),
    ("huge pages", "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "note"),
    ("ASLR", "proc/sys/kernel/randomize_va_space", "0", "warning"),
    ("limits", "proc/sys/vm/overcommit_memory", "2", "warning"),
    ("options", "etc/hakmem.conf", "limit=1g", "warning"),
    ("steal", "proc/cpuinfo", "flags : fpu hypervisor", "note"),
])
def test_files_that_tell(tmp_path: Path, name: str, file: str, content: str, level: str) -> None:
    assert levels(System(root=write(tmp_path, {file: content})), name) == [level]


@pytest.mark.parametrize(("name", "facts", "level"), [
    ("cores", {"cores": 1}, "warning"), ("load", {"cores": 4, "load_1min": 3.0}, "warning"),
    ("steal", {"steal": 0.01}, "warning"), ("steal", {"steal": 0.05}, "bad"),
    ("heat", {"throttle_count": 2}, "bad"), ("power", {"on_battery": True}, "bad"),
    ("memory", {"available_gib": 3.0}, "warning"), ("memory", {"available_gib": 1.0}, "bad"),
    ("swap", {"swapped_pages": 5}, "bad"), ("limits", {"address_limit": 1 << 30}, "bad"),
    ("others", {"busy": [Busy("x", 1, "u", 0.1)]}, "warning"),
    ("others", {"busy": [Busy("x", 1, "u", 0.2), Busy("y", 2, "u", 0.2)]}, "bad"),
])
def test_what_was_seen(tmp_path: Path, name: str, facts: dict[str, object], level: str) -> None:
    assert levels(System(root=tmp_path, **facts), name) == [level]  # type: ignore[arg-type]


def test_quotas_of_the_group_and_above(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                            "sys/fs/cgroup/a/cpu.max": "150000 100000"})
    (finding,) = [one for one in check(System(root=root, cores=4)) if one.name == "quota"]
    assert finding.level == "bad" and "1.5 cores" in finding.sentence
    assert levels(System(root=root, cores=1), "quota") == ["warning"]
    assert levels(System(root=tmp_path / "none"), "quota") == []


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "measure_noise", lambda: [])
    monkeypatch.setattr(doctor, "observe", lambda: System(root=tmp_path, cores=4))
    assert doctor.run(as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["fit"] is True
    monkeypatch.setattr(doctor, "observe", lambda: System(root=tmp_path, swapped_pages=9))
    assert doctor.run(as_json=False) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("bad") and "swaps" in out.splitlines()[0]
    assert "not fit for measuring" in out
