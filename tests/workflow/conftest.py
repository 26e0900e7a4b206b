"""One copy of the project whose tiny study has run, and a fresh copy of that for every test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import Project, copy_project, ended_afterwards


@pytest.fixture(scope="session")
def finished_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Nobody changes this one: tests take `project`, a copy of it."""
    project = copy_project(tmp_path_factory.mktemp("finished") / "project")
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 2
    return project


@pytest.fixture
def project(finished_project: Project, tmp_path: Path) -> Iterator[Project]:
    """Two cells measured, tables made, times of files kept."""
    copy = Project(shutil.copytree(finished_project.root, tmp_path / "project", symlinks=True))
    with ended_afterwards(copy):
        yield copy


@pytest.fixture
def fresh_project(tmp_path: Path) -> Iterator[Project]:
    """Nothing run yet."""
    copy = copy_project(tmp_path / "project")
    with ended_afterwards(copy):
        yield copy
