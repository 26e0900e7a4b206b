"""What a call says of its plan before anything starts: cells that will not run, and what the missing ones are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from contracts.cell import Cell
from planning.adaptors import load_adaptor
from planning.memory_estimate import RESERVE_GIB, gpu_memory_gib
from planning.plan import Study, without_record
from planning.predictions import cell_estimate, cells_too_large_for, missing_kernels, straddles_nodes
from settings.systems import System

# Numbers of GPUs that are written out in a line.
MOST_LISTED = 12


def threads_words(system: System) -> str:
    """Return how many threads a CPU process has and from what that follows, where the system file does not give it: on
    other cores these are other cells.
    """
    return (
        f"threads of a process: {system.threads_per_process} ({system.threads_derived})"
        if system.threads_derived
        else ""
    )


def plan_lines(study: Study, hardware: Mapping[str, Any] | None = None) -> list[str]:
    """Return what holds for a study as a whole: GPUs that its torch has no kernels for, a line for every planned cell
    that its framework cannot run, and one that sums up those too large to start.
    """
    lines = [f"{study.name}: {sentence}" for sentence in missing_kernels(study, hardware or {})]
    reasons = {p.cell.cell_id: (p.cell, p.obstacle.reason) for p in study.unsupported() if p.obstacle}
    lines += [f"{study.name}: {cell.label()}: unsupported: {reason}" for cell, reason in reasons.values()]
    too_large = study.too_large()
    if too_large:
        sizes = {planned.cell.num_gpus for planned in too_large}
        needed = study.system.device.counted(listed_numbers(sizes))
        lines.append(
            f"{study.name}: {len(too_large)} cells planned and not started: they need {needed}, "
            f"this system ({study.system.name}) has {study.system.max_gpus}"
        )
    return lines


def listed_numbers(numbers: Collection[int]) -> str:
    """Return "48, 96, 192"; of more than a line can show, only from which to which."""
    ordered = sorted(numbers)
    if len(ordered) > MOST_LISTED:
        return f"from {ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))


def missing_lines(study: Study, results: Path, hardware: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield what each cell without a record is, repeats together: framework, model, layout, GPUs, nodes, time limit and
    the memory it is predicted to need. Then the cells that this system is too small for, which no call starts.

    hardware: config/hardware.yaml, for the memory of GPUs on a system that sets no limit of its own.
    """
    adaptors = {name: load_adaptor(name) for name in study.frameworks}
    memory_gib = gpu_memory_gib(study.system, hardware or {})
    missing = without_record(study, results)
    repeats = Counter(planned.cell.cell_id for planned in missing)
    if study.runnable():
        head = f"{study.name}: {len(missing)} of {len(study.runnable())} cells to measure on {study.system.name}"
        yield "; ".join(filter(None, (head, threads_words(study.system))))
    cells = {planned.cell.cell_id: planned.cell for planned in missing}
    unfit = cells_too_large_for(memory_gib, cells.values())
    # Those that are predicted not to fit stand apart.
    ordered = [cell for cell in cells.values() if cell.cell_id not in unfit]
    ordered += [cell for cell in cells.values() if cell.cell_id in unfit]
    for cell in ordered:
        times = f", {repeats[cell.cell_id]} repeats" if repeats[cell.cell_id] > 1 else ""
        limit = f"at most {study.limit_minutes(cell):g} minutes"
        yield f"    {cell.label()}{_nodes(cell)}{times}, {limit}{_memory(adaptors[cell.framework], cell, memory_gib)}"
    too_large = {p.cell.cell_id: (p.cell, p.obstacle.reason) for p in study.too_large() if p.obstacle}
    for cell, reason in too_large.values():
        memory = _memory(adaptors[cell.framework], cell, memory_gib)
        yield f"    {cell.label()}{_nodes(cell)}, not started: {reason}{memory}"


def _nodes(cell: Cell) -> str:
    if cell.num_nodes == 1:
        return ""
    across = f", tensor groups of {cell.layout.tensor_parallel} straddle them" if straddles_nodes(cell) else ""
    return f", {cell.num_nodes} nodes{across}"


def _memory(adaptor: ModuleType, cell: Cell, memory_gib: float | None) -> str:
    """The estimate, marked where a GPU of `memory_gib` is predicted to be too small; nothing where none is made."""
    estimate = cell_estimate(adaptor, cell)
    if estimate is None:
        return ""
    mark = ""
    if memory_gib is not None and not estimate.fits(memory_gib):
        mark = f", predicted NOT to fit {memory_gib:g} GiB with {RESERVE_GIB:g} to spare"
    return f", {estimate.words(cell.device.unit)}{mark}"
