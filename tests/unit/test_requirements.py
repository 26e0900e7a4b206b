"""Every package that the project's code imports itself is pinned, and not left to what another package brings."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from records.code_digests import SCRIPTS

ROOT = SCRIPTS.parent
# Folder -> the files in envs/ with what its code needs.
ENVIRONMENT_FILES = {
    "scripts": ("torch", "workflow"),
    "plugins": ("torch", "workflow"),
    "tests": ("torch", "workflow", "test"),
    "benchmarks": ("torch", "workflow", "test"),
}
# Installed from plugins/ of the checkout, whose content is its version.
OWN_DISTRIBUTION = "scaling-eval-plugins"


def imported_modules(file: Path) -> Iterator[str]:
    """The first part of every module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0]


def pinned(*environments: str) -> set[str]:
    lines = [line for name in environments for line in (ROOT / "envs" / f"{name}.txt").read_text().splitlines()]
    return {line.partition("==")[0].lower() for line in lines if "==" in line}


@pytest.mark.parametrize("folder", ENVIRONMENT_FILES)
def test_what_is_imported_is_pinned(folder: str) -> None:
    distributions = importlib.metadata.packages_distributions()
    files = sorted((ROOT / folder).rglob("*.py"))
    imported = {module for file in files for module in imported_modules(file)} - sys.stdlib_module_names
    # Frameworks with an environment of their own are not installed here; modules of the project are no distributions.
    needed = {name.lower() for module in imported for name in distributions.get(module, ())}
    needed.discard(OWN_DISTRIBUTION)
    assert needed, folder
    assert needed <= pinned(*ENVIRONMENT_FILES[folder]), needed - pinned(*ENVIRONMENT_FILES[folder])
