"""Frameworks in figures are told apart: by colour, in grey, without one kind of cones, and by hatch and marker."""

from __future__ import annotations

import itertools
import math

import pytest
from coloraide import Color

from factories import data_of, make_cell, measured_cells
from planning.adaptors import frameworks_shown_as
from reporting.figure_styles import COLORS, HATCHES, MARKERS, framework_styles, style_at
from reporting.results import results_of

# CIELAB distances: between colours, and between their lightness, which is what is left of them in grey. About 2.3 is
# just noticed where two areas touch (Mahy, Van Eycken and Oosterlinck 1994).
COLOR_THRESHOLD, GREY_THRESHOLD = 20.0, 6.0
PAIRS = list(itertools.combinations(COLORS, 2))


def lab(color: str, deficiency: str | None) -> tuple[float, float, float]:
    """The colour's place in CIELAB (D65) as it is seen with that deficiency, None for none."""
    seen = Color(color) if deficiency is None else Color(color).filter(deficiency)
    lightness, a, b = seen.convert("srgb").clip().convert("lab-d65").coords()
    return lightness, a, b


@pytest.mark.parametrize("deficiency", [None, "protan", "deutan", "tritan"])
def test_any_two_colours_are_far_apart(deficiency: str | None) -> None:
    nearest = min(PAIRS, key=lambda pair: math.dist(*(lab(color, deficiency) for color in pair)))
    assert math.dist(*(lab(color, deficiency) for color in nearest)) > COLOR_THRESHOLD, nearest


def test_any_two_colours_differ_in_grey_those_of_the_paper_most() -> None:
    lightness = {color: lab(color, None)[0] for color in COLORS}
    assert min(abs(lightness[one] - lightness[other]) for one, other in PAIRS) > GREY_THRESHOLD
    assert min(abs(lightness[one] - lightness[other]) for one, other in itertools.combinations(COLORS[:3], 2)) > 19


def test_any_two_of_a_hundred_differ_in_hatch_or_colour_and_in_marker_or_colour() -> None:
    assert len(set(HATCHES)) == len(set(MARKERS)) == len(COLORS)
    styles = [style_at(place) for place in range(100)]
    assert len({(style.color, style.hatch) for style in styles}) == 100
    assert len({(style.color, style.marker) for style in styles}) == 100
    # With as many frameworks as there are colours, hatch and marker alone tell.
    first = styles[: len(COLORS)]
    assert len({style.hatch for style in first}) == len({style.marker for style in first}) == len(COLORS)


def test_every_framework_of_the_project_has_a_colour_of_its_own() -> None:
    places = [shown.style for shown in frameworks_shown_as().values()]
    assert len(places) <= len(COLORS) and set(places) <= set(range(len(COLORS)))


def test_styles_depend_on_what_is_declared_and_then_on_names_alone() -> None:
    def styles(*names: str) -> dict[str, int]:
        data = data_of(*measured_cells([make_cell(name) for name in names]))
        data.measurements.loc[data.measurements["framework"] == "b", "framework_style"] = 0
        return {name: style.place for name, style in framework_styles(results_of(data, ("strong",))).items()}

    assert styles("c", "a", "b") == styles("b", "a", "c") == {"b": 0, "a": 1, "c": 2}
    assert styles("b", "c") == {"b": 0, "c": 1}
