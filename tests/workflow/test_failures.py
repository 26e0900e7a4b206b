"""What goes wrong in the middle: nothing half written counts, the others finish, the next call repairs.

The adaptors that misbehave are test doubles, written into the test's own copy of the project: torch_ddp with one fault.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import Project, Run, copy_project, ended_afterwards, wait_until, write_double

pytestmark = pytest.mark.slow

FAULTY_ADAPTOR = '''"""Test double: torch_ddp with a fault on rank 1."""

import os
import signal
import subprocess
import time

from frameworks import torch_ddp
from frameworks.torch_ddp import FRAMEWORK, unsupported_reason
from contracts.adaptor import NotAvailable

FAULT = "{fault}"


def create_engine(job):
    if job.rank == 1 and FAULT == "hang":
        time.sleep(600)
    if FAULT == "not_available":
        raise NotAvailable("its server is not there: start it on port 1")
    engine = torch_ddp.create_engine(job)
    if job.rank == 1 and FAULT == "crash":
        engine.step = fail
    if FAULT == "same_share":
        engine.data_rank = 0
    if FAULT == "helper":
        subprocess.Popen(["sleep", "4242"], start_new_session=True)
    if FAULT == "nan":
        engine.read_loss = lambda loss: float("nan")
    if job.rank == 1 and FAULT == "closing_hangs":
        engine.close = lambda: time.sleep(600)
    if job.rank == 1 and FAULT == "closing_crashes":
        engine.close = lambda: os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "closing_fails":
        engine.close = fail
    return engine


def fail(*batch):
    print("the last line before the end", flush=True)
    raise RuntimeError("this rank had enough")
'''
# Its ranks train when the file `gate` is there: how long the rest of a test takes then decides nothing.
GATED_ADAPTOR = '''"""Test double: torch_ddp whose ranks wait for a file before they train."""

import time
from pathlib import Path

from frameworks import torch_ddp
from frameworks.torch_ddp import FRAMEWORK, unsupported_reason


def create_engine(job):
    engine = torch_ddp.create_engine(job)
    load = engine.load

    def load_behind_the_gate(tokens):
        while not Path("gate").exists():
            time.sleep(0.05)
        return load(tokens)

    engine.load = load_behind_the_gate
    return engine
'''
CLOSING = {
    "closing_hangs": "rank 1 had left its result and did not end by itself, so it is ended; the result counts",
    "closing_crashes": "rank 1 was ended by SIGSEGV after it had left its result, which counts",
    "closing_fails": "rank 1 ended with exit status 1 after it had left its result, which counts",
}
FAULTS = ("crash", "hang", "nan", "not_available", "same_share", "helper", *CLOSING)
TWO = {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [2]}}}
SLOW = {"main": {"scaling": "strong", "cross": {"models": ["slow"], "num_gpus": [2]}}}


def write_faulty(project: Project, fault: str, name: str) -> None:
    (project.root / f"scripts/frameworks/{name}.py").write_text(FAULTY_ADAPTOR.replace("{fault}", fault))


def assert_nothing_left(project: Project) -> None:
    """No process, no temporary file, no folder of a launch."""
    wait_until(lambda: not project.processes(), f"the end of {project.processes()}", 20)
    assert not list((project.root / "results").rglob("ranks-*"))
    assert not list((project.root / "results").rglob("*.tmp"))


@pytest.fixture(scope="module")
def faulty_project(
    finished_project: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Project, Run]]:
    """A study with an adaptor for every fault and a sound one, run once."""
    folder = tmp_path_factory.mktemp("faulty") / "project"
    project = Project(shutil.copytree(finished_project.root, folder, symlinks=True))
    for fault in FAULTS:
        write_faulty(project, fault, f"faulty_{fault}")
    frameworks = {**{f"faulty_{fault}": None for fault in FAULTS}, "torch_ddp": None}
    project.write_study(frameworks=frameworks, comparisons=TWO)
    project.edit("config/systems/local.yaml", "startup_timeout_s: 300", "startup_timeout_s: 40")
    project.edit("scripts/launcher/processes.py", "CLOSING_GRACE_S = 30.0", "CLOSING_GRACE_S = 3.0")
    with ended_afterwards(project):
        run = project.snakemake("tiny")
        assert_nothing_left(project)
        yield project, run


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("crash", "crash", "rank 1: RuntimeError: this rank had enough"),
        ("hang", "startup_timeout", "had not met the others after 40 s"),
        ("same_share", "crash", "the ranks read shares 0 of 2 of the batch, not each of 2"),
    ],
)
def test_a_fault_leaves_its_cell_missing_and_shown(
    faulty_project: tuple[Project, Run], fault: str, kind: str, reason: str
) -> None:
    project, run = faulty_project
    assert run.returncode != 0
    assert reason in run.output
    rows = {row["framework"]: row for row in project.measurements()}
    assert rows["torch_ddp"]["status"] == "ok"
    row = rows[f"faulty_{fault}"]
    assert (row["status"], row["kind"]) == ("missing", kind)
    assert reason in row["reason"]
    assert row["batch_time_s"] == row["speedup"] == ""
    assert kind.replace("_", " ") in project.table("strong_scaling").replace("_", " ")
    assert not list(project.root.glob(f"results/local/cells/faulty_{fault}/**/record.json"))


def test_a_crash_keeps_the_ranks_last_lines(faulty_project: tuple[Project, Run]) -> None:
    assert "the last line before the end" in faulty_project[0].failure("faulty_crash", 2)["last_lines"]


@pytest.mark.parametrize(
    ("status", "reason"), [("not_available", "start it on port 1"), ("nan", "a loss was not finite")]
)
def test_a_result_that_is_no_measurement_enters_no_comparison(
    faulty_project: tuple[Project, Run], status: str, reason: str
) -> None:
    (row,) = [row for row in faulty_project[0].measurements() if row["framework"] == f"faulty_{status}"]
    assert row["status"] == status
    assert reason in row["reason"]
    assert row["batch_time_s"] == row["speedup"] == ""


@pytest.mark.parametrize("fault", CLOSING)
def test_what_goes_wrong_after_the_results_are_there_costs_nothing(
    faulty_project: tuple[Project, Run], fault: str
) -> None:
    project, _ = faulty_project
    (row,) = [row for row in project.measurements() if row["framework"] == f"faulty_{fault}"]
    assert (row["status"], row["reason"]) == ("ok", "")
    folder = project.record(f"faulty_{fault}", 2).parent
    assert f"[launcher] {CLOSING[fault]}\n" in (folder / "log.txt").read_text()
    assert not (folder / "failure.json").exists()


def test_a_helper_in_a_session_of_its_own_is_ended_with_its_rank(faulty_project: tuple[Project, Run]) -> None:
    """assert_nothing_left in the fixture has looked for it; its cell is sound."""
    rows = {row["framework"]: row["status"] for row in faulty_project[0].measurements()}
    assert rows["faulty_helper"] == "ok"


def test_a_mended_adaptor_runs_exactly_what_was_missing(faulty_project: tuple[Project, Run], tmp_path: Path) -> None:
    project = Project(shutil.copytree(faulty_project[0].root, tmp_path / "project", symlinks=True))
    for fault in ("crash", "hang", "same_share"):
        write_faulty(project, "none", f"faulty_{fault}")
    with ended_afterwards(project):
        again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert again.jobs("train_cell") == 3
    assert {row["status"] for row in project.measurements()} == {"ok", "nan", "not_available"}
    assert not list(project.root.rglob("failure.json"))


def test_a_time_limit_ends_the_cell(project: Project) -> None:
    project.write_study(frameworks={"torch_ddp": None}, comparisons=SLOW, time_limit_minutes=0.05)
    run = project.snakemake("tiny")
    assert run.returncode != 0
    assert "time limit of 0.05 minutes" in run.output
    assert_nothing_left(project)


CLOSES_FOR_EVER = '''"""Test double: `nothing`, whose library never comes back when it is taken down."""

import time

from frameworks import nothing

FRAMEWORK, unsupported_reason = nothing.FRAMEWORK, nothing.unsupported_reason


def create_engine(job):
    engine = nothing.create_engine(job)
    engine.close = lambda: time.sleep(600)
    return engine
'''


def test_a_time_limit_while_ranks_close_costs_nothing(fresh_project: Project) -> None:
    write_double(fresh_project, "closing", CLOSES_FOR_EVER)
    fresh_project.write_study(frameworks={"closing": None}, comparisons=TWO, time_limit_minutes=0.4)
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    record = fresh_project.record("closing", 2)
    assert json.loads(record.read_text())["status"] == "ok"
    log = (record.parent / "log.txt").read_text()
    assert "every rank had left its result before this, so the results count: not finished after the time limit" in log
    assert_nothing_left(fresh_project)


def test_a_killed_rank_ends_its_cell_and_the_next_call_repairs(project: Project) -> None:
    others = {"scaling": "none", "points": [{"model": "tiny", "num_gpus": 1}], "frameworks": ["torch_plain"]}
    project.write_study(
        comparisons={"main": {**SLOW["main"], "frameworks": ["torch_ddp"]}, "others": others},
        seed=7,  # another cell than the one that is measured already
    )
    snakemake = project.start("tiny")
    wait_until(lambda: project.started_ranks() == 2, "both ranks in training")
    project.ranks()[1].send_signal(signal.SIGKILL)
    assert snakemake.wait(timeout=120) != 0
    assert "rank 1 was ended by SIGKILL" in (project.root / "output.txt").read_text()
    rows = {row["framework"]: row for row in project.measurements()}
    assert rows["torch_ddp"]["kind"] == "killed"
    assert rows["torch_plain"]["status"] == "ok"
    assert_nothing_left(project)
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert again.jobs("train_cell") == 1


def test_ctrl_c_leaves_nothing_and_the_next_call_goes_on(project: Project) -> None:
    project.write_study(frameworks={"torch_ddp": None}, comparisons=SLOW)
    snakemake = project.start("tiny")
    wait_until(lambda: project.started_ranks() == 2, "both ranks in training")
    os.killpg(snakemake.pid, signal.SIGINT)
    assert snakemake.wait(timeout=60) != 0
    assert_nothing_left(project)
    assert project.failure("torch_ddp", 2)["kind"] == "interrupted"
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert again.jobs("train_cell") == 1


def test_a_killed_snakemake_leaves_no_process_and_run_clears_its_lock(project: Project) -> None:
    project.write_study(frameworks={"torch_ddp": None}, comparisons=SLOW)
    link_environment(project)
    snakemake = project.start(command=["./run", "tiny"])
    wait_until(lambda: project.started_ranks() == 2, "both ranks in training")
    os.kill(snakemake.pid, signal.SIGKILL)
    snakemake.wait()
    assert_nothing_left(project)
    assert not list(project.root.glob("results/local/cells/*/slow/**/record.json"))
    plain = project.snakemake("tiny")
    assert plain.returncode != 0
    assert "a call that was killed has left its lock on this folder behind" in plain.output
    assert "--unlock" in plain.output
    again = project.finish(["./run", "tiny"], 120)
    assert again.returncode == 0, again.output
    assert "left its lock behind" in again.output


def test_a_second_call_at_the_same_time_is_refused_and_harms_nothing(project: Project) -> None:
    (project.root / "scripts/frameworks/gated.py").write_text(GATED_ADAPTOR)
    project.write_study(frameworks={"gated": None}, comparisons=TWO)
    link_environment(project)
    first = project.start(command=["./run", "tiny"])
    wait_until(lambda: project.started_ranks() == 2, "both ranks in training")
    assert "1 running" in project.script("status.py", "tiny").output
    second = project.finish(["./run", "tiny"], 60)
    assert second.returncode != 0
    assert "another call is at work in this folder: process " in second.output
    assert "cannot be locked" not in second.output and "--unlock" not in second.output
    assert "Traceback" not in second.output
    assert project.finish(["./run", "--dry-run", "tiny"], 60).returncode == 0
    (project.root / "gate").touch()
    assert first.wait(timeout=120) == 0
    assert {row["status"] for row in project.measurements()} == {"ok"}


def test_cells_of_two_folders_are_never_timed_at_once(project: Project, tmp_path: Path) -> None:
    other = copy_project(tmp_path / "other")
    with ended_afterwards(other):
        for each in (project, other):
            each.write_study(frameworks={"torch_ddp": None}, comparisons=SLOW)
        calls = [each.start("tiny") for each in (project, other)]
        assert [call.wait(timeout=200) for call in calls] == [0, 0]
        windows = sorted(window(each.record("torch_ddp", 2)) for each in (project, other))
    assert windows[0][1] <= windows[1][0]
    outputs = [(each.root / "output.txt").read_text() for each in (project, other)]
    assert sum("another cell is being timed on this host" in text for text in outputs) == 1


def test_partial_tables_after_an_interruption(project: Project) -> None:
    project.record("torch_ddp").unlink()
    refused = project.script("write_outputs.py", "tiny")
    assert refused.returncode == 1
    assert "--partial" in refused.output
    assert project.script("write_outputs.py", "--partial", "tiny").returncode == 0
    assert {row["framework"]: row["status"] for row in project.measurements()} == {
        "torch_ddp": "missing",
        "torch_plain": "ok",
    }


def window(record: Path) -> tuple[float, float]:
    """First start and last end of a record's batches; one host, one monotonic clock."""
    ranks = json.loads(record.read_text())["ranks"]
    return min(r["batch_start_s"][0] for r in ranks), max(r["batch_end_s"][-1] for r in ranks)


def link_environment(project: Project) -> None:
    """Give the copy this environment, so that ./run finds everything installed."""
    environment = project.root / ".venv"
    if not environment.exists():
        environment.symlink_to(Path(sys.prefix))
    command = "cat envs/torch.txt envs/workflow.txt plugins/pyproject.toml plugins/*/*.py | cksum"
    wanted = subprocess.run(command, shell=True, cwd=project.root, capture_output=True, text=True)
    assert (Path(sys.prefix) / "installed-workflow").read_text().strip() == wanted.stdout.strip(), (
        "run ./run once first"
    )
