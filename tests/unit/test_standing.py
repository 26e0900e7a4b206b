"""Which cells are being measured: from what lies beside them and from what Slurm says, here made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.placement import host_name
from launcher.slurm import job_endings as endings
from launcher.slurm.queue import Queue, SlurmJob, job_comment
from launcher.verdicts import Failure, clear_former_launch, now, write_failure
from planning.plan import Study, record_path
from records.reader import read_outcomes
from records.standing import outcomes_now
from reporting.status_table import state_of
from settings.systems import SlurmSite
from studies import comparison, expand, study_config


@pytest.fixture
def study() -> Study:
    return expand(study_config(frameworks={"torch_ddp": None}, comparisons=comparison("strong", [("small", 1)])))


def begin_elsewhere(folder: Path, place: str, host: str) -> None:
    """As the launcher of another node leaves it when it begins, which job 42 is."""
    folder.mkdir(parents=True, exist_ok=True)
    clear_former_launch(folder, "42")
    path = folder / "failure.json"
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "host": host, "launcher": {**note["launcher"], "place": place}}))


def test_whether_a_launcher_of_another_node_lives_is_not_known_from_here(study: Study, tmp_path: Path) -> None:
    """It was called interrupted while it measured."""
    planned = study.planned[0]
    folder = record_path(tmp_path, study.system.name, planned).parent
    begin_elsewhere(folder, "another boot pid:[1]", "n7")
    outcome = read_outcomes(study, tmp_path)[planned.key]
    assert (outcome.kind, state_of(outcome), outcome.job_id) == ("not_known", "not known", "42")
    assert outcome.reason.startswith("it began on n7 at ")
    # This very host, started anew since: nothing of before lives.
    begin_elsewhere(folder, "another boot pid:[1]", host_name())
    assert read_outcomes(study, tmp_path)[planned.key].kind == "interrupted"


@pytest.mark.parametrize(
    ("jobs", "silence", "kind"),
    [
        (["RUNNING"], "", "running"),
        (["PENDING"], "", "queued"),
        (["COMPLETING"], "", "running"),
        (["COMPLETED"], "", "interrupted"),
        (["TIMEOUT"], "", "time_limit"),
        ([], "", "interrupted"),
        ([], "it is away", "not_known"),
    ],
)
def test_slurm_says_which_cells_are_being_measured(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[str], silence: str, kind: str
) -> None:
    planned = study.planned[0]
    study = replace(study, system=replace(study.system, slurm=SlurmSite()))
    begin_elsewhere(record_path(tmp_path, study.system.name, planned).parent, "another boot pid:[1]", "n7")
    monkeypatch.setattr(endings, "find_jobs", lambda job_ids: {})  # neither the controller nor the accounting knows it
    comment = job_comment(study.system.name, planned)
    listed = tuple(SlurmJob("42", state, "None", "n7", "", str(tmp_path), comment) for state in jobs)
    outcomes = outcomes_now(study, tmp_path, tmp_path, Queue(listed, silence))
    assert (outcomes[planned.key].kind, outcomes[planned.key].job_id) == (kind, "42")


def test_a_job_that_is_being_cleared_away_has_said_its_last(study: Study, tmp_path: Path) -> None:
    planned = study.planned[0]
    study = replace(study, system=replace(study.system, slurm=SlurmSite()))
    folder = record_path(tmp_path, study.system.name, planned).parent
    folder.mkdir(parents=True)
    write_failure(folder, Failure("crash", "rank 0 failed", 0, (), now(), "n7", "42"))
    job = SlurmJob("42", "COMPLETING", "None", "n7", "", str(tmp_path), job_comment(study.system.name, planned))
    assert outcomes_now(study, tmp_path, tmp_path, Queue((job,)))[planned.key].kind == "crash"
