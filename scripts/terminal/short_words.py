"""How lines on the terminal write times."""

from __future__ import annotations


def time_text(seconds: float) -> str:
    """Return `17 s`, `6 min`, `2.5 h`: as exact as one wants to know how long something takes."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def counted_words(number: int, noun: str) -> str:
    """Return `1 cell`, `2 cells`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
