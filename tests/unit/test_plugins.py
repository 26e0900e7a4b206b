"""The project's own plugins of Snakemake."""

from __future__ import annotations

from pathlib import Path

import pytest

from installation.plugins import stale_plugins

NAME = "snakemake_executor_plugin_of_this_test"


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
