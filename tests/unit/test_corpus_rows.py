"""Rows of tables and of the hub's data set are joined unchanged, and every mistake with them is explained."""

import shutil
from pathlib import Path

import pytest
import yaml

from corpora import ROOT, local, whole, write_parquet
from corpus import reading, sources
from corpus.sources import HubCorpus, resolve_corpus

# --- tables

ROWS = ["", " = Title = \n", "é\n", "", "漢字 <unk> \n", "no newline", *[f"row {index} \n" for index in range(2500)]]


def test_parquet_rows_are_joined_unchanged(tmp_path):
    write_parquet(tmp_path / "data-train-00001-of-00002.parquet", ["second"], row_group_size=1)
    numbers = {"id": list(range(len(ROWS)))}
    write_parquet(tmp_path / "data-train-00000-of-00002.parquet", ROWS, more=numbers, row_group_size=700)
    corpus = local(tmp_path)
    assert whole(corpus) == "".join(ROWS) + "second"
    assert reading.text_size_bytes(corpus, "train") is None


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("column_type", ["string", "large_string"])
def test_arrow_of_both_formats(tmp_path, kind, column_type):
    import pyarrow

    table = pyarrow.table({"text": pyarrow.array(ROWS, pyarrow.type_for_alias(column_type))})
    writers = {"stream": pyarrow.ipc.new_stream, "file": pyarrow.ipc.new_file}
    with writers[kind](str(tmp_path / "train.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=800)
    assert whole(local(tmp_path)) == "".join(ROWS)


def test_what_datasets_saves_can_be_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    splits = {"train": ROWS, "test": ["only one"]}
    datasets.DatasetDict(
        {split: datasets.Dataset.from_dict({"text": rows}) for split, rows in splits.items()}
    ).save_to_disk(str(tmp_path / "saved"))
    corpus = local(tmp_path / "saved")
    assert corpus.splits == ("train", "test")
    assert {split: whole(corpus, split) for split in splits} == {split: "".join(rows) for split, rows in splits.items()}


def test_table_mistakes_are_explained(tmp_path):
    import pyarrow

    path = write_parquet(tmp_path / "a.parquet", ["x"], column="content", more={"id": [1]})
    with pytest.raises(ValueError, match=r"a\.parquet has no column 'text': its columns are content, id; rename"):
        whole(local(path))
    with pytest.raises(ValueError, match="of type int64: it must hold strings"):
        whole(local(write_parquet(tmp_path / "b.parquet", [1, 2])))
    with pytest.raises(
        ValueError, match=r"c\.parquet has rows without text \(null\), the first of them row 1, counted"
    ):
        whole(local(write_parquet(tmp_path / "c.parquet", ["x", None])))
    for suffix in (".parquet", ".arrow"):
        (tmp_path / f"d{suffix}").write_bytes(b"this is no table at all")
        with pytest.raises(ValueError, match=rf"d\{suffix} is not a valid {suffix[1:]} file"):
            whole(local(tmp_path / f"d{suffix}"))
    with pyarrow.ipc.new_stream(str(tmp_path / "e.arrow"), pyarrow.schema([("body", pyarrow.string())])):
        pass
    with pytest.raises(ValueError, match="its columns are body"):
        whole(local(tmp_path / "e.arrow"))


# --- the hub's data set, through the same code with a data set of the hub's layout on this disk


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Return a HubCorpus whose path is a local folder, as `datasets` accepts it, with caches that go with the test."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub"
    splits = {"train": ROWS, "validation": ["v\n"], "test": ["", "t\n"]}
    for split, rows in splits.items():
        write_parquet(folder / "wikitext-103-raw-v1" / f"{split}-00000-of-00001.parquet", rows)
    files = "".join(f"  - split: {split}\n    path: wikitext-103-raw-v1/{split}-*\n" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: wikitext-103-raw-v1\n  data_files:\n{files}---\n")
    counts = {split: (len(rows), len("".join(rows).encode()) + 4 * len(rows)) for split, rows in splits.items()}
    names = {split: (f"{split}-00000-of-00001.parquet",) for split in splits}
    corpus = HubCorpus(str(folder), config="wikitext-103-raw-v1", revision="main", counts=counts, files=names)
    monkeypatch.setitem(sources.HUB_CORPORA, "wikitext-103", corpus)
    return corpus


def test_the_hubs_rows_are_joined_unchanged(hub):
    corpus = resolve_corpus("wikitext-103", ROOT)
    assert whole(corpus) == "".join(ROWS)
    assert whole(corpus, "test") == "t\n"
    assert reading.text_size_bytes(corpus, "train") == len("".join(ROWS).encode())


def test_bytes_are_counted_as_datasets_does(hub):
    """The reason for the four bytes per row in the counts."""
    import datasets

    info = datasets.load_dataset(hub.path, hub.config, split="train").info.splits["train"]
    rows, num_bytes = hub.counts["train"]
    assert (len(ROWS), info.num_examples) == (rows, rows)
    text_only_bytes = len("".join(ROWS).encode())
    assert info.num_bytes == num_bytes == text_only_bytes + 4 * rows


@pytest.mark.parametrize("wrong", [(1, 0), (0, 1)])
def test_another_text_under_the_hubs_name_is_refused(hub, wrong):
    rows, num_bytes = hub.counts["train"]
    hub.counts["train"] = (rows + wrong[0], num_bytes + wrong[1])
    with pytest.raises(ValueError, match=rf"split train, has {rows} rows and {num_bytes} bytes, but must have"):
        whole(resolve_corpus("wikitext-103", ROOT))


def test_an_unreachable_hub_is_explained(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ValueError, match=r"could not be loaded .*ConnectionError") as caught:
        whole(resolve_corpus("wikitext-103", ROOT), "test")
    message = str(caught.value)
    for names in sources.WIKITEXT_103.files.values():
        for name in names:
            assert name in message
    assert "is another corpus to this project: its cells have other ids" in message
    example = yaml.safe_load(message.split("\n\n")[1])
    assert set(example["corpus"]) == {"path", "name"}


def test_a_copy_of_the_hubs_files_is_the_same_text_and_another_corpus(hub, tmp_path):
    """As the message about an unreachable hub says: its YAML works, with files of these names."""
    folder = tmp_path / "copied"
    folder.mkdir()
    for names in hub.files.values():
        for name in names:
            shutil.copy(Path(hub.path) / hub.config / name, folder)
    copied, original = local(folder, name=hub.config), resolve_corpus("wikitext-103", ROOT)
    assert copied.splits == original.splits
    for split in copied.splits:
        assert whole(copied, split) == whole(original, split)
    assert copied.identity != original.identity and copied.key != original.key
