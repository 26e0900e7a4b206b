"""Tables and figures in the layout of the AxoNN paper (arXiv:2110.13005): training days, percent of peak, scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from reporting.figure_forms import FULL, Form
from reporting.hyperparameters import hyperparameters
from reporting.leads import lead_over_best_other
from reporting.published import Published, published_beside
from reporting.rendering import DISPLAYS
from reporting.results import Result, grouped, results_of
from reporting.scaling_displays import ComparedResult, displays
from reporting.study_data import StudyData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEAK = ("weak_model", "weak_batch")
STRONG = ("strong",)


def weak_scaling(data: StudyData) -> pd.DataFrame:
    """Return one row per comparison, model, number of GPUs and framework of the weak-scaling comparisons."""
    return _comparison_table(data, WEAK, "weak_scaling")


def strong_scaling(data: StudyData) -> pd.DataFrame:
    """Return one row per comparison, model, number of GPUs and framework of the strong-scaling comparisons."""
    return _comparison_table(data, STRONG, "strong_scaling")


def _comparison_table(data: StudyData, scalings: Sequence[str], table: str) -> pd.DataFrame:
    results = results_of(data, scalings)
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison whose scaling is {' or '.join(scalings)}, as table {table} needs; "
            "take the table out of the study file, or add such a comparison"
        )
    compared: list[ComparedResult] = []
    for point in grouped(results, lambda r: (r.comparison, r.model, r.num_gpus)).values():
        for result in point:
            published = published_beside(result, point, data.reference)
            compared.append(ComparedResult(result, lead_over_best_other(result, point), tuple(published)))
    frame = pd.DataFrame([_row(one) for one in compared])
    frame.attrs[DISPLAYS] = tuple(displays(data, compared))
    return frame


def _row(one: ComparedResult) -> dict[str, Any]:
    result, lead = one.result, one.lead
    return {
        "comparison": result.comparison,
        "scaling": result.scaling,
        "model": result.model,
        "num_parameters": result.num_parameters,
        "num_gpus": result.num_gpus,
        "framework": result.framework,
        "status": result.status,
        "result": result.text,
        "repeats": result.repeats,
        "repeats_planned": result.repeats_planned,
        "batch_time_s": result.batch_time_s.mean,
        "batch_time_spread_s": result.batch_time_s.deviation,
        "batch_time_std_s": result.batch_time_std_s,
        "training_days": result.training_days.mean,
        "training_days_spread": result.training_days.deviation,
        "percentage_of_peak_throughput": result.percentage_of_peak.mean,
        "percentage_of_peak_throughput_spread": result.percentage_of_peak.deviation,
        "best_other": lead.other.framework if lead.other else "",
        "speedup_over_best_other": lead.speedup.mean,
        "speedup_over_best_other_spread": lead.speedup.deviation,
        "days_saved": lead.days_saved.mean,
        "days_saved_spread": lead.days_saved.deviation,
        "percent_saved": lead.percent_saved.mean,
        "percent_saved_spread": lead.percent_saved.deviation,
        "lead": lead.verdict,
        "speedup": result.speedup.mean,
        "speedup_spread": result.speedup.deviation,
        "ideal_speedup": _ideal_speedup(result),
        "parallel_efficiency": result.parallel_efficiency.mean,
        "parallel_efficiency_spread": result.parallel_efficiency.deviation,
        "baseline": result.baseline,
        "baseline_num_gpus": result.baseline_num_gpus,
        "baseline_policy": result.baseline_policy,
        "layout": result.layout,
        "num_layouts": result.num_layouts,
        "global_batch_size": result.global_batch_size,
        "precision": result.precision,
        "activation_checkpointing": result.activation_checkpointing,
        "device_name": result.device_name,
        "cell_id": result.cell_id,
        "notes": "; ".join(result.notes),
        **_published_columns(one.published),
    }


def _ideal_speedup(result: Result) -> float:
    if not result.baseline_num_gpus or result.scaling == "weak_model":
        return math.nan
    return result.num_gpus / result.baseline_num_gpus


def _published_columns(published: Sequence[Published]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for one in published:
        if one.compared_with:
            # Not the `days_saved` of the row where the source did not compare with the best other framework.
            columns |= {
                "published_best_other": one.compared_with,
                f"{one.metric}_over_published_best_other": one.measured.mean,
                f"{one.metric}_over_published_best_other_spread": one.measured.deviation,
            }
        columns |= {
            f"published_{one.metric}_min": one.value_min,
            f"published_{one.metric}_max": one.value_max,
            f"ratio_to_published_{one.metric}_min": one.ratio_min,
            f"ratio_to_published_{one.metric}_max": one.ratio_max,
        }
    if published:
        reasons = list(dict.fromkeys(difference for one in published for difference in one.differences))
        columns["published_in"] = "; ".join(dict.fromkeys(one.where for one in published))
        columns["not_comparable_because"] = "; ".join(reasons)
    return columns


def _figure(name: str) -> Callable[..., Figure]:
    def draw(data: StudyData, form: Form = FULL) -> Figure:
        # Not at the top: matplotlib and seaborn take seconds to import, and tables need neither.
        from reporting import scaling_figures as axonn_figures

        return getattr(axonn_figures, name)(data, form)

    return draw


TABLES = {"weak_scaling": weak_scaling, "strong_scaling": strong_scaling, "hyperparameters": hyperparameters}
# What a table or figure is made from, as the scaling of one of a study's comparisons; anything where it is not named.
TABLE_SCALINGS = {"weak_scaling": WEAK, "strong_scaling": STRONG}
FIGURE_SCALINGS = {"training_time": WEAK + STRONG, "percentage_of_peak": WEAK + STRONG, "strong_scaling": STRONG}
FIGURES = {name: _figure(name) for name in ("training_time", "percentage_of_peak", "strong_scaling")}
