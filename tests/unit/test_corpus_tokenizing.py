"""Token files: their content, that they are complete or absent, and what happens when something dies or is full."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from corpus import tokenizing, verify
from corpus.cutting import cut_text
from corpus.gpt2 import load_encoding, tokenizer_name
from corpus.sources import resolve_corpus
from corpus.tokenizing import TokenizerPool, WorkerDied, tokenize_corpus

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

ROOT = SCRIPTS.parent
SCRIPT = SCRIPTS / "tokenize_corpus.py"
TEXT = "Tokens of\n\na text's words, <|endoftext|> 漢字 🙂 and \x1c\x85 so on.  \n"
WAIT_S = 30


@pytest.fixture(scope="module")
def encoding():
    return load_encoding()


@pytest.fixture(scope="module")
def pool():
    with TokenizerPool(2) as pool:
        yield pool


@pytest.fixture
def long_text(tmp_path):
    """Return a file that takes some seconds to tokenize."""
    path = tmp_path / "long.txt"
    path.write_text((ROOT / "corpora" / "bundled" / "train.txt").read_text() * 80)
    return path


@pytest.fixture
def start(tmp_path):
    """Start the real script on a text; whatever is left of it ends with the test."""
    started = []

    def start_script(text: Path, output: Path, **options) -> subprocess.Popen:
        corpus = json.dumps({"path": str(text)})
        command = [sys.executable, str(SCRIPT), "--corpus", corpus, "--output", str(output), "--processes", "2"]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options))
        return started[-1]

    yield start_script
    for process in started:
        for member in [*children_of(process), process]:
            member.kill()
        process.wait()
        process.stderr.close()


def corpus_of(path: Path, text: str = TEXT):
    path.write_bytes(text.encode())
    return resolve_corpus({"path": str(path)}, ROOT)


def children_of(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until(condition, what: str):
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S} s for {what}")


def working(process: subprocess.Popen, output: Path) -> list[psutil.Process]:
    """Wait until the script's workers are there and tokens are being written; return the workers."""

    def ready():
        assert process.poll() is None, f"ended early: {process.stderr.read()}"
        written = [path for path in output.parent.glob(f".{output.name}.*") if path.stat().st_size]
        return children_of(process) if written and len(children_of(process)) == 2 else []

    return wait_until(ready, "workers at work")


def all_gone(workers: list[psutil.Process]) -> None:
    wait_until(lambda: not any(worker.is_running() and worker.status() != "zombie" for worker in workers), "their end")


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


# --- complete or absent


def test_an_older_result_survives_a_failure(tmp_path):
    good = corpus_of(tmp_path / "a.txt")
    before = tokenize_corpus(good, "train", tmp_path / "out" / "t.bin", 1)
    bad = resolve_corpus({"path": str(tmp_path / "a.txt")}, ROOT)
    (tmp_path / "a.txt").write_bytes(b"valid at first " * 100_000 + b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        tokenize_corpus(bad, "train", tmp_path / "out" / "t.bin", 1)
    assert verify.check_tokens(tmp_path / "out" / "t.json") == before
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_the_old_json_never_stands_beside_new_tokens(tmp_path, monkeypatch):
    corpus = corpus_of(tmp_path / "a.txt")
    tokenize_corpus(corpus, "train", tmp_path / "out" / "t.bin", 1)

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizing, "write_json", fail)
    with pytest.raises(KeyboardInterrupt):
        tokenize_corpus(corpus, "train", tmp_path / "out" / "t.bin", 1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t.bin"]


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)], ids=["ctrl-c", "sigterm"]
)
def test_a_signal_to_stop_leaves_nothing(tmp_path, long_text, start, number, whole_group):
    output = tmp_path / "out" / "t.bin"
    process = start(long_text, output, process_group=0)
    workers = working(process, output)
    os.killpg(process.pid, number) if whole_group else process.send_signal(number)
    assert process.wait(WAIT_S) == 128 + number
    assert process.stderr.read().splitlines() == [f"tokenize_corpus.py: stopped by {number.name}; nothing was kept"]
    all_gone(workers)
    assert list(output.parent.iterdir()) == []


def test_sigkill_of_the_parent_ends_the_workers(tmp_path, long_text, start):
    output = tmp_path / "out" / "t.bin"
    process = start(long_text, output)
    workers = working(process, output)
    process.kill()
    process.wait(WAIT_S)
    all_gone(workers)
    assert not output.exists() and not output.with_suffix(".json").exists()


