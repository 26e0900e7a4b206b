"""`snakemake --profile slurm` on a real Slurm: placement, parity with a local run, and what the second call does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import SYSTEM, Cluster, make_cluster
from planning.job_resources import cell_resources
from planning.studies import load_study
from project import Run, ended_afterwards
from sandbox import Sandbox

pytestmark = pytest.mark.timeout(600)

MATRIX = {
    "frameworks": {"torch_ddp": None},
    "global_batch_size": 8,
    "comparisons": {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1, 2, 4, 8]}}},
}


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = make_cluster(tmp_path_factory.mktemp("cluster") / "project", sandbox)
    cluster.project.write_study(**MATRIX)
    with ended_afterwards(cluster.project):
        yield cluster


@pytest.fixture(scope="module")
def first_run(cluster: Cluster) -> Run:
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    return run


@pytest.fixture(scope="module")
def records(cluster: Cluster, first_run: Run) -> dict[int, dict[str, Any]]:
    """By number of GPUs."""
    found = [json.loads(path.read_text()) for path in cluster.project.records()]
    return {record["identity"]["num_gpus"]: record for record in found}


def test_the_dry_run_says_what_it_will_cost(cluster: Cluster) -> None:
    cluster.project.write_study("planned", **{**MATRIX, "time_limit_minutes": 28, "seed": 7})
    run = cluster.snakemake("planned", "-n")
    assert run.returncode == 0, run.output
    # Whole nodes of 4 GPUs for half an hour: 3 cells on one node, one on two.
    assert "planned on cluster: 4 jobs to submit, of at most 2 nodes each, at most 10 GPU-hours in all" in run.output


def test_the_dry_run_says_which_jobs_can_never_start(cluster: Cluster) -> None:
    """They waited in silence: a partition of one hour, and cells of one hour with what a job takes beside its cell."""
    cluster.project.write_study("hour", **{**MATRIX, "time_limit_minutes": 60, "seed": 8})
    cluster.project.write_study("other", **{**MATRIX, "seed": 9})
    cluster.sandbox.slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=60")
    try:
        run = cluster.snakemake("hour", "other", "-n")
    finally:
        cluster.sandbox.slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=UNLIMITED")
    assert run.returncode == 0, run.output
    told = "hour: 3 jobs of 1 node and 62 minutes can never start: partition gpu allows 60 minutes; lower the study's"
    assert told in run.output
    # What both will take comes before the list of either, and Snakemake's own last.
    places = [run.output.index(text) for text in ("hour on cluster: ", "other on cluster: ", "cells to measure on ")]
    assert places == sorted(places)
    assert places[-1] < run.output.index("Job stats:")


def test_the_dry_run_says_what_slurm_would_refuse(cluster: Cluster) -> None:
    cluster.write_system(slurm={**SYSTEM["slurm"], "constraint": "nowhere"})
    try:
        run = cluster.snakemake("planned", "-n")
    finally:
        cluster.write_system()
    assert run.returncode == 0, run.output
    told = "planned: 1 job of 2 nodes would be refused as things stand: sbatch says: "
    assert told in run.output, run.output
    assert "Invalid feature specification (asked: --partition=gpu --constraint=nowhere --nodes=2 " in run.output


def test_every_cell_is_a_job_of_its_own(cluster: Cluster, records: dict[int, dict[str, Any]]) -> None:
    assert sorted(records) == [1, 2, 4, 8]
    assert all(record["status"] == "ok" for record in records.values())
    assert len({record["launch"]["job_id"] for record in records.values()}) == 4
    assert (cluster.project.root / "results/cluster/tiny/tables/strong_scaling.md").exists()


@pytest.mark.parametrize(("num_gpus", "ranks_of_nodes"), [(1, [1]), (2, [2]), (4, [4]), (8, [4, 4])])
def test_ranks_are_placed_on_their_nodes(
    records: dict[int, dict[str, Any]], num_gpus: int, ranks_of_nodes: list[int]
) -> None:
    record = records[num_gpus]
    assert record["launch"]["num_nodes"] == len(ranks_of_nodes) == len(set(record["launch"]["hosts"]))
    assert record["launch"]["node_shared"] is False
    placed = [(rank["rank"], rank["host"], rank["local_rank"]) for rank in record["ranks"]]
    ranks = iter(range(num_gpus))
    expected = [
        (next(ranks), host, local)
        for host, size in zip(record["launch"]["hosts"], ranks_of_nodes, strict=True)
        for local in range(size)
    ]
    assert placed == expected


def test_losses_are_those_of_a_local_run(cluster: Cluster, records: dict[int, dict[str, Any]]) -> None:
    comparison = {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1]}}}
    cluster.project.write_study("here", **{**MATRIX, "comparisons": comparison})
    run = cluster.project.snakemake("here")
    assert run.returncode == 0, run.output
    here = json.loads(cluster.project.record("torch_ddp").read_text())
    expected = here["ranks"][0]["losses"]
    for record in records.values():
        losses = [rank["losses"] for rank in record["ranks"]]
        means = [sum(batch) / len(batch) for batch in zip(*losses, strict=True)]
        assert means == pytest.approx(expected, rel=1e-4)


def test_the_second_call_does_nothing(cluster: Cluster, first_run: Run) -> None:
    before = cluster.submitted()
    run = cluster.snakemake("tiny")
    assert run.nothing_done, run.output
    assert cluster.submitted() == before


def test_deleted_records_are_exactly_the_jobs_submitted(cluster: Cluster, first_run: Run) -> None:
    before = cluster.submitted()
    for num_gpus in (1, 4):
        cluster.project.record("torch_ddp", num_gpus, "cluster").unlink()
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert cluster.submitted() == before + 2
    assert cluster.snakemake("tiny").nothing_done


def test_status_shows_the_jobs(cluster: Cluster, first_run: Run) -> None:
    run = cluster.status("tiny")
    assert run.returncode == 0
    assert "4 done" in run.output
    # The last two columns; of now, since cells may have been measured again since the first run.
    found = cluster.project.root.glob("results/cluster/cells/**/record.json")
    records = [json.loads(path.read_text()) for path in found]
    shown = {tuple(line.split()[-2:]) for line in run.output.splitlines()}
    assert len(records) == 4
    assert {(record["launch"]["job_id"], record["cell_id"]) for record in records} <= shown


def test_without_a_system_file_the_way_is_shown(cluster: Cluster) -> None:
    file = cluster.project.root / "config/systems/cluster.yaml"
    text = file.read_text()
    file.unlink()
    try:
        run = cluster.snakemake("tiny", "-n")
    finally:
        file.write_text(text)
    assert run.returncode != 0
    assert "config/systems/cluster.yaml: there is no such file" in run.output
    assert "example-gres.yaml" in run.output and "python scripts/describe_cluster.py" in run.output
    assert "Traceback" not in run.output


def test_the_draft_of_a_system_file_is_one_that_slurm_takes(cluster: Cluster) -> None:
    project = cluster.project
    drafted = project.script("describe_cluster.py", "--system", "drafted")
    assert drafted.returncode == 0, drafted.output
    assert "devices: Gres=gpu:h100:4 of node n1, which may be H100-SXM or H100-PCIe or H100-NVL" in drafted.output
    run = cluster.snakemake("tiny", "-n", "--config", "system=drafted")
    assert run.returncode == 0, run.output
    assert "tiny on drafted: 4 jobs to submit, of at most 2 nodes each" in run.output
    assert "can never start" not in run.output and "is not known" not in run.output
    study = load_study("tiny", "drafted", project.root)
    assert study.system.slurm and (study.system.gpus_per_node, study.system.max_gpus) == (4, 12)
    for planned in study.runnable():
        asked = cell_resources(study.system.slurm, planned.cell, 600)
        options = [
            f"--partition={study.system.slurm.partition}",
            f"--nodes={asked['nodes']}",
            f"--gres={asked['gres']}",
        ]
        options += [f"--mem={asked['mem'].removesuffix(' MB')}M", f"--cpus-per-task={asked['threads']}"]
        options += [f"--time={asked['runtime']}", *asked["slurm_extra"].split()]
        cluster.sandbox.slurm("sbatch", "--test-only", *options, "--wrap=true")
