"""How long the cells that are left will take: from cells like them that this call has measured, or their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metrics.spread import mean
from terminal.short_words import time_text
from terminal.shown_cells import ShownCell

# What makes one cell like another, the likest first.
LIKENESSES: tuple[Callable[[ShownCell], Any], ...] = (
    lambda cell: cell.cell_id,
    lambda cell: (cell.framework, cell.model),
    lambda cell: cell.model,
)


def time_left_text(waiting: Sequence[ShownCell], running_s: Mapping[ShownCell, float], took: Sequence[Any]) -> str:
    """Return `~6 min`; `<2.5 h` where some cells are like none that was measured, and their limits count; and nothing
    where nothing is left or nothing is known.

    waiting: cells that were not begun. running_s: how long those that were begun have run. took: (cell, seconds) of
    the cells that this call has measured.
    """
    if not took or not (waiting or running_s):
        return ""
    total, is_limit = 0.0, False
    for cell, spent in [*((cell, 0.0) for cell in waiting), *running_s.items()]:
        expected = expected_s(cell, took)
        if expected is None:
            if cell.time_limit_s is None:
                return ""
            expected, is_limit = cell.time_limit_s, True
        total += max(0.0, expected - spent)
    return f"{'<' if is_limit else '~'}{time_text(total)}"


def expected_s(cell: ShownCell, took: Sequence[tuple[ShownCell, float]]) -> float | None:
    """Return how long the cells took that are most like this one; None where none was."""
    for likeness in LIKENESSES:
        alike = [seconds for other, seconds in took if likeness(other) == likeness(cell)]
        if alike:
            return mean(alike)
    return None
