"""Words in a figure that fit their place: measured in the font they are drawn in, wrapped or shortened."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

FONT = "DejaVu Sans"  # ships with matplotlib: the same widths on every machine
_ELLIPSIS = "…"


@lru_cache(maxsize=4096)
def width_pt(text: str, size_pt: float, weight: str = "normal") -> float:
    """Return how wide a line is."""
    font = FontProperties(family=FONT, size=size_pt, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, False)[0])


def shortened_to(text: str, room_pt: float, size_pt: float) -> str:
    """Return the text, or so much of its beginning and end as there is room for: names often differ at the end."""
    if width_pt(text, size_pt) <= room_pt:
        return text
    for kept in range(len(text) - 1, 0, -1):
        head, tail = text[: (kept + 1) // 2].rstrip(), text[len(text) - kept // 2 :].lstrip()
        if width_pt(head + _ELLIPSIS + tail, size_pt) <= room_pt:
            return head + _ELLIPSIS + tail
    return _ELLIPSIS


def wrapped_to(text: str, room_pt: float, size_pt: float, weight: str = "normal") -> list[str]:
    """Return the text in lines that fit, broken between words, and inside of one only where it alone is too long."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if width_pt(longer, size_pt, weight) <= room_pt:
            line = longer
            continue
        lines += [line] if line else []
        *whole, line = _pieces(word, room_pt, size_pt, weight)
        lines += whole
    return [*lines, line] if line else lines


def _pieces(word: str, room_pt: float, size_pt: float, weight: str) -> list[str]:
    pieces = [""]
    for character in word:
        if pieces[-1] and width_pt(pieces[-1] + character, size_pt, weight) > room_pt:
            pieces.append("")
        pieces[-1] += character
    return pieces