def test_a_killed_worker_is_an_error_and_no_hang(tmp_path, long_text, start):
    output = tmp_path / "out" / "t.bin"
    process = start(long_text, output)
    workers = working(process, output)
    workers[1].kill()
    assert process.wait(WAIT_S) == 1
    (message,) = process.stderr.read().splitlines()
    assert f"the tokenizing process {workers[1].pid} was killed (SIGKILL), most often because memory ran out" in message
    all_gone(workers)
    assert list(output.parent.iterdir()) == []


def test_a_worker_that_cannot_start_is_an_error(monkeypatch):
    monkeypatch.setattr(tokenizing, "_WORKER_CODE", "raise SystemExit(3)")
    with TokenizerPool(2) as pool, pytest.raises(WorkerDied, match="ended with exit code 3: its own message is above"):
        list(pool.tokenize([b"x"] * 10))


def test_a_full_disk_is_one_message(tmp_path, start):
    """A limit on file size stands for the full disk: as it fills, write() fails in the same place."""
    import resource

    text = tmp_path / "text.txt"
    text.write_bytes((ROOT / "corpora" / "bundled" / "train.txt").read_bytes() * 2)
    output = tmp_path / "out" / "t.bin"
    limit = (400_000, 400_000)
    process = start(text, output, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert process.wait(WAIT_S) == 1
    (message,) = process.stderr.read().splitlines()
    assert "nothing was kept: free some space, or write elsewhere" in message and str(output) in message
    assert list(output.parent.iterdir()) == []


def test_a_really_full_disk_is_one_message(tmp_path, start):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        process = start(ROOT / "corpora" / "bundled" / "train.txt", disk / "t.bin")
        assert process.wait(WAIT_S) == 1
        (message,) = process.stderr.read().splitlines()
        assert "No space left on device; nothing was kept" in message
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- damaged files


@pytest.fixture
def finished(tmp_path):
    tokenize_corpus(corpus_of(tmp_path / "a.txt"), "train", tmp_path / "t.bin", 1)
    return tmp_path / "t.json"


def test_a_changed_token_is_found(finished):
    data = bytearray(finished.with_suffix(".bin").read_bytes())
    data[7] ^= 1
    finished.with_suffix(".bin").write_bytes(data)
    with pytest.raises(ValueError, match=r"t\.bin is damaged: its SHA-256 is .* delete both files and make them again"):
        verify.check_tokens(finished)
    verify.open_tokens(finished)  # checks the size only


@pytest.mark.parametrize("change", [lambda data: data[:-2], lambda data: data[:-1], lambda data: data + b"\0\0"])
def test_a_wrong_size_is_found(finished, change):
    path = finished.with_suffix(".bin")
    path.write_bytes(change(path.read_bytes()))
    for function in (verify.check_tokens, verify.open_tokens):
        with pytest.raises(ValueError, match=r"t\.bin has \d+ bytes, but \d+ tokens take \d+: delete both"):
            function(finished)


def test_a_file_that_cannot_be_read_is_not_called_damaged(finished):
    """A folder in its place, which no one can read: the same as a file system's error."""
    finished.unlink()
    finished.mkdir()
    with pytest.raises(verify.UnreadableTokens, match=r"t\.json cannot be read"):
        verify.check_tokens(finished)


def test_missing_files_are_explained(finished):
    finished.with_suffix(".bin").unlink()
    with pytest.raises(ValueError, match=r"the token file .*t\.bin is missing: .* make them again"):
        verify.check_tokens(finished)
    finished.unlink()
    with pytest.raises(ValueError, match=r"no finished tokens at .*t\.json: make them with scripts/tokenize_corpus"):
        verify.read_tokens_info(finished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: "{", "is not valid JSON"),
        (lambda data: "[]", "does not have the keys source, revision"),
        (lambda data: json.dumps({**data, "more": 1}), "does not have the keys"),
        (lambda data: json.dumps({**data, "num_tokens": "5"}), "has num_tokens = '5', which is no int"),
        (lambda data: json.dumps({**data, "num_tokens": True}), "has num_tokens = True, which is no int"),
        (lambda data: json.dumps({**data, "dtype": "uint32"}), "has dtype = 'uint32', but tokens are uint16"),
        (lambda data: json.dumps({**data, "num_tokens": 0}), "0 tokens take 0"),
    ],
)
def test_a_damaged_json_is_explained(finished, change, message):
    finished.write_text(change(json.loads(finished.read_text())))
    with pytest.raises(ValueError, match=message):
        verify.check_tokens(finished)
