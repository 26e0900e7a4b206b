"""The figures of the AxoNN paper (arXiv:2110.13005): expected training time, percent of peak, strong scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from papers.captions import (
    SCALING_TEXT,
    comparison_text,
    device_text,
    figure_repeats_text,
    not_compared_text,
    noted_text,
    peak_text,
    sentences,
    settings_text,
    stand_in_text,
    units_of,
)
from papers.figures import (
    MARKERS,
    add_legend,
    band_handle,
    drawing_style,
    framework_colors,
    grouped_bars,
    scaling_curves,
    stacked_panels,
)
from papers.published import Band, published_bands
from papers.rendering import format_range
from papers.results import Result, grouped, results_of
from papers.spreads import Spread
from papers.study_data import StudyData

_COMPARED = ("weak_model", "weak_batch", "strong")


def training_time(data: StudyData) -> Figure:
    """Expected days to train on 300 billion tokens against GPUs, bars grouped by framework, a panel a comparison."""
    results = _compared(data)
    title = "Expected time to train on 300 billion tokens"
    return _bars(data, results, "training_days", lambda r: r.training_days, "Training time (days)", title)


def percentage_of_peak(data: StudyData) -> Figure:
    """Percent of peak half-precision throughput (on a CPU, of the measured rate) against GPUs."""
    results = _compared(data)
    return _bars(
        data, results, "percentage_of_peak_throughput", lambda r: r.percentage_of_peak, "Percent of peak",
        "Percentage of peak throughput", f"percent of {peak_text(results)}",
    )  # fmt: skip


def strong_scaling(data: StudyData) -> Figure:
    """Throughput and speedup against GPUs on log2 axes, with the ideal lines through the baselines used."""
    results = results_of(data, ("strong",))
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison whose scaling is strong, which figure strong_scaling shows; "
            "take the figure out of the study file, or add such a comparison"
        )
    units = units_of(results)
    panels = grouped(results, lambda r: (r.comparison, r.model))
    colors = framework_colors(sorted({r.framework for r in results}))
    baselines = dict.fromkeys(comparison_text(members) for members in grouped(results, lambda r: r.comparison).values())
    caption = _caption(results, *baselines, "dashed: ideal, through the baseline used")
    with drawing_style():
        figure, axes = stacked_panels(len(panels), data.title, "Strong scaling", caption, 2.7, columns=2)
        for (throughput, speedup), ((comparison, model), members) in zip(axes, panels.items(), strict=True):
            scaling_curves(throughput, members, lambda r: r.tokens_per_s, colors, shared_ideal=False)
            scaling_curves(speedup, members, lambda r: r.speedup, colors, shared_ideal=True)
            throughput.set(title=f"{_panel_title(comparison, panels)}{model}: throughput", ylabel="Tokens per second")
            speedup.set(title="Speedup over the baseline", ylabel="Speedup")
            for ax in (throughput, speedup):
                ax.set_xlabel(_axis_label(units))
        handles = [
            Line2D([], [], color=colors[name], marker=MARKERS[i % len(MARKERS)], markersize=5, linewidth=1.5)
            for i, name in enumerate(sorted(colors))
        ]
        ideal = Line2D([], [], color="0.45", linestyle=(0, (4, 2)), linewidth=0.9)
        add_legend(figure, [*handles, ideal], [*sorted(colors), "ideal"])
    return figure


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
    metric: str,
    value: Callable[[Result], Spread],
    label: str,
    title: str,
    *extra: str,
) -> Figure:
    units = units_of(results)
    scalings = dict.fromkeys(SCALING_TEXT[r.scaling].format(units=units) for r in results)
    # Under weak_model the models stand side by side, each on its GPUs; else every model has its own panel.
    panels = grouped(results, lambda r: (r.comparison, "" if r.scaling == "weak_model" else r.model))
    colors = framework_colors(sorted({r.framework for r in results}))
    with drawing_style():
        bands = published_bands(metric, results, data.reference)
        caption = _caption(results, *scalings, *extra, _bands_text(bands))
        figure, axes = stacked_panels(len(panels), data.title, title, caption)
        handles = {}
        for (ax,), ((comparison, model), members) in zip(axes, panels.items(), strict=True):
            members = sorted(members, key=lambda r: r.num_gpus)
            points = {(r.model, r.num_gpus) for r in members}
            of_panel = [band for band in bands if (band.model, band.num_gpus) in points]
            bars = grouped_bars(ax, members, value, _category(model), colors, of_panel)
            handles |= {bar.get_label(): bar for bar in bars}
            shown = _panel_title(comparison, panels) + (model or "model grows with the " + units)
            ax.set(title=shown, ylabel=label, xlabel=_axis_label(units) + ("" if model else ", model"))
        names = sorted(handles)
        published = [f"published ({', '.join(sorted({band.framework for band in bands}))})"] if bands else []
        handles_ = [*(handles[name] for name in names), *(band_handle() for _ in published)]
        add_legend(figure, handles_, [*names, *published])
    return figure


def _bands_text(bands: Sequence[Band]) -> str:
    """Whose the grey bands are; empty without any."""
    ranges = dict.fromkeys(
        f"{format_range(band.value_min, band.value_max)} of {band.framework} ({band.where})" for band in bands
    )
    return f"grey: published, {'; '.join(ranges)}" if bands else ""


def _category(model: str) -> Callable[[Result], str]:
    return (lambda r: str(r.num_gpus)) if model else (lambda r: f"{r.num_gpus}\n{r.model}")


def _panel_title(comparison: str, panels: object) -> str:
    """The comparison's name, where there is more than one."""
    return f"{comparison}: " if len({key[0] for key in panels}) > 1 else ""  # type: ignore[attr-defined]


def _axis_label(units: str) -> str:
    return f"Number of {units}"


def _caption(results: Sequence[Result], *extra: str) -> str:
    return sentences(
        [
            device_text(results),
            settings_text(results),
            *extra,
            stand_in_text(results),
            figure_repeats_text(results),
            not_compared_text(results),
            noted_text(results),
        ]
    )
