"""Everything that ends a job on a cluster, produced for real: what is shown, what is left, what the next call runs.

The adaptors that wait, hoard memory or hang are test doubles (events.py).
"""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest

from cluster import Cluster
from events import (
    SHARED,
    assert_nothing_left,
    comparison,
    end_with_ctrl_c,
    failure,
    has_ended,
    job_of,
    open_the_gate,
    output,
    start,
)

# Slurm gives a job a minute at least, takes half of one to miss a node, and Snakemake asks every few seconds.
pytestmark = pytest.mark.timeout(600)


def test_each_end_of_a_job_is_told_and_mended_by_the_next_call(cluster: Cluster) -> None:
    """A user's scancel, the time limit and a lost node, in one run with a sound cell beside them."""
    sandbox = cluster.sandbox
    cluster.project.write_study(
        frameworks={"waiting": None, "nothing": None},
        repeats=3,
        comparisons={"main": {**comparison([1])["main"], "cross": {"models": ["tiny"], "num_gpus": [1]}}},
    )
    snakemake = start(cluster, "tiny")
    cancelled, limited, lost = (
        sandbox.wait_for(lambda repeat=repeat: job_of(cluster, repeat), 120, f"repeat {repeat} at the gate")
        for repeat in (1, 2, 3)
    )
    sandbox.wait_for(
        lambda: len(list(cluster.project.root.glob("results/cluster/cells/nothing/**/record.json"))) == 3, 120
    )
    sandbox.slurm("scontrol", "update", f"JobId={limited}", "TimeLimit=1")
    sandbox.slurm("scancel", cancelled)
    sandbox.wait_for(
        lambda: has_ended(cluster, cancelled) and has_ended(cluster, limited), 150, "the cancelled and the limited job"
    )
    (node,) = {job.nodes for job in sandbox.jobs() if job.job_id == lost}
    sandbox.kill_slurmd(node)
    assert snakemake.wait(120) != 0

    told = output(cluster)
    assert "3 of 6 cells are missing" in told
    expected = {
        1: ("cancelled", cancelled, "CANCELLED"),
        2: ("time_limit", limited, "TIMEOUT"),
        3: ("node_failure", lost, "NODE_FAIL"),
    }
    for repeat, (kind, job_id, word) in expected.items():
        found = failure(cluster, "waiting", repeat)
        assert (found["kind"], found["job_id"]) == (kind, job_id)
        assert found["scheduler"].startswith(f"Slurm job {job_id}: {word}")
        assert f"{kind}: Slurm job {job_id}: {word}" in told
        assert any("waiting for the gate" in line for line in found["last_lines"])
    table = (cluster.project.root / "results/cluster/tiny/tables/strong_scaling.md").read_text()
    assert "nothing" in table
    status = cluster.status("tiny")
    assert "3 done, 3 failed" in status.output or "3 failed, 3 done" in status.output
    sandbox.heal()
    assert_nothing_left(cluster)

    open_the_gate(cluster)
    before = cluster.submitted()
    again = cluster.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert cluster.submitted() == before + 3
    assert cluster.snakemake("tiny").nothing_done


def test_too_little_memory_is_a_result(cluster: Cluster) -> None:
    cluster.write_system(slurm={**SHARED, "memory_per_gpu_gib": 0.6})
    cluster.project.write_study(frameworks={"hoarding": None}, comparisons=comparison([2]))
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    record = json.loads(cluster.project.record("hoarding", 2, "cluster").read_text())
    assert record["status"] == "oom"
    assert "memory" in record["reason"]
    assert "OOM" in (cluster.project.root / "results/cluster/tiny/tables/strong_scaling.md").read_text()
    assert_nothing_left(cluster)


def test_a_rank_that_never_comes_is_named_with_its_node(cluster: Cluster) -> None:
    cluster.write_system(slurm=SHARED, gpus_per_node=2, startup_timeout_s=15)
    cluster.project.write_study(frameworks={"hanging": None}, global_batch_size=4, comparisons=comparison([4]))
    run = cluster.snakemake("tiny")
    assert run.returncode != 0
    assert failure(cluster, "hanging")["kind"] == "startup_timeout"
    assert "rank 3 (node n2) of 4 had not come to the meeting point" in run.output
    assert_nothing_left(cluster)


