"""The training workload: a model is trained for eleven batches, of which the first warms up.

Functions import what they need when they are called, so that a planner needs no NumPy and a rank no planner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from contracts.adaptor import Job
from contracts.cell import Cell
from contracts.workload import Arrival, Judgement, Running


class Training:
    """See `contracts.workload.Workload`."""

    def cell_from_identity(self, identity: Mapping[str, Any], subject: str) -> Cell:
        from workloads.training.training_cell import cell_from_identity

        return cell_from_identity(identity, subject)

    def record_facts(self, cell: Cell, inputs: Path | None) -> dict[str, Any]:
        from workloads.training.tokens import facts_of_tokens

        return facts_of_tokens(cell, inputs)

    def run_rank(self, job: Job, adaptor: ModuleType, inputs: Path | None, arrival: Arrival) -> tuple[Running, dict]:
        from workloads.training.timed_batches import train

        assert inputs is not None
        return train(job, adaptor, inputs, arrival)

    def judge(self, cell: Cell, reports: Sequence[Mapping[str, Any]]) -> Judgement:
        from workloads.training.verdict_of_losses import judge

        return judge(cell, reports)


WORKLOAD = Training()
