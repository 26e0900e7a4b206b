"""Drawing helpers that papers share: style, colours, grouped bars, scaling curves, captions; and writing files.

Figures are `matplotlib.figure.Figure` objects, never pyplot's: no window, no global state, nothing to close.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from atomic import replace_when_complete
from papers.published import Band
from papers.results import Result, grouped
from papers.spreads import Spread

WIDTH_IN = 6.3  # the text width of an A4 or letter page
MARKERS = "osD^vPX*"
BAR_GROUP = 0.8  # share of a category's width that its bars take together
FORMATS = ("svg", "pdf", "png")
_CAPTION_CHARACTERS_PER_INCH = 18.8
_TITLE_CHARACTERS_PER_INCH = 11.0
_MARGIN = 0.013
_BAND_COLOR, _BAND_EDGE = "0.86", "0.35"

# Metadata that would differ from run to run, and the salt that makes SVG ids repeatable.
_METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_STYLE = {
    "svg.hashsalt": "scaling-eval",
    "pdf.fonttype": 42,  # editable text, which publishers ask for
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.formatter.useoffset": False,
}


@contextmanager
def drawing_style() -> Iterator[None]:
    """Seaborn's ticks style for print, for the figures made or saved inside."""
    with (
        matplotlib.rc_context(),
        seaborn.axes_style("ticks"),
        seaborn.plotting_context("paper"),
        matplotlib.rc_context(_STYLE),
    ):
        yield


