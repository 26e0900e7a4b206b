"""The project's own plugins of Snakemake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from installation.plugins import stale_plugins

ROOT = Path(__file__).resolve().parents[2]
NAME = "snakemake_executor_plugin_of_this_test"


def test_pip_installs_them_as_they_stand(tmp_path: Path) -> None:
    """With the pinned setuptools, without an index."""
    shutil.copytree(
        ROOT / "plugins", tmp_path / "plugins", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", "installed", "./plugins"], cwd=tmp_path, check=True, timeout=120)
    for file in (ROOT / "plugins").glob("snakemake_*/**/*.py"):
        assert (tmp_path / "installed" / file.relative_to(ROOT / "plugins")).read_bytes() == file.read_bytes()
    executor = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())["executor"]
    assert (tmp_path / "installed" / f"snakemake_executor_plugin_{executor.replace('-', '_')}").is_dir()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose plugin is installed beside it."""
    for folder in ("checkout/plugins", "installed"):
        package = tmp_path / folder / NAME
        (package / "part").mkdir(parents=True)
        (package / "__init__.py").write_text("1\n")
        (package / "part" / "__init__.py").write_text("2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    return tmp_path / "checkout"


def test_a_plugin_that_is_installed_as_it_stands(checkout: Path) -> None:
    assert stale_plugins(checkout) == []


@pytest.mark.parametrize("change", ["edited", "new", "other"])
def test_a_plugin_of_another_state_is_named(checkout: Path, change: str) -> None:
    package = checkout / "plugins" / NAME
    if change == "edited":
        (package / "part" / "__init__.py").write_text("3\n")
    elif change == "new":
        (package / "new.py").touch()
    else:
        package.rename(package.with_name(f"{NAME}_too"))
    assert stale_plugins(checkout) == [f"{NAME}_too" if change == "other" else NAME]
