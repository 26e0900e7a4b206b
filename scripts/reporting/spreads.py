"""Means over repeats with their spread, and the first-order spread of what follows from one or two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metrics.spread import mean, sample_deviation


@dataclass(frozen=True)
class Spread:
    """A value with its spread: the mean of `n` repeats, or what follows from that mean.

    `deviation` is the sample standard deviation over the repeats, carried over to first order; NaN where it is unknown,
    as with one repeat. Both are NaN where nothing was measured.
    """

    mean: float = math.nan
    deviation: float = math.nan
    n: int = 0

    @property
    def relative(self) -> float:
        """The deviation as a share of the mean."""
        return self.deviation / abs(self.mean) if self.mean else math.nan

    @property
    def upper(self) -> float:
        """The upper end of the error bar; the value itself where the deviation is unknown."""
        return self.mean if math.isnan(self.deviation) else self.mean + self.deviation


def spread_of(values: Sequence[float]) -> Spread:
    """Return the mean and the sample standard deviation of these repeats; of none, the empty spread."""
    return Spread(mean(values), sample_deviation(values), len(values)) if values else Spread()


def following(time: Spread, value: float) -> Spread:
    """Return `value` with its spread, where it is proportional to this time or to its inverse."""
    return Spread() if math.isnan(value) else Spread(value, abs(value) * time.relative, time.n)


def ratio(above: Spread, below: Spread) -> Spread:
    """Return above / below; the relative deviations of two independent values add in quadrature."""
    value = above.mean / below.mean if below.mean else math.nan
    return Spread(value, abs(value) * math.hypot(above.relative, below.relative), min(above.n, below.n))


def difference(one: Spread, other: Spread) -> Spread:
    """Return one - other; the deviations of two independent values add in quadrature."""
    return Spread(one.mean - other.mean, math.hypot(one.deviation, other.deviation), min(one.n, other.n))


def scaled(spread: Spread, factor: float) -> Spread:
    """Return the spread in another unit."""
    return Spread(spread.mean * factor, abs(factor) * spread.deviation, spread.n)
