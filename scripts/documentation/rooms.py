"""The rooms of scripts/ and the arrows between them, as the imports draw them.

A room is a package of scripts/; an entry point is a file beside the packages. Rooms stand on floors, and imports go
down only: that is what lets a rank start without the planner, and a table be made without a launcher.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
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
    # What only entry points, Snakemake and its plugins use.
    ("terminal", "describing", "installation", "documentation", "snakemake_logger_plugin_cells", "workflow_support"),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ENTRY_POINTS = len(FLOORS)
# It has to be imported before everything else, for what its import does: it removes modules that a full disk cut short.
IMPORTED_FIRST = "whole_bytecode"

# (importing room or entry point, imported one) -> the files that do so.
Arrows = Mapping[tuple[str, str], list[str]]


def project_imports(path: Path, scripts: Path = SCRIPTS) -> Iterator[str]:
    """Yield the rooms and entry points that a file imports, wherever in it the import stands.

    Raises ValueError for a relative import, which hides what it names.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: line {node.lineno}: a relative import; write the module's whole name")
            names = [node.module or ""]
        for name in names:
            room = name.split(".")[0]
            if room and ((scripts / room).is_dir() or (scripts / f"{room}.py").is_file()):
                yield room


def arrows(scripts: Path = SCRIPTS) -> dict[tuple[str, str], list[str]]:
    """Return the imports between rooms and entry points, by (importing, imported), with the files that do so."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(scripts.rglob("*.py")):
        relative = path.relative_to(scripts)
        importing = relative.parts[0].removesuffix(".py")
        for imported in project_imports(path, scripts):
            if imported != importing and relative.as_posix() not in found[importing, imported]:
                found[importing, imported].append(relative.as_posix())
    return dict(found)


def upward(found: Arrows) -> list[str]:
    """Return, in words, the arrows that go up, or to an entry point."""
    wrong = []
    for (importing, imported), files in found.items():
        floor = FLOOR.get(imported, ENTRY_POINTS)
        to_entry_point = floor == ENTRY_POINTS and imported != IMPORTED_FIRST
        if floor > FLOOR.get(importing, ENTRY_POINTS) or to_entry_point:
            wrong.append(f"{importing} imports {imported}, which stands above it: {', '.join(files)}")
    return wrong


def circles(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return the pairs of rooms that import each other, however many lie between them."""
    reached = _reached(found)
    return sorted(f"{one} and {other}" for one, other in reached if one < other and (other, one) in reached)


def picture(found: Iterable[tuple[str, str]]) -> str:
    """Return the rooms and their imports as a Mermaid flowchart, which GitHub and GitLab draw.

    An arrow that follows from others is left out: what launcher imports through planning need not be drawn twice.
    """
    direct = {(_shown(a), _shown(b)) for a, b in found if IMPORTED_FIRST not in (a, b)}
    direct = {(a, b) for a, b in direct if a != b}
    rooms = {room for arrow in direct for room in arrow}
    lines = ["flowchart TD", "    entry([entry points])"]
    for floor, names in reversed(list(enumerate(FLOORS))):
        here = [name for name in names if name in rooms]
        if here:
            lines += [
                f"    subgraph floor{floor}[ ]",
                "        direction LR",
                *(f"        {n}" for n in here),
                "    end",
            ]
    lines += [f"    {a} --> {b}" for a, b in sorted(_without_detours(direct))]
    return "\n".join(lines) + "\n"


def _shown(name: str) -> str:
    return name if name in FLOOR else "entry"


def _without_detours(direct: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the arrows that no longer way stands for; there must be no circle."""
    reached = _reached(direct)
    return {(a, b) for a, b in direct if not any((a, x) in direct and (x, b) in reached for x in FLOOR if x != b)}


def _reached(found: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return (from, to) for all that is imported directly or through others."""
    reached = set(found)
    for middle in {name for arrow in reached for name in arrow}:
        into = [a for a, b in reached if b == middle]
        out = [b for a, b in reached if a == middle]
        reached |= {(a, b) for a in into for b in out}
    return reached
