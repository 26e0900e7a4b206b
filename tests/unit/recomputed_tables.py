"""What every number of a study's tables has to be, from its records and its plan (see recomputation.py)."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recomputation import Key, Numbers, losses_of, num_parameters, peaks_of, rates_of, row_numbers, times_of

SECONDS_PER_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Planned:
    """One repeat of a cell in a comparison, as the study planned it."""

    comparison: str
    scaling: str
    policy: str
    framework: str
    model: str
    num_gpus: int
    cell_id: str
    repeat: int

    @property
    def key(self) -> Key:
        return self.cell_id, self.repeat


@dataclass(frozen=True)
class LayoutTime:
    """A layout's time over its ok repeats; `spread_s` None with one. `steady`: its repeats agree, none failed."""

    framework: str
    model: str
    num_gpus: int
    cell_id: str
    times_s: tuple[float, ...]
    steady: bool
    record: Numbers  # of any of its repeats, for shape and batch
    peak: float

    @property
    def seconds(self) -> float:
        return statistics.fmean(self.times_s)

    @property
    def spread_s(self) -> float | None:
        return statistics.stdev(self.times_s) if len(self.times_s) > 1 else None

    @property
    def relative(self) -> float | None:
        return None if self.spread_s is None else self.spread_s / self.seconds

    def rate(self, name: str) -> float:
        return rates_of(self.record, self.seconds, self.peak)[name]


def layouts_of(plan: Iterable[Planned], records: dict[Key, Numbers]) -> list[LayoutTime]:
    """Return the layouts of one comparison that have a time."""
    repeats: dict[str, list[Planned]] = defaultdict(list)
    for planned in plan:
        repeats[planned.cell_id].append(planned)
    peaks, layouts = peaks_of(records), []
    for cell_id, members in repeats.items():
        ended = {p.repeat: records[p.key] for p in members if p.key in records}
        good = [p.key for p in members if p.key in records and records[p.key]["status"] == "ok"]
        if not good:
            continue
        times = tuple(times_of(records[key])["batch_time_s"] for key in good)
        failed = any(record["status"] in ("oom", "nan") for record in ended.values())
        one = members[0]
        layouts.append(
            LayoutTime(
                one.framework, one.model, one.num_gpus, cell_id, times,
                not failed and max(times) < 1.5 * min(times), records[good[0]], peaks[good[0]][0],
            )
        )  # fmt: skip
    return layouts


def best_layouts(layouts: Iterable[LayoutTime]) -> dict[tuple[str, str, int], LayoutTime]:
    """Return the fastest steady layout of each framework at each point; an unsteady one where there is no other."""
    points: dict[tuple[str, str, int], list[LayoutTime]] = defaultdict(list)
    for layout in layouts:
        points[layout.framework, layout.model, layout.num_gpus].append(layout)
    return {
        point: min([one for one in members if one.steady] or members, key=lambda one: one.seconds)
        for point, members in points.items()
    }


def baselines_of(layouts: Sequence[LayoutTime], scaling: str, policy: str) -> dict[tuple[str, str], LayoutTime]:
    """Return the baseline of each framework, under `weak_model` over all models, else for each model by itself."""
    best = best_layouts(layouts)
    baselines: dict[tuple[str, str], LayoutTime] = {}
    for series in {"" if scaling == "weak_model" else model for _, model, _ in best}:
        measured: dict[str, dict[int, LayoutTime]] = defaultdict(dict)
        for (framework, model, num_gpus), layout in best.items():
            if series in ("", model):
                measured[framework][num_gpus] = layout
        common = set.intersection(*(set(by_gpus) for by_gpus in measured.values()))
        for framework, by_gpus in measured.items():
            possible = common if policy == "smallest_common" else set(by_gpus)
            if possible:
                baselines[framework, series] = by_gpus[min(possible)]
    return baselines


