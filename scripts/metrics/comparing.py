"""What the rows of one comparison say about each other: which are alike, which layout is best, how each one scales."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.cell import Cell
from metrics.alike import Unlike, unlike_rows
from metrics.circumstances import Row, conditions, variable_names
from metrics.flops import is_above_peak
from metrics.repeats import Point, failed_repeats
from metrics.scaling import scale_points
from planning.plan import Comparison

ABOVE_PEAK = "above the peak"
ABOVE_PEAK_NOTE = f"not compared: {ABOVE_PEAK}, so the peak or the times are wrong"


@dataclass(frozen=True)
class Compared:
    """A row of a comparison, the cell it is of, and the record its time is from; empty where it has no time."""

    row: Row
    cell: Cell
    record: Mapping[str, Any]


def add_comparison(rows: Sequence[Compared], comparison: Comparison, *, is_local: bool) -> None:
    """Fill in, in place, the columns and notes that come from comparing the rows of one comparison."""
    for one in rows:
        one.row.update(scaling=comparison.scaling, baseline_policy=comparison.baseline, best_layout=False)
    failed = failed_repeats([one.row for one in rows])
    measured = [one for one in rows if one.record]
    unlike = _unlike(measured, comparison, is_local)
    points = [
        _point(one.row, apart, failed.get(one.row["cell_id"], ())) for one, apart in zip(measured, unlike, strict=True)
    ]
    scaled = scale_points(points, comparison.scaling, comparison.baseline)
    for one, apart, result in zip(measured, unlike, scaled, strict=True):
        one.row.update(
            best_layout=result.best_layout,
            # Times of a CPU in CUDA's place say nothing beside others'.
            comparable=result.comparable and not one.row["cuda_stand_in"],
            repeats_measured=result.num_repeats,
            layout_batch_time_s=result.layout_batch_time_s,
            layout_batch_time_spread_s=result.layout_batch_time_spread_s,
            speedup=result.speedup,
            speedup_spread=result.speedup_spread,
            parallel_efficiency=result.parallel_efficiency,
            parallel_efficiency_spread=result.parallel_efficiency_spread,
            baseline=result.baseline,
            baseline_num_gpus=result.baseline_num_gpus,
        )
        one.row["notes"].extend([*apart.notes, *result.notes])


def _unlike(measured: Sequence[Compared], comparison: Comparison, is_local: bool) -> list[Unlike]:
    """Return how each row differs from those beside it; where nothing is scaled, only from its own layout's repeats."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(measured):
        groups[one.row["cell_id"] if comparison.scaling == "none" else ""].append(index)
    found: dict[int, Unlike] = {}
    for members in groups.values():
        names = variable_names(measured[index].record for index in members)
        rows = [conditions(measured[i].record, measured[i].cell, names, is_local=is_local) for i in members]
        found |= zip(members, unlike_rows(rows), strict=True)
    return [found[index] for index in range(len(measured))]


def _point(row: Row, unlike: Unlike, failed: tuple[str, ...]) -> Point:
    apart = unlike.has
    if is_above_peak(row["model_flops_utilization_percent"], row["hardware_flops_utilization_percent"]):
        apart = (*apart, ABOVE_PEAK)
        row["notes"].append(ABOVE_PEAK_NOTE)
    return Point(
        framework=row["framework"],
        model=row["model"],
        num_gpus=row["num_gpus"],
        cell_id=row["cell_id"],
        layout=row["layout"],
        repeat=row["repeat"],
        global_batch_size=row["global_batch_size"],
        precision=row["precision"],
        activation_checkpointing=row["activation_checkpointing"],
        device_name=row["device_name"],
        batch_time_s=row["batch_time_s"],
        tokens_per_batch=row["global_batch_size"] * row["seq_length"],
        model_flops_per_step=row["model_flops_per_step"],
        apart=apart,
        failed=failed,
    )
