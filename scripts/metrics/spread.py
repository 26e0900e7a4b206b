"""Mean and sample deviation, the same to the last bit whatever the order of the values.

`math.fsum` rounds once, so a shuffled file gives the same table; the `statistics` module does too, ten times slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; raise ValueError for none."""
    if not values:
        raise ValueError("the mean of no values is unknown")
    return math.fsum(values) / len(values)


def sample_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation (divided by n - 1); NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))
