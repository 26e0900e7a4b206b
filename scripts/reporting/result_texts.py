"""Words and numbers of one result for the cell of a table."""

from __future__ import annotations

import math

from reporting.rendering import format_number, format_spread
from reporting.results import Result
from reporting.spreads import Spread


def over_baseline_text(result: Result, value: Spread) -> str:
    """Return what is relative to the baseline; the baseline itself is 1 by definition, without a spread."""
    is_baseline = result.num_gpus == result.baseline_num_gpus and value.mean == 1
    return "1 (baseline)" if is_baseline else format_spread(value, 3)


def batch_time_text(result: Result) -> str:
    """Return the time with its spread over the repeats, or of one repeat with that over its batches, named as such."""
    if result.repeats == 1 and not math.isnan(result.batch_time_std_s):
        time = result.batch_time_s.mean
        return f"{format_number(time)} (batches ± {format_number(result.batch_time_std_s, like=time)})"
    return format_spread(result.batch_time_s)


def layout_text(result: Result) -> str:
    """Return the layout shown, and of how many it is the best."""
    return result.layout + (f" (best of {result.num_layouts})" if result.num_layouts > 1 else "")
