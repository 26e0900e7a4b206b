"""Where files are looked up: a project is a folder with config/ and results/, and it may lie apart from the checkout.

- `config/`, `results/`, `environments/`, `.snakemake/` and relative paths in config files belong to the project: the
  folder in which Snakemake works (`--directory`), or the checkout itself where nothing else is said.
- `scripts/`, `workflow/`, `profiles/` and `plugins/` are the checkout's.
- `envs/`, `reference/` and `corpora/` come with the checkout; a project's own file of the same name goes before.
"""

from __future__ import annotations

from pathlib import Path

# The checkout that this module is part of.
CODE = Path(__file__).resolve().parents[2]


def project_folder() -> Path:
    """Return the project of a script: the folder in which it is called where that has studies, else the checkout."""
    here = Path.cwd()
    return here if (here / "config" / "studies").is_dir() else CODE


def shipped(root: Path, path: str) -> Path:
    """Return a file that comes with the checkout, or the project's own where there is one. path: relative to both."""
    own = root / path
    return own if own.exists() or not (CODE / path).exists() else CODE / path


def shown(path: Path, root: Path) -> str:
    """Return a path as rules and messages name it: relative to the project where it lies in it."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def shipped_names(root: Path, pattern: str) -> list[str]:
    """Return the names, without their endings, of all files that `shipped` would find, such as those of envs/*.txt."""
    return sorted({path.stem for folder in (root, CODE) for path in folder.glob(pattern)})
