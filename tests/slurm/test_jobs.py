"""What a job asks Slurm for, and what it needs when it starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, make_cluster
from events import SHARED, comparison, failure, jobs_of, output, start
from project import ended_afterwards, wait_until
from sandbox import Sandbox

pytestmark = pytest.mark.timeout(400)

# The executor of Snakemake's own Slurm plugin, with the profile's settings.
PLUGIN = (
    *("--executor", "slurm", "--slurm-no-requeue", "--slurm-jobname-prefix", "scaling-eval"),
    *("--slurm-logdir", "results/slurm-logs", "--slurm-status-command", "squeue"),
    *("--slurm-init-seconds-before-status-checks", "1"),
)
# Of `scontrol show job`: the number, the moment, and where the command comes from.
OF_ONE_JOB = {"JobId", "JobName", "Command", "Priority", "AllocNode:Sid", "LastSchedEval", "Scheduler", "Reason"}
SITES: dict[str, dict[str, Any]] = {
    "gres": {"gpu_request": "gres", "gpu_type": "h100", "qos": "normal"},
    "gpus_per_node": {"gpu_request": "gpus_per_node", "gpu_type": "h100", "exclusive": False},
    "none": {"gpu_request": "none", "gpu_type": None, "memory_per_gpu_gib": None},
}


@pytest.mark.parametrize(
    "site", ["gres", *(pytest.param(site, marks=pytest.mark.long) for site in ("gpus_per_node", "none"))]
)
def test_slurm_is_asked_for_the_same_as_by_its_plugin(cluster: Cluster, site: str) -> None:
    """Cells on one node and on two; the jobs never start."""
    held = {**SHARED, "exclusive": True, "extra": ["--begin=now+1hour"], **SITES[site]}
    cluster.write_system(slurm={key: value for key, value in held.items() if value is not None})
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1, 8]), global_batch_size=8)
    ours = requests(cluster)
    assert len(ours) == 2
    assert ours == requests(cluster, *PLUGIN)


def requests(cluster: Cluster, *arguments: str) -> dict[str, dict[str, str]]:
    """What Slurm keeps of the jobs that a call submits, by their comments; the call is ended by cancelling them."""
    before = {job.job_id for job in jobs_of(cluster)}
    snakemake = start(cluster, "tiny", *arguments)
    cluster.sandbox.wait_for(lambda: len(jobs_of(cluster)) == len(before) + 2, 120, "two jobs")
    new = [job.job_id for job in jobs_of(cluster) if job.job_id not in before]
    found = [asked_for(cluster.sandbox, job_id) for job_id in new]
    cluster.sandbox.cancel_jobs()
    assert snakemake.wait(120) != 0
    return {request["Comment"]: request for request in found}


def asked_for(sandbox: Sandbox, job_id: str) -> dict[str, str]:
    shown = sandbox.slurm("scontrol", "show", "job", "--oneliner", job_id).replace(f"/{job_id}.log", "/<job>.log")
    fields = dict(re.findall(r"(\S+?)=(\S*)", shown))
    return {key: value for key, value in fields.items() if key not in OF_ONE_JOB and not key.endswith("Time")}


def test_a_mistake_in_a_file_while_jobs_wait_fails_none(cluster: Cluster) -> None:
    """A job reads neither the system's file nor models nor studies nor the Snakefile again."""
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    cluster.sandbox.set_partition("gpu", State="DOWN")
    snakemake = start(cluster, "tiny")
    cluster.sandbox.wait_for(lambda: jobs_of(cluster), 120, "the job")
    paths = ("config/models.yaml", "config/studies/tiny.yaml", "config/systems/cluster.yaml", "Snakefile")
    whole = {path: (cluster.project.root / path).read_text() for path in paths}
    for path, text in whole.items():
        (cluster.project.root / path).write_text(f"{text}\nbroken: [\n")
    cluster.sandbox.set_partition("gpu", State="UP")
    cluster.sandbox.wait_for(cluster.project.records, 120, "the record")
    for path, text in whole.items():
        (cluster.project.root / path).write_text(text)
    assert snakemake.wait(120) == 0, output(cluster)


def test_a_job_that_ends_without_our_word_has_the_end_of_slurms_log(cluster: Cluster) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    cluster.sandbox.set_partition("gpu", State="DOWN")
    snakemake = start(cluster, "tiny")
    cluster.sandbox.wait_for(lambda: jobs_of(cluster), 120, "the job")
    (cluster.project.root / "scripts/launch.py").write_text("import a_module_that_is_gone\n")
    cluster.sandbox.set_partition("gpu", State="UP")
    assert snakemake.wait(120) != 0
    found = failure(cluster, "nothing")
    assert "ModuleNotFoundError: No module named 'a_module_that_is_gone'" in found["reason"]
    assert any("launch.py" in line for line in found["last_lines"])
    assert "Slurm's log ends with: ModuleNotFoundError" in output(cluster)


def test_nothing_is_submitted_by_a_plugin_of_another_state(cluster: Cluster, tmp_path: Path) -> None:
    cluster.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    name = "snakemake_executor_plugin_slurm_cells"
    shutil.copytree(cluster.project.root / "plugins", tmp_path / "plugins")
    (tmp_path / "plugins" / name / "__init__.py").open("a").write("# of yesterday\n")
    command = ["env", f"PYTHONPATH={tmp_path / 'plugins'}", *cluster.command("tiny")[2:]]
    run = cluster.project.finish(command, 120)
    assert run.returncode != 0
    assert f"{name} is installed in another state of it: pip install -r envs/workflow.txt" in run.output
    assert cluster.submitted() == 0


@pytest.fixture
def spaced(sandbox: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    cluster = make_cluster(tmp_path / "it's a project; $HOME & (more)", sandbox)
    cluster.write_system(slurm=SHARED)
    with ended_afterwards(cluster.project):
        yield cluster


def test_a_path_with_spaces_and_signs_is_one(spaced: Cluster) -> None:
    spaced.project.write_study(frameworks={"nothing": None}, comparisons=comparison([1]))
    run = spaced.snakemake("tiny")
    assert run.returncode == 0, run.output
    (log,) = spaced.project.root.glob("results/slurm-logs/rule_train_cell/*/*.log")
    assert "ok" in log.read_text()
    wait_until(lambda: not spaced.project.processes(), "the end of all processes", 30)
