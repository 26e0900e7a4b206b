"""The project's own form: linters, formatters, and a dry run of every study."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.studies import study_names

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
        assert "needs 384 GPUs, this system (local) has 4" in output
        assert "they need 48, 96, 192, 384 GPUs" in output
        assert "train_cell" not in output
