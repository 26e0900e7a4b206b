"""Entry points are verbs: argparse around one function of a room, and nothing that decides anything."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MOST_LINES = 60
ENTRY_POINTS = sorted(path.name for path in SCRIPTS.glob("*.py"))
# What belongs in a room. An error that becomes a message, and lines that are printed, are an entry point's own.
LOGIC = (ast.While, ast.ClassDef, ast.AsyncFunctionDef, ast.ListComp, ast.SetComp, ast.Lambda, ast.Raise, ast.Global)


def functions(name: str) -> list[ast.FunctionDef]:
    tree = ast.parse((SCRIPTS / name).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def logic_in(source: str) -> list[str]:
    """Return what in an entry point belongs into a room: kinds of nodes, and loops that do more than print."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, LOGIC):
            found.append(f"line {node.lineno}: {type(node).__name__}")
        if isinstance(node, ast.For) and not all(is_print(line) for line in node.body):
            found.append(f"line {node.lineno}: a loop that does more than print")
    return found


def is_print(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_is_argparse_around_one_function(name: str) -> None:
    source = (SCRIPTS / name).read_text(encoding="utf-8")
    assert len(source.splitlines()) < MOST_LINES
    assert "argparse" in source
    assert source.count("def main() -> int:") == 1 and "sys.exit(main())" in source
    # main, and at most one that makes a parser or words.
    assert len(functions(name)) <= 2
    assert logic_in(source) == []


@pytest.mark.parametrize(
    "line",
    ["while True: pass", "class A: pass", "x = [y for y in z]", "raise ValueError", "for x in y:\n    x.go()"],
)
def test_logic_is_found(line: str) -> None:
    assert logic_in(line)
    assert not logic_in("for line in lines:\n    print(line)")


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_help_says_what_it_does(name: str, tmp_path: Path) -> None:
    """Also where no project is: an entry point may be called in any folder."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), "--help"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:") and len(done.stdout.splitlines()) > 3
