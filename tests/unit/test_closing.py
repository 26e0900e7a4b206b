"""What ranks measured counts however their processes end once all results are there, and not before."""

from __future__ import annotations

import io
import math
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from launcher import step
from launcher.part import LaunchPlan
from launcher.processes import Closing, Limits, LogWriter, RankCommand, run_ranks, start_process
from launcher.starters import Starter
from workloads.exchange import Exchange

# A rank without a framework: it leaves a result where it is told to, then does what it is told to.
RANK = """
import os, signal, sys, time
from pathlib import Path
from workloads.exchange import Exchange
exchange, rank, leaves_result, then = Exchange(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if leaves_result == "yes":
    exchange.write_result(rank, {"world_size": 2})
print("about to", then, flush=True)
if then == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if then == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
sys.exit({"end": 0, "fail": 1}[then])
"""
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def limits(folder: Path, num_ranks: int = 2, grace_s: float = 0.3, time_limit_s: float = 60.0) -> Limits:
    exchange = Exchange(folder)
    return Limits(
        60.0,
        time_limit_s,
        lambda: None,
        lambda rank: True,
        lambda rank: True,
        exchange.has_result,
        lambda: exchange.has_all_results(num_ranks),
        grace_s,
    )


def run(folder: Path, *ranks: tuple[str, str], limit: Limits) -> tuple[str, int | None, list[str]]:
    """Run ranks that leave a result or not and then end so or so: (kind, the rank to blame, the launcher's lines)."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    commands = [
        RankCommand(rank, [sys.executable, "-c", RANK, str(folder), str(rank), *words], environment)
        for rank, words in enumerate(ranks)
    ]
    log = io.StringIO()
    ending = run_ranks(commands, limit, LogWriter(log))
    notes = [line for line in log.getvalue().splitlines() if line.startswith("[launcher]")]
    return ending.kind, ending.rank, notes


@pytest.mark.parametrize(
    ("then", "note"),
    [
        ("crash", "rank 1 was ended by SIGSEGV after it had left its result, which counts"),
        ("fail", "rank 1 ended with exit status 1 after it had left its result, which counts"),
        ("hang", "rank 1 had left its result and did not end by itself, so it is ended; the result counts"),
    ],
)
def test_an_end_after_the_result_is_a_good_one_and_told(then: str, note: str, tmp_path: Path) -> None:
    ended = run(tmp_path, ("yes", "end"), ("yes", then), limit=limits(tmp_path))
    assert ended == ("", None, [f"[launcher] {note}"])


def test_ranks_that_end_well_leave_no_word(tmp_path: Path) -> None:
    assert run(tmp_path, ("yes", "end"), ("yes", "end"), limit=limits(tmp_path)) == ("", None, [])


@pytest.mark.parametrize(("then", "kind"), [("crash", "killed"), ("fail", "crash")])
def test_an_end_before_the_result_fails_the_cell(then: str, kind: str, tmp_path: Path) -> None:
    """It is blamed also where another one crashes over it, whose result is there already."""
    assert run(tmp_path, ("yes", "crash"), ("no", then), limit=limits(tmp_path)) == (kind, 1, [])


def test_a_rank_that_hangs_before_its_result_is_given_its_time(tmp_path: Path) -> None:
    limit = limits(tmp_path, grace_s=0.0, time_limit_s=3.0)
    assert run(tmp_path, ("yes", "end"), ("no", "hang"), limit=limit)[0] == "time_limit"


def test_ranks_wait_for_results_of_other_nodes(tmp_path: Path) -> None:
    """A rank that closes with others is not ended while one of them has its result still to write."""
    Exchange(tmp_path).write_result(0, {})
    elsewhere = Closing(limits(tmp_path, num_ranks=2, grace_s=0.0), [0])
    assert not elsewhere.lasts_too_long()
    Exchange(tmp_path).write_result(1, {})
    closing = Closing(limits(tmp_path, num_ranks=2, grace_s=0.0), [0])
    closing.lasts_too_long()
    time.sleep(0.01)
    assert closing.lasts_too_long()


def test_a_starter_that_hangs_when_all_results_are_there_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "STEP_GRACE_S", 0.0)
    Exchange(tmp_path).write_result(0, {})
    hanging = start_process(["sleep", "600"], dict(os.environ))
    job = LaunchPlan(["true"], 1, 1, "127.0.0.1", str(tmp_path), "token", {})
    try:
        ending = step._watch(
            "srun", hanging, job, ["n0"], Exchange(tmp_path), limits(tmp_path, num_ranks=1, time_limit_s=math.inf)
        )
    finally:
        hanging.send_signal(signal.SIGKILL)
        hanging.wait()
    assert ending is not None and (ending.kind, ending.reason) == ("killed", "srun did not end")


def test_a_part_that_is_killed_after_its_result_is_on_the_node_that_its_rank_told(tmp_path: Path) -> None:
    """mpiexec kills the others when a rank crashes closing. Slurm may not say how it calls the nodes, and a record of
    which launcher and ranks name other nodes does not count.
    """
    for rank in range(2):
        Exchange(tmp_path).write_result(rank, {"rank": {"host": "n7"}})
    job = LaunchPlan(["true"], 2, 1, "127.0.0.1", str(tmp_path), "token", {}, mpi=True)
    dies = Starter("srun", ["sh", "-c", "kill -KILL $$"], ["SLURM_PROCID"], [])
    with (tmp_path / "log.txt").open("w") as log:
        ending, reports, _ = step.run_step(Exchange(tmp_path), job, dies, SCRIPTS, limits(tmp_path), LogWriter(log))
    assert ending.kind == "killed" and Exchange(tmp_path).has_all_results(2)
    assert [report.host for report in reports] == ["n7", "n7"]
