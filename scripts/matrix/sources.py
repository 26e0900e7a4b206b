"""Which project files a piece of code runs: the closure of its imports among the files of scripts/."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent

# What every training process runs beside its adaptor: an edit of these changes what is measured.
LOOP_FILES = ("training/loop.py", "training/batches.py", "training/weights.py")


def imported_files(starts: Iterable[str], scripts: Path = SCRIPTS) -> list[str]:
    """Paths relative to `scripts` of the start files and of every project file they import, imports inside functions
    included. Read from the source text, so it works for files whose packages are not installed here."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.extend(_direct_imports(scripts, name, (scripts / name).stat().st_mtime_ns))
    return sorted(found)


def code_digests(framework: str, scripts: Path = SCRIPTS) -> dict[str, str]:
    """SHA-256 of the adaptor and of the project files it and the loop import, by path from the repository root."""
    files = imported_files([f"frameworks/{framework}.py", *LOOP_FILES], scripts)
    return {f"scripts/{name}": hashlib.sha256((scripts / name).read_bytes()).hexdigest() for name in files}


def combined_digest(starts: Iterable[str], scripts: Path = SCRIPTS) -> str:
    """One digest of the start files and every project file they import; a missing start file raises OSError."""
    digest = hashlib.sha256()
    for name in imported_files(starts, scripts):
        digest.update(f"{name} {hashlib.sha256((scripts / name).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Those of a body and of all bodies inside it. Expressions hold no imports, and are most of a file."""
    for node in body:
        yield node
        for inner in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(node, inner, ()))


@cache
def _direct_imports(scripts: Path, name: str, _mtime_ns: int) -> tuple[str, ...]:
    tree = ast.parse((scripts / name).read_bytes(), filename=name)
    modules: list[str] = []
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    files: dict[str, None] = {}
    for module in modules:
        parts = module.split(".")
        # Importing a.b.c also runs a/__init__.py and a/b/__init__.py.
        for depth in range(1, len(parts) + 1):
            stem = "/".join(parts[:depth])
            for candidate in (f"{stem}.py", f"{stem}/__init__.py"):
                if (scripts / candidate).is_file():
                    files[candidate] = None
    return tuple(files)
