"""What Slurm's words mean: as Slurm 22.05 and the Slurm plugin 2.8 write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.slurm.queue import SlurmJob
from launcher.slurm.watching import gives_no_answer, is_closed, is_full, never_starts, refusal, unknown_job

JOB = SlurmJob("42", "PENDING", "Priority", "", "2026-12-01T00:00:00", "/project", "rule_train_cell_wildcards_a")
SBATCH = """SLURM sbatch failed. The error message was 'sbatch: error: {}'.
    sbatch call:
        sbatch --parsable --comment 'it''s'
    sbatch script:
#!/bin/sh
"""


@pytest.mark.parametrize(
    "words",
    [
        "Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "Batch job submission failed: Socket timed out on send/recv operation",
        "Batch job submission failed: Zero Bytes were transmitted or received",
        "Slurm temporarily unable to accept job, sleeping and retrying",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
    ],
)
def test_no_answer_is_no_refusal(words: str) -> None:
    said = refusal(SBATCH.format(words))
    assert said == f"sbatch: error: {words}"
    assert gives_no_answer(said)
    assert not is_closed(said)


@pytest.mark.parametrize(
    "words",
    [
        "invalid partition specified: nowhere",
        "Batch job submission failed: Invalid account or account/partition combination specified",
        "Memory specification can not be satisfied",
    ],
)
def test_a_refusal_stays_one(words: str) -> None:
    said = refusal(SBATCH.format(words))
    assert words in said
    assert not gives_no_answer(said)
    assert not is_closed(said)


def test_an_account_that_the_plugin_does_not_know_is_a_refusal() -> None:
    assert refusal("Job submission failed with exception: The account nope is invalid") == "The account nope is invalid"


def test_a_closed_partition_opens_again() -> None:
    words = "Batch job submission failed: Required partition not available (inactive or drain)"
    assert is_closed(refusal(SBATCH.format(words)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("QOSMaxSubmitJobPerUserLimit", True),
        ("AssocMaxSubmitJobLimit", True),
        ("AssocGrpSubmitJobsLimit", True),
        ("QOSMaxSubmitJobPerAccountLimit", True),
        ("QOSMaxWallDurationPerJobLimit", False),
        ("MaxMemPerLimit", False),
    ],
)  # fmt: skip
def test_a_limit_of_jobs_in_the_queue_passes(words: str, expected: bool) -> None:
    policy = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)"
    assert is_full(refusal(SBATCH.format(f"{words} {policy}"))) == expected


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("PartitionTimeLimit", "time_limit_minutes"),
        ("QOSMaxWallDurationPerJobLimit", "time_limit_minutes"),
        ("AssocMaxWallDurationPerJobLimit", "time_limit_minutes"),
        ("QOSMaxGRESPerJob", "slurm.qos"),
        ("AssocMaxCpuPerJobLimit", "slurm.qos"),
        ("BadConstraints", "slurm.constraint"),
        ("InvalidAccount", "slurm.account"),
        ("InvalidQOS", "slurm.qos"),
    ],
)
def test_what_can_never_start_is_told_with_what_to_change(reason: str, advice: str) -> None:
    words = never_starts(replace(JOB, reason=reason))
    assert words.startswith(f"{reason}: ")
    assert advice in words
    assert never_starts(replace(JOB, reason=reason, state="RUNNING")) == ""


@pytest.mark.parametrize(
    "reason",
    ["None", "Priority", "Resources", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail", "JobHeldUser"],
)
def test_what_only_has_to_wait_is_not_told(reason: str) -> None:
    assert never_starts(replace(JOB, reason=reason)) == ""


def test_a_job_that_was_submitted_without_an_answer_is_found_by_its_comment() -> None:
    listed = [JOB, replace(JOB, job_id="43"), replace(JOB, job_id="44", comment="another")]
    assert unknown_job(JOB.comment, listed, {"42"}) == "43"
    assert unknown_job(JOB.comment, listed, {"42", "43"}) == ""
