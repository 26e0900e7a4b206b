"""The text of a corpus: a stream of it from text files, parquet, arrow or the Hugging Face hub, and its size."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.sources import (
    BUNDLED,
    HUB_CORPORA,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    Corpus,
    HubCorpus,
    check_split,
    file_kind,
)
from corpus.tables import ROWS_AT_ONCE, check_column, read_table_file, texts_of

_READ_BYTES = 1024 * 1024
_OFFSET_BYTES_PER_ROW = 4


def read_text(corpus: Corpus, split: str) -> Iterator[str]:
    """Return a stream of the split's text, in order, in pieces of about a megabyte or less.

    Joined, the pieces are the rows or files as they are: nothing is added between them, no line end is translated, no
    byte order mark dropped. Memory holds one piece at a time.

    Raises ValueError at once for a split the corpus has not, and while reading for text that is not UTF-8 (file and
    byte), a table without the column `text`, a hub that cannot be reached, or a corpus of the hub that is not what it
    was (rows and bytes are counted).
    """
    check_split(corpus, split)
    if not corpus.files:
        return _read_hub(HUB_CORPORA[corpus.name], split)
    return _read_files(corpus.files[split])


def text_size_bytes(corpus: Corpus, split: str) -> int | None:
    """Return the size of the split's text in UTF-8 where it is known without reading it, else None."""
    check_split(corpus, split)
    if not corpus.files:
        num_rows, num_bytes = HUB_CORPORA[corpus.name].counts[split]
        return num_bytes - _OFFSET_BYTES_PER_ROW * num_rows
    paths = corpus.files[split]
    if file_kind(paths[0]) in TABLE_SUFFIXES:
        return None
    return sum(path.stat().st_size for path in paths)


def _read_files(paths: tuple[Path, ...]) -> Iterator[str]:
    for path in paths:
        try:
            yield from _read_text_file(path) if file_kind(path) in TEXT_SUFFIXES else _read_table_rows(path)
        except OSError as error:
            raise ValueError(f"the corpus' file {path} cannot be read: {error}") from error


def _read_text_file(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="strict")
    read_bytes = 0
    with path.open("rb") as file:  # bytes, so that no line end is translated
        while True:
            block = file.read(_READ_BYTES)
            pending_bytes = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"the corpus' file {path} is not UTF-8 at byte {read_bytes - pending_bytes + error.start} "
                    f"({error.reason}): {_remedy(path)}"
                ) from error
            read_bytes += len(block)
            if text:
                yield text
            if not block:
                return


def _remedy(path: Path) -> str:
    """Return what to do with a file that is no UTF-8, by what it begins with."""
    with path.open("rb") as file:
        start = file.read(8)
    kinds = {b"PAR1": "a parquet file", b"ARROW1": "an arrow file", b"\xff\xff\xff\xff": "an arrow stream"}
    packed = {b"\x1f\x8b": "gzip", b"PK": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
    for magic, kind in kinds.items():
        if start.startswith(magic):
            return f"it is {kind}, so give it that suffix ({' or '.join(TABLE_SUFFIXES)})"
    for magic, kind in packed.items():
        if start.startswith(magic):
            return f"it is packed with {kind}, so unpack it"
    return "convert the file to UTF-8"


def _read_table_rows(path: Path) -> Iterator[str]:
    for texts in read_table_file(path):
        yield "".join(texts)


def _read_hub(hub: HubCorpus, split: str) -> Iterator[str]:
    num_rows = text_bytes = 0
    for texts in hub_texts(hub, split):
        num_rows += len(texts)
        piece = "".join(texts)
        text_bytes += len(piece.encode())
        yield piece
    found = (num_rows, text_bytes + _OFFSET_BYTES_PER_ROW * num_rows)
    if found != hub.counts[split]:
        raise ValueError(
            f"{hub.path} ({hub.config}, revision {hub.revision}), split {split}, has {found[0]} rows and {found[1]} "
            f"bytes, but must have {hub.counts[split][0]} and {hub.counts[split][1]}: the local copy is damaged or "
            "another; remove it from the Hugging Face cache and run again"
        )


def hub_texts(hub: HubCorpus, split: str) -> Iterator[list[str]]:
    """Yield the texts of a split of the hub, row by row, up to a thousand at a time."""
    num_rows = 0
    for table in _load_hub(hub, split).with_format("arrow").iter(batch_size=ROWS_AT_ONCE):
        for texts in texts_of(table, f"{hub.path}, split {split},", num_rows):
            num_rows += len(texts)
            yield texts


def _load_hub(hub: HubCorpus, split: str) -> Any:
    """Return the split as a memory-mapped `datasets.Dataset`, from the cache of this machine where it is there."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"{hub.path} needs the package datasets: install what envs/workflow.txt lists") from error
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        dataset = datasets.load_dataset(hub.path, hub.config, revision=hub.revision, split=split)
    # What a missing network raises differs from version to version of the libraries below, and none of their
    # exceptions can be helped here in another way than the message says.
    except Exception as error:
        raise ValueError(
            f"{hub.path} ({hub.config}) could not be loaded from the Hugging Face hub, nor from this machine's cache "
            f"of it ({type(error).__name__}: {error}). Where the hub can be reached, run again. {_copy_instead(hub)}"
        ) from error
    check_column(dataset.column_names, hub.path)
    return dataset


def _copy_instead(hub: HubCorpus) -> str:
    names = ", ".join(name for split in hub.counts for name in hub.files[split])
    return (
        f"Where it cannot, copy the parquet files of {hub.config} ({names}) from a machine that has them into one "
        "folder, and write in the study\n\n"
        "    corpus:\n"
        "      path: /path/to/that/folder\n"
        f"      name: {hub.config}\n\n"
        "Text and tokens are then the same as the hub's, but a local folder is another corpus to this project: its "
        "cells have other ids, and records of the one do not count for the other. Text of your own is given likewise; "
        f"`corpus: {BUNDLED}` needs no network"
    )
