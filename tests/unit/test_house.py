"""The rules of the house: imports go down only, and no two modules share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# From the ground up. Rooms on one floor may import one another where no circle comes of it.
FLOORS = (
    ("contracts",),
    ("models", "settings", "corpus"),
    ("workloads",),
    ("frameworks",),
    ("planning",),
    ("launcher", "telemetry", "records", "dialects"),
    ("metrics",),
    ("reporting",),
    ("papers",),
    # What only entry points and plugins use.
    ("terminal", "describing", "installation", "snakemake_logger_plugin_cells"),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ENTRY_POINTS = len(FLOORS)
# Users write these names: `paper: axonn` in a study, and `axonn` among its frameworks.
SHARED_BY_DESIGN = {"axonn"}


def project_imports(path: Path, scripts: Path = SCRIPTS) -> Iterator[str]:
    """Yield the rooms and entry points that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: a relative import"
            names = [node.module]
        for name in names:
            room = name.split(".")[0]
            if (scripts / room).is_dir() or (scripts / f"{room}.py").is_file():
                yield room


def arrows(scripts: Path = SCRIPTS) -> dict[tuple[str, str], list[str]]:
    """Return the imports between rooms and entry points: (importing, imported) -> the files that do so."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(scripts.rglob("*.py")):
        relative = path.relative_to(scripts)
        importing = relative.parts[0].removesuffix(".py")
        for imported in project_imports(path, scripts):
            if imported != importing:
                found[importing, imported].append(relative.as_posix())
    return found


def upward(found: dict[tuple[str, str], list[str]]) -> list[str]:
    """Return the arrows that go up, or to another entry point, in words."""
    wrong = []
    for (importing, imported), files in found.items():
        below = FLOOR.get(imported, ENTRY_POINTS)
        # whole_bytecode has to be imported before everything else, for what its import does.
        if below > FLOOR.get(importing, ENTRY_POINTS) or (below == ENTRY_POINTS and imported != "whole_bytecode"):
            wrong.append(f"{importing} imports {imported}, which stands above it: {', '.join(files)}")
    return wrong


def circles(found: dict[tuple[str, str], list[str]]) -> list[str]:
    """Return the pairs of rooms that import each other, however many lie between them."""
    reached = {(a, b) for a, b in found}
    for middle in FLOOR:
        reached |= {(a, b) for a, x in list(reached) if x == middle for y, b in list(reached) if y == middle}
    return sorted(f"{a} and {b}" for a, b in reached if a < b and (b, a) in reached)


def test_imports_go_down_only() -> None:
    found = arrows()
    assert upward(found) == []
    assert circles(found) == []
    # Otherwise nothing was looked at.
    assert {("metrics", "planning"), ("frameworks", "contracts"), ("launch", "launcher")} <= set(found)


@pytest.mark.parametrize(
    ("room", "line"),
    [("contracts", "from planning.plan import Study"), ("planning", "import launcher.step"),
     ("metrics", "def f():\n    from papers.axonn import TABLES"), ("launcher", "from records.standing import x")],
)  # fmt: skip
def test_an_arrow_that_goes_up_or_round_is_found(tmp_path: Path, room: str, line: str) -> None:
    for name in (*FLOOR, "launch"):
        (tmp_path / name).mkdir()
    (tmp_path / "records" / "reader.py").write_text("from launcher.verdicts import read_failure\n")
    assert upward(arrows(tmp_path)) == circles(arrows(tmp_path)) == []
    (tmp_path / room / "new.py").write_text(f"{line}\n")
    assert upward(arrows(tmp_path)) + circles(arrows(tmp_path)) != []


def test_every_folder_of_scripts_has_its_floor() -> None:
    rooms = {path.parent.relative_to(SCRIPTS).parts[0] for path in SCRIPTS.glob("*/*.py")}
    assert rooms - set(FLOOR) == set()


def test_no_two_modules_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SCRIPTS.rglob("*.py"):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        places[name].append(path.relative_to(SCRIPTS).as_posix())
    shared = {name: paths for name, paths in places.items() if len(paths) > 1 and name not in SHARED_BY_DESIGN}
    assert shared == {}
