"""Trouble of the machine around a cell: it costs no measurement that is there, and hides no reason."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.adaptor import Job
from factories import make_cell
from launcher import processes, step
from launcher.cell_launch import write_record
from launcher.host_lock import LOCK_VARIABLE, host_lock
from launcher.part import LaunchPlan, run_part
from launcher.processes import Limits, LogWriter, RankCommand, run_ranks, start_process
from records.code_digests import SCRIPTS
from test_launch_tokens import write_tokens
from workloads.exchange import Exchange
from workloads.training.timed_batches import train

LIMITS = Limits(60.0, 60.0, lambda: None, lambda rank: True, lambda rank: True, lambda rank: False, lambda: False)
NOTHING = SCRIPTS.parent / "tests" / "data" / "nothing.py"


class StartsLate:
    """Whether a rank has started: not yet when it is asked for the first time, and from then on."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, _rank: int) -> bool:
        was_asked, self._asked = self._asked, True
        return was_asked


def test_a_rank_that_starts_at_the_last_moment_is_not_late() -> None:
    """Between the two looks at it nobody was late any more, and the launcher failed over an empty list."""
    limits = replace(LIMITS, startup_timeout_s=0.0, has_started=StartsLate())
    command = RankCommand(0, [sys.executable, "-S", "-c", "import time; time.sleep(0.5)"], dict(os.environ))
    assert run_ranks([command], limits, LogWriter(io.StringIO())).kind == ""


def test_nor_is_one_of_a_step(tmp_path: Path) -> None:
    limits = replace(LIMITS, startup_timeout_s=0.0, has_started=StartsLate())
    job = LaunchPlan(["true"], 1, 1, "127.0.0.1", str(tmp_path), "token", {})
    with start_process(["sleep", "0.5"], dict(os.environ)) as started:
        assert step._watch("srun", started, job, ["n0"], Exchange(tmp_path), limits) is None


def test_a_file_system_that_fails_for_a_moment_ends_no_cell(tmp_path: Path) -> None:
    """A name that is too long stands in for it: the system call fails otherwise than where nothing is there."""
    exchange = Exchange(tmp_path / ("x" * 300))
    with pytest.raises(OSError):
        exchange.folder.exists()
    assert not (exchange.has_arrived(0) or exchange.has_started(0) or exchange.has_result(0))
    assert not exchange.has_all_results(1)


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    program = f"import os; os.kill(os.getpid(), {signal.SIGRTMIN + 6})"
    ending = run_ranks([RankCommand(0, [sys.executable, "-S", "-c", program], {})], LIMITS, LogWriter(io.StringIO()))
    assert ending.reason == f"rank 0 was ended by signal {signal.SIGRTMIN + 6}"


class Unkillable:
    """Test double: a process that waits for a file system that hangs. None can be made here."""

    pid = 2**22 + 1  # beyond what the kernel gives out
    stdout = None

    def poll(self) -> None:
        return None

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "nobody comes back from this"
        raise subprocess.TimeoutExpired("rank", timeout)


def test_a_process_that_nothing_ends_keeps_the_launcher_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "UNKILLABLE_GRACE_S", 0.0)
    log = io.StringIO()
    processes._end_all({3: Unkillable()}, LogWriter(log))
    assert log.getvalue().startswith(f"[launcher] rank 3 (process {Unkillable.pid}) does not end, not even by SIGKILL")


@pytest.mark.parametrize("path", ["none/host.lock", "/proc/host.lock"])
def test_a_lock_that_cannot_be_made_says_what_to_set(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / path))
    says = rf"host\.lock cannot be opened .*: set {LOCK_VARIABLE} to a file"
    with pytest.raises(ValueError, match=says), host_lock(lambda text: None, lambda: True):
        pass


def test_ranks_that_a_node_cannot_start_are_its_fault_and_told(tmp_path: Path) -> None:
    """A part that ended in a traceback could not report, and the reason was that it had not."""
    job = LaunchPlan([str(tmp_path / "python")], 1, 1, "127.0.0.1", str(tmp_path), "token", {})
    report = run_part(job, 0, LIMITS, LogWriter(io.StringIO()))
    assert report.kind == "crash"
    assert report.reason == (
        f"node {report.host} could not start its ranks: No such file or directory ({tmp_path / 'python'})"
    )


