"""Tables and figures in the layout of the AxoNN paper (arXiv:2110.13005): training days, percent of peak, scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from papers.captions import (
    comparison_text,
    counted,
    device_text,
    sentences,
    settings_text,
    spread_text,
    stand_in_text,
    units_of,
)
from papers.hyperparameters import hyperparameters
from papers.published import Published, published_beside
from papers.rendering import DISPLAYS, Display, Span, format_number, format_range, format_spread
from papers.results import Result, grouped, results_of
from papers.study_data import StudyData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEAK = ("weak_model", "weak_batch")
STRONG = ("strong",)

_PUBLISHED_HEADINGS = {
    "percentage_of_peak_throughput": "percent of peak",
    "training_days": "training days",
    "batch_time_s": "batch time (s)",
    "days_saved": "days saved",
    "percent_saved": "percent of days saved",
}


def weak_scaling(data: StudyData) -> pd.DataFrame:
    """One row per comparison, model, number of GPUs and framework of the weak-scaling comparisons."""
    return _comparison_table(data, WEAK, "weak_scaling")


def strong_scaling(data: StudyData) -> pd.DataFrame:
    """One row per comparison, model, number of GPUs and framework of the strong-scaling comparisons."""
    return _comparison_table(data, STRONG, "strong_scaling")


def _comparison_table(data: StudyData, scalings: Sequence[str], table: str) -> pd.DataFrame:
    results = results_of(data, scalings)
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison whose scaling is {' or '.join(scalings)}, as table {table} needs; "
            "take the table out of the study file, or add such a comparison"
        )
    rows: list[dict[str, Any]] = []
    published: list[tuple[Result, list[Published]]] = []
    for point in grouped(results, lambda r: (r.comparison, r.model, r.num_gpus)).values():
        for result in point:
            row = _row(result, _best_other(result, point))
            measured = {metric: row[metric] for metric in _PUBLISHED_HEADINGS}
            beside = published_beside(result, measured, data.reference)
            published.append((result, beside))
            rows.append(row | _published_columns(beside))
    frame = pd.DataFrame(rows)
    frame.attrs[DISPLAYS] = tuple(_displays(data, results, rows, published))
    return frame


def _best_other(result: Result, point: Sequence[Result]) -> Result | None:
    """The fastest of the other frameworks at the same point; None where the two must not be compared."""
    others = [r for r in point if r.framework != result.framework and r.is_measured and r.comparable]
    if not (others and result.is_measured and result.comparable):
        return None
    return min(others, key=lambda r: (r.training_days.mean, r.framework))


def _row(result: Result, other: Result | None) -> dict[str, Any]:
    days, nan = result.training_days.mean, math.nan
    other_days = other.training_days.mean if other else nan
    ideal = (
        result.num_gpus / result.baseline_num_gpus
        if result.baseline_num_gpus and result.scaling != "weak_model"
        else nan
    )
    return {
        "comparison": result.comparison,
        "scaling": result.scaling,
        "model": result.model,
        "num_parameters": result.num_parameters,
        "num_gpus": result.num_gpus,
        "framework": result.framework,
        "status": result.status,
        "result": result.text,
        "repeats": result.batch_time_s.n,
        "batch_time_s": result.batch_time_s.mean,
        "batch_time_spread_s": result.batch_time_s.deviation,
        "training_days": days,
        "training_days_spread": result.training_days.deviation,
        "percentage_of_peak_throughput": result.percentage_of_peak.mean,
        "percentage_of_peak_throughput_spread": result.percentage_of_peak.deviation,
        "best_other": other.framework if other else "",
        "speedup_over_best_other": other_days / days,
        "days_saved": other_days - days,
        "percent_saved": 100 * (other_days - days) / other_days,
        "speedup": result.speedup.mean,
        "ideal_speedup": ideal,
        "parallel_efficiency": result.parallel_efficiency.mean,
        "baseline": result.baseline,
        "baseline_num_gpus": result.baseline_num_gpus,
        "baseline_policy": result.baseline_policy,
        "layout": result.layout,
        "num_layouts": result.num_layouts,
        "global_batch_size": result.global_batch_size,
        "precision": result.precision,
        "activation_checkpointing": result.activation_checkpointing,
        "device_name": result.device_name,
        "notes": "; ".join(result.notes),
    }


def _published_columns(published: Sequence[Published]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for one in published:
        columns |= {
            f"published_{one.metric}_min": one.value_min,
            f"published_{one.metric}_max": one.value_max,
            f"ratio_to_published_{one.metric}_min": one.ratio_to_min,
            f"ratio_to_published_{one.metric}_max": one.ratio_to_max,
        }
    if published:
        reasons = list(dict.fromkeys(difference for one in published for difference in one.differences))
        columns["published_in"] = "; ".join(dict.fromkeys(one.where for one in published))
        columns["not_comparable_because"] = "; ".join(reasons)
    return columns


def _displays(
    data: StudyData,
    results: Sequence[Result],
    rows: Sequence[dict[str, Any]],
    published: Sequence[tuple[Result, Sequence[Published]]],
) -> list[Display]:
    displays = []
    for name, members in grouped(results, lambda r: r.comparison).items():
        displays.append(_measured_display(data, members, [row for row in rows if row["comparison"] == name]))
    beside = _published_display(data, published, units_of(results))
    return [*displays, beside] if beside else displays


def _measured_display(data: StudyData, results: Sequence[Result], rows: Sequence[dict[str, Any]]) -> Display:
    units = units_of(results)
    with_speedup = results[0].scaling != "weak_model"
    headings = [
        "Model", _heading(units), "Framework", "Batch time (s)", "Training days", "Percent of peak",
        "Speedup over best other", "Days saved",
        *(["Speedup"] if with_speedup else []), "Parallel efficiency", "Best layout",
    ]  # fmt: skip
    cells: list[tuple[str | Span, ...]] = []
    for result, row in zip(results, rows, strict=True):
        head = (result.model, str(result.num_gpus), result.framework)
        if not result.is_measured:
            cells.append((*head, Span(result.text, len(headings) - len(head))))
            continue
        layout = result.layout + (f" (best of {result.num_layouts})" if result.num_layouts > 1 else "")
        speedup = format_spread(result.speedup.mean, result.speedup.deviation, 3)
        cells.append((
            *head,
            format_spread(result.batch_time_s.mean, result.batch_time_s.deviation),
            format_spread(result.training_days.mean, result.training_days.deviation),
            format_spread(result.percentage_of_peak.mean, result.percentage_of_peak.deviation),
            format_number(row["speedup_over_best_other"], 3),
            format_number(row["days_saved"]),
            *([speedup] if with_speedup else []),
            format_spread(result.parallel_efficiency.mean, result.parallel_efficiency.deviation, 3),
            layout,
        ))  # fmt: skip
    notes = [f"{r.model} on {counted(r.num_gpus, units)}, {r.framework}: {note}" for r in results for note in r.notes]
    return Display(_caption(data, results), tuple(headings), tuple(cells), tuple(notes), (len(headings) - 1,), group=2)


def _published_display(
    data: StudyData, published: Sequence[tuple[Result, Sequence[Published]]], units: str
) -> Display | None:
    shown = [(r, one) for r, beside in published for one in beside if not math.isnan(one.measured)]
    if not shown:
        return None
    # What differs everywhere is said once.
    common = [d for d in shown[0][1].differences if all(d in one.differences for _, one in shown)]
    otherwise = "see below" if common else "as far as the source says"
    rows = []
    for result, one in shown:
        own = [difference for difference in one.differences if difference not in common]
        rows.append((
            result.model, str(result.num_gpus), result.framework, _PUBLISHED_HEADINGS[one.metric],
            format_number(one.measured), format_range(one.value_min, one.value_max),
            format_range(one.ratio_to_max, one.ratio_to_min),
            f"not comparable because: {'; '.join(own)}" if own else otherwise,
        ))  # fmt: skip
    sources = dict.fromkeys(one.where for _, one in shown)
    caption = (
        f"{data.title}: measured beside published ({'; '.join(sources)}). "
        "Ratio: measured / published, over both ends of a range."
    )
    headings = ("Model", _heading(units), "Framework", "Metric", "Measured", "Published", "Ratio", "Comparable?")
    notes = [f"All rows: not comparable because: {'; '.join(common)}."] if common else []
    notes += dict.fromkeys(f"Published {_PUBLISHED_HEADINGS[one.metric]}: {one.note}." for _, one in shown if one.note)
    return Display(caption, headings, tuple(rows), tuple(notes), wide=(7,), group=2)


def _heading(units: str) -> str:
    return units if units == "GPUs" else units.capitalize()


def _caption(data: StudyData, results: Sequence[Result]) -> str:
    of_what = "the matrix-product rate measured in each job" if units_of(results) == "processes" else "the dense peak"
    parts = [
        f"{data.title}, comparison {results[0].comparison}: {comparison_text(results)}",
        device_text(results),
        settings_text(results),
        f"percent of peak: the paper's formula, of {of_what}",
        "training days are for 300 billion tokens",
        "best other: the fastest of the other frameworks at the same point",
        stand_in_text(results),
        spread_text(results),
    ]
    return sentences(parts)


def _figure(name: str) -> Callable[[StudyData], Figure]:
    def draw(data: StudyData) -> Figure:
        # Not at the top: matplotlib and seaborn take seconds to import, and tables need neither.
        from papers import axonn_figures

        return getattr(axonn_figures, name)(data)

    return draw


TABLES = {"weak_scaling": weak_scaling, "strong_scaling": strong_scaling, "hyperparameters": hyperparameters}
FIGURES = {name: _figure(name) for name in ("training_time", "percentage_of_peak", "strong_scaling")}
