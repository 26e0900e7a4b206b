"""Speedup and parallel efficiency inside one comparison, and which layout of each framework is compared.

Definitions (DESIGN.md, "Metrics"): speedup = tokens/s over the baseline's, ideal N / N0, efficiency = speedup N0 / N.
Under `weak_model` the model grows with N, so there is no speedup, and efficiency = model FLOP/s per GPU over the
baseline's. The baseline of a framework is its own best layout at N0, mean over repeats. N0 is the smallest number of
GPUs at which every framework that measured anything has a result (`smallest_common`) or the framework's own smallest
(`own_smallest`). Under `strong` and `weak_batch` every model has its own baselines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from metrics.spread import mean

SMALLEST_COMMON = "smallest_common"
# Rates are means of floats: equal ones differ in the last digits.
ROUNDING = 1e-9

Key = TypeVar("Key")


@dataclass(frozen=True)
class Point:
    """One measured repeat (status ok), as far as comparing needs it. Times in s, rates in tokens/s and FLOP/s."""

    framework: str
    model: str
    num_gpus: int
    cell_id: str
    layout: str
    global_batch_size: int
    precision: str
    activation_checkpointing: str
    device_name: str
    batch_time_s: float
    tokens_per_batch: int
    model_flops_per_step: float | None


@dataclass(frozen=True)
class Scaled:
    """What comparing adds to one point; None is empty. `baseline` is a cell id; `comparable` None without scaling."""

    best_layout: bool
    comparable: bool | None
    speedup: float | None = None
    parallel_efficiency: float | None = None
    baseline: str = ""
    baseline_num_gpus: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """One layout at one number of GPUs, over its repeats."""

    cell_id: str
    layout: str
    num_gpus: int
    model: str
    batch_time_s: float
    tokens_per_s: float
    model_flops_per_s_per_gpu: float | None

    @property
    def rank(self) -> tuple[float, str, str]:
        # A tie is decided by name, so that the order of rows decides nothing.
        return self.batch_time_s, self.layout, self.cell_id


def scale_points(points: Sequence[Point], scaling: str, baseline_policy: str) -> list[Scaled]:
    """One `Scaled` for each point of one comparison, in the points' order.

    `scaling` is one of matrix.plan.SCALINGS, `baseline_policy` one of matrix.plan.BASELINES.
    """
    best = _best_layouts(points)
    best_ids = {(*key, candidate.cell_id) for key, candidate in best.items()}
    mixed = mixed_reason(points, scaling)
    baselines = {} if scaling == "none" or mixed else _baselines(best, scaling, baseline_policy)
    results = []
    for point in points:
        is_best = (point.framework, point.model, point.num_gpus, point.cell_id) in best_ids
        if scaling == "none":
            results.append(Scaled(is_best, None))
        elif mixed:
            results.append(Scaled(is_best, False, notes=(f"not compared: {mixed}",)))
        else:
            base = baselines.get((point.framework, _series(point.model, scaling)))
            results.append(_compare(point, base, is_best, scaling))
    return results


def mixed_reason(points: Sequence[Point], scaling: str) -> str:
    """Why these points must not be compared; empty where they may."""
    if scaling == "none":
        return ""
    everywhere: Mapping[str, Iterable[str]] = {
        "device kinds": (p.device_name for p in points),
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


def _compare(point: Point, base: _Candidate | None, is_best: bool, scaling: str) -> Scaled:
    if base is None:
        note = "not compared: no number of GPUs at which every framework has a result"
        return Scaled(is_best, True, notes=(note,))
    ideal = point.num_gpus / base.num_gpus
    speedup = None
    notes: list[str] = []
    if scaling == "weak_model":
        rate = _per_gpu(point.model_flops_per_step, point.batch_time_s, point.num_gpus)
        if rate is None or base.model_flops_per_s_per_gpu is None:
            efficiency = None
            notes.append("no efficiency: the FLOPs of this architecture are unknown")
        else:
            efficiency = rate / base.model_flops_per_s_per_gpu
    else:
        speedup = point.tokens_per_batch / point.batch_time_s / base.tokens_per_s
        efficiency = speedup / ideal
    if efficiency is not None and point.num_gpus > base.num_gpus and efficiency > 1 + ROUNDING:
        gain = f"speedup {speedup:.3g} over an ideal of {ideal:.3g}" if speedup else f"efficiency {efficiency:.3g}"
        notes.append(f"superlinear: {gain} (baseline {base.cell_id} on {base.num_gpus})")
    return Scaled(is_best, True, speedup, efficiency, base.cell_id, base.num_gpus, tuple(notes))


def _best_layouts(points: Sequence[Point]) -> dict[tuple[str, str, int], _Candidate]:
    """The layout with the lowest mean batch time of each (framework, model, number of GPUs)."""
    best: dict[tuple[str, str, int], _Candidate] = {}
    for (framework, model, num_gpus, _), repeats in _grouped(
        points, lambda p: (p.framework, p.model, p.num_gpus, p.cell_id)
    ).items():
        candidate = _candidate(repeats)
        key = (framework, model, num_gpus)
        if key not in best or candidate.rank < best[key].rank:
            best[key] = candidate
    return best


def _candidate(repeats: Sequence[Point]) -> _Candidate:
    one = repeats[0]
    batch_time_s = mean([p.batch_time_s for p in repeats])
    return _Candidate(
        cell_id=one.cell_id,
        layout=one.layout,
        num_gpus=one.num_gpus,
        model=one.model,
        batch_time_s=batch_time_s,
        tokens_per_s=one.tokens_per_batch / batch_time_s,
        model_flops_per_s_per_gpu=_per_gpu(one.model_flops_per_step, batch_time_s, one.num_gpus),
    )


def _baselines(
    best: Mapping[tuple[str, str, int], _Candidate], scaling: str, policy: str
) -> dict[tuple[str, str], _Candidate]:
    """(framework, series) -> the candidate its points are set against."""
    candidates: dict[str, dict[str, dict[int, _Candidate]]] = defaultdict(lambda: defaultdict(dict))
    for (framework, model, num_gpus), candidate in best.items():
        candidates[_series(model, scaling)][framework][num_gpus] = candidate
    baselines = {}
    for series, frameworks in candidates.items():
        common = set.intersection(*(set(by_gpus) for by_gpus in frameworks.values()))
        for framework, by_gpus in frameworks.items():
            if policy == SMALLEST_COMMON and not common:
                continue
            smallest = min(common) if policy == SMALLEST_COMMON else min(by_gpus)
            baselines[framework, series] = by_gpus[smallest]
    return baselines


def _series(model: str, scaling: str) -> str:
    """Which points share a baseline: all under weak_model, where the model grows with N; else those of one model."""
    return "" if scaling == "weak_model" else model


def _per_gpu(flops: float | None, seconds: float, num_gpus: int) -> float | None:
    return None if flops is None else flops / seconds / num_gpus


def _grouped(points: Iterable[Point], key: Callable[[Point], Key]) -> dict[Key, list[Point]]:
    groups: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    return groups
