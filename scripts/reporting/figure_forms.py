"""In which forms every figure is written: one to be read by itself, and one for a column of a paper.

Nothing here needs matplotlib, which takes a second to import: the workflow asks for the names of the files alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """A form of a figure: file name <figure><suffix>.<format>, width, letters.

    `has_words`: with a title above and a caption below, which say what was measured and how. A paper has its own.
    `side_by_side`: how many panels that belong together stand beside each other.
    """

    suffix: str
    formats: tuple[str, ...]
    width_in: float
    axes_height_in: float
    text_pt: float
    label_pt: float
    has_words: bool
    side_by_side: int


# 6.3 in is the text width of an A4 or letter page.
FULL = Form("", ("svg", "pdf", "png"), 6.3, 1.9, 8.0, 8.5, has_words=True, side_by_side=2)
# acmart's sigconf has columns of 3.33 in, IEEEtran's are 3.5 in: what fits the one fits the other, at the size drawn.
COLUMN = Form("_column", ("pdf",), 3.33, 1.45, 7.0, 7.5, has_words=False, side_by_side=1)
FORMS = (FULL, COLUMN)
# Below this, letters are refused by venues that check them. No text of a figure is smaller, in either form.
SMALLEST_PT = 7.0


def file_endings() -> tuple[str, ...]:
    """Return what follows a figure's name in the names of its files: `.svg`, `_column.pdf`, ..."""
    return tuple(f"{form.suffix}.{suffix}" for form in FORMS for suffix in form.formats)
