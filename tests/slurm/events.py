"""Cells that wait, hoard memory or hang, and what tests ask of their jobs.

Their adaptors are test doubles, written into the test's own copy of the project.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from cluster import SYSTEM, Cluster
from project import wait_until
from sandbox import Job

# Waits in front of the meeting point until the file `gate` is there. The doubles compute nothing: what ends jobs is
# looked at here, and real training in test_cluster.py.
WAITING = '''"""Test double: starts when the file `gate` is there."""

import time
from pathlib import Path

from frameworks import nothing
from frameworks.nothing import FRAMEWORK, unsupported_reason


def create_engine(job):
    print("waiting for the gate", flush=True)
    while not Path("gate").exists():
        time.sleep(0.1)
    return nothing.create_engine(job)
'''
HOARDING = '''"""Test double: takes more memory than its job was given, slowly enough to be seen."""

import time

from frameworks.nothing import FRAMEWORK, unsupported_reason


def create_engine(job):
    hoard = []
    while True:
        hoard.append(b"x" * (100 * 2**20))
        time.sleep(0.2)
'''
HANGING = '''"""Test double: rank 3 never comes to the meeting point."""

import os
import time

from frameworks.nothing import FRAMEWORK, create_engine, unsupported_reason

if os.environ.get("RANK") == "3":
    time.sleep(600)
'''
DOUBLES = {"waiting": WAITING, "hoarding": HOARDING, "hanging": HANGING}
SHARED = {**SYSTEM["slurm"], "exclusive": False}


def comparison(num_gpus: list[int]) -> dict[str, Any]:
    return {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": num_gpus}}}


def jobs_of(cluster: Cluster) -> list[Job]:
    """All that this copy has submitted and Slurm remembers."""
    return [job for job in cluster.sandbox.jobs() if job.workdir == str(cluster.project.root)]


def has_ended(cluster: Cluster, job_id: str) -> bool:
    return next(job for job in cluster.sandbox.jobs() if job.job_id == job_id).ended


def job_of(cluster: Cluster, repeat: int) -> str | None:
    """The running job of a repeat of the waiting cell whose ranks have come up to the gate."""
    logs = cluster.project.root.glob(f"results/cluster/cells/waiting/**/repeat{repeat}/log.txt")
    if not any("waiting for the gate" in log.read_text() for log in logs):
        return None
    found = [
        job.job_id
        for job in jobs_of(cluster)
        if job.state == "RUNNING" and job.comment.endswith(f"_{repeat}") and "waiting" in job.comment
    ]
    return found[0] if found else None


def failure(cluster: Cluster, framework: str, repeat: int = 1) -> dict[str, Any]:
    (found,) = cluster.project.root.glob(f"results/cluster/cells/{framework}/**/repeat{repeat}/failure.json")
    return json.loads(found.read_text())


def start(cluster: Cluster, *arguments: str) -> Any:
    return cluster.project.start(command=cluster.command(*arguments))


def output(cluster: Cluster) -> str:
    return (cluster.project.root / "output.txt").read_text()


def open_the_gate(cluster: Cluster) -> None:
    (cluster.project.root / "gate").touch()


def assert_nothing_left(cluster: Cluster) -> None:
    """No job in Slurm and no process of this copy."""
    cluster.sandbox.wait_for(lambda: all(job.ended for job in jobs_of(cluster)), 40, "the end of all jobs")
    wait_until(lambda: not cluster.project.processes(), f"the end of {cluster.project.processes()}", 30)


def end_with_ctrl_c(cluster: Cluster, snakemake: Any) -> None:
    """And have status.py complete the accounts of the cells from Slurm's."""
    os.killpg(snakemake.pid, signal.SIGINT)
    assert snakemake.wait(90) != 0
    assert_nothing_left(cluster)
    assert cluster.status("tiny").returncode == 0
