"""Damaged tables: whatever is cut off or changed, a text is whole or refused, with the file and the row named."""

import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from corpus.reading import read_text
from corpus.sources import resolve_corpus

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["", "first row \n", "é 漢字\n", *[f"row {index} \n" for index in range(60)]]


def table(rows: list = ROWS) -> pyarrow.Table:
    # The second column ends in what is also the mark of a stream's end: FFFFFFFF 00000000.
    return pyarrow.table({"text": rows, "label": pyarrow.array([-1] * len(rows), pyarrow.int32())})


def write_stream(path: Path, content: pyarrow.Table, **options) -> Path:
    with pyarrow.ipc.new_stream(str(path), content.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(content, max_chunksize=21)
    return path


def write_file(path: Path, content: pyarrow.Table) -> Path:
    with pyarrow.ipc.new_file(str(path), content.schema) as writer:
        writer.write_table(content, max_chunksize=21)
    return path


def write_parquet(path: Path, content: pyarrow.Table, **options) -> Path:
    pyarrow.parquet.write_table(content, path, row_group_size=21, **options)
    return path


WRITERS = {"stream.arrow": write_stream, "file.arrow": write_file, "a.parquet": write_parquet}


def read(path: Path) -> str:
    return "".join(read_text(resolve_corpus({"path": str(path)}, ROOT), "train"))


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_whose_end_is_missing_is_refused_wherever_it_was_cut(tmp_path, name):
    path = WRITERS[name](tmp_path / name, table())
    content = path.read_bytes()
    assert read(path) == "".join(ROWS)
    for length in sorted({*range(0, len(content), 29), *range(len(content) - 40, len(content))}):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            read(path)


def test_a_stream_whose_writer_was_killed_is_refused(tmp_path):
    path = tmp_path / "train.arrow"
    with path.open("wb") as file:
        writer = pyarrow.ipc.new_stream(file, table().schema)
        for _ in range(3):
            writer.write_table(table())
            file.flush()
            with pytest.raises(ValueError, match=r"train\.arrow is an arrow stream without its end: .* again"):
                read(path)
        writer.close()
    assert read(path) == "".join(ROWS) * 3


@pytest.mark.parametrize("options", [{"use_legacy_format": True}, {"compression": "zstd"}, {"compression": "lz4"}])
def test_streams_of_every_kind_are_whole(tmp_path, options):
    path = write_stream(tmp_path / "train.arrow", table(), **options)
    assert read(path) == "".join(ROWS)
    path.write_bytes(path.read_bytes()[: -4 if "use_legacy_format" in options else -8])
    with pytest.raises(ValueError, match="without its end"):
        read(path)


def test_two_streams_in_one_file_are_not_read_as_one(tmp_path):
    path = write_stream(tmp_path / "train.arrow", table())
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(ValueError, match="bytes after the end of its arrow stream"):
        read(path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("row", [0, 20, 21, 1500])
def test_bad_utf8_names_the_row(tmp_path, name, row):
    texts = [b"fine"] * 1600
    texts[row] = b"abc\xff"
    strings = pyarrow.array(texts, pyarrow.binary()).view(pyarrow.string())
    path = WRITERS[name](tmp_path / name, pyarrow.table({"text": strings}))
    with pytest.raises(ValueError, match=rf"{name} is not UTF-8 in row {row}, counted from 0, at byte 3 of its text"):
        read(path)


@pytest.mark.parametrize("name", WRITERS)
def test_null_names_the_row(tmp_path, name):
    path = WRITERS[name](tmp_path / name, pyarrow.table({"text": ["x"] * 30 + [None, "y", None]}))
    with pytest.raises(ValueError, match=rf"{name} has rows without text \(null\), the first of them row 30, counted"):
        read(path)


@pytest.mark.parametrize("name", WRITERS)
def test_changed_bytes_are_refused_or_read_and_nothing_else(tmp_path, name):
    """No traceback of a library, nor the end of the process, whatever a damaged disk returns."""
    path = WRITERS[name](tmp_path / name, table())
    content = path.read_bytes()
    chance = random.Random(9)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 8])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read(path)
        except ValueError as error:
            assert name in str(error)
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("writer", "remedy"),
    [
        (write_parquet, "it is a parquet file"),
        (write_file, "it is an arrow file"),
        (write_stream, "it is an arrow stream"),
    ],
)
def test_a_table_under_a_texts_name_is_recognised(tmp_path, writer, remedy):
    path = writer(tmp_path / "train.txt", table(["\u00e9" * 50]))
    path.write_bytes(path.read_bytes() + b"\xff")
    with pytest.raises(ValueError, match=rf"train\.txt is not UTF-8 at byte .*: {remedy}, so give it that suffix"):
        read(path)


def test_a_text_under_a_tables_name_and_a_packed_one(tmp_path):
    import gzip

    for name in ("train.parquet", "train.arrow"):
        (tmp_path / name).write_text("just text\n" * 10)
        with pytest.raises(ValueError, match=rf"{name} is not a valid {name[6:]} file"):
            read(tmp_path / name)
    (tmp_path / "packed.txt").write_bytes(gzip.compress(b"text" * 100))
    with pytest.raises(ValueError, match="packed with gzip, so unpack it"):
        read(tmp_path / "packed.txt")


def test_what_datasets_saves_has_an_end(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": ROWS}).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    assert "".join(read_text(resolve_corpus({"path": str(tmp_path / "saved")}, ROOT), "train")) == "".join(ROWS)
    (tmp_path / "saved" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(ValueError, match=r"missing are data-00001-of-00003\.arrow"):
        resolve_corpus({"path": str(tmp_path / "saved")}, ROOT)
