"""Speedup and parallel efficiency inside one comparison, and which layout of each framework is compared.

Definitions (DESIGN.md, "Metrics"): speedup = tokens/s over the baseline's, ideal N / N0, efficiency = speedup N0 / N.
Under `weak_model` the model grows with N, so there is no speedup, and efficiency = model FLOP/s per GPU over the
baseline's. All of it is the layout's, from the mean of its repeats' times, so a baseline is exactly 1. The baseline of
a framework is its own best layout at N0. N0 is the smallest number of GPUs at which every framework that measured
anything has a result (`smallest_common`) or the framework's own smallest (`own_smallest`). Under `strong` and
`weak_batch` every model has its own baselines.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from metrics.repeats import Doubt, LayoutTime, Point, layout_time, relative_spread

SMALLEST_COMMON = "smallest_common"
# Rates are quotients of floats: equal ones differ in the last digits.
ROUNDING = 1e-9
# Efficiency above which a result is wrong rather than good. More GPUs bring caches and memory with them, which is worth
# some percent; half as much again as the ideal has only been seen where the baseline or the result was mismeasured.
IMPOSSIBLE_EFFICIENCY = 1.5

Key = TypeVar("Key")


@dataclass(frozen=True)
class Scaled:
    """What comparing adds to one point; None is empty. `baseline` is a cell id; `comparable` None without scaling.

    Spreads are standard deviations over repeats, those of speedup and efficiency to first order from the two times'.
    """

    best_layout: bool
    comparable: bool | None
    num_repeats: int | None = None
    layout_batch_time_s: float | None = None
    layout_batch_time_spread_s: float | None = None
    speedup: float | None = None
    speedup_spread: float | None = None
    parallel_efficiency: float | None = None
    parallel_efficiency_spread: float | None = None
    baseline: str = ""
    baseline_num_gpus: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ratio:
    """A layout over its baseline."""

    base: LayoutTime
    speedup: float | None = None
    speedup_spread: float | None = None
    efficiency: float | None = None
    efficiency_spread: float | None = None
    notes: tuple[str, ...] = ()


def scale_points(points: Sequence[Point], scaling: str, baseline_policy: str) -> list[Scaled]:
    """Return one `Scaled` for each point of one comparison, in the points' order.

    `scaling` is one of planning.plan.SCALINGS, `baseline_policy` one of planning.plan.BASELINES.
    """
    layouts = [layout_time(repeats) for repeats in _grouped(points, _layout_key).values()]
    mixed = mixed_reason(points, scaling)
    ratios: dict[tuple[str, str, int, str], _Ratio] = {}
    if scaling != "none" and not mixed:
        baselines = _baselines(_best_layouts(layouts), scaling, baseline_policy)
        for index, layout in enumerate(layouts):
            base = baselines.get((layout.framework, _series(layout.model, scaling)))
            if base is None or not layout.is_compared:
                continue
            ratio = ratios[_layout_key(layout)] = _ratio(layout, base, scaling)
            if _is_impossible(layout, ratio):
                layouts[index] = dataclasses.replace(layout, doubt=Doubt.APART)
    best = {_layout_key(layout) for layout in _best_layouts(layouts).values()}
    by_key = {_layout_key(layout): layout for layout in layouts}
    return [
        _scaled(point, by_key[_layout_key(point)], ratios.get(_layout_key(point)), best, scaling, mixed)
        for point in points
    ]


def mixed_reason(points: Sequence[Point], scaling: str) -> str:
    """Return why these points must not be compared; empty where they may."""
    if scaling == "none":
        return ""
    everywhere: Mapping[str, Iterable[str]] = {
        "precisions": (p.precision for p in points),
        "settings of activation checkpointing": (p.activation_checkpointing for p in points),
    }
    for what, values in everywhere.items():
        distinct = sorted(set(values))
        if len(distinct) > 1:
            return f"{len(distinct)} {what} in one comparison ({', '.join(distinct)})"
    for series, members in _grouped(points, lambda p: _series(p.model, scaling)).items():
        # What has to stay the same: the batch, or under weak_batch the batch per GPU.
        per_gpu = scaling == "weak_batch"
        batches = {p.global_batch_size / p.num_gpus if per_gpu else p.global_batch_size for p in members}
        if len(batches) > 1:
            where = f" of {series}" if series else ""
            sizes = ", ".join(f"{size:g}" for size in sorted(batches))
            return f"{len(batches)} batch sizes{' per GPU' if per_gpu else ''}{where} ({sizes}) under {scaling} scaling"
    if scaling == "weak_model":
        for num_gpus, members in sorted(_grouped(points, lambda p: p.num_gpus).items()):
            models = sorted({p.model for p in members})
            if len(models) > 1:
                return f"{len(models)} models on {num_gpus} GPUs ({', '.join(models)}) under weak_model scaling"
    return ""


def _scaled(
    point: Point,
    layout: LayoutTime,
    ratio: _Ratio | None,
    best: set[tuple[str, str, int, str]],
    scaling: str,
    mixed: str,
) -> Scaled:
    if point.repeat not in layout.used:
        return Scaled(best_layout=False, comparable=False)
    # Without scaling nothing is compared, so nothing is said of it either, unless the time itself is in doubt.
    comparable = None if scaling == "none" and layout.doubt == Doubt.NONE else layout.doubt == Doubt.NONE and not mixed
    notes = list(layout.notes)
    if mixed:
        notes.append(f"not compared: {mixed}")
    elif ratio is not None:
        notes.extend(ratio.notes)
    elif scaling != "none" and layout.is_compared:
        notes.append("no baseline: no number of GPUs at which every framework has a result")
    scaled = Scaled(
        best_layout=_layout_key(layout) in best,
        comparable=comparable,
        num_repeats=layout.num_repeats,
        layout_batch_time_s=layout.batch_time_s,
        layout_batch_time_spread_s=layout.spread_s,
        notes=tuple(notes),
    )
    if ratio is None:
        return scaled
    return dataclasses.replace(
        scaled,
        speedup=ratio.speedup,
        speedup_spread=ratio.speedup_spread,
        parallel_efficiency=ratio.efficiency,
        parallel_efficiency_spread=ratio.efficiency_spread,
        baseline=ratio.base.cell_id,
        baseline_num_gpus=ratio.base.num_gpus,
    )


def _ratio(layout: LayoutTime, base: LayoutTime, scaling: str) -> _Ratio:
    """Return the speedup and efficiency of one layout over its baseline, with what has to be said of them."""
    ideal = layout.num_gpus / base.num_gpus
    speedup = None
    notes: list[str] = []
    if scaling == "weak_model":
        rate, base_rate = _flops_per_s_per_gpu(layout), _flops_per_s_per_gpu(base)
        efficiency = None if rate is None or base_rate is None else rate / base_rate
        if efficiency is None:
            notes.append("no efficiency: the FLOPs of this architecture are unknown")
    else:
        speedup = _tokens_per_s(layout) / _tokens_per_s(base)
        efficiency = speedup / ideal
    spread = _spread_of_ratio(layout, base)
    efficiency_spread = None if efficiency is None or spread is None else efficiency * spread
    is_steady = Doubt.UNSTEADY not in (layout.doubt, base.doubt)
    if efficiency is not None and layout.num_gpus > base.num_gpus:
        note = _excess_note(efficiency, efficiency_spread if is_steady else math.inf, speedup, ideal)
        notes += [f"{note} (baseline {base.cell_id} on {base.num_gpus})"] if note else []
    if base.doubt == Doubt.UNSTEADY and base.cell_id != layout.cell_id:
        notes.append("its baseline is unsteady")
    return _Ratio(
        base=base,
        speedup=speedup,
        speedup_spread=None if speedup is None or spread is None else speedup * spread,
        efficiency=efficiency,
        efficiency_spread=efficiency_spread,
        notes=tuple(notes),
    )


def _excess_note(efficiency: float, spread: float | None, speedup: float | None, ideal: float) -> str:
    """Return what there is to say of an efficiency above 1: nothing inside its spread (None where that is unknown)."""
    gain = f"speedup {speedup:.3g} over an ideal of {ideal:.3g}" if speedup else f"efficiency {efficiency:.3g}"
    if efficiency > IMPOSSIBLE_EFFICIENCY:
        return f"not compared: {gain} is more than {IMPOSSIBLE_EFFICIENCY} times the ideal, so one of the two is wrong"
    return f"superlinear: {gain}" if efficiency - 1 > (spread or ROUNDING) else ""


def _is_impossible(layout: LayoutTime, ratio: _Ratio) -> bool:
    return layout.num_gpus > ratio.base.num_gpus and (ratio.efficiency or 0) > IMPOSSIBLE_EFFICIENCY


def _spread_of_ratio(layout: LayoutTime, base: LayoutTime) -> float | None:
    """Return the relative spread of a quotient of two mean times, to first order; 0 for the baseline over itself."""
    if layout.cell_id == base.cell_id:
        return 0.0
    spreads = relative_spread(layout), relative_spread(base)
    return None if None in spreads else math.hypot(*spreads)


def _best_layouts(layouts: Iterable[LayoutTime]) -> dict[tuple[str, str, int], LayoutTime]:
    """Return the layout of each (framework, model, number of GPUs) with the least doubt, and of those the fastest."""
    best: dict[tuple[str, str, int], LayoutTime] = {}
    for layout in layouts:
        key = (layout.framework, layout.model, layout.num_gpus)
        if key not in best or layout.rank < best[key].rank:
            best[key] = layout
    return best


def _baselines(
    best: Mapping[tuple[str, str, int], LayoutTime], scaling: str, policy: str
) -> dict[tuple[str, str], LayoutTime]:
    """Return (framework, series) -> the layout its points are set against."""
    candidates: dict[str, dict[str, dict[int, LayoutTime]]] = defaultdict(lambda: defaultdict(dict))
    for (framework, model, num_gpus), layout in best.items():
        if layout.is_compared:
            candidates[_series(model, scaling)][framework][num_gpus] = layout
    baselines = {}
    for series, frameworks in candidates.items():
        common = set.intersection(*(set(by_gpus) for by_gpus in frameworks.values()))
        for framework, by_gpus in frameworks.items():
            if policy == SMALLEST_COMMON and not common:
                continue
            smallest = min(common) if policy == SMALLEST_COMMON else min(by_gpus)
            baselines[framework, series] = by_gpus[smallest]
    return baselines


def _layout_key(one: Point | LayoutTime) -> tuple[str, str, int, str]:
    return one.framework, one.model, one.num_gpus, one.cell_id


def _series(model: str, scaling: str) -> str:
    """Return a name for the points that share a baseline: those of one model; all, where the model grows with N."""
    return "" if scaling == "weak_model" else model


def _tokens_per_s(layout: LayoutTime) -> float:
    assert layout.batch_time_s is not None, "a layout that is compared has a time"
    return layout.tokens_per_batch / layout.batch_time_s


def _flops_per_s_per_gpu(layout: LayoutTime) -> float | None:
    assert layout.batch_time_s is not None, "a layout that is compared has a time"
    work = layout.model_flops_per_step
    return None if work is None else work / layout.batch_time_s / layout.num_gpus


def _grouped(points: Iterable[Point], key: Callable[[Point], Key]) -> dict[Key, list[Point]]:
    groups: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    return groups
