"""A user's mistake, told so that it can be mended. Needs nothing but the standard library."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any


class ConfigError(ValueError):
    """A user's mistake in a file: its message says where, what and what to do."""


def nearest(wrong: Any, right: Iterable[Any]) -> str:
    """` (did you mean 'x'? known: x, y)`, to end a message about a wrong name or value, as YAML has them."""
    known = {_in_yaml(value): value for value in right}
    if not known:
        return ""
    close = difflib.get_close_matches(_in_yaml(wrong), known, n=1, cutoff=0.5)
    hint = ""
    if close:
        meant = known[close[0]]
        hint = f"did you mean {meant!r}? " if isinstance(meant, str) else f"did you mean {close[0]}, without quotes? "
    return f" ({hint}known: {', '.join(known)})"


def _in_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
