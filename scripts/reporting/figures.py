"""What papers draw with: the style, grouped bars and scaling curves, and writing the files of a figure.

Figures are `matplotlib.figure.Figure` objects, never pyplot's: no window, no global state, nothing to close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from contracts.atomic import replace_when_complete
from reporting.figure_forms import Form
from reporting.figure_styles import Style
from reporting.figure_texts import FONT
from reporting.published import Band
from reporting.results import Result, grouped
from reporting.spreads import Spread

BAR_GROUP = 0.8  # share of a category's width that its bars take together
IDEAL = "ideal"
_BAND_COLOR, _BAND_EDGE = "0.86", "0.35"
_IDEAL_STYLE: Mapping[str, Any] = {"color": "0.45", "linestyle": (0, (4, 2)), "linewidth": 0.8}

# Metadata that would differ from run to run, and the salt that makes SVG ids repeatable.
_METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_STYLE = {
    "svg.hashsalt": "scaling-eval",
    "pdf.fonttype": 42,  # letters as TrueType outlines with their text, which publishers ask for
    "font.family": FONT,
    "text.parse_math": False,  # a dollar sign in a title is one
    "text.hinting": "none",  # letters as wide as in a PDF, so that lines measured before they are drawn fit
    "hatch.linewidth": 0.5,
    "axes.formatter.useoffset": False,
}


@contextmanager
def drawing_style(form: Form) -> Iterator[None]:
    """Seaborn's ticks style for print with letters of a form's size, for the figures made or saved inside."""
    sizes = {
        "font.size": form.text_pt,
        "axes.titlesize": form.label_pt,
        "axes.labelsize": form.label_pt,
        "xtick.labelsize": form.text_pt,
        "ytick.labelsize": form.text_pt,
        "legend.fontsize": form.text_pt,
    }
    with (
        matplotlib.rc_context(),
        seaborn.axes_style("ticks"),
        seaborn.plotting_context("paper"),
        matplotlib.rc_context({**_STYLE, **sizes}),
    ):
        yield


def save_figure(figure: Figure, folder: Path, name: str, form: Form) -> list[Path]:
    """Write a figure in all formats of its form, each complete or not at all; the same figure gives the same bytes."""
    paths = []
    with drawing_style(form):
        for suffix in form.formats:
            path = folder / f"{name}{form.suffix}.{suffix}"
            with replace_when_complete(path, "wb") as file:
                figure.savefig(file, format=suffix, dpi=200, metadata=_METADATA[suffix])
            paths.append(path)
    return paths


def grouped_bars(
    axes: Axes,
    results: Sequence[Result],
    value: Callable[[Result], Spread],
    places: Mapping[tuple[str, int], int],
    styles: Mapping[str, Style],
    bands: Sequence[Band] = (),
) -> None:
    """Draw bars of `value` side by side at the place of their model and number of GPUs, in the order of the styles.

    A bar has an error bar where it stands for repeats. Frameworks without any bar have no room kept for one. `bands`
    are published ranges, each drawn across the place of its model and number of GPUs.
    """
    drawn = [name for name in styles if any(r.framework == name and value(r).n for r in results)]
    slot = BAR_GROUP / max(1, len(drawn))
    for result in results:
        spread = value(result)
        if not spread.n:
            continue
        place = places[result.model, result.num_gpus]
        x = place - BAR_GROUP / 2 + (drawn.index(result.framework) + 0.5) * slot
        axes.bar(x, spread.mean, 0.94 * slot, label=result.framework, linewidth=0, **_area(styles[result.framework]))
        if not math.isnan(spread.deviation):
            axes.errorbar(
                x, spread.mean, spread.deviation, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5,
                capthick=0.8, zorder=4,
            )  # fmt: skip
    for band in bands:
        _draw_band(axes, places[band.model, band.num_gpus], band)
    tops = [value(r).upper for r in results if value(r).n] + [band.value_max for band in bands]
    axes.set_ylim(0, max(tops, default=0) * 1.06 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))
    axes.tick_params(axis="x", length=0)
    if drawn or bands:
        axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes)


def _area(style: Style) -> dict[str, Any]:
    return {"facecolor": style.color, "hatch": style.hatch, "hatchcolor": style.hatch_color}


def bar_handle(style: Style) -> Any:
    """Return the legend's handle of a framework's bars."""
    return Patch(linewidth=0, **_area(style))


def band_handle() -> Any:
    """Return the legend's handle of published ranges."""
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
    styles: Mapping[str, Style],
    shared_ideal: bool,
) -> None:
    """Draw curves of `value` against GPUs on log2 axes, each with the ideal line through the baseline that is used.

    No curve passes a number of GPUs without a point. `shared_ideal`: the value is relative to the baseline (a speedup),
    so frameworks with one baseline share a line.
    """
    by_framework = grouped(results, lambda r: r.framework)
    all_gpus = sorted({r.num_gpus for r in results})
    drawn: set[int] = set()
    ends: list[float] = []
    for index, (name, style) in enumerate(styles.items()):
        points = {r.num_gpus: value(r) for r in by_framework.get(name, []) if value(r).n}
        if not points:
            continue
        base = next((r for r in by_framework[name] if r.num_gpus == r.baseline_num_gpus and value(r).n), None)
        if base is not None and not (shared_ideal and base.num_gpus in drawn):
            drawn.add(base.num_gpus)
            ideal = [value(base).mean * n / base.num_gpus for n in all_gpus]
            color = {} if shared_ideal else {"color": style.color}
            axes.plot(all_gpus, ideal, **{**_IDEAL_STYLE, **color}, zorder=1.5, gid=IDEAL)
            ends += ideal
        # What no curve may pass is a gap in it: NaN. Before the first and after the last point there is none.
        passed = [n for n in all_gpus if min(points) <= n <= max(points)]
        spreads = [points.get(n, Spread()) for n in passed]
        deviations = [0 if math.isnan(spread.deviation) else spread.deviation for spread in spreads]
        # Later curves are thinner, so that those under them can still be seen.
        share = index / len(styles)
        axes.errorbar(
            passed, [spread.mean for spread in spreads], yerr=deviations if any(deviations) else None,
            **_curve(style), markersize=6.5 - 1.7 * share, linewidth=1.8 - 0.6 * share, capsize=1.8, elinewidth=0.8,
            label=name,
        )  # fmt: skip
        ends += [end for spread in spreads if spread.n for end in (spread.mean, spread.upper)]
    if ends:
        _log2_values(axes, min(ends), max(ends), in_doublings=shared_ideal)
        axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes)


