"""How figures tell frameworks apart: a colour, a hatch, a marker and a line of its own for each, the same everywhere.

The colours were found by a search for the largest smallest difference: of any two, the CIELAB distance is above 20 as
most readers see them and as they are seen without one kind of cones (protanopia, deuteranopia, tritanopia), and their
lightness differs by more than 6, so that they also differ in grey (a test holds them to it). 6 is seen where two areas
touch and may not be where they lie apart; there the hatches and markers tell, of which no two are alike. The first
three, which are the paper's, differ by 19 in grey. The lightest come last: thin lines in them are hard to see.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from reporting.results import Result

COLORS = (
    "#4761ea", "#fe7c22", "#492354", "#82393b", "#89b4f2", "#c77d6a", "#3f2f95", "#8a7899", "#bd1607", "#e3b8ce",
)  # fmt: skip
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "||||", "oooo", "++++", "//..")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
LINES = (
    "solid", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (2.5, 1.2)), (0, (1, 1.2)), (0, (8, 1.5, 1, 1.5, 1, 1.5)),
)  # fmt: skip
# Hatches are drawn in white on these, in black on the lighter ones.
_DARK = frozenset(("#4761ea", "#492354", "#82393b", "#3f2f95", "#8a7899", "#bd1607"))


@dataclass(frozen=True)
class Style:
    """How one framework is drawn; `place` sorts bars, legends and rows."""

    place: int
    color: str
    hatch: str
    hatch_color: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]


def style_at(place: int) -> Style:
    """Return the style of a place. Beyond the last colour they come again, with other hatches and markers."""
    turn, index = divmod(place, len(COLORS))
    color = COLORS[index]
    return Style(
        place,
        color,
        HATCHES[(index + turn) % len(HATCHES)],
        "white" if color in _DARK else "black",
        MARKERS[(index + turn) % len(MARKERS)],
        LINES[place % len(LINES)],
    )


def framework_styles(results: Iterable[Result]) -> dict[str, Style]:
    """Return each framework's style, in the order of their places: those that the measurements say it has.

    Measurements of before do not say it: such frameworks get what is free, in the order of their names.
    """
    declared = {result.framework: result.framework_style for result in results}
    places = {name: place for name, place in sorted(declared.items()) if place is not None}
    free = (place for place in itertools.count() if place not in places.values())
    places |= {name: next(free) for name, place in sorted(declared.items()) if place is None}
    return {name: style_at(place) for name, place in sorted(places.items(), key=lambda one: (one[1], one[0]))}
