"""How much of the host others used: arithmetic on /proc/stat, and a real process that is not ours."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from launching.host_load import others_cpu_s, read_host_clock, spent_s
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


def test_our_own_children_do_not_count() -> None:
    work = "import time\nwhile time.process_time() < 1: pass"  # of the processor, however busy the machine is
    before = read_host_clock()
    subprocess.run([sys.executable, "-c", work], check=True)
    after = read_host_clock()
    assert after.own_s - before.own_s > 0.5
    assert time.monotonic() >= after.wall_s > before.wall_s
