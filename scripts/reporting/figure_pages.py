"""A figure as a page on which nothing can cover anything: legend, panels and rows below them, one under the other.

Data have the inside of the axes for themselves. What has no point there is written into rows below the axes, one for
each framework, at the place it would have had, and so is what has one that must not be compared. All room is measured
from the letters that are drawn; the page grows with its contents, and axes keep their height.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from reporting.figure_forms import SMALLEST_PT, Form
from reporting.figure_texts import shortened_to, width_pt, wrapped_to

POINTS = 72.0
_EDGE_IN = 0.05
_GAP_IN = 0.1
_ROW_IN = 0.15
_TITLE_PT, _SUBTITLE_PT, _CAPTION_PT = 10.0, 8.5, SMALLEST_PT
_GREY = "0.25"
NOT_COMPARED, TOO_LARGE = "not compared", "too large for this system"
# How a remark is marked where there is no room for its word; what a mark means is in the legend.
_MARKS = {
    "OOM": "x", "NaN loss": "+", "missing": "1", "not available": "2", "unsupported": "3",
    TOO_LARGE: "4", NOT_COMPARED: "|", "unknown": "_",
}  # fmt: skip
_OTHER_MARK = (8, 2, 0)  # an asterisk


@dataclass(frozen=True)
class Words:
    """What stands above and below the panels, in a form that has words."""

    title: str
    subtitle: str
    caption: str


@dataclass(frozen=True)
class Remark:
    """What has no point in a panel, or one that must not be compared: whose, where on the axis of x, why in a word or
    two, and that without numbers.
    """

    name: str
    place: int  # of the framework's style, which sorts the rows
    x: float
    word: str
    kind: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes: who draws it, and what stands around it. `message` takes the place of data where there is none.

    `ticks` are the labels by their place on the axis of x.
    """

    draw: Callable[[Axes], None]
    ticks: Mapping[float, str]
    limits: tuple[float, float]
    title: str
    xlabel: str
    ylabel: str
    remarks: Sequence[Remark] = ()
    message: str = ""
    is_log: bool = False


@dataclass
class _Place:
    """A panel's axes on the page, and the rows below it."""

    panel: Panel
    axes: Axes
    strip: Axes | None
    rows: list[str] = field(default_factory=list)


def draw_page(
    form: Form, words: Words, panels: Sequence[Panel], legend: Sequence[tuple[Any, str]], columns: int = 1
) -> Figure:
    """Return the figure of these panels, `columns` of them beside each other. Call it inside `drawing_style`."""
    figure = Figure(figsize=(form.width_in, form.axes_height_in))
    renderer = FigureCanvasAgg(figure).get_renderer()
    places = [_placed(figure, form, panel) for panel in panels]
    grid = [places[start : start + columns] for start in range(0, len(places), columns)]
    lefts, width_in = _across(grid, form, renderer)
    marks: dict[str, Any] = {}
    for place in places:
        _write_ticks(place, form, width_in * POINTS)
        marks |= _write_remarks(place, form, width_in * POINTS)
        if place.panel.message:
            _write_message(place.axes, place.panel.message, form, width_in * POINTS)
        title = shortened_to(place.panel.title, width_in * POINTS, form.label_pt)
        place.axes.set_title(title, loc="left", fontsize=form.label_pt, pad=4)
    entries = [*legend, *((marks[kind], kind) for kind in sorted(marks))]
    shown = _legend(figure, form, entries, renderer)
    _down(figure, form, words, grid, lefts, width_in, shown, renderer)
    return figure


def _placed(figure: Figure, form: Form, panel: Panel) -> _Place:
    """Draw a panel anywhere: what stands around its axes takes as much room wherever they are."""
    axes = figure.add_axes((0.2, 0.0, 0.6, 1.0))
    if panel.is_log:
        axes.set_xscale("log", base=2)
    panel.draw(axes)
    if panel.message:
        axes.set_yticks([])
    axes.set_xlim(*panel.limits)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.minorticks_off()
    # Of as many lines as the labels that are written when it is known how much room they have.
    lines = max(label.count("\n") for label in panel.ticks.values())
    axes.set_xticks(list(panel.ticks), ["\n".join(["0"] * (lines + 1))] * len(panel.ticks))
    names = {(one.place, one.name): None for one in sorted(panel.remarks, key=lambda one: (one.place, one.name))}
    rows = [name for _, name in names]
    if not rows:
        return _Place(panel, axes, None)
    strip = figure.add_axes((0.2, 0.0, 0.6, 1.0))
    if panel.is_log:
        strip.set_xscale("log", base=2)
    strip.minorticks_off()
    strip.set_xlim(*panel.limits)
    strip.set_xticks([])
    strip.set_ylim(len(rows) - 0.5, -0.5)
    room_pt = form.width_in * POINTS / 5
    shown = [shortened_to(name, room_pt, SMALLEST_PT) for name in rows]
    strip.set_yticks(range(len(rows)), shown, fontsize=SMALLEST_PT, color=_GREY)
    strip.tick_params(axis="y", length=0)
    for spine in strip.spines.values():
        spine.set_visible(False)
    for row in range(len(rows) + 1):
        strip.axhline(row - 0.5, color="0.9", linewidth=0.5, zorder=0)
    return _Place(panel, axes, strip, rows)


