"""A framework with a Python of its own: made by the workflow when it is needed, and what the processes run under."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from project import ROOT, Project

pytestmark = pytest.mark.slow

ADAPTOR = ROOT / "tests" / "data" / "nothing.py"


def write_framework(project: Project, requirements: str) -> None:
    shutil.copy(ADAPTOR, project.root / "scripts" / "frameworks" / "nothing.py")
    (project.root / "envs" / "nothing.txt").write_text(requirements)
    project.write_study(frameworks={"nothing": None, "torch_plain": None})


def test_a_framework_runs_under_a_venv_of_its_own(fresh_project: Project) -> None:
    write_framework(fresh_project, "numpy==2.4.6\n")
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert "Successfully installed numpy-2.4.6" in run.output
    python = Path((fresh_project.root / "environments/venv-nothing.txt").read_text().strip())
    assert python.is_relative_to(fresh_project.root / "environments")
    assert not list(python.parents[1].glob("lib/python*/site-packages/torch"))
    record = json.loads(fresh_project.record("nothing").read_text())
    assert record["status"] == "ok"
    assert record["versions"]["numpy"] == "2.4.6"
    assert fresh_project.snakemake("tiny").nothing_done

    # Neither a touched requirements file nor a lost environment measures anything anew.
    (fresh_project.root / "envs/nothing.txt").touch()
    shutil.rmtree(fresh_project.root / "environments")
    assert fresh_project.snakemake("tiny").nothing_done


def test_an_environment_that_cannot_be_made_leaves_the_others(fresh_project: Project) -> None:
    write_framework(fresh_project, "no-such-distribution-of-ours==1\n")
    run = fresh_project.snakemake("tiny")
    assert run.returncode != 0
    assert "envs/nothing.txt: could not be installed" in run.output
    assert json.loads(fresh_project.record("torch_plain").read_text())["status"] == "ok"
    assert not (fresh_project.root / "environments/venv-nothing.txt").exists()
    table = fresh_project.table("strong_scaling")
    assert "nothing" in table and "torch_plain" in table