def _curve(style: Style) -> dict[str, Any]:
    return {
        "color": style.color, "marker": style.marker, "linestyle": style.line, "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }  # fmt: skip


def curve_handle(style: Style) -> Any:
    """Return the legend's handle of a framework's curve."""
    return Line2D([], [], **_curve(style), markersize=5.5, linewidth=1.4)


def ideal_handle() -> Any:
    """Return the legend's handle of ideal lines."""
    return Line2D([], [], **_IDEAL_STYLE)


def log2_limits(all_gpus: Sequence[int]) -> tuple[float, float]:
    """Return where axes of numbers of GPUs begin and end: half a doubling beyond the ends."""
    return all_gpus[0] / math.sqrt(2), all_gpus[-1] * math.sqrt(2)


def _log2_values(axes: Axes, lowest: float, highest: float, *, in_doublings: bool) -> None:
    low, high = lowest / 1.2, highest * 1.2
    axes.set_yscale("log", base=2)
    axes.set_yticks(_doublings(low, high) if in_doublings else log_ticks(low, high))
    axes.set_ylim(low, high)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))


def _doublings(low: float, high: float) -> list[float]:
    """Return the powers of two between, every so many that there are no more than six; 1 is a baseline's speedup."""
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return [2.0**power for power in powers[:: -(-len(powers) // 6) or 1]] or log_ticks(low, high)


# A step from one to the next is a tenth to a quarter.
_CLOSE = (1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: as many as there are, and no more than six."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fewer: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), _CLOSE):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) > 6:
            return fewer or inside[:: -(-len(inside) // 6)]
        fewer = inside or fewer
    return fewer or [math.sqrt(low * high)]
