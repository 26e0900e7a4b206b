r"""Tables as LaTeX that fits the page of any class: `table*` floats of at most a page, each with the headings again.

`longtable` does not work in the two columns of IEEEtran and acmart, and the tools that do (xtab, supertabular) keep to
one of them. So the rows are dealt out here: columns have widths planned from what they hold, rows and notes heights,
and a table that needs more than a page goes on in further floats. Where the text of a class is narrower than the
columns need, all of it is scaled down; where it is wider, columns of running text take what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from reporting.latex_text import escape_latex
from reporting.latex_widths import glued, num_lines, widest_part_pt, width_pt
from reporting.rendering import EMPTY, Display, Span, displays_of, one_line

SIZE_PT, LINE_PT = 8.0, 9.6
NOTE_SIZE_PT, NOTE_LINE_PT = 7.0, 8.4
SEPARATION_PT = 3.0  # on each side of a column
# What is planned fits the text of article, 345 by 550 pt, where a broader table is scaled, and that of acmart's two
# columns, 506 by 626 pt, where it is not; IEEEtran's is larger. Heights leave a little for what is only estimated.
NARROW_TEXT_PT, NARROW_PAGE_PT, PAGE_PT = 345.0, 515.0, 590.0
PLANNED_WIDTH_PT = 430.0
CAPTION_SIZE_PT, CAPTION_LINE_PT = 11.0, 13.6  # at most: the class decides
# A column for running text takes its longest text in about so many lines, between two bounds.
MOST_LINES, NARROWEST_TEXT_PT, BROAD_TEXT_PT = 3, 60.0, 120.0
# How much of a cell, and of a note, is printed; the CSV has all of it.
CELL_CHARACTERS, NOTE_CHARACTERS = 1200, 2400

_HEAD = r"""% Needs \usepackage{array}, \usepackage{booktabs} and \usepackage{graphicx}; for one and two columns alike.
% Floats of a page at most; where the class's text is narrower than the columns, the table is scaled to fit it.
\ifdefined\evalwidth\else\newlength{\evalwidth}\newsavebox{\evalbox}\fi
% Many floats in a row make LaTeX give up after 100 attempts to place them.
\ifnum\maxdeadcycles<1000\relax\maxdeadcycles=1000\relax\fi
\providecommand{\evalfit}{%
  \ifdim\wd\evalbox>\textwidth\resizebox{\textwidth}{!}{\usebox{\evalbox}}\else\usebox{\evalbox}\fi}
"""
_NUMBER = re.compile(r"[−-]?[\d.,]+([ (].*)?")


@dataclass(frozen=True)
class _Block:
    """What stays together on a page, with its height; `group` is the line above it that says where it belongs."""

    text: str
    height_pt: float
    group: str = ""


@dataclass(frozen=True)
class _Columns:
    """Widths in points; those of running text are their shares of what the others leave of the table's width."""

    widths_pt: tuple[float, ...]
    is_text: tuple[bool, ...]
    is_number: tuple[bool, ...]

    @property
    def least_pt(self) -> float:
        """The width of the table where running text has no more than it needs."""
        return sum(self.widths_pt) + self.gaps_pt

    @property
    def gaps_pt(self) -> float:
        return 2 * SEPARATION_PT * (len(self.widths_pt) - 1)

    def width(self, first: int, count: int = 1) -> str:
        """Return the width of `count` columns from `first` on, with the gaps between them, as a LaTeX length."""
        chosen = range(first, first + count)
        fixed = sum(self.widths_pt[i] for i in chosen if not self.is_text[i]) + 2 * SEPARATION_PT * (count - 1)
        share = sum(self.widths_pt[i] for i in chosen if self.is_text[i])
        if not share:
            return f"{fixed:.1f}pt"
        text_pt = sum(w for w, is_text in zip(self.widths_pt, self.is_text, strict=True) if is_text)
        others_pt = self.least_pt - text_pt
        left = rf"(\evalwidth-{others_pt:.1f}pt)*{share * 10:.0f}/{text_pt * 10:.0f}"
        return rf"\dimexpr{left}+{fixed:.1f}pt\relax"