def test_a_record_without_room_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the place of its folder stands in for a disk that is full."""
    (tmp_path / "cells").touch()
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "cells" / "record.json"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    with pytest.raises(OSError) as failed:
        write_record(path, {"status": "ok"})
    (kept,) = (tmp_path / "elsewhere").glob("scaling-eval-*/record.json")
    assert json.loads(kept.read_text()) == {"status": "ok"}
    assert f"kept as {kept} on " in failed.value.strerror and f"moved to {path}" in failed.value.strerror
    assert failed.value.errno in (errno.EEXIST, errno.ENOTDIR)


# -- ranks -------------------------------------------------------------------------------------------------------------

# A thread that never ends, as communication libraries have them, keeps a process from an orderly end.
DOUBLE = '''"""Test double: an adaptor that ends so or so before it has an engine."""

import sys
import threading
import time
from contracts.adaptor import Framework

FRAMEWORK = Framework(version=1, environment="nothing", parallelism=frozenset({"data"}))


def unsupported_reason(cell):
    return None


def create_engine(job):
    threading.Thread(target=time.sleep, args=(600,)).start()
    END
'''
RANK = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import frameworks
frameworks.__path__.append(sys.argv.pop(1))
sys.path.append(sys.argv.pop(1))
import train
sys.exit(train.main())
"""


def run_rank(folder: Path, adaptor: str, tokens: Path = Path("none")) -> subprocess.CompletedProcess[str]:
    """One rank of a cell with this adaptor; `folder` is that of the exchange."""
    adaptors = folder.with_name("adaptors")
    adaptors.mkdir()
    (adaptors / "ending.py").write_text(adaptor)
    cell = make_cell("ending", corpus={"source": "x"}, environment={"name": "nothing", "requirements": []})
    folder.mkdir()
    Exchange(folder).cell_file.write_text(cell.identity_json)
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "SCALING_EVAL_LAUNCHER": str(os.getpid())}
    command = [sys.executable, "-c", RANK, str(SCRIPTS), str(adaptors), str(NOTHING.parent), "--exchange", str(folder)]
    command += ["--tokens", str(tokens)]
    return subprocess.run(command, env=os.environ | place, capture_output=True, text=True, timeout=60)


def test_a_framework_that_leaves_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    done = run_rank(tmp_path / "ranks", DOUBLE.replace("END", "sys.exit('bad arguments')"))
    assert done.returncode == 1, done.stderr
    failure = Exchange(tmp_path / "ranks").read_failure(0)
    assert failure is not None and (failure.status, failure.message) == ("error", "SystemExit: bad arguments")


def test_a_rank_without_room_for_its_reason_ends_all_the_same(tmp_path: Path) -> None:
    """The folder is replaced by a file, so that nothing can be written; the reason is on the terminal still."""
    folder = tmp_path / "ranks"
    end = f"import shutil, pathlib; shutil.rmtree({str(folder)!r}); pathlib.Path({str(folder)!r}).touch(); 1 / 0"
    done = run_rank(folder, DOUBLE.replace("END", end))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr and "the reason could not be kept: " in done.stderr


CLOSING_DOUBLE = '''"""Test double: `nothing`, whose closing fails beside a thread that never ends."""

import threading
import time

import nothing

FRAMEWORK, unsupported_reason = nothing.FRAMEWORK, nothing.unsupported_reason


def create_engine(job):
    engine = nothing.Engine(job)
    threading.Thread(target=time.sleep, args=(600,)).start()
    engine.close = lambda: 1 / 0
    return engine
'''


def test_a_rank_whose_closing_fails_ends_at_once(tmp_path: Path) -> None:
    """In an orderly end it would wait for what its library left behind, until it is ended for it."""
    done = run_rank(tmp_path / "ranks", CLOSING_DOUBLE, write_tokens(tmp_path, num_tokens=2000))
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert Exchange(tmp_path / "ranks").has_result(0) and Exchange(tmp_path / "ranks").read_failure(0) is None


def test_a_speed_that_is_no_number_costs_no_measurement(tmp_path: Path) -> None:
    """A framework's own meter says -inf when it has seen too few steps; JSON has no such number."""
    spec = importlib.util.spec_from_file_location("nothing_reporting", NOTHING)
    assert spec and spec.loader
    double = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(double)
    double.Engine.reported_by_framework = lambda self: {"samples_per_s": float("-inf"), "tflops_per_gpu": 2.0}
    double.create_engine = double.Engine
    cell = make_cell("nothing", environment={"name": "nothing", "requirements": []})
    _, result = train(Job(cell, 0, 1, 0), double, write_tokens(tmp_path, num_tokens=2000), Exchange(tmp_path))
    assert result["reported"] == {"tflops_per_gpu": 2.0}
    json.dumps(result, allow_nan=False)
