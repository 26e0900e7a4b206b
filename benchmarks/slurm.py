"""Many tiny cells through a real Slurm: jobs a minute, what a cell costs beyond its own run, and nothing twice.

    python benchmarks/slurm.py [--cells 200]        # as root, where Debian's Slurm is or may be installed

Starts the tests' sandbox (tests/slurm/sandbox.py), runs `snakemake --profile slurm` in a copy of the project and prints
a Markdown table. The cells' framework is a test double of NumPy alone, so that what is left is Slurm, Snakemake and the
launcher. Ends with an error when a record is lost, a cell was submitted twice or ran twice.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "slurm"), str(ROOT / "tests" / "workflow"), str(ROOT / "scripts")]

from plausible import plausible  # noqa: E402

from cluster import Cluster, make_cluster  # noqa: E402
from machine import install_slurm  # noqa: E402
from sandbox import Sandbox  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200)
    arguments = parser.parse_args()
    if reason := install_slurm():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="scaling-eval-slurm-") as folder:
        sandbox = Sandbox.start(Path(folder) / "slurm")
        try:
            measure(make_cluster(Path(folder) / "project", sandbox), arguments.cells)
        finally:
            sandbox.stop()


def measure(cluster: Cluster, cells: int) -> None:
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
    watch = JobWatch()
    began = time.monotonic()
    done = subprocess.run(
        [*cluster.command("tiny"), "--quiet", "rules", "--jobs", str(cells)], cwd=root, capture_output=True, text=True
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
    median_s, ninetieth_s = statistics.median(beyond_s), statistics.quantiles(beyond_s, n=10, method="inclusive")[-1]
    print(f"| a cell's job beyond its processes (median; 90th percentile) | {median_s:.1f} s; {ninetieth_s:.1f} s |")
    print("| lost, submitted twice, run twice | 0, 0, 0 |")


class JobWatch:
    """Notes how long every job ran, before Slurm forgets it (MinJobAge)."""

    INTERVAL_S = 20

    def __init__(self) -> None:
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
        command = ["squeue", "--states=COMPLETED,FAILED", "--noheader", "--format=%i %S %e"]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            job, began, ended = line.split()
            seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
            self._elapsed_s[job] = seconds


if __name__ == "__main__":
    main()
