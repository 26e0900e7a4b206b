"""What the Snakefile calls, with a stand-in for Snakemake's workflow and the shipped configuration in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.exceptions import WorkflowError

from terminal.misspelt import study_hint
from workflow_support import earlier_jobs, hooks, refusals
from workflow_support.call import ASKED_VARIABLE, Call
from workflow_support.changes import OutputChanges
from workflow_support.environments import Environments
from workflow_support.plan_messages import PlanMessages
from workflow_support.targets import Targets

ROOT = Path(__file__).resolve().parents[2]


class FakeWorkflow(SimpleNamespace):
    """What of Snakemake's workflow is looked at."""

    @property
    def cores(self) -> int:
        if self.given_cores is None:
            raise WorkflowError("no cores")
        return self.given_cores


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("config", "corpora", "envs", "reference", "workflow", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config").unlink()
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_call(root: Path, *asked: str, config: dict[str, Any] | None = None, **changes: Any) -> Call:
    workflow = FakeWorkflow(
        is_main_process=changes.pop("is_main_process", True),
        dryrun=changes.pop("dryrun", True),
        given_cores=changes.pop("given_cores", 2),
        dag_settings=SimpleNamespace(targets=set(asked)),
        executor_plugin=SimpleNamespace(name="local"),
        execution_settings=SimpleNamespace(lock=True),
    )
    return Call(workflow, root, config or {})


def make_targets(call: Call) -> Targets:
    changes = OutputChanges(call)
    return Targets(call, changes, Environments(call, changes.note), PlanMessages(call))


def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err + caplog.text


def test_without_a_target_or_with_all_the_configured_studies_are_asked_for(root: Path) -> None:
    assert make_call(root).asked_names() == ["demo"]
    assert make_call(root, "all").asked_names() == ["demo"]
    assert make_call(root, config={"studies": ["parity"]}).asked_names() == ["parity"]


def test_studies_are_asked_for_by_name_and_files_are_no_studies(root: Path) -> None:
    assert make_call(root, "parity", "demo").asked_names() == ["demo", "parity"]
    assert make_call(root, "parity", "all").asked_names() == ["parity", "demo"]
    call = make_call(root, "results/local/demo/measurements.csv")
    assert call.asked_names() == []
    assert call.asks_for_file("results/local/demo/measurements.csv")


def test_a_target_s_study_gives_its_records_and_outputs(root: Path) -> None:
    call = make_call(root, "demo")
    found = [str(path) for path in make_targets(call).of_study("demo")]
    assert "results/local/demo/measurements.csv" in found
    assert sum(path.endswith("record.json") for path in found) == len(call.study("demo").runnable())
    assert {Path(path).suffix for path in found if "/tables/" in path} == {".csv", ".md", ".tex"}
    assert [study.name for study in call.requested] == ["demo"]
    assert not [path for path in found if "changes" in path]


def test_every_asked_study_is_checked_before_the_first_one_is_told_of(
    root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (root / "config" / "studies" / "parity.yaml").write_text("titel: x\n")
    with pytest.raises(SystemExit):
        make_targets(make_call(root, "demo", "parity")).of_study("demo")
    said = told(caplog, capsys)
    assert "config/studies/parity.yaml: top level" in said and "did you mean 'title'" in said
    assert "cells to measure" not in said


def test_a_study_under_another_rule_name_is_looked_at_by_itself(root: Path) -> None:
    """As in a workflow that uses this one as a module, with `use rule * from scaling_eval as eval_*`."""
    (root / "config" / "studies" / "parity.yaml").write_text("titel: x\n")
    call = make_call(root, "eval_demo")
    assert make_targets(call).of_study("demo")


def test_a_cell_s_values_come_by_its_id_and_an_unknown_one_ends_the_call(
    root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    call = make_call(root, "demo")
    cell = call.study("demo").runnable()[0].cell
    wildcards = SimpleNamespace(system="local", cell_id=cell.cell_id)
    assert call.cell_value(wildcards, "identity") == cell.identity_json
    with pytest.raises(SystemExit):
        call.cell_value(SimpleNamespace(system="local", cell_id="0" * 12), "identity")
    assert "cell 000000000000 is in no study" in told(caplog, capsys)


def test_a_job_reads_the_studies_of_the_call_that_submitted_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKED_VARIABLE, "parity")
    call = make_call(root, is_main_process=False)
    assert [study.name for study in call.asked_studies("local")] == ["parity"]
    assert len(make_call(root).asked_studies("local")) > 1


def test_a_cell_with_its_record_needs_nothing(root: Path) -> None:
    call = make_call(root, "demo")
    planned = call.study("demo").runnable()[0]
    cell = planned.cell
    wildcards = SimpleNamespace(
        system="local", framework=cell.framework, model=cell.model.name, num_gpus=cell.num_gpus, cell_id=cell.cell_id,
        repeat=planned.repeat,
    )  # fmt: skip
    targets = make_targets(call)
    needed = targets.needed_to_train(wildcards)
    assert [Path(path).suffix for path in needed[:2]] == [".json", ".bin"]
    (record,) = [path for path in map(Path, targets.of_study("demo")) if cell.cell_id in str(path)][:1]
    record = record.parents[1] / f"repeat{planned.repeat}" / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert targets.needed_to_train(wildcards) == []


def test_outputs_in_another_call_s_hands_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    locks = root / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").write_text("results/local/demo/measurements.csv\n")
    assert make_targets(make_call(root, "demo")).of_study("demo")  # a dry run takes no lock
    with pytest.raises(SystemExit):
        make_targets(make_call(root, "demo", dryrun=False)).of_study("demo")
    assert "take the lock away" in told(caplog, capsys)


def test_without_cores_the_call_ends_with_what_to_give(
    root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert make_call(root).all_cores() == 2
    with pytest.raises(SystemExit):
        make_call(root, given_cores=None).all_cores()
    assert "use ./run or give --cores" in told(caplog, capsys)


def test_a_run_on_this_machine_of_a_cluster_s_system_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    call = make_call(root, config={"system": "example-summit-like"})
    with pytest.raises(SystemExit):
        refusals.check_start(call)
    assert "run snakemake --profile slurm" in told(caplog, capsys)
    refusals.check_start(make_call(root))


def test_a_job_of_slurm_reads_a_copy_of_the_system_file(root: Path) -> None:
    assert hooks.kept_system_file(make_call(root)) == "config/systems/local.yaml"
    call = make_call(root, config={"system": "example-summit-like"})
    kept = Path(hooks.kept_system_file(call))
    assert kept.parent == Path("results/slurm-logs/systems") and kept.name.startswith("example-summit-like-")


def test_slurm_is_asked_only_by_the_call_itself_and_only_for_a_cluster(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_system: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(earlier_jobs, "look_at_queue", ask)
    assert list(earlier_jobs.awaited_steps(make_call(root))) == []
    cluster = {"system": "example-summit-like"}
    assert list(earlier_jobs.awaited_steps(make_call(root, config=cluster, is_main_process=False))) == []
    with pytest.raises(AssertionError, match="asked"):
        list(earlier_jobs.awaited_steps(make_call(root, config=cluster)))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("No rule to produce dmeo (if you use", "there is no study 'dmeo' (did you mean 'demo'?"),
        ("MissingRuleException:\nNo rule to produce parit (if", "there is no study 'parit' (did you mean 'parity'?"),
        ("No rule to produce results/x.csv (if you use", ""),
        ("No rule to produce demo (if you use", ""),
        ("something else about dmeo", ""),
    ],
)
def test_a_target_that_is_nearly_a_study_gets_a_hint(message: str, hint: str) -> None:
    found = study_hint(message, ["demo", "parity"])
    assert found.startswith(hint) if hint else found == ""
