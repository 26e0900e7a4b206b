"""Who is faster at one point of a comparison, by how much, and whether that is more than the spread of the repeats."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from reporting.results import Result
from reporting.spreads import Spread, difference, ratio, scaled

AHEAD, BEHIND, WITHIN_SPREAD, ONE_REPEAT = "ahead", "behind", "within spread", "one repeat"
# What stands beside a number that is no clear lead.
LEAD_MARKS = {WITHIN_SPREAD: "within the spread", ONE_REPEAT: "one repeat"}


@dataclass(frozen=True)
class Lead:
    """One result against another's: `speedup` is its rate over the other's, the savings are of the other's days.

    Everything is empty where there is no other to compare with.
    """

    other: Result | None = None
    speedup: Spread = field(default_factory=Spread)
    days_saved: Spread = field(default_factory=Spread)
    percent_saved: Spread = field(default_factory=Spread)

    @property
    def verdict(self) -> str:
        """`ahead`, `behind`, `within spread`, `one repeat` (the spread is unknown), or empty."""
        return verdict(self.speedup)


def lead_over_best_other(result: Result, point: Sequence[Result], among: Collection[str] | None = None) -> Lead:
    """Return the result's lead over the fastest of the other frameworks at its point, of those in `among` if given.

    Only what is comparable is set against each other.
    """
    others = [
        r
        for r in point
        if r.framework != result.framework
        and r.is_measured
        and r.comparable
        and (among is None or r.framework in among)
    ]
    if not (others and result.is_measured and result.comparable):
        return Lead()
    other = min(others, key=lambda r: (r.training_days.mean, r.framework))
    share = ratio(result.training_days, other.training_days)
    return Lead(
        other,
        speedup=ratio(other.training_days, result.training_days),
        days_saved=difference(other.training_days, result.training_days),
        percent_saved=Spread(100 * (1 - share.mean), scaled(share, 100).deviation, share.n),
    )


def verdict(speedup: Spread) -> str:
    """Return what a ratio of two speeds amounts to: it is a lead only where it differs from 1 by more than its spread.

    To first order a ratio, its inverse, the difference of two times and that of two rates have spreads that do not
    quite agree. The slower's time over the faster's is the strictest of them: what is a lead by it is one in whatever
    way it is written, and of two results one is ahead if and only if the other is behind.
    """
    if math.isnan(speedup.mean):
        return ""
    if math.isnan(speedup.deviation):
        return ONE_REPEAT
    slower_over_faster = max(speedup.mean, 1 / speedup.mean)
    if slower_over_faster - 1 <= slower_over_faster * speedup.relative:
        return WITHIN_SPREAD
    return AHEAD if speedup.mean > 1 else BEHIND


def marked(text: str, verdict_: str) -> str:
    """Return the number with the reason why it is no clear lead, where there is one."""
    return f"{text} ({LEAD_MARKS[verdict_]})" if verdict_ in LEAD_MARKS else text
