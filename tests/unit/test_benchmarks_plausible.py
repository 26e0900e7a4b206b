"""What a benchmark refuses to print."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from plausible import plausible


def test_a_possible_value_comes_back_as_it_is() -> None:
    assert plausible("a time", 0.25) == 0.25
    assert plausible("a share", 1.0, at_most=1.0) == 1.0


@pytest.mark.parametrize("value", [0.0, -6.24, math.nan, math.inf])
def test_an_impossible_value_stops_the_benchmark(value: float) -> None:
    with pytest.raises(SystemExit, match=r"the time of a cell came out as .*must be above 0"):
        plausible("the time of a cell", value)


def test_a_share_above_one_stops_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="above 0 and at most 1"):
        plausible("a share of the peak", 1.02, at_most=1.0)
