"""The kinds of ends: defined in one place, each with its sentence, and named nowhere else by its bare text."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from contracts.outcomes import KINDS_THAT_STAY, EndKind

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Words that mean something else where they stand alone in a text.
OTHERWISE = {
    "running": {"terminal/progress.py"},  # what a line on the terminal says
    "forgotten": {"records/setting_aside.py"},  # part of the name of a file
}


def bare_kinds(source: str) -> set[str]:
    """Return the kinds that a module names by a text of their own."""
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {kind.value for kind in EndKind if kind.value in texts}


@pytest.mark.parametrize("path", sorted(SCRIPTS.rglob("*.py")), ids=lambda path: path.relative_to(SCRIPTS).as_posix())
def test_nobody_names_a_kind_by_its_text(path: Path) -> None:
    name = path.relative_to(SCRIPTS).as_posix()
    allowed = {kind for kind, places in OTHERWISE.items() if name in places}
    assert name == "contracts/outcomes.py" or bare_kinds(path.read_text(encoding="utf-8")) <= allowed


def test_a_bare_kind_is_noticed() -> None:
    assert bare_kinds("x = {'kind': 'crash'}") == {"crash"}
    assert bare_kinds("x = 'a crash'; from contracts.outcomes import EndKind; EndKind.CRASH") == set()


def test_every_kind_has_a_sentence_and_is_its_text_in_files() -> None:
    for kind in EndKind:
        assert len(kind.sentence.split()) > 2 and not kind.sentence.endswith(".")
        assert json.dumps({"kind": kind}) == f'{{"kind": "{kind.value}"}}' and f"{kind}" == kind.value == kind
    assert EndKind("crash") is EndKind.CRASH
    assert set(KINDS_THAT_STAY) < set(EndKind)
