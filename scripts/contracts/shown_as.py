"""What tables and figures call a framework, and which of their colours, hatches and markers are its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

MAX_CHARACTERS = 40


@dataclass(frozen=True)
class ShownAs:
    """A framework in tables and figures.

    name: `Megatron-LM`, say; empty: the adaptor's own.
    style: its place among the styles of reporting/figure_styles.py, from 0; None: the next that nobody declares.
    """

    name: str = ""
    style: int | None = None


def with_styles(declared: Mapping[str, ShownAs]) -> dict[str, ShownAs]:
    """Return the same with a name and a style of its own for every framework.

    Who declares no style, or one that another has already, gets the next free one in the order of the adaptors' names.
    Given all adaptors of the checkout, a framework looks the same in every study, whichever others are in it.
    """
    owners: dict[int, str] = {}
    for adaptor in sorted(declared):
        style = declared[adaptor].style
        if style is not None:
            owners.setdefault(style, adaptor)
    styles = {adaptor: style for style, adaptor in owners.items()}
    free = (style for style in itertools.count() if style not in owners)
    return {
        adaptor: ShownAs(one.name or adaptor, styles[adaptor] if adaptor in styles else next(free))
        for adaptor, one in sorted(declared.items())
    }


def mistake_in(shown: object) -> str:
    """Return what is wrong in what an adaptor's `shown_as` gives; empty where nothing is."""
    if not isinstance(shown, ShownAs):
        return "shown_as() gives no contracts.shown_as.ShownAs"
    name, style = shown.name, shown.style
    if not isinstance(name, str) or len(name) > MAX_CHARACTERS or name != " ".join(name.split()):
        return f"shown_as(): the name is no line of at most {MAX_CHARACTERS} characters without spaces around it"
    if style is not None and (type(style) is not int or style < 0):
        return f"shown_as(): style {style!r} is no whole number from 0"
    return ""
