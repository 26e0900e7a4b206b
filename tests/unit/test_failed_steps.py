"""Cells that never came to run say why: from Snakemake's log to the reason beside each cell."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.outcomes import EndKind, Outcome
from launcher.slurm.failed_steps import note_failed_steps, step_errors
from launcher.slurm.queue import KINDS as SLURM_KINDS
from launcher.slurm.queue import slurm_log
from launcher.verdicts import Failure, log_tail, now, read_failure, write_failure
from planning.plan import Study, record_path
from records.code_digests import SCRIPTS
from records.reader import read_outcomes
from reporting.status_table import state_of
from studies import comparison, expand, study_config

# As Snakemake 9.27 and its Slurm plugin 2.8 write it, shortened.
SBATCH = """    message: SLURM sbatch failed. The error message was 'sbatch: error: invalid partition
specified: nowhere'.
    sbatch call:
        sbatch --parsable
For further error details see the cluster/cloud log and the log files of the involved rule(s).
"""
ACCOUNT = """    message: Job submission failed with exception: The account nope is invalid. Available accounts:
goodFor further error details see the cluster/cloud log and the log files of the involved rule(s).
"""
ENDED = """    message: SLURM-job '4' failed, SLURM status is: 'FAILED'. For further error details see the \
cluster/cloud log and the log files of the involved rule(s).
"""
HOPELESS = """    message: Slurm can never start the job: PartitionTimeLimit: The partition allows less time. \
For further error details see the cluster/cloud log and the log files of the involved rule(s).
"""
FORGOTTEN = """    message: Slurm job 4: it has ended, Slurm has forgotten how, and it left no result. \
For further error details see the cluster/cloud log and the log files of the involved rule(s).
"""


def event(rule: str, outputs: str, log: str, message: str = "") -> str:
    return f"""[Sun Nov 29 20:27:36 2026]
Error in rule {rule}:
{message}    jobid: 1
    input: results/tokens/x/train.json
    output: {outputs}
    log: {log} (check log file(s) for error details)
    shell:
        exec python scripts/x.py 2> >(tee x >&2)
        (command exited with non-zero exit code)
