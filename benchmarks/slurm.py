"""Many tiny cells through a real Slurm: jobs a minute, what a cell costs beyond its own run, and nothing twice.

    python benchmarks/slurm.py                             # as root, where Debian's Slurm is or may be installed
    python benchmarks/slurm.py --cells 200 --without-bare

Starts the tests' sandbox (tests/slurm/sandbox.py), runs `snakemake --profile slurm` as it is shipped in a copy of the
project, then gives the same lines of the launcher to sbatch, and prints a Markdown table. The cells' framework is a
test double of NumPy alone, so that what is left is Slurm, Snakemake and the launcher. Ends with an error when a record
is lost, a cell was submitted twice or ran twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "slurm"), str(ROOT / "tests" / "workflow"), str(ROOT / "scripts")]

from plausible import plausible  # noqa: E402

from cluster import Cluster, make_cluster  # noqa: E402
from machine import install_slurm  # noqa: E402
from sandbox import Sandbox  # noqa: E402

BARE_PATIENCE_S = 1800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=32)
    parser.add_argument("--without-bare", action="store_true", help="leave out the same lines given to sbatch")
    arguments = parser.parse_args()
    if reason := install_slurm():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="scaling-eval-slurm-") as folder:
        sandbox = Sandbox.start(Path(folder) / "slurm")
        try:
            cluster = make_cluster(Path(folder) / "project", sandbox)
            measure(cluster, arguments.cells, bare=not arguments.without_bare)
        finally:
            sandbox.stop()


def measure(cluster: Cluster, cells: int, bare: bool = True) -> None:
    root = cluster.project.root
    slurm = {"partition": "gpu", "gpu_type": "h100", "exclusive": False, "memory_per_gpu_gib": 0.8}
    cluster.write_system(slurm=slurm)
    # Cells that differ in their batch: each has an id of its own, so that one run twice would show.
    cluster.project.write_study(
        tables=["hyperparameters"],  # of cells that nothing else compares
        frameworks={"nothing": None},
        comparisons={
            f"batch{size}": {
                "scaling": "none",
                "global_batch_size": size,
                "cross": {"models": ["tiny"], "num_gpus": [1]},
            }
            for size in range(1, cells + 1)
        },
    )
    watch = JobWatch(root)
    began = time.monotonic()
    done = subprocess.run(
        [*cluster.shipped_command("tiny"), "--quiet", "rules", "--jobs", str(cells)],
        cwd=root,
        capture_output=True,
        text=True,
    )
    total_s = time.monotonic() - began
    elapsed_s = watch.finish()
    if done.returncode:
        # Before the sandbox is gone with what it knows of them.
        for failure in root.glob("results/**/failure.json"):
            told = json.loads(failure.read_text())
            command = ["scontrol", "show", "job", str(told["job_id"])]
            print(told, subprocess.run(command, capture_output=True, text=True).stdout, file=sys.stderr)
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])

    records = [json.loads(path.read_text()) for path in cluster.project.records()]
    starts = Counter((root / "starts.txt").read_text().split())
    assert len(records) == cells, f"{cells - len(records)} records are lost"
    assert set(starts.values()) == {1}, f"run twice: {[cell for cell, count in starts.items() if count > 1]}"
    assert len(starts) == cells
    jobs = [record["launch"]["job_id"] for record in records]
    assert len(set(jobs)) == cells, "a job wrote two records"
    assert len(elapsed_s) == cells, f"{len(elapsed_s)} jobs were submitted for {cells} cells"
    beyond_s = [
        # squeue shows whole seconds.
        plausible("a job's time beyond its processes", elapsed_s[job] - record["launch"]["wall_s"], above=-1)
        for job, record in zip(jobs, records, strict=True)
    ]
    print("| what | measured |")
    print("|---|---|")
    print(f"| {cells} cells, submitted, run and tabulated | {total_s:.0f} s |")
    print(f"| jobs a minute | {60 * cells / total_s:.0f} |")
    if bare:
        bare_s = time_of_bare_jobs(root, records)
        print(f"| the same lines of the launcher given to sbatch | {bare_s:.0f} s |")
        print(f"| `snakemake --profile slurm` over that | {total_s / bare_s:.1f} |")
    median_s, ninetieth_s = statistics.median(beyond_s), statistics.quantiles(beyond_s, n=10, method="inclusive")[-1]
    print(f"| a cell's job beyond its processes (median; 90th percentile) | {median_s:.1f} s; {ninetieth_s:.1f} s |")
    print("| lost, submitted twice, run twice | 0, 0, 0 |")


def time_of_bare_jobs(root: Path, records: list[dict[str, Any]]) -> float:
    """Launch the records' cells once more, kept elsewhere; seconds from the first sbatch to the last job's end."""
    options = ["--partition=gpu", "--gres=gpu:h100:1", "--ntasks-per-node=1", "--mem=820", "--time=40"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (root / "results" / "bare-logs").mkdir()
    jobs, wanted = [], []
    began = time.monotonic()
    for record in records:
        words = [word.replace("results/cluster/cells/", "results/bare/cells/") for word in record["command"]]
        wanted.append(root / words[words.index("--record") + 1])
        script = f"#!/bin/sh\nexec python scripts/{shlex.join(words)}\n"
        command = ["sbatch", "--parsable", *options, "--output=results/bare-logs/%j.log"]
        done = subprocess.run(
            command, input=script, cwd=root, env=environment, check=True, text=True, capture_output=True
        )
        jobs.append(done.stdout.strip())
    while left := left_in_queue(jobs):
        if time.monotonic() - began > BARE_PATIENCE_S:
            raise SystemExit(f"bare jobs do not end: {left}")
        time.sleep(0.2)
    bare_s = time.monotonic() - began
    assert all(path.exists() for path in wanted), "a bare job left no record"
    return plausible("the time of the bare jobs", bare_s, above=0)


def left_in_queue(jobs: list[str]) -> str:
    command = ["squeue", "--noheader", "--format=%i %T", f"--jobs={','.join(jobs)}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class JobWatch:
    """Notes how long every job of a folder ran, before Slurm forgets it (MinJobAge)."""

    INTERVAL_S = 20

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._elapsed_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def finish(self) -> dict[str, float]:
        """Job id -> seconds from its start to its end."""
        self._stop.set()
        self._thread.join()
        self._look()
        return self._elapsed_s

    def _watch(self) -> None:
        while not self._stop.wait(self.INTERVAL_S):
            self._look()

    def _look(self) -> None:
        command = ["squeue", "--states=COMPLETED,FAILED", "--noheader", "--format=%i %S %e %Z"]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            job, began, ended, folder = line.split(maxsplit=3)
            if folder != self._folder:
                continue
            seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
            self._elapsed_s[job] = seconds


if __name__ == "__main__":
    main()
