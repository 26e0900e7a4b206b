"""Figures of the AxoNN paper: training days and percent of peak as grouped bars, throughput and speedup as curves.

Every caption names the device, the scaling, and who was not measured; each comparison has its own panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from reporting.captions import (
    SCALING_TEXT,
    comparison_text,
    counted,
    device_text,
    figure_repeats_text,
    left_out_text,
    no_baseline_text,
    not_compared_text,
    noted_text,
    peak_text,
    sentences,
    settings_text,
    stand_in_text,
    units_of,
)
from reporting.figure_forms import FULL, Form
from reporting.figure_pages import NOT_COMPARED, TOO_LARGE, Panel, Remark, Words, draw_page
from reporting.figure_styles import Style, framework_styles
from reporting.figures import (
    IDEAL,
    band_handle,
    bar_handle,
    curve_handle,
    drawing_style,
    grouped_bars,
    ideal_handle,
    log2_limits,
    scaling_curves,
)
from reporting.published import Band, published_bands
from reporting.rendering import format_range
from reporting.results import Result, grouped, results_of
from reporting.spreads import Spread
from reporting.study_data import StudyData

_COMPARED = ("weak_model", "weak_batch", "strong")
_NOTHING = "nothing measured yet"
Value = Callable[[Result], Spread]


def training_time(data: StudyData, form: Form = FULL) -> Figure:
    """Draw the days to train on 300 billion tokens against GPUs, bars grouped by framework, a panel a comparison."""
    results = _compared(data)
    title = "Expected time to train on 300 billion tokens"
    return _bars(data, results, form, "training_days", lambda r: r.training_days, "Training time (days)", title)


def percentage_of_peak(data: StudyData, form: Form = FULL) -> Figure:
    """Draw the percent of peak half-precision throughput (on a CPU, of the measured rate) against GPUs."""
    results = _compared(data)
    label = "Percent of peak" if units_of(results) == "GPUs" else "Percent of measured peak"
    return _bars(
        data, results, form, "percentage_of_peak_throughput", lambda r: r.percentage_of_peak, label,
        "Percentage of peak throughput", f"percent of {peak_text(results)}",
    )  # fmt: skip


def strong_scaling(data: StudyData, form: Form = FULL) -> Figure:
    """Draw throughput and speedup against GPUs on log2 axes, with the ideal lines through the baselines used."""
    results = results_of(data, ("strong",))
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison whose scaling is strong, which figure strong_scaling shows; "
            "take the figure out of the study file, or add such a comparison"
        )
    styles = framework_styles(results)
    groups = grouped(results, lambda r: (r.comparison, r.model))
    baselines = dict.fromkeys(comparison_text(members) for members in grouped(results, lambda r: r.comparison).values())
    has_ideal = any(r.baseline_num_gpus is not None for r in results)
    ideal = "thin dashes: ideal, through the baseline used" if has_ideal else ""
    words = _words(data, "Strong scaling", results, *baselines, ideal)
    with drawing_style(form):
        panels = []
        for (comparison, _), members in groups.items():
            title = _panel_title(comparison, groups, members[0].model_name) if form.has_words or len(groups) > 1 else ""
            panels += [_throughput(members, styles, title), _speedup(members, styles, title)]
        drawn = [name for name in styles if any(r.framework == name and r.tokens_per_s.n for r in results)]
        legend = [(curve_handle(styles[name]), _name(name, results)) for name in drawn]
        if has_ideal:
            legend.append((ideal_handle(), IDEAL))
        return draw_page(form, words, panels, legend, min(2, form.side_by_side))


def _throughput(results: Sequence[Result], styles: dict[str, Style], title: str) -> Panel:
    remarks = _remarks(results, lambda r: r.tokens_per_s, lambda r: r.num_gpus, styles)
    return _curves(results, styles, title, "Tokens per second", remarks, lambda r: r.tokens_per_s, shared_ideal=False)


def _speedup(results: Sequence[Result], styles: dict[str, Style], title: str) -> Panel:
    """The rows below say only what those of the throughput do not: who could have a speedup and lacks a baseline."""
    without = [r for r in results if r.is_measured and r.comparable and not r.speedup.n]
    has_any = any(r.speedup.n for r in results)
    remarks = [_remark(r, r.num_gpus, styles, "no baseline") for r in without] if has_any else []
    bases = {r.baseline_num_gpus for r in results if r.baseline_num_gpus is not None}
    own = results[0].baseline_policy == "own_smallest"
    over = "own smallest" if own else counted(min(bases), units_of(results)) if bases else "baseline"
    return _curves(
        results, styles, title, f"Speedup over {over}", remarks, lambda r: r.speedup, shared_ideal=True,
        message="" if has_any else no_baseline_text(results),
    )  # fmt: skip


def _curves(
    results: Sequence[Result],
    styles: dict[str, Style],
    title: str,
    label: str,
    remarks: Sequence[Remark],
    value: Value,
    *,
    shared_ideal: bool,
    message: str = "",
) -> Panel:
    all_gpus = sorted({r.num_gpus for r in results})
    return Panel(
        draw=lambda axes: scaling_curves(axes, results, value, styles, shared_ideal),
        ticks={n: str(n) for n in all_gpus},
        limits=log2_limits(all_gpus),
        title=title,
        xlabel=_axis_label(units_of(results)),
        ylabel=label,
        remarks=remarks,
        message=message or ("" if any(value(r).n for r in results) else _NOTHING),
        is_log=True,
    )


def _compared(data: StudyData) -> list[Result]:
    results = results_of(data, _COMPARED)
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison with a scaling ({', '.join(_COMPARED)}), which this figure shows; "
            "take the figure out of the study file, or add such a comparison"
        )
    return results


def _bars(
    data: StudyData,
    results: Sequence[Result],
    form: Form,
    metric: str,
    value: Value,
    label: str,
    title: str,
    *extra: str,
) -> Figure:
    scalings = dict.fromkeys(SCALING_TEXT[r.scaling].format(units=units_of(results)) for r in results)
    # Under weak_model the models stand side by side, each on its GPUs; else every model has its own panel.
    groups = grouped(results, lambda r: (r.comparison, "" if r.scaling == "weak_model" else r.model))
    styles = framework_styles(results)
    bands = published_bands(metric, results, data.reference)
    words = _words(data, title, results, *scalings, *extra, _bands_text(bands, results))
    with drawing_style(form):
        panels = []
        for (comparison, model), members in groups.items():
            shown = members[0].model_name if model else f"model grows with the {units_of(results)}"
            heading = _panel_title(comparison, groups, shown) if form.has_words or len(groups) > 1 else ""
            panels.append(_bar_panel(members, value, styles, bands, heading, label, bool(model)))
        drawn = [name for name in styles if any(r.framework == name and value(r).n for r in results)]
        legend: list[tuple[Any, str]] = [(bar_handle(styles[name]), _name(name, results)) for name in drawn]
        if bands:
            published = dict.fromkeys(_name(band.framework, results) for band in bands)
            legend.append((band_handle(), f"published ({', '.join(published)})"))
        return draw_page(form, words, panels, legend)


def _bar_panel(
    results: Sequence[Result],
    value: Value,
    styles: dict[str, Style],
    bands: Sequence[Band],
    title: str,
    label: str,
    one_model: bool,
) -> Panel:
    points = {(r.model, r.num_gpus): r for r in sorted(results, key=lambda r: r.num_gpus)}
    places = {point: place for place, point in enumerate(points)}
    here = [band for band in bands if (band.model, band.num_gpus) in places]
    return Panel(
        draw=lambda axes: grouped_bars(axes, results, value, places, styles, here),
        ticks={
            places[point]: str(r.num_gpus) if one_model else f"{r.num_gpus}\n{r.model_name}"
            for point, r in points.items()
        },
        limits=(-0.5, len(places) - 0.5),
        title=title,
        xlabel=_axis_label(units_of(results)) + ("" if one_model else ", model"),
        ylabel=label,
        remarks=_remarks(results, value, lambda r: places[r.model, r.num_gpus], styles),
        message="" if here or any(value(r).n for r in results) else _NOTHING,
    )


def _remarks(
    results: Sequence[Result], value: Value, x: Callable[[Result], float], styles: dict[str, Style]
) -> list[Remark]:
    """Why there is no value, or one that must not be set beside the others, which a paper's reader has to see too.

    A measured one has no value where the peak or the formula is unknown.
    """
    absent = [_remark(r, x(r), styles, r.short_text or "unknown") for r in results if not value(r).n]
    apart = [_remark(r, x(r), styles, NOT_COMPARED) for r in results if value(r).n and not r.comparable]
    return absent + apart


def _remark(result: Result, x: float, styles: dict[str, Style], word: str) -> Remark:
    kind = TOO_LARGE if result.is_too_large else word
    return Remark(result.framework_name, styles[result.framework].place, x, word, kind)


def _name(framework: str, results: Sequence[Result]) -> str:
    """The framework's name for readers; of one that was only published, the reference's."""
    return next((r.framework_name for r in results if r.framework == framework), framework)


def _bands_text(bands: Sequence[Band], results: Sequence[Result]) -> str:
    """Whose the grey bands are; empty without any."""
    ranges = dict.fromkeys(
        f"{format_range(band.value_min, band.value_max)} of {_name(band.framework, results)} ({band.where})"
        for band in bands
    )
    return f"grey: published, {'; '.join(ranges)}" if bands else ""


def _panel_title(comparison: str, groups: Any, shown: str) -> str:
    """With the comparison's name, where there is more than one."""
    return f"{comparison}: {shown}" if len({key[0] for key in groups}) > 1 else shown


def _axis_label(units: str) -> str:
    return f"Number of {units}"


def _words(data: StudyData, subtitle: str, results: Sequence[Result], *extra: str) -> Words:
    parts = [
        device_text(results),
        settings_text(results),
        *extra,
        stand_in_text(results),
        figure_repeats_text(results),
        not_compared_text(results),
        left_out_text(results),
        noted_text(results),
    ]
    return Words(data.title, subtitle, sentences(parts))
