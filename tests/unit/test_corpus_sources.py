"""Which text a corpus is: names, local files, and every mistake one can make with them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corpora import ROOT, local, whole, write_folder
from corpus import reading
from corpus.reading import read_text
from corpus.sources import parse_corpus_argument, resolve_corpus

SCRIPTS = ROOT / "scripts"


# --- names and identity


def test_resolving_imports_nothing_heavy():
    code = (
        "import sys; from pathlib import Path; from corpus.sources import resolve_corpus\n"
        "for value in ('bundled', 'wikitext-103', {'path': 'corpora/bundled'}):\n"
        "    resolve_corpus(value, Path(sys.argv[1]))\n"
        "print([m for m in ('tiktoken', 'datasets', 'pyarrow', 'numpy', 'tqdm', 'torch') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_bundled():
    corpus = resolve_corpus("bundled", ROOT)
    assert corpus.splits == ("train", "validation", "test")
    # Every record of the demo was measured with it: another revision would make every cell another one.
    assert corpus.identity == {"source": "bundled", "revision": "d68bb8aa5fd25473", "tokenizer": "gpt2:9f08c598c09a"}
    assert corpus.key == "bundled-64340230"
    assert whole(corpus).startswith("MACBETH")
    for split in corpus.splits:
        text = whole(corpus, split)
        assert len(text.encode()) == reading.text_size_bytes(corpus, split) > 50_000
        assert not {"\r", "\t", "\ufeff"} & set(text)
        for word in ("gutenberg", "etext", "copyright", "distribut"):
            assert word not in text.lower()


def test_bundled_readme_has_the_digests():
    import hashlib

    readme = (ROOT / "corpora" / "bundled" / "README.md").read_text()
    for path in (ROOT / "corpora" / "bundled").glob("*.txt"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme


def test_bundled_revision_is_of_the_content(tmp_path):
    shutil.copytree(ROOT / "corpora" / "bundled", tmp_path / "corpora" / "bundled")
    here, there = resolve_corpus("bundled", ROOT), resolve_corpus("bundled", tmp_path)
    assert here == there
    with (tmp_path / "corpora" / "bundled" / "test.txt").open("a") as file:
        file.write("x")
    changed = resolve_corpus("bundled", tmp_path)
    assert changed.revision != here.revision and changed.key != here.key
    (tmp_path / "corpora" / "bundled" / "test.txt").unlink()
    with pytest.raises(ValueError, match=r"test\.txt cannot be read .* restore it"):
        resolve_corpus("bundled", tmp_path)


def test_wikitext_103_is_pinned():
    corpus = resolve_corpus("wikitext-103", ROOT)
    assert corpus.source == "Salesforce/wikitext/wikitext-103-raw-v1"
    assert corpus.revision == "b08601e04326c79dfdd32d625aee71d232d685c3"
    assert corpus.splits == ("train", "validation", "test")
    assert corpus.key == "wikitext-103-4dbc3224"
    assert reading.text_size_bytes(corpus, "test") == 1_305_088 - 4 * 4_358


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("bundle", r"no corpus named 'bundle': did you mean 'bundled'\?"),
        ("WikiText103", r"did you mean 'wikitext-103'\?"),
        ("zzz", r"There are 'bundled', 'wikitext-103', and local text by"),
        ("corpora", r'for a local file or folder write \{"path": "corpora"\}'),
        (None, r"the corpus is None: give one of"),
        ({}, r"has no path: write it like"),
        ({"path": 3}, r"has no path"),
        ({"path": "x", "nmae": "y"}, r"unknown key 'nmae': a local corpus takes path and name"),
        ({"path": "no/such/place"}, r"path .*no/such/place does not exist: correct it \(a relative path starts at"),
        ({"path": "corpora/bundled", "name": "../up"}, r"name '../up' cannot name a folder: use letters"),
        ({"path": "corpora/bundled", "name": ""}, r"name '' cannot name a folder"),
        ({"path": "corpora/bundled/README.md"}, r"README\.md is of no kind that can be read: give UTF-8 text"),
        ({"path": "~nosuchuser/x"}, r"path '~nosuchuser/x': there is no such home folder; write the path out"),
        ({"path": "x" * 5000}, "cannot be read"),
        ("x" * 5000, "There are 'bundled'"),
        ({"path": "corpora"}, r"has no text to read \(the folder .*bundled has some\)"),
    ],
)
def test_mistakes_are_explained(value, message):
    with pytest.raises(ValueError, match=message):
        resolve_corpus(value, ROOT)


def test_command_line_values():
    assert parse_corpus_argument("bundled") == "bundled"
    assert parse_corpus_argument(' {"path": "a b"}') == {"path": "a b"}
    with pytest.raises(ValueError, match=r"is not valid JSON .* write it like"):
        parse_corpus_argument("{path: x}")


# --- local text


@pytest.mark.parametrize(
    "names",
    [
        {"train": "wiki.train.raw", "validation": "wiki.valid.raw", "test": "wiki.test.raw"},
        {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"},
        {"train": "train.txt", "validation": "validation.txt", "test": "Test.TXT"},
        {"train": "my_train-data.txt", "validation": "dev.txt", "test": "x-test.txt"},
        {"train": "train/a.txt", "validation": "val/a.txt", "test": "test/a.txt"},
    ],
)
def test_files_find_their_splits(tmp_path, names):
    corpus = local(write_folder(tmp_path, {name: f"{split} text" for split, name in names.items()}))
    assert corpus.splits == ("train", "validation", "test")
    for split in names:
        assert whole(corpus, split) == f"{split} text"


def test_a_single_file_is_train_whatever_its_name(tmp_path):
    write_folder(tmp_path, {"test.txt": "abc", "train.txt": "no"})
    corpus = local(tmp_path / "test.txt")
    assert (corpus.name, corpus.splits, whole(corpus)) == ("test", ("train",), "abc")
    with pytest.raises(ValueError, match="'test' has no split 'test': it has train"):
        read_text(corpus, "test")


def test_files_without_a_split_are_train_in_natural_order(tmp_path):
    write_folder(
        tmp_path, {"part10.txt": "c", "part9.txt": "b", "part1.txt": "a", "README.txt": "x", ".hidden.txt": "x"}
    )
    assert whole(local(tmp_path)) == "abc"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no text to read: give UTF-8 text"),
        ({"a.md": "x", "README.txt": "x"}, "has no text to read"),
        ({"train.txt": "x", "other.txt": "y"}, r"other\.txt without a split in its name: rename it"),
        ({"test.txt": "x", "valid.txt": "y"}, "has files for test, validation and none for train"),
        ({"train.raw": "x", "train.tokens": "y"}, r"several kinds for train \(\.raw, \.tokens\)"),
        ({"train-test.txt": "x"}, r"names several splits \(test, train\)"),
        ({"train.txt": ""}, "split train is empty"),
        (
            {"a-00000-of-00002.txt": "x"},
            r"1 of 2 shards a-\.\.\.-of-00002\.txt .*; missing are a-00001-of-00002\.txt\. Put",
        ),
        (
            {"train/0-00001-of-00003.txt": "x"},
            r"missing are 0-00002-of-00003\.txt, 0-00003-of-00003\.txt|missing are 0-00000",
        ),
        ({"a-0-of-3.txt": "x", "a-2-of-3.txt": "x"}, r"2 of 3 shards .* missing are a-1-of-3\.txt"),
        ({"a-1-of-3.txt": "x", "a-3-of-3.txt": "x"}, r"2 of 3 shards .* missing are a-2-of-3\.txt"),
        ({"a-7-of-3.txt": "x"}, "0 of 3 shards"),
        ({"a-0-of-999999999.txt": "x"}, r"missing are a-000000001-of-999999999.* and 999999993 more"),
        ({"a-0-of-1.txt": "x", "a-0-of-2.txt": "y", "a-1-of-2.txt": "z"}, r"several divisions \(-of-1, -of-2\)"),
        ({"test-0-of-2.txt": "x", "train.txt": "y"}, r"missing are test-1-of-2\.txt"),
        ({"train.txt": "x", "test.txt": ""}, "split test is empty"),
    ],
)
def test_folders_that_are_no_corpus(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        local(write_folder(tmp_path, files))


@pytest.mark.parametrize("first", [0, 1])
def test_all_shards_together_are_a_corpus(tmp_path, first):
    files = {f"train-{number:05}-of-00012.txt": f"{number} " for number in range(first, first + 12)}
    assert whole(local(write_folder(tmp_path, {**files, "test-0-of-1.txt": "x"}))) == "".join(files.values())


def test_one_shard_by_its_own_path_is_refused_until_its_name_claims_no_more(tmp_path):
    write_folder(tmp_path, {"train-00000-of-00002.txt": "x", "train-00001-of-00002.txt": "y"})
    with pytest.raises(
        ValueError, match=r"missing are train-00001-of-00002\.txt\. .* a corpus of its own once its name"
    ):
        local(tmp_path / "train-00000-of-00002.txt")
    (tmp_path / "train-00000-of-00002.txt").rename(tmp_path / "part.txt")
    assert whole(local(tmp_path / "part.txt")) == "x"


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.txt")
    for path in (tmp_path, tmp_path / "train.txt"):
        with pytest.raises(ValueError, match=r"train\.txt is no regular file"):
            local(path)


def test_a_folder_that_may_not_be_read_is_one_message(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(ValueError, match=r"cannot be read \(Permission denied\)"):
        local(tmp_path)
    with pytest.raises(ValueError, match="no corpus named"):
        resolve_corpus("x/y", tmp_path)


def test_a_broken_link_is_an_error(tmp_path):
    write_folder(tmp_path, {"train-1.txt": "x"})
    (tmp_path / "train-2.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"train-2\.txt cannot be read"):
        local(tmp_path)


def test_identity_does_not_depend_on_place_or_time_or_label(tmp_path):
    first = local(write_folder(tmp_path / "a", {"train.txt": "some text"}))
    second = local(write_folder(tmp_path / "deep" / "b", {"train.txt": "some text"}), name="other")
    os.utime(tmp_path / "a" / "train.txt", (1, 1))
    assert local(tmp_path / "a").identity == first.identity == second.identity
    assert first.source == "local" and str(tmp_path) not in json.dumps(first.identity)
    assert first.key == f"a-{first.key[-8:]}" and second.key == f"other-{first.key[-8:]}"
    relative = resolve_corpus({"path": "a"}, tmp_path)
    assert relative == first and whole(relative) == "some text"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + b"x",
        lambda text: b"X" + text[1:],
        lambda text: text[:-1] + b"X",
        lambda text: text[: 64 * 1024 - 1] + b"X" + text[64 * 1024 :],
    ],
)
def test_the_revision_changes_with_the_content(tmp_path, change):
    path = tmp_path / "train.txt"
    path.write_bytes(b"a" * 300_000)
    before = local(tmp_path)
    path.write_bytes(change(b"a" * 300_000))
    assert local(tmp_path).revision != before.revision


def test_the_revision_changes_with_a_name(tmp_path):
    write_folder(tmp_path, {"train-1.txt": "x"})
    before = local(tmp_path)
    (tmp_path / "train-1.txt").rename(tmp_path / "train-2.txt")
    assert local(tmp_path).revision != before.revision


def test_text_is_unchanged(tmp_path):
    text = "\ufeffone\r\ntwo\rthree\n\n\x0c\x85four\u2028five é 漢 🙂" + "x" * 3_000_000 + "漢" * 1_000_000
    assert whole(local(write_folder(tmp_path, {"train.txt": text}))) == text


@pytest.mark.parametrize("place", [0, 5, 2**20 - 2, 2**20 - 1, 2**20, 3_000_000])
def test_bad_utf8_is_located(tmp_path, place):
    text = bytearray(b"a" * 3_000_001)
    text[place] = 0xFF
    (tmp_path / "t.txt").write_bytes(text)
    with pytest.raises(ValueError, match=rf"t\.txt is not UTF-8 at byte {place} .* convert the file to UTF-8"):
        whole(local(tmp_path / "t.txt"))


def test_bad_utf8_across_blocks_is_located(tmp_path):
    for tail, reason in ((b"\xe6\xbc", "unexpected end"), (b"\xe6\xbcA" + b"b" * 10, "invalid continuation")):
        (tmp_path / "t.txt").write_bytes(b"a" * (2**20 - 1) + tail)
        with pytest.raises(ValueError, match=rf"not UTF-8 at byte {2**20 - 1} \({reason}"):
            whole(local(tmp_path / "t.txt"))