def _around_in(axes: Axes, renderer: Any) -> tuple[float, float, float, float]:
    """Return how far what belongs to axes reaches beyond them: left, right, above, below."""
    dpi, inner, outer = axes.get_figure().dpi, axes.get_window_extent(renderer), axes.get_tightbbox(renderer)
    far = inner.x0 - outer.x0, outer.x1 - inner.x1, outer.y1 - inner.y1, inner.y0 - outer.y0
    left, right, above, below = (max(0.0, pixels / dpi) for pixels in far)
    return left, right, above, below


def _across(grid: Sequence[Sequence[_Place]], form: Form, renderer: Any) -> tuple[list[float], float]:
    """Return where the axes of each column begin, and how wide all axes are, in inches."""
    columns = max(map(len, grid))
    lefts, rights = [0.0] * columns, [0.0] * columns
    for row in grid:
        for column, place in enumerate(row):
            for axes in filter(None, (place.axes, place.strip)):
                left, right, _, _ = _around_in(axes, renderer)
                lefts[column], rights[column] = max(lefts[column], left), max(rights[column], right)
    around = sum(lefts) + sum(rights) + _GAP_IN * (columns - 1) + 2 * _EDGE_IN
    width = (form.width_in - around) / columns
    starts, x = [], _EDGE_IN
    for left, right in zip(lefts, rights, strict=True):
        starts.append(x + left)
        x += left + width + right + _GAP_IN
    return starts, width


def _down(
    figure: Figure,
    form: Form,
    words: Words,
    grid: Sequence[Sequence[_Place]],
    lefts: Sequence[float],
    width_in: float,
    legend: Legend | None,
    renderer: Any,
) -> None:
    """Set everything one under the other, and the page's height to what that takes."""
    # A hundredth to spare: programs that show a PDF or an SVG place letters a little differently.
    room_pt = 0.99 * (form.width_in - 2 * _EDGE_IN) * POINTS
    blocks: list[tuple[list[str], float, dict[str, Any]]] = []
    if form.has_words:
        title = wrapped_to(words.title, room_pt, _TITLE_PT, "bold")
        blocks.append((title, _TITLE_PT, {"fontweight": "bold"}))
        blocks.append((wrapped_to(words.subtitle, room_pt, _SUBTITLE_PT), _SUBTITLE_PT, {"color": _GREY}))
    caption = wrapped_to(words.caption, room_pt, _CAPTION_PT) if form.has_words else []
    # Of each row: above its axes, below them, and the strips.
    rows = []
    for row in grid:
        around = [_around_in(place.axes, renderer) for place in row]
        strips = [len(place.rows) * _ROW_IN for place in row]
        rows.append((max(one[2] for one in around), max(one[3] for one in around) + 0.04, max(strips)))
    legend_in = legend.get_window_extent(renderer).height / figure.dpi + 0.07 if legend is not None else 0.0
    height = 2 * _EDGE_IN + legend_in + sum(_height_in(lines, size) for lines, size, _ in blocks)
    height += sum(above + form.axes_height_in + below + strip + _GAP_IN for above, below, strip in rows)
    height += _height_in(caption, _CAPTION_PT) if caption else -_GAP_IN
    figure.set_size_inches(form.width_in, height)
    y = height - _EDGE_IN
    for lines, size, style in blocks:
        _write_lines(figure, lines, y, size, style)
        y -= _height_in(lines, size)
    if legend is not None:
        legend.set_bbox_to_anchor((_EDGE_IN / form.width_in, y / height), transform=figure.transFigure)
        y -= legend_in
    for (above, below, strip_in), row in zip(rows, grid, strict=True):
        y -= above + form.axes_height_in
        for left, place in zip(lefts, row, strict=False):
            place.axes.set_position(_share(left, y, width_in, form.axes_height_in, form.width_in, height))
            if place.strip is not None:
                own_in = len(place.rows) * _ROW_IN
                bottom = y - below - own_in
                place.strip.set_position(_share(left, bottom, width_in, own_in, form.width_in, height))
        y -= below + strip_in + _GAP_IN
    _write_lines(figure, caption, y, _CAPTION_PT, {"color": _GREY})


def _share(left: float, bottom: float, width: float, height: float, page_width: float, page_height: float) -> Any:
    return (left / page_width, bottom / page_height, width / page_width, height / page_height)


_LINE = 1.32  # of the letters' size


def _height_in(lines: Sequence[str], size_pt: float) -> float:
    return (len(lines) * _LINE + 0.3) * size_pt / POINTS if lines else 0.0


