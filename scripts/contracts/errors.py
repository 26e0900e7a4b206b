"""A user's mistake, told so that it can be mended. Needs nothing but the standard library."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

# What breaks a line, a table or a terminal: control characters, YAML's and Unicode's line ends, halves of a character.
_BREAKS_A_LINE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]+")
LONGEST_VALUE = 100


class ConfigError(ValueError):
    """A user's mistake in a file: its message says where, what and what to do, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """Return the text without what would break a line of a table or a log; runs of it become one space."""
    return _BREAKS_A_LINE.sub(" ", text).strip()


def shown_value(value: Any) -> str:
    """Return a value as Python writes it, cut where it is long: messages show what was written, not all of it."""
    try:
        text = ascii(value) if isinstance(value, str) and _BREAKS_A_LINE.search(value) else repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python prints; a list in itself
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def nearest(wrong: Any, right: Iterable[Any]) -> str:
    """` (did you mean 'x'? known: x, y)`, to end a message about a wrong name or value, as YAML has them."""
    known = {in_yaml(value): value for value in right}
    if not known:
        return ""
    close = difflib.get_close_matches(in_yaml(wrong), known, n=1, cutoff=0.5)
    hint = ""
    if close:
        meant = known[close[0]]
        hint = f"did you mean {meant!r}? " if isinstance(meant, str) else f"did you mean {close[0]}, without quotes? "
    return f" ({hint}known: {', '.join(known)})"


def in_yaml(value: Any) -> str:
    """Return a value as it stands in a file: `true`, `2`, and a text without quotes."""
    return value[:LONGEST_VALUE] if isinstance(value, str) else json.dumps(value, default=str)
