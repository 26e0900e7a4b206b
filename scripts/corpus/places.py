"""Where in a corpus a byte of its text lies, in words for people: file, line or row."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from corpus.reading import hub_texts
from corpus.sources import HUB_CORPORA, TEXT_SUFFIXES, Corpus, file_kind
from corpus.tables import read_table_file

_READ_BYTES = 1024 * 1024


def place_of_byte(corpus: Corpus, split: str, byte: int) -> str:
    """Return the file, and the line or row in it, that holds the given byte of a split's text in UTF-8.

    Lines are counted from 1, rows and bytes from 0. The text up to that byte is read again. Raises what reading raises.
    """
    if not corpus.files:
        hub = HUB_CORPORA[corpus.name]
        return _row(f"{hub.path}, split {split}", hub_texts(hub, split), byte)[0] or f"{hub.path}, split {split}"
    for path in corpus.files[split]:
        if file_kind(path) in TEXT_SUFFIXES:
            size_bytes = path.stat().st_size
            if byte < size_bytes:
                return f"the corpus' file {path}, line {_line(path, byte)}, byte {byte} of the file"
            byte -= size_bytes
        else:
            words, byte = _row(f"the corpus' file {path}", read_table_file(path), byte)
            if words:
                return words
    return f"the corpus {corpus.name!r}, split {split}"


def _line(path: Path, byte: int) -> int:
    lines = 1
    with path.open("rb") as file:
        while byte > 0 and (block := file.read(min(byte, _READ_BYTES))):
            lines += block.count(b"\n")
            byte -= len(block)
    return lines


def _row(where: str, texts: Iterable[list[str]], byte: int) -> tuple[str | None, int]:
    """Return the words for the row that holds a byte; where it lies behind all rows, None and what is left of it."""
    rows: Iterator[str] = itertools.chain.from_iterable(texts)
    for row, text in enumerate(rows):
        num_bytes = len(text.encode())
        if byte < num_bytes:
            return f"{where}, row {row}, byte {byte} of its text (counted from 0)", 0
        byte -= num_bytes
    return None, byte
