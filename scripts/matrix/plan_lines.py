"""What a call says of its plan before anything starts: cells that will not run, and what the missing ones are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from matrix.plan import PlannedCell, Study, without_record


def plan_lines(study: Study) -> list[str]:
    """A line for every planned cell that is never launched on this system, and one that sums up the too large ones."""
    obstacles = {p.key: p for p in study.planned if p.obstacle is not None and p.repeat == 1}
    lines = [f"{study.name}: {_words(planned)}: {_reason(planned)}" for planned in obstacles.values()]
    too_large = study.too_large()
    if too_large:
        needed = sorted({planned.cell.num_gpus for planned in too_large})
        lines.append(
            f"{study.name}: {len(too_large)} cells planned and not started: they need "
            f"{', '.join(map(str, needed))} GPUs, this system ({study.system.name}) has {study.system.max_gpus}"
        )
    return lines


def missing_lines(study: Study, results: Path) -> Iterator[str]:
    """What each cell without a record is, repeats together: framework, model, layout, GPUs, nodes, time limit."""
    missing = without_record(study, results)
    repeats = Counter(planned.cell.cell_id for planned in missing)
    yield f"{study.name}: {len(missing)} of {len(study.runnable())} cells to measure on {study.system.name}"
    for cell in {planned.cell.cell_id: planned.cell for planned in missing}.values():
        nodes = f", {cell.num_nodes} nodes" if cell.num_nodes > 1 else ""
        times = f", {repeats[cell.cell_id]} repeats" if repeats[cell.cell_id] > 1 else ""
        limit = f"at most {study.time_limit_minutes[cell.model.name]:g} minutes"
        yield f"    {cell.label()}{nodes}{times}, {limit}"


def _words(planned: PlannedCell) -> str:
    cell = planned.cell
    return f"{cell.framework}, {cell.model.name}, {cell.layout.label()}"


def _reason(planned: PlannedCell) -> str:
    assert planned.obstacle is not None
    reason = planned.obstacle.reason
    return f"unsupported: {reason}" if planned.obstacle.status == "unsupported" else reason