def _write_lines(figure: Figure, lines: Sequence[str], top_in: float, size_pt: float, style: Mapping[str, Any]) -> None:
    """Write line by line: what one text of several lines takes depends on the letters that are in it."""
    width, height = figure.get_size_inches()
    for index, line in enumerate(lines):
        y = top_in - (index * _LINE + 1.0) * size_pt / POINTS
        figure.text(_EDGE_IN / width, y / height, line, ha="left", va="baseline", fontsize=size_pt, **style)


def _write_ticks(place: _Place, form: Form, room_pt: float) -> None:
    """Write the labels of the axis of x: shortened to their pitch, or, of numbers too close, as many as there is room
    for, those of the ends and the powers of two first.
    """
    xs = list(place.panel.ticks)
    at = _positions_pt(place.axes, xs, room_pt)
    size = form.text_pt
    if not place.panel.is_log:
        pitch = room_pt / len(xs) - 3
        labels = [
            "\n".join(shortened_to(line, pitch, size) for line in label.split("\n"))
            for label in place.panel.ticks.values()
        ]
        place.axes.set_xticks(xs, labels)
        return
    order = sorted(range(len(xs)), key=lambda i: (i not in (0, len(xs) - 1), (xs[i] / xs[0]) % 1 != 0, -xs[i]))
    taken: list[tuple[float, float]] = []
    kept = set()
    for index in order:
        half = width_pt(place.panel.ticks[xs[index]], size) / 2 + 2
        span = at[index] - half, at[index] + half
        if all(span[1] <= left or right <= span[0] for left, right in taken):
            taken.append(span)
            kept.add(index)
    place.axes.set_xticks(xs, [place.panel.ticks[x] if i in kept else "" for i, x in enumerate(xs)])


def _write_remarks(place: _Place, form: Form, room_pt: float) -> dict[str, Any]:
    """Write into the rows why there is no point, or mark it where the words do not fit; returns the marks' handles."""
    if place.strip is None:
        return {}
    remarks = place.panel.remarks
    xs = list(place.panel.ticks)
    at = dict(zip(xs, _positions_pt(place.axes, xs, room_pt), strict=True))
    pitch = min((b - a for a, b in zip(sorted(at.values()), sorted(at.values())[1:], strict=False)), default=room_pt)
    widest = {one: width_pt(one.word, SMALLEST_PT) for one in remarks}
    if all(wide + 3 <= pitch and wide / 2 <= min(at[one.x], room_pt - at[one.x]) for one, wide in widest.items()):
        for one in remarks:
            y = place.rows.index(one.name)
            # Capitals in the middle of the row: `center` would place the line with its descenders there.
            place.strip.text(one.x, y, one.word, ha="center", va="center_baseline", fontsize=SMALLEST_PT, color=_GREY)
        return {}
    handles = {}
    for one in remarks:
        style = {
            "marker": _MARKS.get(one.kind, _OTHER_MARK), "color": _GREY, "linestyle": "none",
            "markersize": max(2.5, min(5.0, 0.7 * pitch)), "markeredgewidth": 0.9,
        }  # fmt: skip
        place.strip.plot([one.x], [place.rows.index(one.name)], **style)
        handles[one.kind] = Line2D([], [], **{**style, "markersize": 5.0})
    return handles


def _write_message(axes: Axes, message: str, form: Form, room_pt: float) -> None:
    lines = wrapped_to(message, room_pt - 8, form.text_pt)
    axes.text(
        0.5, 0.5, "\n".join(lines), transform=axes.transAxes, ha="center", va="center", color=_GREY,
        fontsize=form.text_pt, linespacing=1.3,
    )  # fmt: skip


def _positions_pt(axes: Axes, xs: Sequence[float], room_pt: float) -> list[float]:
    """Return where on axes so wide the values of x lie."""
    forward = axes.transData.transform
    left, right = (forward((x, axes.get_ylim()[0]))[0] for x in axes.get_xlim())
    return [(forward((x, axes.get_ylim()[0]))[0] - left) / (right - left) * room_pt for x in xs]


def _legend(figure: Figure, form: Form, entries: Sequence[tuple[Any, str]], renderer: Any) -> Legend | None:
    """Return one legend for all panels, in as many columns as the page is wide enough for."""
    if not entries:
        return None
    room_pt = (form.width_in - 2 * _EDGE_IN) * POINTS
    # What a handle and the space around it take of a line.
    labels = [shortened_to(label, room_pt - 5 * form.text_pt, form.text_pt) for _, label in entries]
    for columns in range(min(len(entries), 6), 0, -1):
        legend = figure.legend(
            [handle for handle, _ in entries], labels, loc="upper left", ncols=columns, frameon=False,
            borderaxespad=0, borderpad=0, handlelength=2.6, handletextpad=0.5, columnspacing=1.2, labelspacing=0.4,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent(renderer).width / figure.dpi * POINTS <= room_pt:
            return legend
        legend.remove()
    raise AssertionError("one column is always taken")
