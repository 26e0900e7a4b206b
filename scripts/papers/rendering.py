"""Tables as Markdown and LaTeX, from what a table's function leaves in `DataFrame.attrs["displays"]`.

The DataFrame itself is the CSV: tidy, one number a field, units in the names. A display is the same for readers:
rounded, mean ± spread in one cell, the reason in the place of a missing number, notes below.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from papers.spreads import Spread

DISPLAYS = "displays"
EMPTY = "–"

# Broad tables are scaled to the text where the document has graphicx; without it they compile as they are.
_LATEX_HEADER = (
    "% needs \\usepackage{booktabs}; with \\usepackage{graphicx} broad tables fit the page\n"
    "\\providecommand{\\resizebox}[3]{#3}\n"
)
NARROW_COLUMNS = 7

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "–": "--", "−": r"$-$", "…": r"\ldots{}", "\n": " ",
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """A cell that takes the place of `columns` cells; the cells after it are left out of the row."""

    text: str
    columns: int


@dataclass(frozen=True)
class Display:
    """One printed table: `wide` are the indices of columns of running text, `group` how many first columns mark groups.

    A row that repeats the first `group` cells of the row above shows them empty, and a rule stands between groups.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | Span, ...], ...]
    notes: tuple[str, ...] = ()
    wide: tuple[int, ...] = ()
    group: int = 0


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


def to_latex(frame: pd.DataFrame, label: str) -> str:
    """LaTeX `table*` environments that need booktabs; their labels are tab:<label>, tab:<label>-2, ..."""
    parts = [
        _latex(display, f"tab:{label}" if index == 0 else f"tab:{label}-{index + 1}")
        for index, display in enumerate(displays_of(frame))
    ]
    return _LATEX_HEADER + "\n".join(parts)


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands here."""
    return "".join(_LATEX.get(character, character) for character in text)


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
    """`49.4–54.78`, or one number where both ends are the same; EMPTY where there is none."""
    if pd.isna(low):
        return EMPTY
    ends = [f"{value:.4g}".replace("-", "−") for value in (low, high)]
    return ends[0] if low == high else EMPTY.join(ends)


def _decimals(value: float, significant: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(significant - 1 - math.floor(math.log10(abs(value))), 0), 9)


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace("-", "−")


def _markdown(display: Display) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_one_line(cell).replace("|", "\\|").replace("<", "\\<") for cell in cells) + " |"

    lines = [display.caption, ""] if display.caption else []
    lines += [line(display.headings), line(["---"] * len(display.headings))]
    for row in _grouped_rows(display):
        cells: list[str] = []
        for cell in row:
            # Markdown has no cell over several columns: the text stands in the first of them.
            cells += [cell.text, *[EMPTY] * (cell.columns - 1)] if isinstance(cell, Span) else [cell]
        lines.append(line(cells))
    if display.notes:
        lines += ["", *[f"- {_one_line(note)}".replace("<", "\\<") for note in display.notes]]
    return "\n".join([*lines, ""])


def _one_line(text: str) -> str:
    """A line feed inside a cell or a note would end the table or the list."""
    return " ".join(text.split())


def _latex(display: Display, label: str) -> str:
    num_columns = len(display.headings)
    # What the columns of figures leave of the line, shared by the columns of text.
    width = 0.36 / len(display.wide) if display.wide else 0
    columns = "".join(
        rf"p{{{width:.2f}\linewidth}}" if i in display.wide else "l" if i < 3 else "r" for i in range(num_columns)
    )
    body = []
    for index, row in enumerate(_grouped_rows(display)):
        if index == 0 or (display.group and row[0] != ""):
            body.append(r"\midrule")
        body.append(" & ".join(_latex_cell(cell) for cell in row) + r" \\")
    is_broad = num_columns > NARROW_COLUMNS
    lines = [
        r"\begin{table*}",
        r"\centering\scriptsize",
        rf"\caption{{{escape_latex(display.caption)}}}",
        rf"\label{{{label}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if is_broad else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(_latex_heading(heading) for heading in display.headings) + r" \\",
        *body,
        r"\bottomrule",
        r"\end{tabular}" + ("}" if is_broad else ""),
        *[rf"\par\raggedright {escape_latex(_one_line(note))}" for note in display.notes],
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: str | Span) -> str:
    if isinstance(cell, Span):
        return rf"\multicolumn{{{cell.columns}}}{{p{{0.36\linewidth}}}}{{{escape_latex(_one_line(cell.text))}}}"
    return escape_latex(_one_line(cell))


def _latex_heading(heading: str) -> str:
    """Long headings on several lines, so that they do not make a column of short numbers wide."""
    lines = textwrap.wrap(heading, 12)
    stacked = r" \\ ".join(map(escape_latex, lines))
    return stacked if len(lines) < 2 else rf"\shortstack{{{stacked}}}"


def _grouped_rows(display: Display) -> list[tuple[str | Span, ...]]:
    """Rows in which the first `group` cells are empty where they repeat those of the row above."""
    rows = []
    above: tuple[str | Span, ...] | None = None
    for row in display.rows:
        head = row[: display.group]
        rows.append((("",) * display.group + row[display.group :]) if display.group and head == above else row)
        above = head
    return rows
