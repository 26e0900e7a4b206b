"""What a workload in workloads/ provides; planner, launcher, ranks and records rely on nothing else.

A workload is a module or package of workloads/ with a name WORKLOAD. It says what its cells are, what a rank runs, and
how what the ranks report is judged. Its functions import what they need when they are called: the planner reads a
workload without NumPy, and a rank without the planner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from contracts.adaptor import Job
from contracts.cell import Cell


@dataclass(frozen=True)
class Judgement:
    """What the reports of all ranks amount to. status: a record's, or empty where there must be no record.

    rank: the one that is to blame, where it is one.
    """

    status: str
    reason: str = ""
    rank: int | None = None


class Running(Protocol):
    """What a rank has open while it runs, and closes when its report is kept."""

    def barrier(self) -> None:
        """Return when every rank has come here."""

    def close(self) -> None: ...


class Arrival(Protocol):
    """How a rank tells the launcher how far it is."""

    def mark_arrived(self, rank: int) -> None:
        """Say that this rank has imported what it needs, and looks for the others."""

    def mark_started(self, rank: int) -> None:
        """Say that this rank has met the others."""


class Workload(Protocol):
    """One kind of cell."""

    def cell_from_identity(self, identity: Mapping[str, Any], subject: str) -> Cell:
        """Return the cell of an identity; `subject` is what stands for the model in its path."""

    def record_facts(self, cell: Cell, inputs: Path | None) -> dict[str, Any]:
        """Check what the cell is to read before anything starts, and return what a record says of it.

        Raises ValueError where it cannot be used, with what is wrong and what to do.
        """

    def run_rank(self, job: Job, adaptor: ModuleType, inputs: Path | None, arrival: Arrival) -> tuple[Running, dict]:
        """Run the cell on this rank; return what is still open, and the rank's report.

        The report has `rank` (its entry in the record's `ranks`), `world_size`, `settings`, `versions` and `reported`.
        """

    def judge(self, cell: Cell, reports: Sequence[Mapping[str, Any]]) -> Judgement:
        """Say what the reports of all ranks of the cell amount to; every rank has left one."""
