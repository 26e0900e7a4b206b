"""What a login shell has set changes neither what Slurm answers nor what is measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import SYSTEM, Cluster, make_cluster
from launcher.slurm.queue import job_comment
from planning.studies import load_study
from project import ended_afterwards
from sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)

SHOWN = 'self.settings = {"visible_devices": __import__("os").environ.get("CUDA_VISIBLE_DEVICES")}'
ONE_CELL = {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1]}}}


@pytest.fixture
def cluster(sandbox: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    cluster = make_cluster(tmp_path / "project", sandbox)
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=ONE_CELL)
    with ended_afterwards(cluster.project):
        yield cluster


def submit_by_hand(cluster: Cluster) -> str:
    """A job that Slurm shows as an earlier call's job of the only cell of the study `known`; it sleeps."""
    root = cluster.project.root
    (planned,) = load_study("known", "cluster", root).planned
    options = [f"--comment={job_comment('cluster', planned)}", f"--chdir={root}", "--output=/dev/null"]
    return cluster.sandbox.slurm("sbatch", "--parsable", *options, "--wrap=sleep 200").strip()


def test_a_job_is_seen_whatever_the_shell_asks_squeue_to_leave_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell was submitted and measured a second time: squeue was asked with the shell's variables."""
    cluster.project.write_study("known", frameworks={"torch_plain": None}, comparisons=ONE_CELL)
    job = submit_by_hand(cluster)
    for variable, value in {
        "SQUEUE_PARTITION": "low",
        "SQUEUE_ACCOUNT": "elsewhere",
        "LOGNAME": "nobody",
    }.items():
        with monkeypatch.context() as shell:
            shell.setenv(variable, value)
            planned = cluster.snakemake("known", "-n")
            assert f"job {job} of an earlier call is " in planned.output, (variable, planned.output)
            assert planned.jobs("train_cell") == 0
    cluster.sandbox.cancel_jobs()


def test_a_cell_is_measured_without_the_shells_settings(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm hands a job the whole environment of the shell that submitted it."""
    shell = {"OMP_PROC_BIND": "true", "NCCL_ALGO": "Ring", "KMP_BLOCKTIME": "0", "UCX_TLS": "tcp", "TORCH_LOGS": "x"}
    for name, value in {**shell, "CUDA_VISIBLE_DEVICES": "7"}.items():
        monkeypatch.setenv(name, value)
    framework = cluster.project.root / "scripts/frameworks/nothing.py"
    framework.write_text(framework.read_text().replace("self.settings = {}", SHOWN))
    cluster.write_system(environment={**SYSTEM["environment"], "NCCL_ALGO": "Tree"}, setup=["export KMP_BLOCKTIME=200"])
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    record = json.loads(cluster.project.record("nothing", 1, "cluster").read_text())
    held = record["ranks"][0]["process"]["variables"]
    assert {name: held[name] for name in shell if name in held} == {"NCCL_ALGO": "Tree", "KMP_BLOCKTIME": "200"}
    assert record["launch"]["environment"]["NCCL_ALGO"] == "Tree"
    assert record["settings"]["visible_devices"] == "0"  # Slurm's choice, not the shell's
    log = cluster.project.record("nothing", 1, "cluster").with_name("log.txt").read_text()
    for told in (run.output, log):
        assert "kept from the training processes, whose speed may depend on it: KMP_BLOCKTIME, OMP_PROC_BIND, " in told
