"""The texts in parquet and arrow files, row by row; every complaint names the file, and the row where there is one."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.sources import file_kind

if TYPE_CHECKING:
    import pyarrow

TEXT_COLUMN = "text"
ROWS_AT_ONCE = 1000


def read_table_file(path: Path) -> Iterator[list[str]]:
    """Yield the texts of a table's rows, in order, up to a thousand at a time.

    Raises ValueError where the file is no whole table of strings in UTF-8 with a column `text`, OSError where it cannot
    be read.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError(f"reading {path} needs the package pyarrow: install what envs/workflow.txt lists") from error
    try:
        batches = _parquet_batches(path) if file_kind(path) == ".parquet" else _arrow_batches(path)
        num_rows = 0
        for batch in batches:
            for texts in texts_of(batch, f"the corpus' file {path}", num_rows):
                num_rows += len(texts)
                yield texts
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter for names of columns
        raise ValueError(
            f"the corpus' file {path} is not a valid {path.suffix[1:]} file, or its end is missing: {error}"
        ) from error


def texts_of(table: "pyarrow.RecordBatch | pyarrow.Table", where: str, first_row: int) -> Iterator[list[str]]:
    """Yield the texts of a table, up to a thousand at a time.

    where: the table's name in messages. first_row: the number of its first row there; rows are counted from 0. Raises
    ValueError where they are no strings, null, or not UTF-8.
    """
    import pyarrow

    column = table[TEXT_COLUMN]
    bytes_of = {
        pyarrow.string(): pyarrow.binary(),
        pyarrow.large_string(): pyarrow.large_binary(),
        pyarrow.string_view(): pyarrow.binary_view(),
    }
    if column.type not in bytes_of:
        raise ValueError(f"{where} has a column {TEXT_COLUMN!r} of type {column.type}: it must hold strings")
    # Arrow believes what a file says of its own lengths, and a damaged one ends the process. As bytes, so that what is
    # not UTF-8 comes later, with its row.
    for chunk in column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]:
        chunk.view(bytes_of[column.type]).validate(full=True)
    if column.null_count:
        nulls = [first_row + row for row, value in enumerate(column.is_null().to_pylist()) if value]
        raise ValueError(
            f"{where} has rows without text (null), the first of them row {nulls[0]}, counted from 0: remove them or "
            "make them empty strings"
        )
    for start in range(0, len(column), ROWS_AT_ONCE):
        rows = column.slice(start, ROWS_AT_ONCE)
        try:
            yield rows.to_pylist()
        except UnicodeDecodeError:
            raise ValueError(_bad_row(rows, where, first_row + start)) from None


def check_column(names: list[str], where: str) -> None:
    """Raise ValueError where a table has no column `text`."""
    if TEXT_COLUMN not in names:
        raise ValueError(
            f"{where} has no column {TEXT_COLUMN!r}: its columns are {', '.join(names) or '(none)'}; rename the one "
            f"that holds the text to {TEXT_COLUMN!r}"
        )


def _bad_row(rows: "pyarrow.Array | pyarrow.ChunkedArray", where: str, first_row: int) -> str:
    for row, value in enumerate(rows):
        try:
            value.as_py()
        except UnicodeDecodeError as error:
            return (
                f"{where} is not UTF-8 in row {first_row + row}, counted from 0, at byte {error.start} of its text "
                f"({error.reason}): convert the text to UTF-8"
            )
    raise AssertionError("a row of these could not be decoded a moment ago")


def _parquet_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        check_column(file.schema_arrow.names, str(path))
        yield from file.iter_batches(batch_size=ROWS_AT_ONCE, columns=[TEXT_COLUMN], use_threads=False)


def _arrow_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow

    # Arrow has two formats under one suffix: the stream, which `datasets` writes, and the file with an index.
    with pyarrow.memory_map(str(path)) as source:
        try:
            stream = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            file = pyarrow.ipc.open_file(source)
            check_column(file.schema.names, str(path))
            yield from (file.get_batch(index) for index in range(file.num_record_batches))
        else:
            check_column(stream.schema.names, str(path))
            yield from _whole_stream(stream, source, path)


def _whole_stream(
    stream: "pyarrow.RecordBatchStreamReader", source: "pyarrow.MemoryMappedFile", path: Path
) -> Iterator["pyarrow.RecordBatch"]:
    """Yield a stream's batches, and raise ValueError unless its writer ended it.

    Arrow's reader takes the end of the file for the end of the stream. A writer that is closed, as that of `datasets`
    is, writes a mark behind the last batch, and reading it moves the position on; a writer that was killed leaves none.
    """
    position = source.tell()
    for batch in stream:
        yield batch
        position = source.tell()
    if source.tell() == position:
        raise ValueError(
            f"the corpus' file {path} is an arrow stream without its end: whoever wrote it was stopped before it was "
            "complete; write the file again"
        )
    if source.tell() < source.size():
        raise ValueError(
            f"the corpus' file {path} has {source.size() - source.tell()} bytes after the end of its arrow stream, "
            "which would not be read: write one stream into one file"
        )
