"""The text of a corpus: a stream of it from text files, parquet, arrow or the Hugging Face hub, and its size."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.sources import (
    BUNDLED,
    HUB_CORPORA,
    LOCAL_EXAMPLE,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    Corpus,
    HubCorpus,
    check_split,
    file_kind,
)

if TYPE_CHECKING:
    import pyarrow

TEXT_COLUMN = "text"

_READ_BYTES = 1024 * 1024
_ROWS_PER_PIECE = 1000
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
            yield from _read_text_file(path) if file_kind(path) in TEXT_SUFFIXES else _read_table_file(path)
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
                    f"({error.reason}): convert the file to UTF-8"
                ) from error
            read_bytes += len(block)
            if text:
                yield text
            if not block:
                return


def _read_table_file(path: Path) -> Iterator[str]:
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError(f"reading {path} needs the package pyarrow: install what envs/workflow.txt lists") from error
    try:
        batches = _parquet_batches(path) if file_kind(path) == ".parquet" else _arrow_batches(path)
        for batch in batches:
            yield from (piece for piece, _ in _texts_of(batch, str(path)))
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"the corpus' file {path} is not a valid {path.suffix[1:]} file: {error}") from error


def _parquet_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        _check_column(file.schema_arrow.names, str(path))
        yield from file.iter_batches(batch_size=_ROWS_PER_PIECE, columns=[TEXT_COLUMN], use_threads=False)


def _arrow_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow

    # Arrow has two formats under one suffix: the stream, which `datasets` writes, and the file with an index.
    with pyarrow.memory_map(str(path)) as source:
        try:
            reader = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = pyarrow.ipc.open_file(source)
        _check_column(reader.schema.names, str(path))
        if hasattr(reader, "num_record_batches"):
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            yield from reader


def _check_column(names: list[str], where: str) -> None:
    if TEXT_COLUMN not in names:
        raise ValueError(
            f"{where} has no column {TEXT_COLUMN!r}: its columns are {', '.join(names) or '(none)'}; rename the one "
            f"that holds the text to {TEXT_COLUMN!r}"
        )


def _texts_of(table: "pyarrow.RecordBatch | pyarrow.Table", where: str) -> Iterator[tuple[str, int]]:
    """Yield (text, rows) for up to a thousand rows at a time, joined as they are."""
    import pyarrow

    column = table[TEXT_COLUMN]
    is_text = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_string_view)
    if not any(check(column.type) for check in is_text):
        raise ValueError(f"{where} has a column {TEXT_COLUMN!r} of type {column.type}: it must hold strings")
    if column.null_count:
        raise ValueError(f"{where} has rows without text (null): remove them or make them empty strings")
    for start in range(0, len(column), _ROWS_PER_PIECE):
        rows = column.slice(start, _ROWS_PER_PIECE).to_pylist()
        yield "".join(rows), len(rows)


def _read_hub(hub: HubCorpus, split: str) -> Iterator[str]:
    dataset = _load_hub(hub, split)
    num_rows = text_bytes = 0
    for table in dataset.with_format("arrow").iter(batch_size=_ROWS_PER_PIECE):
        for piece, rows in _texts_of(table, f"{hub.path}, split {split}"):
            num_rows += rows
            text_bytes += len(piece.encode())
            yield piece
    found = (num_rows, text_bytes + _OFFSET_BYTES_PER_ROW * num_rows)
    if found != hub.counts[split]:
        raise ValueError(
            f"{hub.path} ({hub.config}, revision {hub.revision}), split {split}, has {found[0]} rows and {found[1]} "
            f"bytes, but must have {hub.counts[split][0]} and {hub.counts[split][1]}: the local copy is damaged or "
            "another; remove it from the Hugging Face cache and run again"
        )


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
            f"of it ({type(error).__name__}: {error}). Where the hub cannot be reached, give the text as a local "
            f"folder, {LOCAL_EXAMPLE}, or use the corpus {BUNDLED!r}; where it can, run again"
        ) from error
    _check_column(dataset.column_names, hub.path)
    return dataset
