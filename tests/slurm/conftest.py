"""One Slurm for all tests here, and after each of them no job in it and every node idle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster, make_cluster
from events import DOUBLES, SHARED
from project import ended_afterwards
from sandbox import Sandbox, install_slurm

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m "not slow" looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # those of the whole session
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    if reason := install_slurm():
        # In CI a Slurm that cannot be had is a failure: skipped tests there would go unnoticed.
        (pytest.fail if os.environ.get("CI_REQUIRES_ALL") else pytest.skip)(reason)
    sandbox = Sandbox.start(tmp_path_factory.mktemp("slurm"))
    try:
        yield sandbox
    finally:
        sandbox.stop()


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Being automatic, it is torn down after a test's other fixtures, such as a project whose Snakemake is killed."""
    if "sandbox" not in request.fixturenames:
        yield
        return
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    yield
    sandbox.heal_controller()
    left = sandbox.cancel_jobs()
    sandbox.heal()
    assert not left, f"jobs that the test left in Slurm: {left}"


@pytest.fixture
def cluster(sandbox: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    cluster = make_cluster(tmp_path / "project", sandbox)
    cluster.write_system(slurm=SHARED)
    for name, text in DOUBLES.items():
        (cluster.project.root / f"scripts/frameworks/{name}.py").write_text(text)
    with ended_afterwards(cluster.project):
        yield cluster
