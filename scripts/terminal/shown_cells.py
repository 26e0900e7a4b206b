"""The cells of a call as its lines on the terminal show them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contracts.cell import Cell
from planning.plan import Study, cell_folder, record_path, without_record

Key = tuple[str, int]  # cell id, repeat

# The number of GPUs, which comes fourth, is headed by what it counts.
HEADS = ("cell", "framework", "model", "", "layout", "rep.", "batch", "took", "left")
NUMBERS = (0, 3, 5, 6, 7)  # columns that end below one another


@dataclass(frozen=True)
class ShownCell:
    """One repeat of a cell. folder: where its record will lie; time_limit_s: None where it is not known."""

    cell_id: str
    repeat: int
    framework: str
    model: str
    num_gpus: int
    unit: str  # what num_gpus counts, in the singular; empty where it is not known
    layout: str
    folder: Path
    time_limit_s: float | None

    @property
    def key(self) -> Key:
        return self.cell_id, self.repeat


def cells_to_show(study: Study, results: Path, in_queue: Collection[Path] = ()) -> list[ShownCell]:
    """Return the cells of a study that this call is to measure.

    in_queue: the records that jobs of an earlier call will write. The layout has the batch where cells differ in it
    alone.
    """
    batches: dict[tuple[str, str, int, str], set[int]] = defaultdict(set)
    for planned in study.runnable():
        batches[_without_batch(planned.cell)].add(planned.cell.global_batch_size)
    return [
        ShownCell(
            cell_id=cell.cell_id,
            repeat=planned.repeat,
            framework=cell.framework,
            model=cell.model.name,
            num_gpus=cell.num_gpus,
            unit=cell.device.unit,
            layout=cell.layout.label()
            + (f", batch {cell.global_batch_size}" if len(batches[_without_batch(cell)]) > 1 else ""),
            folder=cell_folder(results, study.system.name, cell) / f"repeat{planned.repeat}",
            time_limit_s=60 * study.limit_minutes(cell),
        )
        for planned in without_record(study, results)
        if record_path(results, study.system.name, planned) not in in_queue
        for cell in [planned.cell]
    ]


def _without_batch(cell: Cell) -> tuple[str, str, int, str]:
    return cell.framework, cell.model.name, cell.num_gpus, cell.layout.label()


def cell_of_job(wildcards: Mapping[str, Any], log: str) -> ShownCell:
    """Return a cell that no study of the call has announced, as far as the names of its files tell."""
    w = wildcards
    return ShownCell(
        w["cell_id"], int(w["repeat"]), w["framework"], w["model"], int(w["num_gpus"]), "", "", Path(log).parent, None
    )


def with_short_layouts(cells: Sequence[ShownCell]) -> tuple[list[ShownCell], str]:
    """Return the cells without what their layouts say of all of them, or of all of a framework: a line has room for
    what tells them apart. Degrees stay. The text is what all layouts of all frameworks share.
    """
    shared = _shared_options(cells)
    of_framework = {
        name: set(_shared_options([cell for cell in cells if cell.framework == name]))
        for name in {cell.framework for cell in cells}
    }
    short = []
    for cell in cells:
        degrees, *options = cell.layout.split(", ")
        kept = [option for option in options if option not in of_framework[cell.framework]]
        short.append(replace(cell, layout=", ".join([degrees, *kept])))
    return short, ", ".join(shared)


def _shared_options(cells: Sequence[ShownCell]) -> list[str]:
    """Return what all these layouts say after their degrees, in its order."""
    options = [cell.layout.split(", ")[1:] for cell in cells]
    return [option for option in (options[0] if options else []) if all(option in one for one in options)]


@dataclass(frozen=True)
class Columns:
    """The widths of the columns, so that the lines of a call stand below one another."""

    widths: tuple[int, ...]
    heads: tuple[str, ...]
    count: int
    gap: str = "  "

    def line(self, number: str, cell: ShownCell, result: str = "", took: str = "", left: str = "") -> str:
        """Return the line of a cell; what is not known yet is empty."""
        return self._joined([*self._what(number, cell), result, took, left])

    def head(self) -> str:
        return self._joined(self.heads)

    def number(self, number: int) -> str:
        return f"{number}/{self.count}"

    def _what(self, number: str, cell: ShownCell) -> list[str]:
        return [number, cell.framework, cell.model, str(cell.num_gpus), cell.layout, str(cell.repeat)]

    def _joined(self, texts: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if index in NUMBERS else text.ljust(width)
            for index, (text, width) in enumerate(zip(texts, self.widths, strict=True))
        )
        return self.gap.join(padded).rstrip()


def columns_for(cells: Iterable[ShownCell], count: int, terminal_width: int | None) -> Columns:
    """Return columns wide enough for these cells, with narrow gaps where the terminal has no room for wide ones."""
    shown = list(cells)
    results = ("0.1234 s", "17 s", "~6 min")
    rows = [
        (f"{count}/{count}", c.framework, c.model, str(c.num_gpus), c.layout, str(c.repeat), *results) for c in shown
    ]
    units = {"process": "processes", "GPU": "GPUs", "": "GPUs or processes"}
    what = "/".join(dict.fromkeys(units[c.unit] for c in shown))
    heads = tuple(head or what for head in HEADS)
    widths = tuple(max(map(len, texts)) for texts in zip(heads, *rows, strict=True))
    fits = terminal_width is None or sum(widths) + 2 * (len(widths) - 1) <= terminal_width
    return Columns(widths, heads, count, "  " if fits else " ")


def shown_path(path: Path) -> str:
    """Return a path as one types it from the folder of the call."""
    return os.path.relpath(path) if path.is_absolute() else path.as_posix()
