"""Token files are complete or absent, and no process is left, whatever is killed, stopped or full."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corpora import ROOT, corpus_of
from corpus import tokenizing, verify
from corpus.sources import resolve_corpus
from corpus.tokenizing import TokenizerPool, WorkerDied, tokenize_corpus
from tokenizer_processes import WAIT_S, all_gone, children_of, working

SCRIPTS = ROOT / "scripts"
SCRIPT = SCRIPTS / "tokenize_corpus.py"


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
