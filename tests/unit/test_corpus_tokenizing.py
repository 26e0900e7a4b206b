"""Token files: what is in them, whoever makes them, and every mistake one can make with the text."""

import hashlib
import json
import subprocess
import sys

import psutil
import pytest

from corpora import ROOT, TEXT, corpus_of
from corpus import tokenizing, verify
from corpus.cutting import cut_text
from corpus.gpt2 import load_encoding, tokenizer_name
from corpus.sources import resolve_corpus
from corpus.tokenizing import TokenizerPool, tokenize_corpus
from tokenizer_processes import all_gone

SCRIPTS = ROOT / "scripts"
SCRIPT = SCRIPTS / "tokenize_corpus.py"


@pytest.fixture(scope="module")
def encoding():
    return load_encoding()


@pytest.fixture(scope="module")
def pool():
    with TokenizerPool(2) as pool:
        yield pool


# --- content


def test_the_file_and_its_description(tmp_path, encoding):
    corpus = corpus_of(tmp_path / "a.txt")
    info = tokenize_corpus(corpus, "train", tmp_path / "out" / "train.bin", 2, chunk_chars=5)
    tokens = encoding.encode_ordinary(TEXT)
    stored = (tmp_path / "out" / "train.bin").read_bytes()
    assert stored == b"".join(token.to_bytes(2, "little") for token in tokens)
    data = json.loads((tmp_path / "out" / "train.json").read_text())
    created = data.pop("created")
    assert created.endswith("+00:00")
    assert data == {
        "source": "local",
        "revision": corpus.revision,
        "split": "train",
        "tokenizer": tokenizer_name(),
        "text_sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "text_bytes": len(TEXT.encode()),
        "num_tokens": len(tokens),
        "tokens_sha256": hashlib.sha256(stored).hexdigest(),
        "dtype": "uint16",
    }
    assert verify.check_tokens(tmp_path / "out" / "train.json") == info
    assert info.identity == corpus.identity
    opened = verify.open_tokens(tmp_path / "out" / "train.json")
    assert (opened.dtype, opened.shape) == ("uint16", (len(tokens),)) and opened.tolist() == tokens
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.bin", "train.json"]


def test_tokens_of_the_bundled_corpus_never_change(tmp_path):
    """Records were measured with them: in a table they stand beside those of today."""
    info = tokenize_corpus(resolve_corpus("bundled", ROOT), "train", tmp_path / "train.bin", 2)
    assert info.num_tokens == 226_946
    assert info.tokens_sha256 == "8cc3dc31ca4c189c05caf015ea464e3d3953566d7445edc5b058ea915f1ca360"


def test_processes_and_chunks_change_nothing(tmp_path):
    corpus = resolve_corpus("bundled", ROOT)
    ways = [(1, 500_000), (2, 10_000), (3, 1_000)]
    infos = [tokenize_corpus(corpus, "test", tmp_path / f"{n}.bin", n, chunk_chars=size) for n, size in ways]
    assert len({info.tokens_sha256 for info in infos}) == len({info.text_sha256 for info in infos}) == 1
    assert infos[0].text_sha256 == hashlib.sha256((ROOT / "corpora/bundled/test.txt").read_bytes()).hexdigest()


def test_any_text_in_parallel_has_the_same_tokens(pool, encoding):
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies
    alphabet = st.one_of(
        st.sampled_from(" \n\t\r\x1c\x85\xa0\u2028's漢\u0301.7a"), st.characters(exclude_categories=["Cs"])
    )

    @hypothesis.settings(max_examples=200, deadline=None, database=None)
    @hypothesis.given(st.text(alphabet), st.integers(1, 10))
    def same(text, chunk_chars):
        results = list(pool.tokenize(chunk.encode() for chunk in cut_text([text], chunk_chars)))
        assert b"".join(chunk for chunk, _ in results) == text.encode()
        stored = b"".join(tokens for _, tokens in results)
        assert [int.from_bytes(stored[at : at + 2], "little") for at in range(0, len(stored), 2)] == (
            encoding.encode_ordinary(text)
        )

    same()


def test_no_more_chunks_are_taken_than_can_be_in_flight(pool):
    taken = 0

    def chunks():
        nonlocal taken
        for _ in range(50):
            taken += 1
            yield b"some words"

    results = pool.tokenize(chunks())
    next(results)
    assert taken <= 2 * tokenizing.CHUNKS_IN_FLIGHT_PER_PROCESS + 1
    assert len(list(results)) == 49


def test_a_small_text_starts_one_worker():
    with TokenizerPool(8) as pool:
        list(pool.tokenize([b"one chunk"]))
        assert len(pool.worker_pids) == 1
    all_gone([psutil.Process(pid) for pid in pool.worker_pids if psutil.pid_exists(pid)])


# --- mistakes


def test_mistakes_are_explained(tmp_path):
    corpus = corpus_of(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"its name must end in \.bin"):
        tokenize_corpus(corpus, "train", tmp_path / "train.dat", 1)
    with pytest.raises(ValueError, match="has no split 'dev': it has train"):
        tokenize_corpus(corpus, "dev", tmp_path / "t.bin", 1)
    with pytest.raises(ValueError, match="number of processes is 0: it must be at least 1"):
        tokenize_corpus(corpus, "train", tmp_path / "t.bin", 0)
    (tmp_path / "a.txt").write_text("")  # emptied after it was resolved
    with pytest.raises(ValueError, match="split 'train', is empty"):
        tokenize_corpus(corpus, "train", tmp_path / "t.bin", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "bundel"], "did you mean 'bundled'?"),
        (["--corpus", '{"path": "no/such"}'], "does not exist"),
        (["--corpus", "{"], "is not valid JSON"),
        (["--corpus", "bundled", "--split", "dev"], "has no split 'dev'"),
        (["--corpus", "bundled", "--processes", "0"], "must be at least 1"),
    ],
)
def test_a_mistake_at_the_command_line_is_one_message(tmp_path, arguments, message):
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path / "t.bin"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


SPACES = "a" + " " * 1_200_000 + "b"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"a.txt": "one\ntwo é" + SPACES}, r"a\.txt, line 2, byte 11 of the file: "),
        ({"part1.txt": "x\n" * 300_000, "part2.txt": "\n\n" + SPACES}, r"part2\.txt, line 3, byte 3 of the file: "),
        ({"a.parquet": ["x", "", "yé" + SPACES]}, r"a\.parquet, row 2, byte 4 of its text \(counted from 0\): "),
        (
            {"part1.parquet": ["x"] * 1500, "part2.parquet": ["y", SPACES]},
            r"part2\.parquet, row 1, byte 1 of its text .*: ",
        ),
    ],
)
def test_what_tiktoken_cannot_do_is_explained(tmp_path, capfd, files, place):
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path / "text"
    folder.mkdir()
    for name, content in files.items():
        if isinstance(content, str):
            (folder / name).write_text(content)
        else:
            pyarrow.parquet.write_table(pyarrow.table({"text": content}), folder / name)
    corpus = resolve_corpus({"path": str(folder)}, ROOT)
    message = place + r"tiktoken cannot tokenize what begins there, 1,200,000 characters .* break up runs of a million"
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(corpus, "train", tmp_path / "t.bin", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
