"""The figures of the AxoNN paper (arXiv:2110.13005): expected training time, percent of peak, strong scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from papers.captions import (
    SCALING_TEXT,
    comparison_text,
    device_text,
    noted_text,
    sentences,
    settings_text,
    spread_text,
    stand_in_text,
    units_of,
)
from papers.figures import (
    MARKERS,
    add_legend,
    drawing_style,
    framework_colors,
    grouped_bars,
    scaling_curves,
    stacked_panels,
)
from papers.results import Result, Spread, grouped, results_of
from papers.study_data import StudyData

_COMPARED = ("weak_model", "weak_batch", "strong")


def training_time(data: StudyData) -> Figure:
    """Expected days to train on 300 billion tokens against GPUs, bars grouped by framework, a panel a comparison."""
    return _bars(
        data, lambda r: r.training_days, "Training time (days)", "Expected time to train on 300 billion tokens"
    )


def percentage_of_peak(data: StudyData) -> Figure:
    """Percent of peak half-precision throughput (on a CPU, of the measured rate) against GPUs."""
    is_cpu = (data.measurements["device"] == "cpu").all()
    peak = "the matrix-product rate of a process, measured in each job" if is_cpu else "dense half precision"
    return _bars(
        data, lambda r: r.percentage_of_peak, "Percent of peak", "Percentage of peak throughput", f"peak: {peak}"
    )


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


def _bars(data: StudyData, value: Callable[[Result], Spread], label: str, title: str, *extra: str) -> Figure:
    results = results_of(data, _COMPARED)
    if not results:
        raise ValueError(
            f"study {data.study} has no comparison with a scaling ({', '.join(_COMPARED)}), which this figure shows; "
            "take the figure out of the study file, or add such a comparison"
        )
    units = units_of(results)
    scalings = dict.fromkeys(SCALING_TEXT[r.scaling].format(units=units) for r in results)
    # Under weak_model the models stand side by side, each on its GPUs; else every model has its own panel.
    panels = grouped(results, lambda r: (r.comparison, "" if r.scaling == "weak_model" else r.model))
    colors = framework_colors(sorted({r.framework for r in results}))
    with drawing_style():
        figure, axes = stacked_panels(len(panels), data.title, title, _caption(results, *scalings, *extra))
        handles = {}
        for (ax,), ((comparison, model), members) in zip(axes, panels.items(), strict=True):
            members = sorted(members, key=lambda r: r.num_gpus)
            bars = grouped_bars(ax, members, value, _category(model), colors)
            handles |= {bar.get_label(): bar for bar in bars}
            shown = _panel_title(comparison, panels) + (model or "model grows with the " + units)
            ax.set(title=shown, ylabel=label, xlabel=_axis_label(units) + ("" if model else ", model"))
        names = sorted(handles)
        add_legend(figure, [handles[name] for name in names], names)
    return figure


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
            spread_text(results),
            noted_text(results),
        ]
    )
