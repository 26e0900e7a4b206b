"""A copy of the project's files, in which the real workflow runs without touching the checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

COPIED = (
    "Snakefile",
    "run",
    "config",
    "corpora",
    "envs",
    "plugins",
    "profiles",
    "reference",
    "scripts",
    "slurm",
    "workflow",
)


def copy_project_files(root: Path, target: Path) -> Path:
    """Copy what the workflow needs from the checkout `root` into the folder `target`, which is made and returned.

    Raises FileExistsError where `target` has a copied folder already.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = root / name
        if source.is_symlink():
            (target / name).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        else:
            shutil.copy2(source, target / name)
    return target
