"""Cores follow what this process is allowed: by taskset, and by its control groups' quotas (files as doubles)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.cores import available_cores, cpu_quota
from launcher.host_load import read_host_clock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
GROUPS = {
    "version 2": ("0::/user/job\n", {"user/job/cpu.max": "150000 100000\n", "user/cpu.max": "max 100000\n"}),
    "version 2, limited above": ("0::/user/job\n", {"user/job/cpu.max": "max 100000", "user/cpu.max": "150000 100000"}),
    "version 2, in a container": ("0::/\n", {"cpu.max": "150000 100000"}),
    "version 2, path of the host": ("0::/kubepods/pod1\n", {"cpu.max": "150000 100000"}),
    "version 1": (
        "5:memory:/a\n2:cpu,cpuacct:/a\n0::/\n",
        {"cpu/a/cpu.cfs_quota_us": "75000", "cpu/a/cpu.cfs_period_us": "50000", "cpu/cpu.cfs_quota_us": "-1"},
    ),
}
UNLIMITED = {
    "nothing set": ("0::/\n", {"cpu.max": "max 100000"}),
    "version 1": ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}),
    "another controller": ("2:memory:/\n", {"cpu/cpu.cfs_quota_us": "1", "cpu/cpu.cfs_period_us": "1"}),
    "damaged": ("0::/\n", {"cpu.max": "much"}),
}


def write_groups(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    mounts = folder / "mounts"
    for name, text in {**files, "cgroup.controllers": "cpu pids"}.items():
        (mounts / name).parent.mkdir(parents=True, exist_ok=True)
        (mounts / name).write_text(text)
    (folder / "cgroup").write_text(membership)
    return folder / "cgroup", mounts


@pytest.mark.parametrize("name", GROUPS)
def test_a_quota_limits_the_cores(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = write_groups(tmp_path, *GROUPS[name])
    assert cpu_quota(*places) == 1.5
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert available_cores(*places) == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    assert available_cores(*places) == 1


@pytest.mark.parametrize("name", UNLIMITED)
def test_no_quota(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = write_groups(tmp_path, *UNLIMITED[name])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert cpu_quota(*places) is None
    assert available_cores(*places) == 8
    assert available_cores(tmp_path / "none", tmp_path) == 8


def test_a_real_process_on_one_core() -> None:
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program += "from contracts.cores import available_cores\n"
    program += "from launcher.host_load import read_host_clock\nprint(available_cores(), read_host_clock().cores)"
    done = subprocess.run([sys.executable, "-c", program], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


def test_only_our_cores_count_as_the_host(tmp_path: Path) -> None:
    """On one of four cores, whose others are all busy: others used nothing of ours, where it said 300 %."""
    lines = ["cpu  1500 0 0 500 0 0 0 0 0 0"]
    lines += [f"cpu{core} {busy} 0 0 {500 - busy} 0 0 0 0 0 0" for core, busy in enumerate((0, 500, 500, 500))]
    stat = tmp_path / "stat"
    stat.write_text("\n".join([*lines, "intr 1", "ctxt 2"]))
    assert (read_host_clock(stat, {0}).busy_s, read_host_clock(stat, {0}).cores) == (0.0, 1)
    assert (read_host_clock(stat, {0, 3}).busy_s, read_host_clock(stat, {0, 3}).cores) == (5.0, 2)
    assert (read_host_clock(stat, {0, 1, 2, 3}).busy_s, read_host_clock(stat, set(range(64))).cores) == (15.0, 4)
    assert read_host_clock(stat, {9}).busy_s is None
    assert read_host_clock(tmp_path / "none", {0}).busy_s is None