def to_latex(frame: pd.DataFrame, label: str) -> str:
    """Return a table's displays as LaTeX; their labels are tab:<label>, tab:<label>-2, ..."""
    displays = [part for display in displays_of(frame) for part in _printed(display)]
    names = (f"tab:{label}" if index == 0 else f"tab:{label}-{index + 1}" for index in range(len(displays)))
    return _HEAD + "\n".join(_floats(display, name) for display, name in zip(displays, names, strict=True))


def _printed(display: Display) -> Iterator[Display]:
    """Yield a display without what all rows agree on, which is told below, and its columns for a table of their own."""
    folded = [i for i in display.fold if _common(display, i)]
    told = "; ".join(f"{display.headings[i]}: {_common(display, i)}" for i in folded)
    notes = (*filter(None, (display.details, f"{told}, in all rows." if told else "")), *display.notes)
    kept = [i for i in range(len(display.headings)) if i not in (*folded, *display.aside)]
    yield _only(replace(display, details="", notes=notes), kept)
    if display.aside:
        rows = tuple(row for row in display.rows if not any(isinstance(cell, Span) for cell in row))
        if rows:
            caption = f"{display.caption}: {display.aside_title}"
            head = range(display.group + 1)
            yield _only(replace(display, caption=caption, rows=rows, details="", notes=()), [*head, *display.aside])


def _common(display: Display, column: int) -> str:
    """Return what a column says in every row that has something there, empty where rows differ."""
    values = {row[column] for row in display.rows if len(row) == len(display.headings)} - {EMPTY, ""}
    (value,) = values if len(values) == 1 else ("",)
    return value if isinstance(value, str) else ""


def _only(display: Display, kept: Sequence[int]) -> Display:
    def row_of(row: Sequence[str | Span]) -> tuple[str | Span, ...]:
        cells: list[str | Span] = []
        column = 0
        for cell in row:
            count = cell.columns if isinstance(cell, Span) else 1
            left = sum(i in kept for i in range(column, column + count))
            if left:
                cells.append(Span(cell.text, left) if isinstance(cell, Span) else cell)
            column += count
        return tuple(cells)

    return replace(
        display,
        headings=tuple(display.headings[i] for i in kept),
        rows=tuple(map(row_of, display.rows)),
        wide=tuple(new for new, old in enumerate(kept) if old in display.wide),
        fold=(),
        aside=(),
    )


def _floats(display: Display, label: str) -> str:
    columns = _columns(display)
    heading = _heading(display, columns)
    pages = _pages(display, columns, heading)
    return "\n".join(
        _float(display, label, columns, heading, page, (number, len(pages)))
        for number, page in enumerate(pages, start=1)
    )


