"""Slurm that does not answer, forgets, refuses for a while or never starts a job: what a call does meanwhile."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from cluster import Cluster
from events import (
    SHARED,
    assert_nothing_left,
    comparison,
    failure,
    has_ended,
    job_of,
    jobs_of,
    open_the_gate,
    output,
    start,
)
from project import wait_until

pytestmark = pytest.mark.timeout(600)

WAITING = {"frameworks": {"waiting": None}, "comparisons": comparison([1])}
# What squeue says when nobody answers, and what a call makes of it.
NO_ANSWER = "Jobs go on meanwhile, and Slurm is asked again until it answers."


def records(cluster: Cluster) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in cluster.project.records()]


def test_a_call_outlives_an_outage_of_the_controller(cluster: Cluster) -> None:
    """With three jobs that run, of which two end meanwhile, and one that waits."""
    cluster.write_system(slurm={**SHARED, "exclusive": True}, num_nodes=3)
    cluster.project.write_study(**WAITING, repeats=4)
    snakemake = start(cluster, "tiny")
    running = [
        cluster.sandbox.wait_for(lambda repeat=repeat: job_of(cluster, repeat), 120, f"repeat {repeat} at the gate")
        for repeat in repeats_that_run(cluster)
    ]
    assert len(running) == 3
    cluster.sandbox.stop_controller()
    wait_until(lambda: NO_ANSWER in output(cluster), "the call to notice", 90)
    open_the_gate(cluster)
    wait_until(lambda: len(records(cluster)) == 3, "three records", 90)
    cluster.sandbox.start_controller()
    assert snakemake.wait(180) == 0, output(cluster)
    assert "Slurm answers again." in output(cluster)
    assert cluster.submitted() == 4
    assert len({record["launch"]["job_id"] for record in records(cluster)}) == 4


def repeats_that_run(cluster: Cluster) -> list[int]:
    """Three of four, when one node is left for none."""

    def found() -> list[int]:
        jobs = jobs_of(cluster)
        running = [int(job.comment.rpartition("_")[2]) for job in jobs if job.state == "RUNNING"]
        return running if len(running) == 3 and len(jobs) == 4 else []

    return cluster.sandbox.wait_for(found, 120, "three jobs to run")


@pytest.mark.long
def test_sigterm_in_an_outage_waits_for_the_jobs(cluster: Cluster) -> None:
    cluster.project.write_study(**WAITING)
    snakemake = start(cluster, "tiny")
    cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    cluster.sandbox.stop_controller()
    wait_until(lambda: NO_ANSWER in output(cluster), "the call to notice", 90)
    snakemake.send_signal(signal.SIGTERM)
    open_the_gate(cluster)
    cluster.sandbox.start_controller()
    snakemake.wait(120)
    assert len(records(cluster)) == 1
    assert_nothing_left(cluster)


def test_ctrl_c_in_an_outage_cancels_the_jobs_after_it(cluster: Cluster) -> None:
    cluster.project.write_study(**WAITING)
    snakemake = start(cluster, "tiny")
    job = cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    cluster.sandbox.stop_controller()
    wait_until(lambda: NO_ANSWER in output(cluster), "the call to notice", 90)
    os.killpg(snakemake.pid, signal.SIGINT)
    wait_until(lambda: "asked again to cancel the jobs" in output(cluster), "the first try", 60)
    cluster.sandbox.start_controller()
    assert snakemake.wait(90) != 0
    cluster.sandbox.wait_for(lambda: has_ended(cluster, job), 30, "the job's end")
    assert_nothing_left(cluster)


@pytest.mark.long
def test_ctrl_c_in_an_outage_that_lasts_names_the_jobs_and_the_next_call_waits_for_them(cluster: Cluster) -> None:
    cluster.project.write_study(**WAITING)
    snakemake = start(cluster, "tiny")
    job = cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    cluster.sandbox.stop_controller()
    wait_until(lambda: NO_ANSWER in output(cluster), "the call to notice", 90)
    os.killpg(snakemake.pid, signal.SIGINT)
    assert snakemake.wait(240) != 0
    assert f"jobs are left in its queue: scancel {job}" in output(cluster)
    cluster.sandbox.start_controller()
    again = start(cluster, "tiny")
    wait_until(lambda: f"job {job} of an earlier call is running" in output(cluster), "the next call", 120)
    open_the_gate(cluster)
    assert again.wait(180) == 0, output(cluster)
    assert cluster.submitted() == 1


@pytest.mark.parametrize("measured", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_job_that_slurm_has_forgotten(cluster: Cluster, measured: bool) -> None:
    """MinJobAge is shorter than the pause between two questions: the call is stopped for so long."""
    cluster.sandbox.stop_controller()
    cluster.sandbox.start_controller(MinJobAge=2)
    cluster.project.write_study(**WAITING)
    snakemake = start(cluster, "tiny")
    job = cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    snakemake.send_signal(signal.SIGSTOP)
    if measured:
        open_the_gate(cluster)
    else:
        cluster.sandbox.slurm("scancel", "--full", "--signal=KILL", job)
    cluster.sandbox.wait_for(lambda: not jobs_of(cluster), 120, "Slurm to forget the job")
    snakemake.send_signal(signal.SIGCONT)
    status = snakemake.wait(120)
    assert (status == 0) == measured, output(cluster)
    if not measured:
        assert f"Slurm job {job}: it has ended, Slurm has forgotten how" in output(cluster)
        assert failure(cluster, "waiting")["job_id"] == job
        assert "1 of 1 cells are missing" in output(cluster)


def test_a_job_that_can_never_start_is_told_at_once_and_given_up(cluster: Cluster) -> None:
    """Its partition allows less time."""
    cluster.project.write_study(
        frameworks={"nothing": None},
        comparisons=comparison([1, 2]),
        time_limit_minutes=60,
    )
    cluster.sandbox.set_partition("gpu", MaxTime=30)
    run = cluster.snakemake("tiny", "--slurm-cells-patience-s", "3")
    assert run.returncode != 0
    assert (
        "2 of this call's jobs can never start. PartitionTimeLimit: The partition allows less time. Lower" in run.output
    )
    assert "refused: Slurm refused the job: PartitionTimeLimit: The partition allows less time." in run.output
    assert_nothing_left(cluster)


@pytest.mark.long
def test_a_job_whose_limit_is_raised_in_time_is_measured(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]), time_limit_minutes=60)
    cluster.sandbox.set_partition("gpu", MaxTime=30)
    snakemake = start(cluster, "tiny")
    wait_until(lambda: "PartitionTimeLimit" in output(cluster), "the reason", 120)
    cluster.sandbox.set_partition("gpu", MaxTime="INFINITE")
    assert snakemake.wait(180) == 0, output(cluster)
    assert cluster.submitted() == 1


def test_a_partition_that_is_closed_for_a_while_refuses_no_cell(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1, 2]))
    cluster.sandbox.set_partition("gpu", State="INACTIVE")
    snakemake = start(cluster, "tiny")
    wait_until(lambda: "jobs are submitted again for" in output(cluster), "the refusal", 120)
    cluster.sandbox.set_partition("gpu", State="UP")
    assert snakemake.wait(180) == 0, output(cluster)
    assert cluster.submitted() == 2


@pytest.mark.long
def test_a_partition_that_stays_closed_refuses_the_cells(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    cluster.sandbox.set_partition("gpu", State="INACTIVE")
    run = cluster.snakemake("tiny", "--slurm-cells-patience-s", "5")
    assert run.returncode != 0
    assert (
        "refused: Slurm refused the job: sbatch: error: Batch job submission failed: Required partition" in run.output
    )
    assert cluster.submitted() == 0


def test_a_submission_that_slurm_took_without_an_answer_is_no_second_job(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sbatch finds a controller that is stopped until sbatch has given up."""
    programs = tmp_path / "programs"
    programs.mkdir()
    wrapper = programs / "sbatch"
    wrapper.write_text(f"""#!/bin/bash
if mkdir {tmp_path}/once 2>/dev/null; then
    kill -STOP $(cat {cluster.sandbox.folder}/slurmctld.pid)
    /usr/bin/sbatch "$@"
    status=$?
    kill -CONT $(cat {cluster.sandbox.folder}/slurmctld.pid)
    exit $status
fi
exec /usr/bin/sbatch "$@"
""")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert "Slurm does not answer a submission" in run.output
    assert cluster.submitted() == 1


def test_a_preempted_cell_is_told_and_runs_again(cluster: Cluster) -> None:
    cluster.write_system(slurm={**SHARED, "partition": "low", "exclusive": True}, num_nodes=3)
    cluster.project.write_study(**WAITING)
    snakemake = start(cluster, "tiny")
    cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    cluster.sandbox.slurm("sbatch", "-p", "gpu", "-N3", "--exclusive", "-o", "/dev/null", "--wrap=sleep 3")
    assert snakemake.wait(120) != 0
    assert "preempted: Slurm job " in output(cluster)
    assert failure(cluster, "waiting")["kind"] == "preempted"
    open_the_gate(cluster)
    assert cluster.snakemake("tiny").returncode == 0
