"""What a study becomes: planned cells in comparisons, each runnable or with the obstacle that keeps it from running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.cell import Cell
from contracts.model import Model
from contracts.shown_as import ShownAs
from corpus.sources import Corpus
from settings.systems import System

SCALINGS = ("strong", "weak_batch", "weak_model", "none")
BASELINES = ("smallest_common", "own_smallest")


@dataclass(frozen=True)
class Obstacle:
    """Why a planned cell is never launched: status "unsupported" (no such layout) or "missing" (system too small)."""

    status: str
    reason: str


@dataclass(frozen=True)
class PlannedCell:
    """One repeat of one cell in one comparison of a study."""

    comparison: str
    cell: Cell
    repeat: int
    obstacle: Obstacle | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Under which its outcome is found; shared by all comparisons and studies with the same cell."""
        return self.cell.cell_id, self.repeat


@dataclass(frozen=True)
class Comparison:
    """Cells whose numbers stand side by side; `scaling` says what stays the same between them."""

    name: str
    scaling: str
    baseline: str
    cells: tuple[PlannedCell, ...] = ()


@dataclass(frozen=True)
class Study:
    """A study file, expanded on one system."""

    name: str
    title: str
    system: System
    corpus: Corpus
    corpus_setting: str | Mapping[str, str]  # as the study file names it, for the tokenizer's command line
    paper: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    reference: str | None
    frameworks: tuple[str, ...]
    models: tuple[Model, ...]
    comparisons: tuple[Comparison, ...]
    time_limit_minutes: Mapping[str, float] = field(default_factory=dict)  # by model name
    time_limit_minutes_by_gpus: Mapping[int, float] = field(default_factory=dict)  # these come first
    environments: Mapping[str, str] = field(default_factory=dict)  # by framework: the name of its envs/<name>.txt
    shown_as: Mapping[str, ShownAs] = field(default_factory=dict)  # by framework: its name and style for readers

    @property
    def planned(self) -> tuple[PlannedCell, ...]:
        return tuple(planned for comparison in self.comparisons for planned in comparison.cells)

    def limit_minutes(self, cell: Cell) -> float:
        """Return after how many minutes a cell is ended: the limit of its number of GPUs, else that of its model."""
        by_gpus = self.time_limit_minutes_by_gpus.get(cell.num_gpus)
        return self.time_limit_minutes[cell.model.name] if by_gpus is None else by_gpus

    def runnable(self) -> tuple[PlannedCell, ...]:
        """Every cell that can be launched here, once, however many comparisons share it."""
        return tuple({p.key: p for p in self.planned if p.obstacle is None}.values())

    def too_large(self) -> tuple[PlannedCell, ...]:
        """Every cell that would need more GPUs than the system has, once."""
        return self._with_obstacle("missing")

    def unsupported(self) -> tuple[PlannedCell, ...]:
        """Every cell that its framework cannot run, once."""
        return self._with_obstacle("unsupported")

    def _with_obstacle(self, status: str) -> tuple[PlannedCell, ...]:
        return tuple({p.key: p for p in self.planned if p.obstacle and p.obstacle.status == status}.values())


def cell_folder(results: Path, system: str, cell: Cell) -> Path:
    """Where a cell's files lie: results/<system>/cells/<framework>/<model>/<num_gpus>gpu/<cell_id>."""
    return results / system / "cells" / cell.framework / cell.model.name / f"{cell.num_gpus}gpu" / cell.cell_id


def record_path(results: Path, system: str, planned: PlannedCell) -> Path:
    return cell_folder(results, system, planned.cell) / f"repeat{planned.repeat}" / "record.json"


def without_record(study: Study, results: Path) -> list[PlannedCell]:
    """The cells that could have a record and have none, every repeat by itself."""
    return [p for p in study.runnable() if not record_path(results, study.system.name, p).is_file()]


def study_folder(results: Path, study: Study) -> Path:
    return results / study.system.name / study.name


def index_cells(studies: Iterable[Study]) -> dict[str, dict[str, Any]]:
    """The one dict that rules read a cell's values from: cell id -> values that never decide a rerun by themselves.

    A cell of several studies gets the longest of their time limits.
    """
    cells: dict[str, dict[str, Any]] = {}
    for study in studies:
        tokens = f"results/tokens/{study.corpus.key}/train.json"
        for planned in study.runnable():
            cell = planned.cell
            limit_s = max(1, round(60 * study.limit_minutes(cell)))
            known = cells.setdefault(
                cell.cell_id,
                {
                    "cell": cell,
                    "identity": cell.identity_json,
                    "tokens": tokens,
                    "time_limit_s": limit_s,
                    "environment": study.environments[cell.framework],
                },
            )
            known["time_limit_s"] = max(known["time_limit_s"], limit_s)
    return cells
