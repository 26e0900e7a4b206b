"""Token files that were damaged after they were made are found, and told from those that cannot be read."""

import json

import pytest

from corpora import corpus_of
from corpus import verify
from corpus.tokenizing import tokenize_corpus


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