def framework_colors(frameworks: Sequence[str]) -> dict[str, Any]:
    """A colour for each framework, told apart by colour-blind readers; the same names always get the same colours."""
    names = sorted(frameworks)
    return dict(zip(names, seaborn.color_palette("colorblind", len(names)), strict=True))


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write <name>.svg, .pdf and .png, each complete or not at all; the same figure gives the same bytes."""
    paths = []
    with drawing_style():
        for suffix in FORMATS:
            path = folder / f"{name}.{suffix}"
            with replace_when_complete(path, "wb") as file:
                figure.savefig(file, format=suffix, dpi=200, metadata=_METADATA[suffix])
            paths.append(path)
    return paths


def stacked_panels(
    num_panels: int, title: str, subtitle: str, caption: str, panel_height_in: float = 2.3, columns: int = 1
) -> tuple[Figure, Any]:
    """A figure and its axes [panels][columns], one above the other, between a title and a caption below.

    Space for title, legend and caption is kept in inches, so that it does not grow with the number of panels.
    """
    titles = textwrap.wrap(title, int(WIDTH_IN * _TITLE_CHARACTERS_PER_INCH))
    lines = textwrap.wrap(caption, int(WIDTH_IN * _CAPTION_CHARACTERS_PER_INCH))
    titles_in = 0.1 + 0.18 * len(titles)
    top_in, bottom_in = titles_in + 0.5, 0.16 + 0.135 * len(lines)
    height_in = panel_height_in * num_panels + top_in + bottom_in
    figure = Figure(figsize=(WIDTH_IN, height_in))
    figure.set_layout_engine(
        "constrained",
        rect=(0, bottom_in / height_in, 1, 1 - (top_in + bottom_in) / height_in),
        h_pad=0.06, w_pad=0.06, hspace=0.06, wspace=0.06,
    )  # fmt: skip
    axes = figure.subplots(num_panels, columns, squeeze=False)
    place = {"ha": "left", "va": "top"}
    figure.text(_MARGIN, 1 - 0.1 / height_in, "\n".join(titles), fontsize=10, fontweight="bold", **place)
    figure.text(_MARGIN, 1 - titles_in / height_in, subtitle, fontsize=8.5, color="0.25", **place)
    figure.text(
        _MARGIN, 0.07 / height_in, "\n".join(lines), ha="left", va="bottom", fontsize=6.8, color="0.25", linespacing=1.3
    )
    figure.legend_top = 1 - (titles_in + 0.2) / height_in  # type: ignore[attr-defined]
    return figure, axes


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """One legend for a figure of `stacked_panels`, under its titles and outside of all axes."""
    figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.0, figure.legend_top), ncols=min(len(labels), 5),
        frameon=False, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip


def grouped_bars(
    axes: Axes,
    results: Sequence[Result],
    value: Callable[[Result], Spread],
    category: Callable[[Result], str],
    colors: Mapping[str, Any],
    bands: Sequence[Band] = (),
) -> list[Any]:
    """Bars of `value` over the categories, grouped by framework; returns the legend's handles, one a framework.

    A bar has an error bar where it stands for repeats. What is not measured is written into its empty slot. `bands` are
    published ranges, each drawn across the category of its model and number of GPUs.
    """
    categories = list(dict.fromkeys(category(r) for r in results))
    frameworks = [name for name in sorted(colors) if any(r.framework == name for r in results)]
    frame = pd.DataFrame(
        [{"category": category(r), "framework": r.framework, "value": value(r).mean} for r in results],
        columns=["category", "framework", "value"],
    )
    seaborn.barplot(
        frame, x="category", y="value", hue="framework", order=categories, hue_order=frameworks, palette=dict(colors),
        width=BAR_GROUP, errorbar=None, saturation=1, legend=False, ax=axes, edgecolor="white", linewidth=0.6,
    )  # fmt: skip
    slot = BAR_GROUP / len(frameworks)
    tops = [value(r).upper for r in results if value(r).n] + [band.value_max for band in bands]
    highest = max(tops, default=0)
    axes.set_ylim(0, highest * 1.12 or 1)
    if not highest:
        axes.set_yticks([])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))
    for result in results:
        x = categories.index(category(result)) - BAR_GROUP / 2 + (frameworks.index(result.framework) + 0.5) * slot
        spread = value(result)
        if not math.isnan(spread.deviation):
            axes.errorbar(
                x, spread.mean, spread.deviation, fmt="none", ecolor="0.15", elinewidth=0.9, capsize=2.2, zorder=4
            )  # fmt: skip
        if not spread.n:
            # Why there is no bar; a measured cell lacks it where the peak or the formula is unknown.
            text = result.short_text or "unknown"
            axes.text(
                x, 0.03, text, transform=axes.get_xaxis_transform(), rotation=90, ha="center", va="bottom", fontsize=7,
                color=_readable(colors[result.framework]),
            )  # fmt: skip
    for band in bands:
        places = {
            categories.index(category(r)) for r in results if (r.model, r.num_gpus) == (band.model, band.num_gpus)
        }
        for place in places:
            _draw_band(axes, place, band)
    axes.set_xlim(-0.5, len(categories) - 0.5)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes)
    return [axes.bar([0], [math.nan], color=[colors[name]], label=name) for name in frameworks]


def band_handle() -> Any:
    """The legend's handle of published ranges."""
    return Patch(facecolor=_BAND_COLOR, edgecolor=_BAND_EDGE, linewidth=0.8)


def _draw_band(axes: Axes, place: int, band: Band) -> None:
    """A published range over one category: its area behind the bars and its ends before them, so that both are seen."""
    left, right = place - 0.47, place + 0.47
    axes.fill_between([left, right], band.value_min, band.value_max, color=_BAND_COLOR, linewidth=0, zorder=0.8)
    for end in dict.fromkeys((band.value_min, band.value_max)):
        axes.hlines(end, left, right, color=_BAND_EDGE, linewidth=0.8, zorder=3)


