"""Whether the project's own plugins of Snakemake are installed as they stand in the checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def stale_plugins(root: Path) -> list[str]:
    """Return the names of the packages in plugins/ that are not installed, or in another state than in the checkout."""
    return [folder.name for folder in sorted((root / "plugins").glob("snakemake_*")) if not _is_installed(folder)]


def _is_installed(folder: Path) -> bool:
    found = importlib.util.find_spec(folder.name)
    if found is None or found.origin is None:
        return False
    installed = Path(found.origin).parent
    return all(_same(file, installed / file.relative_to(folder)) for file in folder.rglob("*.py"))


def _same(file: Path, other: Path) -> bool:
    return other.is_file() and file.read_bytes() == other.read_bytes()
