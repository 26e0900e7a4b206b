"""A copy of the project on the sandbox's cluster, as a user of a login node has it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project import ROOT, Project, Run, copy_project
from sandbox import Sandbox

SYSTEM = {
    "description": "Slurm on one machine: CPU processes stand in for the GPUs that Slurm hands out",
    "device": "cpu",
    "gpus_per_node": 4,
    "num_nodes": 3,
    "startup_timeout_s": 120,
    "environment": {"GLOO_SOCKET_IFNAME": "lo"},
    "environments": {"nothing": {"kind": "workflow"}},  # that of the test double tests/data/nothing.py
    "slurm": {
        "partition": "gpu",
        "gpu_request": "gres",
        "gpu_type": "h100",
        "cpus_per_gpu": 1,
        "memory_per_gpu_gib": 1.5,  # a rank of the CUDA build takes 0.9 before it trains
        "job_overhead_minutes": 2,
    },
}
# A framework that computes nothing; the doubles of test_events.py are built on it.
NOTHING = ROOT / "tests" / "data" / "nothing.py"
# What every site may change in profiles/slurm: how often Slurm is asked.
QUICK = ("--slurm-cells-init-seconds-before-status-checks", "1", "--latency-wait", "10")


@dataclass(frozen=True)
class Cluster:
    project: Project
    sandbox: Sandbox

    def command(self, *arguments: str) -> list[str]:
        return self.shipped_command(*QUICK, *arguments)

    def shipped_command(self, *arguments: str) -> list[str]:
        """With the copy's own plugins, in whatever state others are installed."""
        plugins = f"PYTHONPATH={self.project.root / 'plugins'}"
        return ["env", plugins, sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments]

    def snakemake(self, *arguments: str, timeout: float = 280) -> Run:
        return self.project.finish(self.command(*arguments), timeout)

    def status(self, *arguments: str) -> Run:
        return self.project.script("status.py", "--system", "cluster", *arguments)

    def write_system(self, **changes: Any) -> None:
        self.project.write_yaml("config/systems/cluster.yaml", {**SYSTEM, **changes})

    def running_jobs(self) -> list[str]:
        return [job.job_id for job in self.sandbox.jobs() if job.state == "RUNNING"]

    def submitted(self) -> int:
        """Jobs of this copy that Slurm has ever seen."""
        return sum(Path(job.workdir) == self.project.root for job in self.sandbox.jobs())


def make_cluster(folder: Path, sandbox: Sandbox) -> Cluster:
    cluster = Cluster(copy_project(folder), sandbox)
    shutil.copy(NOTHING, cluster.project.root / "scripts" / "frameworks" / "nothing.py")
    (cluster.project.root / "envs" / "nothing.txt").write_text("numpy==2.4.6\n")
    cluster.write_system()
    return cluster
