"""How wide a text is in a LaTeX table and how many lines it takes, near enough to plan columns and pages.

Widths are those of Computer Modern at 8 pt, LaTeX's own font and wider than Times or Libertine, so that what is planned
with them has room in other fonts too.
"""

from __future__ import annotations

from reporting.latex_text import LONGEST_PIECE, LONGEST_WORD

# Ems by character, from cmr8's metrics, each class rounded up.
_EMS = (
    ("ijlI.,:;'|![]() \u00a0", 0.42),
    ("frstJ- /", 0.42),
    ("mwMW%@±−×…", 0.95),
    ("ABCDEFGHKLNOPQRTUVXYZ", 0.82),
)
_EMS_OF = {character: ems for characters, ems in _EMS for character in characters}
_OTHER = 0.59
# Above ASCII most characters are printed as a name or a number in brackets.
_ABOVE_ASCII = 4.0
_NARROW_ABOVE = "–äöüÄÖÜßéèàáíóúçñ°·µ"
# A short cell and a number with its spread stay on one line.
SHORT = 14


def width_pt(text: str, size_pt: float) -> float:
    """Return about how wide a text is on one line."""
    return size_pt * sum(_ems(character) for character in text)


def unbreakable(text: str) -> list[str]:
    """Return the parts of a cell between which a line may end; a remark in brackets may go on in the next."""
    if len(text) <= SHORT:
        return [text]
    number, bracket, remark = text.partition(" (")
    parts = number.replace(" ± ", "\u00a0±\u00a0").split(" ")
    return [*parts, *f"({remark}".split(" ")] if bracket else parts


def glued(text: str) -> str:
    """Return a cell's text with no-break spaces where a line must not end."""
    return " ".join(part.replace(" ", "\u00a0") for part in unbreakable(text))


def widest_part_pt(text: str, size_pt: float) -> float:
    """Return how wide a column must be for no part of the text to be broken."""
    widths = (
        width_pt(part[i : i + LONGEST_PIECE] if len(part) > LONGEST_WORD else part, size_pt)
        for part in unbreakable(text)
        for i in range(0, len(part) if len(part) > LONGEST_WORD else 1, LONGEST_PIECE)
    )
    return max(widths, default=0.0)


def num_lines(text: str, column_pt: float, size_pt: float) -> int:
    """Return in how many lines a text fits a column, one at least."""
    lines, used, space = 1, 0.0, width_pt(" ", size_pt)
    for part in unbreakable(text):
        wide = width_pt(part, size_pt)
        if used and used + space + wide > column_pt:
            lines, used = lines + 1, 0.0
        used += wide + (space if used else 0.0)
        while used > column_pt:  # a word that is broken
            lines, used = lines + 1, used - 0.8 * column_pt
    return lines


def _ems(character: str) -> float:
    if character in _EMS_OF:
        return _EMS_OF[character]
    return _OTHER if character.isascii() or character in _NARROW_ABOVE else _ABOVE_ASCII
