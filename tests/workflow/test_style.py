"""The project's own form: linters, formatters, and a dry run of every study."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from planning.studies import study_names

ROOT = Path(__file__).resolve().parents[2]
PYTHON_CODE = ["scripts", "tests", "benchmarks"]
SNAKEMAKE_CODE = ["Snakefile", "workflow/rules"]


def check(*command: str) -> str:
    """Run a tool of this environment in the checkout; its output is the message when it fails."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def test_ruff_check() -> None:
    check("ruff", "check", *PYTHON_CODE)


def test_ruff_format() -> None:
    check("ruff", "format", "--check", *PYTHON_CODE)


def test_snakefmt() -> None:
    check("snakefmt", "--check", *SNAKEMAKE_CODE)


def test_snakemake_lint() -> None:
    check("snakemake", "--lint")


@pytest.mark.parametrize("study", study_names(ROOT))
def test_every_study_dry_runs(study: str) -> None:
    output = check("snakemake", "--profile", "profiles/local", "--dry-run", "--nolock", study)
    if study.startswith("axonn_"):
        assert "needs 384 processes, this system (local) has 4" in output
        assert "they need 48, 96, 192, 384 processes" in output
        assert "train_cell" not in output


def test_a_dry_run_says_first_and_once_what_cells_take() -> None:
    arguments = ["--profile", "profiles/local", "--dry-run", "--nolock", "axonn_strong_scaling"]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments, "--config", "system=example-summit-like"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    budget, heads, *rest = lines[lines.index("Building DAG of jobs...") + 1 :]
    assert budget.startswith("axonn_strong_scaling on example-summit-like: 72 jobs to submit, of at most 64 nodes each")
    assert "68 predicted to fit 16 GiB" in budget
    assert "4 predicted NOT to fit" in budget
    # The same by framework and size, and only then the list of cells.
    assert heads.split() == ["framework", "GPUs", "jobs", "GPU-hours", "NOT", "to", "fit", "GPU-hours"]
    sizes = [line.split() for line in itertools.takewhile(lambda line: line.count(",") < 3, rest)]
    sizes = [words for words in sizes if len(words) == 6 and words[1].isdecimal()]
    assert (sum(int(words[2]) for words in sizes), sum(int(words[4]) for words in sizes)) == (68, 4)
    header = rest.index("axonn_strong_scaling: 72 of 72 cells to measure on example-summit-like")
    assert len(sizes) < header
    assert rest[header + 1].startswith("    axonn, axonn-12b, 48 GPUs, ")
    told = "axonn_strong_scaling: V100 has compute capability 7.0, and torch 2.13"
    assert sum(line.startswith(told) for line in rest[:header]) == 1
    marked = ["predicted NOT to fit" in line for line in rest[header + 1 : header + 73]]
    assert marked == sorted(marked)  # those that will not fit stand apart
    assert sum("GPU-hours in all" in line or "GPU-hours more" in line for line in lines) == 1
    # What Snakemake says of its jobs is last, as ever.
    stats = [line.split() for line in lines[lines.index("Job stats:") :]]
    assert ["train_cell", "72"] in stats
