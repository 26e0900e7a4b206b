"""What the missing cells of a study will take at most: the first that somebody with an allocation wants to know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.cell import Cell
from planning.job_resources import cell_resources, charged_gpus
from planning.memory_estimate import gpu_memory_gib
from planning.plan import PlannedCell, Study, record_path, without_record
from planning.predictions import cells_too_large_for, straddles_nodes

# Lines of the table by framework and size, and points that no candidate fits, that are written out.
MOST_LINES = 40


@dataclass(frozen=True)
class Share:
    """Some of the missing cells. gpu_hours: GPUs that are kept from others, to the time limit; None on a CPU without
    Slurm.
    """

    cells: int = 0
    gpu_hours: float | None = None


@dataclass(frozen=True)
class Size:
    """The missing cells of a framework on one number of GPUs, those that are predicted not to fit apart."""

    framework: str
    num_gpus: int
    fitting: Share
    unfit: Share


@dataclass(frozen=True)
class Budget:
    """What the missing cells of a study will take at most, that is, if every cell goes on to its time limit.

    fitting, unfit: the cells that are predicted to fit GPUs of memory_gib, or of which nothing is predicted, and those
    that are predicted not to fit. hopeless: points of the study that no candidate fits. straddling: cells with tensor
    groups on more than one node.
    """

    submits: bool
    most_nodes: int
    minutes: float
    fitting: Share
    unfit: Share
    memory_gib: float | None = None
    straddling: int = 0
    sizes: tuple[Size, ...] = ()
    hopeless: tuple[str, ...] = ()

    @property
    def cells(self) -> int:
        return self.fitting.cells + self.unfit.cells

    def words(self) -> str:
        """Return what a call says of it, first of all. Cells that are predicted not to fit are in no total."""
        if self.fitting.gpu_hours is None:
            return (
                f"{_count(self.cells, 'cell')} to measure one after another, at most {self.minutes:,.0f} minutes in all"
            )
        if self.submits:
            text = f"{_count(self.cells, 'job')} to submit, of at most {_count(self.most_nodes, 'node')} each"
            meaning = "(every GPU kept from others, to the time limit)"
        else:
            text = f"{_count(self.cells, 'cell')} to measure one after another"
            meaning = "(to the time limit)"
        if self.memory_gib is None:
            text += f", at most {hours_text(self.fitting.gpu_hours)} GPU-hours in all {meaning}"
        else:
            text += f": {self.fitting.cells} predicted to fit {self.memory_gib:g} GiB, at most "
            text += f"{hours_text(self.fitting.gpu_hours)} GPU-hours {meaning}"
            if self.unfit.cells and self.unfit.gpu_hours is not None:
                text += f"; {self.unfit.cells} predicted NOT to fit, at most {hours_text(self.unfit.gpu_hours)} "
                text += "GPU-hours more, and started all the same"
        if self.straddling:
            text += f"; {self.straddling} with tensor groups that straddle nodes"  # named in the list of cells
        return text

    def lines(self) -> list[str]:
        """Return what a dry run adds: the same by framework and size, and the points that no candidate fits."""
        lines = _table(self) if len(self.sizes) > 1 and self.fitting.gpu_hours is not None else []
        if self.hopeless:
            lines.append("    no candidate is predicted to fit:")
            lines += [f"        {point}" for point in self.hopeless[:MOST_LINES]]
            if len(self.hopeless) > MOST_LINES:
                lines.append(f"        and {len(self.hopeless) - MOST_LINES} more")
        return lines


def budget(
    study: Study, results: Path, in_queue: Collection[Path], hardware: Mapping[str, Any] | None = None
) -> Budget:
    """Return what the cells will take that have neither a record nor a job.

    in_queue: the records that jobs of an earlier call will write. hardware: config/hardware.yaml, for the memory of
    GPUs on a system that sets no limit of its own.
    """
    system = study.system
    missing = [p for p in without_record(study, results) if record_path(results, system.name, p) not in in_queue]
    memory_gib = gpu_memory_gib(system, hardware or {})
    open_points = {_point(planned.cell) for planned in missing}
    candidates = [planned.cell for planned in study.runnable() if _point(planned.cell) in open_points]
    too_large = cells_too_large_for(memory_gib, candidates)
    has_gpu_hours = system.slurm is not None or system.device.is_accelerator

    def share(cells: Iterable[PlannedCell], unfit: bool) -> Share:
        chosen = [planned for planned in cells if (planned.cell.cell_id in too_large) == unfit]
        hours = sum(_gpu_hours(study, planned) for planned in chosen) if has_gpu_hours else None
        return Share(len(chosen), hours)

    by_size: dict[tuple[str, int], list[PlannedCell]] = defaultdict(list)
    for planned in missing:
        by_size[planned.cell.framework, planned.cell.num_gpus].append(planned)
    return Budget(
        submits=system.slurm is not None,
        most_nodes=max((planned.cell.num_nodes for planned in missing), default=0),
        minutes=sum(study.limit_minutes(planned.cell) for planned in missing),
        fitting=share(missing, unfit=False),
        unfit=share(missing, unfit=True),
        memory_gib=memory_gib if has_gpu_hours else None,
        straddling=sum(straddles_nodes(planned.cell) for planned in missing),
        sizes=tuple(Size(*size, share(cells, False), share(cells, True)) for size, cells in by_size.items()),
        hopeless=tuple(sorted(open_points - {_point(cell) for cell in candidates if cell.cell_id not in too_large})),
    )


def _point(cell: Cell) -> str:
    """Return what the candidates of a point share."""
    where = cell.device.counted(cell.num_gpus)
    return f"{cell.framework}, {cell.model.name}, {where}, batch {cell.global_batch_size}"


def _table(cost: Budget) -> list[str]:
    """Return a line for each framework and number of GPUs."""
    apart = cost.unfit.cells > 0
    what = "jobs" if cost.submits else "cells"
    rows = [["framework", "GPUs", what, "GPU-hours", *(["NOT to fit", "GPU-hours"] if apart else [])]]
    for size in cost.sizes[:MOST_LINES]:
        shares = [size.fitting, *([size.unfit] if apart else [])]
        numbers = [text for share in shares for text in (str(share.cells), hours_text(share.gpu_hours or 0.0))]
        rows.append([size.framework, str(size.num_gpus), *numbers])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        right = (text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))
        lines.append("    " + "  ".join([name.ljust(widths[0]), *right]))
    left = len(cost.sizes) - MOST_LINES
    return [*lines, f"    and {left} more numbers of GPUs"] if left > 0 else lines


def _gpu_hours(study: Study, planned: PlannedCell) -> float:
    """The GPUs that a cell keeps from others, times its limit: with Slurm those of its job and the job's."""
    site, cell, minutes = study.system.slurm, planned.cell, study.limit_minutes(planned.cell)
    if site is None:
        return cell.num_gpus * minutes / 60
    minutes = cell_resources(site, cell, 60 * minutes)["runtime"]
    return charged_gpus(site, cell, study.system.gpus_per_node) * minutes / 60


def hours_text(hours: float) -> str:
    """Three digits, and whole numbers as people write them: `0.0125`, `1.5`, `21,600`."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