def _columns(display: Display) -> _Columns:
    headings = display.headings[display.group :]
    is_text = tuple(column + display.group in display.wide for column in range(len(headings)))
    widths, natural, numbers = [], [], []
    for column, heading in enumerate(headings):
        cells = [text for row in display.rows if (text := _cell_text(row, column + display.group)) is not None]
        numbers.append(column > 0 and all(_NUMBER.fullmatch(text) for text in cells if text not in ("", EMPTY)))
        words = max(width_pt(word, SIZE_PT) for word in heading.split())
        parts = max((widest_part_pt(text, SIZE_PT) for text in cells), default=0.0)
        lengths = sorted(width_pt(text, SIZE_PT) for text in cells) or [0.0]
        least = min(max(lengths[-1] / MOST_LINES, NARROWEST_TEXT_PT), BROAD_TEXT_PT) if is_text[column] else 0.0
        widths.append(max(parts, words, least))
        # What is left over goes by what three in four cells have room in.
        natural.append(max(lengths[len(lengths) * 3 // 4], widths[-1]))
    spare_pt = PLANNED_WIDTH_PT - sum(widths) - 2 * SEPARATION_PT * (len(widths) - 1)
    wanted_pt = sum(n - w for n, w, text in zip(natural, widths, is_text, strict=True) if text)
    if spare_pt > 0 and wanted_pt > 0:
        share = min(1.0, spare_pt / wanted_pt)
        widths = [w + share * (n - w) if text else w for n, w, text in zip(natural, widths, is_text, strict=True)]
    return _Columns(tuple(widths), is_text, tuple(numbers))


def _cell_text(row: Sequence[str | Span], column: int) -> str | None:
    """Return a cell's text, None where a cell over several columns takes its place."""
    cell = row[column] if column < len(row) else None
    return cell if isinstance(cell, str) else None


def _heading(display: Display, columns: _Columns) -> _Block:
    headings = display.headings[display.group :]
    cells = [
        rf"\parbox[b]{{\hsize}}{{{_side(columns, column)}\strut {escape_latex(heading)}\strut}}"
        for column, heading in enumerate(headings)
    ]
    lines = max(num_lines(h, w, SIZE_PT) for h, w in zip(headings, columns.widths_pt, strict=True))
    return _Block(" & ".join(cells) + r" \\", lines * LINE_PT + 8)


@dataclass
class _Page:
    """A float: its rows and notes with their heights, and what its caption takes; `scale` is what rows are scaled by in
    the narrowest text."""

    scale: float
    caption_pt: float
    rows: list[_Block] = field(default_factory=list)
    notes: list[_Block] = field(default_factory=list)
    rows_pt: float = 0.0
    notes_pt: float = 0.0

    def has_room(self, rows_pt: float, notes_pt: float = 0.0) -> bool:
        rows_pt, others_pt = self.rows_pt + rows_pt, self.notes_pt + notes_pt + self.caption_pt
        return rows_pt + others_pt <= PAGE_PT and self.scale * rows_pt + others_pt <= NARROW_PAGE_PT


def _pages(display: Display, columns: _Columns, heading: _Block) -> list[_Page]:
    """Deal rows and notes out to pages."""
    caption_pt = CAPTION_LINE_PT * (num_lines(display.caption, NARROW_TEXT_PT, CAPTION_SIZE_PT) + 1) + 15
    scale = min(1.0, NARROW_TEXT_PT / columns.least_pt)
    pages, group = [_Page(scale, caption_pt)], ""
    for block in _row_blocks(display, columns):
        needed = block.height_pt + (_group_pt(block.group) if block.group != group else 0)
        if pages[-1].rows and not pages[-1].has_room(needed):
            pages.append(_Page(scale, CAPTION_LINE_PT))
        page = pages[-1]
        if not page.rows:
            page.rows_pt, needed = heading.height_pt, block.height_pt + _group_pt(block.group)
        page.rows.append(block)
        page.rows_pt, group = page.rows_pt + needed, block.group
    for block in _note_blocks(display.notes):
        if (pages[-1].rows or pages[-1].notes) and not pages[-1].has_room(0, block.height_pt):
            pages.append(_Page(scale, CAPTION_LINE_PT))
        pages[-1].notes.append(block)
        pages[-1].notes_pt += block.height_pt
    return pages


def _group_pt(group: str) -> float:
    return LINE_PT + 5 if group else 0


def _row_blocks(display: Display, columns: _Columns) -> Iterator[_Block]:
    for row in display.rows:
        heads = zip(display.headings[: display.group], row[: display.group], strict=True)
        group = ", ".join(f"{heading}: {one_line(str(cell))}" for heading, cell in heads)
        cells, lines, column = [], 1, 0
        for cell in row[display.group :]:
            count = cell.columns if isinstance(cell, Span) else 1
            text = _shortened(cell.text if isinstance(cell, Span) else cell, CELL_CHARACTERS)
            least = sum(columns.widths_pt[column : column + count]) + 2 * SEPARATION_PT * (count - 1)
            lines = max(lines, num_lines(text, least, SIZE_PT))
            printed = _latex(glued(text))
            if isinstance(cell, Span):
                printed = _spanning(columns, column, count, printed)
            cells.append(printed)
            column += count
        yield _Block(" & ".join(cells) + r" \\", lines * LINE_PT, group)


def _spanning(columns: _Columns, first: int, count: int, latex: str) -> str:
    edge = "@{}" if first == 0 else ""
    return rf"\multicolumn{{{count}}}{{{edge}p{{{columns.width(first, count)}}}@{{}}}}{{\raggedright {latex}}}"


def _note_blocks(notes: Sequence[str]) -> Iterator[_Block]:
    for note in notes:
        text = _shortened(note, NOTE_CHARACTERS)
        lines = num_lines(text, 0.97 * NARROW_TEXT_PT, NOTE_SIZE_PT)
        yield _Block(_latex(text) + r"\par", lines * NOTE_LINE_PT + 1)


def _latex(text: str) -> str:
    """Escape a text that may follow the end of a row, where LaTeX takes a bracket or a star for an argument."""
    escaped = escape_latex(text)
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def _shortened(text: str, characters: int) -> str:
    line = one_line(text)
    return line if len(line) <= characters else line[: characters - 1].rstrip() + "…"


def _side(columns: _Columns, column: int) -> str:
    return r"\raggedleft" if columns.is_number[column] else r"\raggedright"


def _float(
    display: Display, label: str, columns: _Columns, heading: _Block, page: _Page, place: tuple[int, int]
) -> str:
    number, num_pages = place
    rows, notes = page.rows, page.notes
    lines = [r"\begin{table*}[!tp]", r"\centering"]
    if number == 1:
        lines += [rf"\caption{{{escape_latex(one_line(display.caption))}}}", rf"\label{{{label}}}"]
    else:
        lines += [rf"Table~\ref{{{label}}}, continued ({number} of {num_pages})\par\smallskip"]
    if rows:
        lines += _tabular(columns, heading, rows, continues=number > 1)
    if notes:
        lines += [
            r"\par\vspace{3pt}",
            rf"\begin{{minipage}}{{\textwidth}}\linespread{{1}}\fontsize{{{NOTE_SIZE_PT:g}}}{{{NOTE_LINE_PT:g}}}"
            r"\selectfont\raggedright\parindent=0pt",
            *(note.text for note in notes),
            r"\end{minipage}",
        ]
    return "\n".join([*lines, r"\end{table*}", ""])


def _tabular(columns: _Columns, heading: _Block, rows: Sequence[_Block], continues: bool) -> list[str]:
    least = f"{columns.least_pt:.1f}pt"
    # Without running text a table is as wide as its columns; with it, as wide as the text of the page.
    width = r"\setlength{\evalwidth}{\textwidth}" if any(columns.is_text) else rf"\setlength{{\evalwidth}}{{{least}}}"
    specification = "".join(
        rf">{{{_side(columns, column)}\arraybackslash}}p{{{columns.width(column)}}}"
        for column in range(len(columns.widths_pt))
    )
    body, group = [], ""
    for index, row in enumerate(rows):
        if row.group != group:
            again = " (continued)" if index == 0 and continues else ""
            text = _spanning(columns, 0, len(columns.widths_pt), rf"\itshape {_latex(row.group + again)}")
            body += [r"\midrule", rf"{text} \\"]
        elif index == 0:
            body.append(r"\midrule")
        body.append(row.text)
        group = row.group
    return [
        rf"\linespread{{1}}\fontsize{{{SIZE_PT:g}}}{{{LINE_PT:g}}}\selectfont"
        rf"\setlength{{\tabcolsep}}{{{SEPARATION_PT:g}pt}}\renewcommand{{\arraystretch}}{{1}}%",
        width,
        rf"\ifdim\evalwidth<{least}\setlength{{\evalwidth}}{{{least}}}\fi",
        r"\sbox{\evalbox}{%",
        rf"\begin{{tabular}}{{@{{}}{specification}@{{}}}}",
        r"\toprule",
        heading.text,
        *body,
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\evalfit",
    ]
