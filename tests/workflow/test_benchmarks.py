"""Every benchmark runs to its end at its smallest size, and prints no number that cannot be."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from project import ROOT

SMALLEST = {
    "launch": ("workflow.py", "--only", "launch", "--launches", "1"),
    "trivial": ("workflow.py", "--only", "trivial", "--cells", "40"),
    "planning": ("workflow.py", "--only", "planning", "--planned", "60"),
    "starts": ("starts.py", "--only", "runs", "--turns", "1"),
    "imports": ("starts.py", "--only", "imports", "--turns", "1"),
    "train_loop": ("train_loop.py", "--repeats", "1", "--precision", "fp32", "--model", "tiny"),
    "records_to_tables": ("records_to_tables.py", "--records", "120"),
    "process_scaling": ("process_scaling.py", "--turns", "1"),
    "tokenizing": (
        *("tokenizing.py", "--megabytes", "1", "--map-megabytes", "1", "--memory-megabytes", "1", "2"),
        *("--repeats", "1"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_prints_possible_numbers(name: str) -> None:
    script, *arguments = SMALLEST[name]
    command = [sys.executable, f"benchmarks/{script}", *arguments]
    for _ in range(3):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
        # Other tests take the machine for seconds, and the smallest run is short: that it refuses what it then measures
        # is right. A benchmark that refuses every time is wrong.
        if "or the run was too short to tell it from noise" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), done.stdout
    assert not re.search(r"(?<![\w.])-\d", done.stdout), done.stdout  # but for a range: 1.8-2.0
    assert "nan" not in done.stdout and "inf" not in done.stdout
