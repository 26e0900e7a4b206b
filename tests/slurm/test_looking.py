"""What status.py and the reports say of cells while jobs run, and while Slurm is away."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import Cluster, make_cluster
from launcher.verdicts import Failure, write_failure
from planning.plan import record_path
from planning.studies import load_study
from project import ended_afterwards
from sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)

# Waits in front of the meeting point until the file `gate` is there.
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
PROGRAMS = ("squeue", "sacct", "scontrol")


@pytest.fixture
def cluster(sandbox: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    cluster = make_cluster(tmp_path / "project", sandbox)
    with ended_afterwards(cluster.project):
        yield cluster


def count_questions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have every question to Slurm noted in the file that is returned, and asked all the same."""
    noted = folder / "questions.txt"
    for program in PROGRAMS:
        script = folder / "counting" / program
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\necho "{program} $*" >> "{noted}"\nexec {shutil.which(program)} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'counting'}{os.pathsep}{os.environ['PATH']}")
    return noted


def test_while_slurm_is_away_it_is_asked_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """status.py took half a minute for each failed cell."""
    for name, seed in (("tiny", 1), ("more", 2)):
        cluster.project.write_study(name, frameworks={"torch_plain": None, "torch_ddp": None}, seed=seed)
        for number, planned in enumerate(load_study(name, "cluster", cluster.project.root).planned):
            folder = record_path(cluster.project.root / "results", "cluster", planned).parent
            folder.mkdir(parents=True)
            killed = Failure("killed", "the launcher is gone", None, (), "", "n1", str(900_000 + number))
            write_failure(folder, killed)
    noted = count_questions(tmp_path, monkeypatch)
    cluster.sandbox.kill_slurmctld()
    shown = cluster.status("tiny", "more")
    assert shown.returncode == 0, shown.output
    assert shown.output.count("Slurm cannot be asked which cells have a job in the queue: squeue says: ") == 1
    assert shown.output.count("2 failed") == 2
    assert len(noted.read_text().splitlines()) == 1, noted.read_text()

    # Back again, it is asked for all cells together.
    noted.unlink()
    cluster.sandbox.start_slurmctld()
    cluster.sandbox.wait_for(cluster.sandbox.all_idle, 30, "all nodes idle")
    assert cluster.status("tiny", "more").returncode == 0
    asked = [line.split()[0] for line in noted.read_text().splitlines()]
    assert asked.count("squeue") == 3, noted.read_text()  # the queue, and the jobs of each study that it does not list


def elsewhere(*command: str) -> list[str]:
    """A command as another machine runs it: no process of this one can be seen."""
    return ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *command]


def kinds(cluster: Cluster) -> list[str]:
    """What a report that is written elsewhere says of the waiting cell."""
    project = cluster.project
    report = elsewhere(sys.executable, "scripts/write_outputs.py", "tiny", "--system", "cluster", "--partial")
    run = project.finish(report, 120)
    assert run.returncode == 0, run.output
    with (project.root / "results/cluster/tiny/measurements.csv").open(newline="") as file:
        return [row["kind"] for row in csv.DictReader(file)]


def test_a_cell_that_is_being_measured_is_called_so_by_all(cluster: Cluster) -> None:
    """The report and the end of a call said `interrupted`, and status.py `running`."""
    root = cluster.project.root
    (root / "scripts/frameworks/waiting.py").write_text(WAITING)
    cluster.project.write_study(frameworks={"waiting": None})
    first = cluster.project.start(command=cluster.command("tiny"))
    cluster.sandbox.wait_for(lambda: "gate" in logs(cluster), 120, "the cell at the gate")
    (job,) = cluster.running_jobs()
    kill_with_children(first)
    assert cluster.snakemake("--unlock").returncode == 0

    assert kinds(cluster) == ["running"]
    show = elsewhere(sys.executable, "scripts/status.py", "--system", "cluster", "tiny")
    assert "1 cells: 1 running" in cluster.project.finish(show, 120).output

    # A call whose waiting is ended while the job goes on.
    second = cluster.project.start(command=elsewhere(*cluster.command("tiny")))
    waiting = cluster.sandbox.wait_for(lambda: processes_of(cluster, "await_jobs.py"), 120, "the waiting")
    for process in waiting:
        process.kill()
    assert second.wait(120) != 0
    told = (root / "output.txt").read_text()
    said = f"running: Slurm job {job}: RUNNING"
    assert f"missing: waiting, tiny, 1 process, batch 2, data 1, micro-batch 1, repeat 1: {said}" in told

    cluster.sandbox.kill_slurmctld()
    assert kinds(cluster) == ["not_known"]
    shown = cluster.project.finish(show, 120).output
    assert "1 cells: 1 not known" in shown, shown

    cluster.sandbox.start_slurmctld()
    cluster.sandbox.wait_for(lambda: cluster.running_jobs() == [job], 30, "the job in Slurm's list again")
    (root / "gate").touch()
    cluster.sandbox.wait_for(cluster.project.records, 60, "the record")
    assert kinds(cluster) == [""]


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[Path]:
    """The results of the cluster on a file system of their own with little room."""
    folder = cluster.project.root / "results/cluster"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)
    return filler


def test_on_a_full_disk_every_cell_is_told_with_its_reason(cluster: Cluster, small_disk: Path) -> None:
    """status.py printed one line of an error and no table, the call listed no cell, and the cells were `killed`."""
    root = cluster.project.root
    (root / "scripts/frameworks/waiting.py").write_text(WAITING)
    # Two cells that differ in their batch alone.
    batches = {
        f"batch{size}": {"scaling": "strong", "global_batch_size": size, "points": [{"model": "tiny", "num_gpus": 1}]}
        for size in (2, 4)
    }
    cluster.project.write_study(frameworks={"waiting": None}, comparisons=batches)
    call = cluster.project.start(command=cluster.command("tiny"))
    cluster.sandbox.wait_for(lambda: logs(cluster).count("gate") == 2, 120, "both cells at the gate")
    filler = fill(small_disk)
    (root / "gate").touch()
    assert call.wait(120) != 0
    told = (root / "output.txt").read_text()
    for size in (2, 4):
        assert re.search(
            rf"^ *\d/2 +waiting .* batch {size} .*no result\n +disk_full: rank 0: .*No space left", told, re.M
        )
    assert "tables of the finished cells could not be written: " in told
    status = cluster.status("tiny")
    assert status.returncode == 0, status.output
    assert "2 cells: 2 failed" in status.output
    assert status.output.count("disk_full") == 2, status.output

    filler.unlink()
    run = cluster.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert not list(small_disk.rglob("failure.json"))
    # What a launcher leaves that is killed when its record is there already.
    record = cluster.project.records()[0]
    write_failure(record.parent, Failure("interrupted", "killed", None, (), "", "n1", "1"))
    assert "2 cells: 2 done" in cluster.status("tiny").output
    assert not list(small_disk.rglob("failure.json"))


def logs(cluster: Cluster) -> str:
    return "".join(path.read_text() for path in cluster.project.root.glob("results/cluster/cells/**/log.txt"))


def kill_with_children(process: Any) -> None:
    parent = psutil.Process(process.pid)
    for one in [*parent.children(recursive=True), parent]:
        one.kill()
    process.wait(30)


def processes_of(cluster: Cluster, script: str) -> list[psutil.Process]:
    return [p for p in cluster.project.processes() if any(word.endswith(script) for word in p.cmdline())]