"""


@pytest.fixture
def study() -> Study:
    return expand(
        study_config(
            frameworks={"torch_ddp": None, "deepspeed": None}, comparisons=comparison("strong", [("small", 1)])
        )
    )


def outcomes_after(study: Study, root: Path, log: str) -> dict[str, Outcome]:
    path = root / "snakemake.log"
    path.write_text(f"rule train_cell:\n    output: x\n{log}[Sun Nov 29 20:27:37 2026]\nFinished jobid: 3\n")
    note_failed_steps(study, [path, root / "gone.log"], root)
    outcomes = read_outcomes(study, root / "results")
    return {planned.cell.framework: outcomes[planned.key] for planned in study.planned}


def record_of(study: Study, framework: str) -> Path:
    (planned,) = (p for p in study.planned if p.cell.framework == framework)
    return record_path(Path("results"), study.system.name, planned)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (SBATCH, "sbatch: error: invalid partition specified: nowhere"),
        (ACCOUNT, "The account nope is invalid. Available accounts: good"),
        (HOPELESS, "PartitionTimeLimit: The partition allows less time."),
    ],
)
def test_a_job_that_was_not_submitted_is_refused_with_slurms_words(
    study: Study, tmp_path: Path, message: str, words: str
) -> None:
    record = record_of(study, "torch_ddp")
    log = event("train_cell", f"{record} (update)", "x/log.txt", message)
    log += event("train_cell", f"{record_of(study, 'deepspeed')} (update)", "y/log.txt", ENDED)
    found = outcomes_after(study, tmp_path, log)
    assert (found["torch_ddp"].kind, found["torch_ddp"].reason) == ("refused", f"Slurm refused the job: {words}")
    assert found["deepspeed"].kind == "never_ran"
    assert state_of(found["torch_ddp"]) == "failed"


@pytest.mark.parametrize("told", [False, True])
def test_of_a_job_that_slurm_has_forgotten_the_end_of_its_log_is_told(study: Study, tmp_path: Path, told: bool) -> None:
    """Unless its launcher has told how it ended."""
    (planned,) = (p for p in study.planned if p.cell.framework == "torch_ddp")
    log = slurm_log(tmp_path / "results", study.system.name, planned, "4")
    log.parent.mkdir(parents=True)
    log.write_text("ModuleNotFoundError: No module named 'gone'\n\n")
    record = record_of(study, "torch_ddp")
    if told:
        (tmp_path / record.parent).mkdir(parents=True)
        write_failure(tmp_path / record.parent, Failure("crash", "rank 0 failed", 0, (), now(), "n1", "4"))
    found = outcomes_after(study, tmp_path, event("train_cell", f"{record} (update)", "x/log.txt", FORGOTTEN))
    expected = (
        ("crash", "rank 0 failed") if told else ("interrupted", "it ended before its launcher could say anything")
    )
    assert (found["torch_ddp"].kind, found["torch_ddp"].reason.partition(";")[0]) == expected
    assert told or "Slurm's log ends with: ModuleNotFoundError: No module named 'gone'" in found["torch_ddp"].reason
    assert found["torch_ddp"].job_id == "4"


def test_a_failed_corpus_is_the_reason_of_all_its_cells(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "results/tokens" / study.corpus.key
    folder.mkdir(parents=True)
    (folder / "train.log").write_text("reading\nmytexts/b.txt: line 7 is not UTF-8\n\n")
    tokens = folder.relative_to(tmp_path)
    log = event("tokenize_corpus", f"{tokens}/train.bin, {tokens}/train.json", f"{tokens}/train.log")
    for outcome in outcomes_after(study, tmp_path, log).values():
        assert (outcome.status, outcome.kind) == ("missing", "corpus_failed")
        expected = f"the corpus could not be tokenized: mytexts/b.txt: line 7 is not UTF-8 ({tokens}/train.log)"
        assert outcome.reason == expected
    failure = read_failure(tmp_path / record_of(study, "deepspeed").parent)
    assert failure and failure.last_lines == log_tail(folder / "train.log")


def test_a_failed_environment_is_the_reason_of_its_frameworks_cells_alone(study: Study, tmp_path: Path) -> None:
    name = study.environments["deepspeed"]
    (tmp_path / "environments").mkdir()
    (tmp_path / f"environments/venv-{name}.log").write_text("envs/x.txt: could not be installed (pip ended with 1)\n")
    log = event("make_venv", f"environments/venv-{name}.txt", f"environments/venv-{name}.log")
    found = outcomes_after(study, tmp_path, log)
    assert found["deepspeed"].kind == "environment_failed"
    assert found["deepspeed"].reason.startswith(
        f"the environment {name} of deepspeed could not be made: envs/x.txt: could not be installed (pip ended with 1)"
    )
    assert found["torch_ddp"].kind == "never_ran"


def test_a_step_whose_job_was_refused_or_that_said_nothing(study: Study, tmp_path: Path) -> None:
    tokens = f"results/tokens/{study.corpus.key}"
    outputs = f"{tokens}/train.bin, {tokens}/train.json"
    refused = outcomes_after(study, tmp_path, event("tokenize_corpus", outputs, f"{tokens}/train.log", ACCOUNT))
    assert "Slurm refused the job: The account nope" in refused["torch_ddp"].reason
    silent = outcomes_after(study, tmp_path, event("tokenize_corpus", outputs, f"{tokens}/train.log"))
    assert silent["torch_ddp"].reason == f"the corpus could not be tokenized: it did not say why ({tokens}/train.log)"


def test_what_failed_at_an_earlier_try_gives_way_to_the_reason_of_this_call(study: Study, tmp_path: Path) -> None:
    record = record_of(study, "torch_ddp")
    outcomes_after(study, tmp_path, event("train_cell", str(record), "x", SBATCH))
    found = outcomes_after(study, tmp_path, event("train_cell", str(record), "x", ACCOUNT))
    assert "nope" in found["torch_ddp"].reason
    # A call without an error of its own changes nothing.
    assert outcomes_after(study, tmp_path, "")["torch_ddp"] == replace(found["torch_ddp"])


def test_every_kind_is_told_by_somebody_and_explained() -> None:
    told = {name for path in SCRIPTS.rglob("*.py") for name in re.findall(r"EndKind\.([A-Z_]+)", path.read_text())}
    assert told == {kind.name for kind in EndKind}
    assert set(SLURM_KINDS.values()) <= set(EndKind)
    page = (SCRIPTS.parent / "docs" / "cluster.md").read_text()
    assert all(f"`{kind}" in page for kind in EndKind)


def test_every_error_of_a_log_is_read() -> None:
    log = event("train_cell", "a/record.json (update)", "a/log.txt", SBATCH) + event("make_venv", "b.txt", "b.log")
    first, second = step_errors(log)
    assert (first.rule, first.outputs, first.log) == ("train_cell", (Path("a/record.json"),), Path("a/log.txt"))
    assert (second.rule, second.outputs, second.message) == ("make_venv", (Path("b.txt"),), "")
    assert step_errors("Error in rule x:\n    jobid: 1\n")[0].outputs == ()
