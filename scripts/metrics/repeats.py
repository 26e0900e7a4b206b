"""A layout's repeats as one measurement: the mean of their times, its spread, and whether the mean is worth anything.

Everything that compares is derived from this mean (DESIGN.md, "Metrics"): means of ratios and ratios of means differ,
so only times are ever averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from metrics.spread import mean, sample_deviation

# Slowest over fastest repeat from which on a mean says nothing. Repeats of an undisturbed cell differ by a few percent,
# and the leads that such studies report are 15 to 25 % (arXiv:2110.13005): where one repeat took half as long again as
# another, they were not measured under the same conditions, and their mean depends on which came more often.
UNSTEADY_RATIO = 1.5


@dataclass(frozen=True)
class Point:
    """One measured repeat (status ok), as far as comparing needs it. Times in s, rates in tokens/s and FLOP/s.

    `apart` says what keeps this repeat from being compared, such as other threads than most rows have; repeats with an
    equal `apart` are alike among themselves. `failed` are endings of other repeats of the layout that ran and are no
    time: "repeat 3 ended oom".
    """

    framework: str
    model: str
    num_gpus: int
    cell_id: str
    layout: str
    repeat: int
    global_batch_size: int
    precision: str
    activation_checkpointing: str
    device_name: str
    batch_time_s: float
    tokens_per_batch: int
    model_flops_per_step: float | None
    apart: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class Doubt(IntEnum):
    """How little a layout's time is worth: the less, the later it is chosen as its framework's best."""

    NONE = 0
    UNSTEADY = 1  # its repeats do not agree: averaged and compared with a note, no winner
    APART = 2  # measured unlike the others, or impossible: a time of its own, set beside nothing
    NOT_AVERAGED = 3  # its repeats are unlike one another: no time at all


@dataclass(frozen=True)
class LayoutTime:
    """One layout at one number of GPUs over its repeats. None is empty; `num_repeats` are those that ended ok.

    `used` are the repeats in the mean: those that are alike with most of the comparison, where there are any.
    """

    framework: str
    model: str
    num_gpus: int
    cell_id: str
    layout: str
    doubt: Doubt
    num_repeats: int
    used: frozenset[int]
    batch_time_s: float | None
    spread_s: float | None
    tokens_per_batch: int
    model_flops_per_step: float | None
    notes: tuple[str, ...] = ()

    @property
    def is_compared(self) -> bool:
        return self.doubt <= Doubt.UNSTEADY

    @property
    def rank(self) -> tuple[int, float, str, str]:
        """Return what sorts the best layout first; ties go by name, so that the rows' order decides nothing."""
        seconds = math.inf if self.batch_time_s is None else self.batch_time_s
        return int(self.doubt), seconds, self.layout, self.cell_id


def layout_time(points: Sequence[Point]) -> LayoutTime:
    """Return what the ok repeats of one layout amount to."""
    one = points[0]
    devices = sorted({point.device_name for point in points})
    used = [point for point in points if not point.apart]
    left_out = sorted(point.repeat for point in points if point.apart)
    notes: list[str] = []
    if len(devices) > 1:
        used, doubt = [], Doubt.NOT_AVERAGED
        notes.append(f"not compared: its repeats ran on {len(devices)} device kinds ({', '.join(devices)})")
    elif used:
        doubt = Doubt.NONE
        if left_out:
            notes.append(f"without repeat {', '.join(map(str, left_out))}, which was not measured alike")
    elif len({point.apart for point in points}) == 1:
        used, doubt = list(points), Doubt.APART
    else:
        doubt = Doubt.NOT_AVERAGED
        notes.append("not compared: its repeats were not measured alike, so they are not averaged")
    unsteady = _unsteady_note(used, one.failed)
    if unsteady:
        doubt = max(doubt, Doubt.UNSTEADY)
        notes.append(unsteady)
    times = [point.batch_time_s for point in used]
    return LayoutTime(
        framework=one.framework,
        model=one.model,
        num_gpus=one.num_gpus,
        cell_id=one.cell_id,
        layout=one.layout,
        doubt=doubt,
        num_repeats=len(times) or len(points),
        used=frozenset(point.repeat for point in used or points),
        batch_time_s=mean(times) if times else None,
        spread_s=sample_deviation(times) if len(times) > 1 else None,
        tokens_per_batch=one.tokens_per_batch,
        model_flops_per_step=one.model_flops_per_step,
        notes=tuple(notes),
    )


def relative_spread(layout: LayoutTime) -> float | None:
    """Return the spread of a layout's time over the time itself; None where it is unknown."""
    if layout.spread_s is None or layout.batch_time_s is None:
        return None
    return layout.spread_s / layout.batch_time_s


def failed_repeats(rows: Sequence[Mapping[str, object]]) -> dict[str, tuple[str, ...]]:
    """Return cell id -> "repeat 3 ended oom" for each of its repeats that ran and gave no time."""
    failed: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row["status"] in ("oom", "nan"):
            cell_id = str(row["cell_id"])
            failed[cell_id] = (*failed.get(cell_id, ()), f"repeat {row['repeat']} ended {row['status']}")
    return {cell_id: tuple(sorted(endings)) for cell_id, endings in failed.items()}


def _unsteady_note(points: Sequence[Point], failed: Sequence[str]) -> str:
    """Return why the mean of these repeats is doubtful, with their number and extremes; empty where it is not."""
    if not points:
        return ""
    fastest, slowest = (choose(point.batch_time_s for point in points) for choose in (min, max))
    if slowest < UNSTEADY_RATIO * fastest and not failed:
        return ""
    if len(points) == 1:
        took = f"its one repeat took {fastest:.4g} s a batch"
    else:
        took = f"its {len(points)} repeats took from {fastest:.4g} to {slowest:.4g} s a batch"
    return ", ".join([f"unsteady: {took}", *failed])
