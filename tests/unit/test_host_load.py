"""How much of the host others used: arithmetic on /proc/stat, and a real process that is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.host_load import HostClock, others_cpu_s, read_host_clock, spent_s
from metrics.circumstances import others_cpu_percent


def test_others_have_what_the_host_spent_and_we_did_not() -> None:
    # 30 s busy on the host, 12 s of them ours
    assert others_cpu_s([spent_s(100.0, 130.0)], [12.0]) == pytest.approx(18.0)


def test_parts_of_one_cell_on_one_host_are_no_strangers_to_each_other() -> None:
    # Two ranks under MPI, 12 s and 11 s of processor time each; the one that watched longest saw 25 s of the host's.
    assert others_cpu_s([24.0, 25.0], [12.0, 11.0]) == pytest.approx(2.0)
    assert others_cpu_s([20.0, 20.0], [12.0, 11.0]) == 0.0


def test_unknown_is_not_zero() -> None:
    assert spent_s(None, 3.0) is None
    assert others_cpu_s([3.0, None], [0.0, 0.0]) is None
    assert others_cpu_percent({"others_cpu_s": None, "wall_s": 5.0, "cpu_cores": 2}) is None


def test_the_share_is_of_all_cores() -> None:
    # 18 s of 20 s x 2 cores
    assert others_cpu_percent({"others_cpu_s": 18.0, "wall_s": 20.0, "cpu_cores": 2}) == pytest.approx(45.0)


def test_idle_and_waiting_time_is_not_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 999999 888888 10 20 30 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    assert read_host_clock(stat).busy_s == pytest.approx(6.6)  # 660 ticks of 10 ms


def test_our_own_children_do_not_count(tmp_path: Path) -> None:
    """A child that really works, on a host that says so and on which others worked for two seconds beside it."""
    work = "import time\nwhile time.process_time() < 0.2: pass"  # of the processor, however busy the machine is
    stat = tmp_path / "stat"

    def at(busy_s: float) -> HostClock:
        stat.write_text(f"cpu {round(busy_s * os.sysconf('SC_CLK_TCK'))} 0 0 5 0 0 0 0 0 0\n")
        return read_host_clock(stat)

    before = at(100.0)
    child = subprocess.Popen([sys.executable, "-S", "-c", work])
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    child_s = used.ru_utime + used.ru_stime
    for others_s in (0.0, 2.0):
        after = at(100.0 + child_s + others_s)
        ours_s = after.own_s - before.own_s
        counted = others_cpu_s([spent_s(before.busy_s, after.busy_s)], [ours_s])
        # Beside the child there is this process itself, which is ours too and which the double leaves out.
        assert counted == pytest.approx(max(0.0, others_s - (ours_s - child_s)), abs=0.011)  # a tick
        assert 0.0 <= ours_s - child_s < 1.0
