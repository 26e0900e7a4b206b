"""A user's mistake, told so that it can be mended. Needs nothing but the standard library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A user's mistake in a file: its message says where, what and what to do."""


def nearest(wrong: str, right: Iterable[str]) -> str:
    """` (did you mean x? known: x, y)`, to end a message about a wrong name."""
    known = list(right)
    if not known:
        return ""
    close = difflib.get_close_matches(str(wrong), known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f" ({hint}known: {', '.join(known)})"