def scaling_curves(
    axes: Axes,
    results: Sequence[Result],
    value: Callable[[Result], Spread],
    colors: Mapping[str, Any],
    shared_ideal: bool,
) -> None:
    """Curves of `value` against GPUs on log2 axes, each with the ideal line through the baseline that is used.

    `shared_ideal`: the value is relative to the baseline (a speedup), so frameworks with one baseline share a line.
    """
    by_framework = grouped(results, lambda r: r.framework)
    all_gpus = sorted({r.num_gpus for r in results})
    drawn: set[int] = set()
    for index, name in enumerate(sorted(colors)):
        points = [r for r in by_framework.get(name, []) if value(r).n]
        base = next((r for r in points if r.num_gpus == r.baseline_num_gpus), None)
        if base is not None and not (shared_ideal and base.num_gpus in drawn):
            drawn.add(base.num_gpus)
            ideal = [value(base).mean * n / base.num_gpus for n in all_gpus]
            color = "0.45" if shared_ideal else colors[name]
            axes.plot(all_gpus, ideal, linestyle=(0, (4, 2)), linewidth=0.9, color=color, zorder=1.5)
        if points:
            # Later curves are thinner, so that those under them can still be seen.
            deviations = [0 if math.isnan(value(r).deviation) else value(r).deviation for r in points]
            axes.errorbar(
                [r.num_gpus for r in points], [value(r).mean for r in points],
                yerr=deviations if any(deviations) else None, color=colors[name], marker=MARKERS[index % len(MARKERS)],
                markersize=7 - 3 * index / len(colors), linewidth=2.2 - 1.1 * index / len(colors),
                markeredgecolor="white", markeredgewidth=0.5, capsize=2.2, elinewidth=0.9,
            )  # fmt: skip
    _write_absent(axes, results, value, colors)
    _log2_axes(axes, all_gpus, any(value(r).n for r in results))


def _write_absent(
    axes: Axes, results: Sequence[Result], value: Callable[[Result], Spread], colors: Mapping[str, Any]
) -> None:
    """What has no point, written upright at its number of GPUs in the framework's colour; once if it is all."""
    all_gpus = sorted({r.num_gpus for r in results})
    by_gpus = grouped(results, lambda r: r.num_gpus)
    for index, num_gpus in enumerate(all_gpus):
        absent = [r for r in sorted(by_gpus[num_gpus], key=lambda r: r.framework) if not value(r).n]
        reasons = [r.short_text or "no baseline" for r in absent]
        labels = [
            (f"{r.framework}: {reason}", _readable(colors[r.framework]))
            for r, reason in zip(absent, reasons, strict=True)
        ]
        if len(absent) == len(by_gpus[num_gpus]) and len(set(reasons)) == 1:
            labels = [(reasons[0], (0.3, 0.3, 0.3))]
        # Curves rise from the lower left to the upper right, so the other two corners are free.
        is_low = index >= len(all_gpus) / 2
        for column, (label, color) in enumerate(labels):
            axes.annotate(
                label, (num_gpus, 0.03 if is_low else 0.97), xycoords=axes.get_xaxis_transform(),
                xytext=(9 * (column - (len(labels) - 1) / 2), 0), textcoords="offset points", rotation=90, fontsize=6.8,
                ha="center", va="bottom" if is_low else "top", color=color, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
            )  # fmt: skip


def _log2_axes(axes: Axes, all_gpus: Sequence[int], has_values: bool) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(all_gpus, [str(n) for n in all_gpus])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(all_gpus[0] / 1.25, all_gpus[-1] * 1.25)
    if has_values:
        axes.set_yscale("log", base=2)
        low, high = axes.get_ylim()
        ticks = [2.0**power for power in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
        step = -(-len(ticks) // 7)
        axes.set_yticks(ticks[::step])
        axes.set_ylim(low / 1.1, high * 1.1)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda number, _: f"{number:,.4g}" if number < 1e4 else f"{number:,.0f}")
        )
    else:
        axes.set_yticks([])
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes)


def _readable(color: Sequence[float]) -> tuple[float, ...]:
    """A darker shade of a framework's colour: text needs more contrast than an area."""
    return tuple(0.62 * channel for channel in color[:3])
