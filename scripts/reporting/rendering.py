"""Tables for readers, from what a table's function leaves in `DataFrame.attrs["displays"]`, and their Markdown.

The DataFrame itself is the CSV: tidy, one number a field, units in the names. A display is the same for readers:
rounded, mean ± spread in one cell, the reason in the place of a missing number, notes below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reporting.spreads import Spread

DISPLAYS = "displays"
EMPTY = "–"


@dataclass(frozen=True)
class Span:
    """A cell that takes the place of `columns` cells; the cells after it are left out of the row."""

    text: str
    columns: int


@dataclass(frozen=True)
class Display:
    """One printed table: `wide` are the indices of columns of running text, `group` how many first columns mark groups.

    A row that repeats the first `group` cells of the row above shows them empty, and a rule stands between groups.
    `details` are sentences that follow the caption, in LaTeX below the table. What a page of LaTeX has no room for:
    columns of `fold` are left out and told below where all rows agree, those of `aside` are a table of their own, whose
    caption ends in `aside_title`.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | Span, ...], ...]
    notes: tuple[str, ...] = ()
    wide: tuple[int, ...] = ()
    group: int = 0
    details: str = ""
    fold: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    aside_title: str = ""


def displays_of(frame: pd.DataFrame) -> tuple[Display, ...]:
    """The displays a table's function left; without any, the table as it is."""
    if frame.attrs.get(DISPLAYS):
        return frame.attrs[DISPLAYS]
    rows = tuple(
        tuple(EMPTY if pd.isna(v) or v == "" else str(v) for v in row) for row in frame.itertuples(index=False)
    )
    return (Display("", tuple(map(str, frame.columns)), rows),)


def to_markdown(frame: pd.DataFrame) -> str:
    """GitHub-flavoured Markdown: caption, table and notes of every display."""
    return "\n".join(_markdown(display) for display in displays_of(frame))


def format_number(value: float | None, significant: int = 4, like: float | None = None) -> str:
    """A rounded number for readers (thousands separated by commas); EMPTY where there is none.

    `like` is the number whose decimals it gets, in place of its own.
    """
    if value is None or pd.isna(value):
        return EMPTY
    return _fixed(value, _decimals(value if like is None else like, significant))


def format_spread(spread: Spread, significant: int = 4) -> str:
    """`mean ± deviation`; the mean alone where the deviation is unknown.

    Both have the mean's decimals, or those of the deviation where the mean is the smaller, as a difference may be.
    """
    if pd.isna(spread.mean):
        return EMPTY
    if pd.isna(spread.deviation):
        return format_number(spread.mean, significant)
    decimals = _decimals(max(abs(spread.mean), spread.deviation), significant)
    return f"{_fixed(spread.mean, decimals)} ± {_fixed(spread.deviation, decimals)}"


def format_range(low: float, high: float) -> str:
    """`49.4–54.78` as it was published, or one number where both ends are the same; EMPTY where there is none."""
    return _joined_ends([f"{value:.15g}".replace("-", "−") for value in (low, high)])


def format_ratios(low: float, high: float, significant: int = 4) -> str:
    """`1.000–1.109`: both ends with the decimals of the smaller, one number where they are the same."""
    decimals = _decimals(min(abs(low), abs(high)), significant) if not pd.isna(low) else 0
    return _joined_ends([_fixed(value, decimals) for value in (low, high)])


def _joined_ends(ends: Sequence[str]) -> str:
    if ends[0] == "nan":
        return EMPTY
    if ends[0] == ends[1]:
        return ends[0]
    # A dash before a minus would be read as part of it.
    return (" to " if ends[1].startswith("−") else EMPTY).join(ends)


def _decimals(value: float, significant: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(significant - 1 - math.floor(math.log10(abs(value))), 0), 9)


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace("-", "−")


def _markdown(display: Display) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(one_line(cell).replace("|", "\\|").replace("<", "\\<") for cell in cells) + " |"

    caption = f"{display.caption}. {display.details}" if display.details else display.caption
    lines = [caption, ""] if caption else []
    lines += [line(display.headings), line(["---"] * len(display.headings))]
    for row in _grouped_rows(display):
        cells: list[str] = []
        for cell in row:
            # Markdown has no cell over several columns: the text stands in the first of them.
            cells += [cell.text, *[EMPTY] * (cell.columns - 1)] if isinstance(cell, Span) else [cell]
        lines.append(line(cells))
    if display.notes:
        lines += ["", *[f"- {one_line(note)}".replace("<", "\\<") for note in display.notes]]
    return "\n".join([*lines, ""])


def one_line(text: str) -> str:
    """Return a text without line feeds: inside a cell or a note one would end the table or the list."""
    return " ".join(text.split())


def _grouped_rows(display: Display) -> list[tuple[str | Span, ...]]:
    """Rows in which the first `group` cells are empty where they repeat those of the row above."""
    rows = []
    above: tuple[str | Span, ...] | None = None
    for row in display.rows:
        head = row[: display.group]
        rows.append((("",) * display.group + row[display.group :]) if display.group and head == above else row)
        above = head
    return rows
