"""Which project files a piece of code runs: the closure of its imports among the files of scripts/."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent.parent

# What every training process runs beside its adaptor, watched with all that these files import.
LOOP_FILES = ("workloads/training/loop.py", "workloads/training/batches.py", "models/weights.py")
# The process around the loop, and the threads and allocator settings it is started with. Not what they import: how
# ranks find each other and how a failure is told leaves the timed batches as they are.
AROUND_THE_LOOP = ("workloads/rank.py", "workloads/training/timed_batches.py", "launcher/shared_settings.py")
# Adaptors import these, and they are no part of what is measured: what decides a measurement is in a cell's identity,
# planning/ plans cells, contracts/storage.py serves the memory estimate, and from the others ranks only learn where
# they meet, what to note of their process and how to name a failure. contracts/adaptor.py is watched, and so is
# contracts/inherited.py, which also says how MPI binds.
NOT_MEASURING = (
    *("contracts/atomic.py", "contracts/cell.py", "contracts/cgroups.py", "contracts/cores.py", "contracts/errors.py"),
    *(
        "contracts/model.py",
        "contracts/outcomes.py",
        "contracts/shown_as.py",
        "contracts/storage.py",
        "contracts/__init__.py",
    ),
    *("models/__init__.py", "models/architectures.py", "planning/"),
    *("settings/", "workloads/rendezvous.py", "workloads/process_facts.py", "workloads/thread_limits.py"),
)
# Code of before that was moved to other files, or divided among them, and measures the same: `digests` by path, as
# records hold them, and by framework the state of today's code (`state_digest`) that they measure like.
CODE_BEFORE = "records/code_before.json"
# What an adaptor answers to the planner and to tables and figures, in the process that plans.
PLANNING_FUNCTIONS = ("shown_as", "stored_state", "unsupported_reason")


def imported_files(starts: Iterable[str], scripts: Path = SCRIPTS) -> list[str]:
    """Return the paths relative to `scripts` of the start files and of every project file they import, imports inside
    functions included. They are read from the source text, so that packages need not be installed here.
    """
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.extend(_direct_imports(scripts, name, (scripts / name).stat().st_mtime_ns))
    return sorted(found)


def measuring_files(framework: str, scripts: Path = SCRIPTS) -> list[str]:
    """Return the files whose code can change what a cell of the framework measures, relative to `scripts`."""
    imported = imported_files([f"frameworks/{framework}.py", *LOOP_FILES], scripts)
    watched = [name for name in imported if not name.startswith(NOT_MEASURING)]
    return sorted({*watched, *AROUND_THE_LOOP})


def code_digests(framework: str, scripts: Path = SCRIPTS) -> dict[str, str]:
    """Return a digest of the code of each of `measuring_files`, by path from the repository root, for a record."""
    return {
        f"scripts/{name}": _code_digest((scripts / name).read_bytes()) for name in measuring_files(framework, scripts)
    }


def accepted_digests(framework: str, scripts: Path = SCRIPTS) -> dict[str, frozenset[str]]:
    """Return the digests under which a record may hold today's code, by path: of the code, and of the whole file, which
    is what records held at first. Code of before that measures the same counts as today's (see CODE_BEFORE).
    """
    accepted = {}
    for name in measuring_files(framework, scripts):
        content = (scripts / name).read_bytes()
        accepted[f"scripts/{name}"] = frozenset({_code_digest(content), hashlib.sha256(content).hexdigest()})
    for path, digests in _digests_before(framework, scripts).items():
        accepted[path] = accepted.get(path, frozenset()) | digests
    return accepted


def state_digest(framework: str, scripts: Path = SCRIPTS) -> str:
    """Return one digest of all the code that measures cells of a framework, names of files included."""
    return hashlib.sha256(json.dumps(code_digests(framework, scripts), sort_keys=True).encode()).hexdigest()


def _digests_before(framework: str, scripts: Path) -> dict[str, frozenset[str]]:
    """Return the digests of CODE_BEFORE by path: as they are while the framework's code is what they were found to
    measure the same as, and none of them, for any path, once that has changed.
    """
    before = json.loads((scripts / CODE_BEFORE).read_text(encoding="utf-8"))
    is_alike = before["measures_like"].get(framework) == state_digest(framework, scripts)
    return {path: frozenset(digests if is_alike else ()) for path, digests in before["digests"].items()}


def differs(recorded: Mapping[str, str], accepted: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a record was measured by other code than today's. A file that the record does not hold, or that
    is not watched any more, differs from nothing.
    """
    return any(path in recorded and recorded[path] not in digests for path, digests in accepted.items())


def combined_digest(starts: Iterable[str], scripts: Path = SCRIPTS) -> str:
    """Return one digest of the start files and every project file they import; a missing start file raises OSError."""
    digest = hashlib.sha256()
    for name in imported_files(starts, scripts):
        digest.update(f"{name} {hashlib.sha256((scripts / name).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _code_digest(source: bytes) -> str:
    """Return SHA-256 of what of a file runs in a training process: no comments, docstrings and blank lines, no
    functions for the planner, no imports of what measures nothing. Of the text and not of a syntax tree, which every
    Python prints differently. Raises SyntaxError.
    """
    lines = source.decode("utf-8").split("\n")
    for first_line, first, last_line, last in sorted(_left_out(source, lines), reverse=True):
        if first_line == last_line:
            lines[first_line] = lines[first_line][:first] + lines[first_line][last:]
        else:
            kept = lines[first_line][:first], lines[last_line][last:]
            lines[first_line : last_line + 1] = [kept[0], *[""] * (last_line - first_line - 1), kept[1]]
    code = "\n".join(line.rstrip() for line in lines if line.strip())
    return hashlib.sha256(code.encode()).hexdigest()


def _left_out(source: bytes, lines: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield spans (first line, its character, last line, its character), counted from 0, that do not overlap."""
    tree = ast.parse(source)
    whole = [node for node in tree.body if _is_left_out(node)]
    spans = [_span(node, lines) for node in [*whole, *_docstrings(tree, whole)]]
    yield from spans
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, character = token.start[0] - 1, token.start[1]
            if not any((first[0], first[1]) <= (line, character) < (first[2], first[3]) for first in spans):
                yield line, character, line, token.end[1]


def _is_left_out(node: ast.stmt) -> bool:
    """Return whether a statement of a file is left out as a whole."""
    if isinstance(node, ast.ImportFrom):
        return f"{(node.module or '').replace('.', '/')}.py".startswith(NOT_MEASURING)
    return isinstance(node, ast.FunctionDef) and node.name in PLANNING_FUNCTIONS


def _docstrings(tree: ast.Module, but_in: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of the docstrings of a file, but not of those inside nodes that are left out as a whole."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first
        waiting.extend(child for child in ast.iter_child_nodes(node) if child not in but_in)


def _span(node: Any, lines: Sequence[str]) -> tuple[int, int, int, int]:
    """Return where a statement stands; the syntax tree counts bytes of a line, and its text characters."""
    first = min([node, *getattr(node, "decorator_list", [])], key=lambda n: n.lineno)
    start, end = first.lineno - 1, node.end_lineno - 1
    characters = [
        len(lines[line].encode()[:offset].decode())
        for line, offset in ((start, first.col_offset if first is node else 0), (end, node.end_col_offset))
    ]
    return start, characters[0], end, characters[1]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the statements of a body and all bodies inside it. Expressions, most of a file, hold no imports."""
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
