"""What status.py and the reports say of cells while jobs run, and while Slurm is away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster, make_cluster
from launching.results import Failure, write_failure
from matrix.plan import record_path
from matrix.studies import load_study
from project import ended_afterwards
from sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)

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
