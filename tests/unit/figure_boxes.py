"""Where everything of a drawn figure lies, by matplotlib's own boxes: what texts cover, and what leaves the page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

# Boxes that only touch share an edge, whose place is rounded.
TOUCHING_PX = 0.01


def drawn(figure: Figure) -> Figure:
    """Draw the figure, so that its boxes can be asked for, and return it."""
    FigureCanvasAgg(figure).draw()
    return figure


def texts_of(figure: Figure) -> list[tuple[str, Bbox, float]]:
    """Return each text that is to be seen of a drawn figure, with its box and its size in points.

    Labels of ticks outside of the view are not drawn, though matplotlib keeps them.
    """
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                if not low <= tick.get_loc() <= high:
                    hidden |= {id(tick.label1), id(tick.label2)}
    found = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            found.append((text.get_text(), text.get_window_extent(), text.get_fontsize()))
    return found


def covering_texts(figure: Figure) -> list[str]:
    """Return each pair of texts that overlap, each text that overlaps what is drawn, and each that leaves the page."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    texts = texts_of(figure)
    found = [
        f"{one!r} covers {other!r}"
        for (one, box, _), (other, other_box, _) in itertools.combinations(texts, 2)
        if overlap(box, other_box)
    ]
    shapes = [(what, shape, axes.bbox) for axes in figure.axes for what, shape in shapes_of(axes)]
    for legend in figure.legends:
        handles = [handle.get_window_extent(renderer) for handle in legend.legend_handles]
        shapes += [("a legend's handle", box, figure.bbox) for box in handles]
    for text, box, _ in texts:
        inner = Bbox.from_extents(
            box.x0 + TOUCHING_PX, box.y0 + TOUCHING_PX, box.x1 - TOUCHING_PX, box.y1 - TOUCHING_PX
        )
        found += [f"{text!r} covers {what}" for what, shape, clip in shapes if crosses(inner, shape, clip)]
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        found += [f"the legend covers axes {axes.get_ylabel()!r}" for axes in figure.axes if overlap(box, axes.bbox)]
    page = figure.bbox
    found += [
        f"{text!r} leaves the page"
        for text, box, _ in texts
        if box.x0 < page.x0 or box.y0 < page.y0 or box.x1 > page.x1 or box.y1 > page.y1
    ]
    whole = figure.get_tightbbox(renderer)  # in inches
    width, height = figure.get_size_inches()
    if whole.x0 < 0 or whole.y0 < 0 or whole.x1 > width or whole.y1 > height:
        found.append(f"{whole} is more than the page of {width} x {height} in")
    return found


def overlap(one: Bbox, other: Bbox) -> bool:
    shared = Bbox.intersection(one, other)
    return shared is not None and shared.width > TOUCHING_PX and shared.height > TOUCHING_PX


def shapes_of(axes: Axes) -> Iterator[tuple[str, Bbox | Path]]:
    """Yield bars, markers, lines and error bars of axes in pixels, with a name. The axes cut all of them off."""
    assert all(artist.get_clip_on() for artist in (*axes.patches, *axes.lines, *axes.collections))
    for patch in axes.patches:
        assert isinstance(patch, Rectangle)
        yield "a bar", patch.get_window_extent()
    for line in axes.lines:
        points = line.get_transform().transform(line.get_xydata())
        if line.get_linestyle() != "None":
            yield "a line", Path(points)
        yield from (("a marker", box) for box in marker_boxes(line, points))
    for collection in axes.collections:
        if isinstance(collection, LineCollection):
            for segment in filter(len, collection.get_segments()):  # one of a point that is not there is empty
                yield "an error bar", Path(collection.get_transform().transform(segment))
        else:
            assert not isinstance(collection, PathCollection), "nothing here scatters"
            yield "a band", collection.get_window_extent()


def marker_boxes(line: Line2D, points: np.ndarray) -> Iterator[Bbox]:
    if line.get_marker() in ("None", None, ""):
        return
    half = line.get_markersize() / 2 * line.get_figure().dpi / 72
    for x, y in points[np.isfinite(points).all(axis=1)]:
        yield Bbox.from_extents(x - half, y - half, x + half, y + half)


def crosses(box: Bbox, shape: Bbox | Path, clip: Bbox) -> bool:
    """Return whether the box covers something of the shape that is inside of `clip`."""
    seen = Bbox.intersection(box, clip)
    if seen is None:
        return False
    return overlap(seen, shape) if isinstance(shape, Bbox) else shape.intersects_bbox(seen, filled=False)