def scaling_numbers(layout: LayoutTime, base: LayoutTime | None, scaling: str) -> Numbers:
    """Return speedup and efficiency of a layout over its baseline, with their spreads."""
    names = ("speedup", "speedup_spread", "parallel_efficiency", "parallel_efficiency_spread")
    if base is None:
        return dict.fromkeys((*names, "baseline_num_gpus", "ideal_speedup"))
    relative = 0.0 if layout.cell_id == base.cell_id else in_quadrature(layout.relative, base.relative)
    speedup = ideal = None
    if scaling == "weak_model":
        efficiency = layout.rate("model_flops_per_s_per_gpu") / base.rate("model_flops_per_s_per_gpu")
    else:
        speedup = layout.rate("tokens_per_s") / base.rate("tokens_per_s")
        ideal = layout.num_gpus / base.num_gpus
        efficiency = speedup * base.num_gpus / layout.num_gpus
    return {
        "speedup": speedup,
        "speedup_spread": times_known(speedup, relative),
        "ideal_speedup": ideal,
        "parallel_efficiency": efficiency,
        "parallel_efficiency_spread": times_known(efficiency, relative),
        "baseline_num_gpus": base.num_gpus,
    }


def in_quadrature(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else math.sqrt(one**2 + other**2)


def times_known(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else abs(value) * factor


def measurements(plan: Sequence[Planned], records: dict[Key, Numbers]) -> dict[tuple[str, str, int], Numbers]:
    """Return (comparison, cell id, repeat) -> the numbers of its row of measurements.csv, for ok rows."""
    peaks, rows = peaks_of(records), {}
    own = {key: row_numbers(records[key], *peaks[key]) for key in peaks}
    for members in by_comparison(plan).values():
        scaling, policy = members[0].scaling, members[0].policy
        layouts = layouts_of(members, records)
        best, baselines = best_layouts(layouts), {}
        if scaling != "none":
            baselines = baselines_of(layouts, scaling, policy)
        for layout in layouts:
            base = baselines.get((layout.framework, "" if scaling == "weak_model" else layout.model))
            numbers = {
                "repeats_measured": len(layout.times_s),
                "layout_batch_time_s": layout.seconds,
                "layout_batch_time_spread_s": layout.spread_s,
                "baseline": base.cell_id if base else "",
                "best_layout": best[layout.framework, layout.model, layout.num_gpus].cell_id == layout.cell_id,
                **scaling_numbers(layout, base, scaling),
            }
            del numbers["ideal_speedup"]
            if scaling != "none":
                numbers["comparable"] = layout.steady
            for one in members:
                if one.cell_id == layout.cell_id and one.key in own:
                    rows[one.comparison, *one.key] = {**own[one.key], **numbers}
    return rows


def by_comparison(plan: Iterable[Planned]) -> dict[str, list[Planned]]:
    found: dict[str, list[Planned]] = defaultdict(list)
    for planned in plan:
        found[planned.comparison].append(planned)
    return found


def scaling_table(
    plan: Sequence[Planned], records: dict[Key, Numbers], scalings: Sequence[str], reference: Sequence[Numbers] = ()
) -> dict[tuple[str, str, int, str], Numbers]:
    """Return (comparison, model, GPUs, framework) -> the numbers of its row, for every point that has a time."""
    table = {}
    for name, members in by_comparison(plan).items():
        scaling, policy = members[0].scaling, members[0].policy
        if scaling not in scalings:
            continue
        layouts = layouts_of(members, records)
        baselines, best = baselines_of(layouts, scaling, policy), best_layouts(layouts)
        for (framework, model, num_gpus), layout in best.items():
            base = baselines.get((framework, "" if scaling == "weak_model" else model))
            beside = [one for (_, m, n), one in best.items() if (m, n) == (model, num_gpus)]
            inside = [times_of(records[p.key])["batch_time_std_s"] for p in ok_repeats(members, layout, records)]
            table[name, model, num_gpus, framework] = {
                "num_parameters": num_parameters(layout.record["identity"]["model"]),
                "repeats": len(layout.times_s),
                "repeats_planned": sum(p.cell_id == layout.cell_id for p in members),
                "num_layouts": len({p.cell_id for p in members if point_of(p) == (framework, model, num_gpus)}),
                "batch_time_s": layout.seconds,
                "batch_time_spread_s": layout.spread_s,
                # Within a run: the root of the mean variance.
                "batch_time_std_s": math.sqrt(statistics.fmean(deviation**2 for deviation in inside)),
                "training_days": days_of(layout),
                "training_days_spread": times_known(days_of(layout), layout.relative),
                "percentage_of_peak_throughput": layout.rate("percentage_of_peak_throughput"),
                "percentage_of_peak_throughput_spread": times_known(
                    layout.rate("percentage_of_peak_throughput"), layout.relative
                ),
                **lead_numbers(layout, beside),
                **scaling_numbers(layout, base, scaling),
                **published_numbers(layout, beside, reference),
            }
    return table


def point_of(planned: Planned) -> tuple[str, str, int]:
    return planned.framework, planned.model, planned.num_gpus


def ok_repeats(members: Iterable[Planned], layout: LayoutTime, records: dict[Key, Numbers]) -> list[Planned]:
    return [p for p in members if p.cell_id == layout.cell_id and records.get(p.key, {}).get("status") == "ok"]


def days_of(layout: LayoutTime) -> float:
    return layout.rate("expected_training_time_s") / SECONDS_PER_DAY


def best_other(
    layout: LayoutTime, beside: Iterable[LayoutTime], among: Sequence[str] | None = None
) -> LayoutTime | None:
    """Return the fastest of the other frameworks' that can be compared; nobody leads whose own repeats do not agree."""
    others = [
        one
        for one in beside
        if one.framework != layout.framework and one.steady and (among is None or one.framework in among)
    ]
    return min(others, key=days_of) if others and layout.steady else None


def lead_numbers(layout: LayoutTime, beside: Iterable[LayoutTime], among: Sequence[str] | None = None) -> Numbers:
    """Return by how much a layout is faster than the best other, and whether that is more than its spread."""
    other = best_other(layout, beside, among)
    names = ("speedup_over_best_other", "days_saved", "percent_saved")
    if other is None:
        return {"best_other": "", "lead": "", **dict.fromkeys([*names, *(f"{name}_spread" for name in names)])}
    own_days, other_days = days_of(layout), days_of(other)
    relative = in_quadrature(layout.relative, other.relative)
    saved = other_days - own_days
    saved_spread = in_quadrature(times_known(own_days, layout.relative), times_known(other_days, other.relative))
    return {
        "best_other": other.framework,
        "lead": lead_of(layout, other),
        "speedup_over_best_other": other_days / own_days,
        "speedup_over_best_other_spread": times_known(other_days / own_days, relative),
        "days_saved": saved,
        "days_saved_spread": saved_spread,
        "percent_saved": 100 * saved / other_days,
        # The share own / other has the spread, and the rest of a whole the same.
        "percent_saved_spread": times_known(100 * own_days / other_days, relative),
    }


def lead_of(own: LayoutTime, other: LayoutTime) -> str:
    """Return whether the slower's time over the faster's, with its spread, stays above 1."""
    faster, slower = sorted((own, other), key=lambda one: one.seconds)
    over, relative = slower.seconds / faster.seconds, in_quadrature(faster.relative, slower.relative)
    if relative is None:
        return "one repeat"
    if over - over * relative <= 1:
        return "within spread"
    return "ahead" if own is faster else "behind"


def published_numbers(layout: LayoutTime, beside: Sequence[LayoutTime], reference: Sequence[Numbers]) -> Numbers:
    """Return published ranges for this model, and measured over both ends; a saving only over whom the source ran."""
    numbers: Numbers = {}
    if layout.record["identity"]["device"] == "cpu":
        return numbers
    for row in reference:
        metric, low, high = row["metric"], float(row["value_min"]), float(row["value_max"])
        if layout.model not in row["models"].split(";"):
            continue
        if metric in ("days_saved", "percent_saved"):
            lead = lead_numbers(layout, beside, row["compared_with"].split(";"))
            if layout.framework != row["framework"] or not lead["best_other"]:
                continue
            measured = lead[metric]
            numbers |= {
                "published_best_other": lead["best_other"],
                f"{metric}_over_published_best_other": measured,
                f"{metric}_over_published_best_other_spread": lead[f"{metric}_spread"],
            }
        else:
            measured = {"training_days": days_of(layout), "batch_time_s": layout.seconds}.get(metric)
            measured = layout.rate(metric) if measured is None else measured
        numbers |= {
            f"published_{metric}_min": low,
            f"published_{metric}_max": high,
            f"ratio_to_published_{metric}_min": min(measured / low, measured / high),
            f"ratio_to_published_{metric}_max": max(measured / low, measured / high),
        }
    return numbers


def parity_table(plan: Iterable[Planned], records: dict[Key, Numbers], reference_framework: str) -> dict[Key, float]:
    """Return the largest relative difference of each ok record's losses from the first of the reference's like it."""

    def setting(planned: Planned) -> str:
        identity = records[planned.key]["identity"]
        same = ("model", "global_batch_size", "precision", "corpus", "seed", "optimizer")
        return json.dumps([identity[key] for key in same])

    ran = [p for p in plan if records.get(p.key, {}).get("status") == "ok"]
    references: dict[str, list[float]] = {}
    for one in sorted(ran, key=lambda p: p.repeat):
        if one.framework == reference_framework and one.num_gpus == 1:
            references.setdefault(setting(one), losses_of(records[one.key]))
    return {
        one.key: max(
            abs(a - b) / abs(b) for a, b in zip(losses_of(records[one.key]), references[setting(one)], strict=True)
        )
        for one in ran
        if setting(one) in references
    }


def systems_table(
    systems: dict[str, tuple[Sequence[Planned], dict[Key, Numbers]]],
) -> dict[tuple[str, str, int, str], Numbers]:
    """Return (comparison, model, GPUs, framework) -> numbers of every system, and the others' over the first's."""
    first, *others = systems
    best: dict[str, dict[Any, LayoutTime]] = {}
    for system, (plan, records) in systems.items():
        best[system] = {
            (name, model, num_gpus, framework): layout
            for name, members in by_comparison(plan).items()
            for (framework, model, num_gpus), layout in best_layouts(layouts_of(members, records)).items()
        }
    table: dict[Any, Numbers] = defaultdict(dict)
    for system, points in best.items():
        for point, layout in points.items():
            table[point] |= {f"{system}.repeats": len(layout.times_s), f"{system}.batch_time_s": layout.seconds}
            table[point][f"{system}.batch_time_spread_s"] = layout.spread_s
            for name in ("tokens_per_s", "model_flops_utilization_percent", "percentage_of_peak_throughput"):
                table[point][f"{system}.{name}"] = layout.rate(name)
                table[point][f"{system}.{name}_spread"] = times_known(layout.rate(name), layout.relative)
    for other in others:
        for point in best[first].keys() & best[other].keys():
            here, there = best[other][point], best[first][point]
            ours, theirs = here.rate("tokens_per_s"), there.rate("tokens_per_s")
            table[point] |= {
                f"{other}.tokens_per_s_over_{first}": ours / theirs,
                f"{other}.tokens_per_s_over_{first}_spread": times_known(
                    ours / theirs, in_quadrature(here.relative, there.relative)
                ),
                f"{other}.lead": lead_of(here, there) if here.steady and there.steady else "",
            }
    return dict(table)
