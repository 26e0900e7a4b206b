"""What the reports of a training cell's ranks amount to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contracts.workload import Judgement
from workloads.training.training_cell import TrainingCell


def judge(cell: TrainingCell, reports: Sequence[Mapping[str, Any]]) -> Judgement:
    """Return `ok` where the ranks read all of the batch and every loss is finite, `nan` where one is not."""
    degree = cell.layout.data_parallel
    shares = sorted({(report["rank"]["data_rank"], report["rank"]["data_size"]) for report in reports})
    if shares != [(share, degree) for share in range(degree)]:
        said = ", ".join(f"{share} of {size}" for share, size in shares)
        return Judgement("", f"the ranks read shares {said} of the batch, not each of {degree}")
    losses = [loss for report in reports for loss in report["rank"]["losses"] if loss is not None]
    if not losses:
        return Judgement("", "no rank held a loss, so nothing shows that it trained")
    if not all(math.isfinite(float(loss)) for loss in losses):
        return Judgement("nan", "a loss was not finite")
    return Judgement("ok")