def test_a_second_call_is_refused_and_ctrl_c_cancels_the_jobs(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"waiting": None}, comparisons=comparison([2]))
    snakemake = start(cluster, "tiny")
    cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    before = cluster.submitted()
    second = cluster.snakemake("tiny")
    assert second.returncode != 0
    assert "another call is at work in this folder: process " in second.output
    assert cluster.submitted() == before

    end_with_ctrl_c(cluster, snakemake)
    assert failure(cluster, "waiting")["kind"] == "cancelled"
    open_the_gate(cluster)
    again = cluster.snakemake("tiny")
    assert again.returncode == 0, again.output


def kill_login_shell(snakemake: Any) -> None:
    """SIGKILL to Snakemake and all it started here; what Slurm started lives on under slurmstepd."""
    parent = psutil.Process(snakemake.pid)
    for process in [*parent.children(recursive=True), parent]:
        process.kill()
    snakemake.wait(30)


def test_jobs_of_a_killed_login_shell_are_waited_for(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"waiting": None, "nothing": None}, comparisons=comparison([1]))
    snakemake = start(cluster, "tiny")
    job = cluster.sandbox.wait_for(lambda: job_of(cluster, 1), 120, "the cell at the gate")
    cluster.sandbox.wait_for(lambda: cluster.running_jobs() == [job], 120, "the other cell's end")
    kill_login_shell(snakemake)

    locked = cluster.snakemake("tiny")
    assert locked.returncode != 0
    assert "--unlock" in locked.output
    assert cluster.snakemake("--unlock").returncode == 0
    assert "1 running" in cluster.status("tiny").output

    planned = cluster.snakemake("tiny", "-n")
    assert f"job {job} of an earlier call is running" in planned.output
    assert planned.jobs("train_cell") == 0

    # One more cell, and one step at a time: the record comes before the call gets to wait for it, and must stay.
    cluster.project.write_study(frameworks={"waiting": None, "nothing": None}, comparisons=comparison([1]))
    cluster.project.record("nothing", 1, "cluster").unlink()
    before = cluster.submitted()
    second = start(cluster, "tiny", "--jobs", "1")
    cluster.sandbox.wait_for(lambda: cluster.submitted() == before + 1, 120, "the other cell's job")
    begun = cluster.project.snakemake_logs()[-1].read_text().partition("Select jobs to execute")[2]
    assert "rule train_cell:" in begun and "await_jobs" not in begun
    open_the_gate(cluster)
    assert second.wait(180) == 0, output(cluster)
    assert cluster.submitted() == before + 1
    assert json.loads(cluster.project.record("waiting", 1, "cluster").read_text())["launch"]["job_id"] == job
    assert cluster.snakemake("tiny").nothing_done


def test_a_refused_submission_says_why(cluster: Cluster) -> None:
    cluster.write_system(slurm={**SHARED, "partition": "nowhere"})
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    run = cluster.snakemake("tiny")
    assert run.returncode != 0
    assert (
        "missing: nothing, tiny, 1 process, batch 2, data 1, micro-batch 1, repeat 1: refused: Slurm refused the job: "
        in run.output
    )
    assert "invalid partition specified: nowhere" in cluster.status("tiny").output
    assert cluster.submitted() == 0
    assert_nothing_left(cluster)


def test_another_studys_mistake_takes_no_job_with_it(cluster: Cluster) -> None:
    cluster.project.write_study(
        "broken", frameworks={"nothing": None}, global_batch_size=3, comparisons=comparison([2])
    )
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output


def test_executor_and_system_must_fit(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    here = cluster.project.snakemake("tiny", "--config", "system=cluster")
    assert here.returncode != 0
    assert "the cells of system cluster are Slurm jobs" in here.output
    there = cluster.snakemake("tiny", "--config", "system=local")
    assert there.returncode != 0
    assert "config/systems/local.yaml has no key `slurm`" in there.output
    assert cluster.submitted() == 0
    assert not cluster.project.records()
