"""Text cut for parallel tokenizing has exactly the tokens of the text in one piece."""

import itertools
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.cutting import DOUBTFUL, WHITE_SPACE, cut_text
from corpus.gpt2 import load_encoding

# What has made tokenizers disagree: white space of every definition, contractions, combining marks, joiners, and
# characters outside the basic plane.
NASTY = [*" \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"]
NASTY += ["\n\n", "  ", " \n", "'s", "'ll", "'re", "'", "a", "foo", "Z", "7", "42", "½", "²", "é", "e\u0301", "\u0301"]
NASTY += [*"\u200d漢字🙂\U0001d400\0.\U0010ffffﬁΣ", "👩\u200d💻", "<|endoftext|>", "--"]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY_TEXT = st.lists(st.sampled_from(NASTY), max_size=40).map("".join)
MIXED_TEXT = st.lists(st.one_of(NASTY_TEXT, ANY_TEXT), max_size=6).map("".join)


@pytest.fixture(scope="module")
def encoding():
    return load_encoding()


def split_at(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


@settings(max_examples=600, deadline=None, database=None)
@given(text=MIXED_TEXT, places=st.lists(st.integers(0, 200), max_size=6), chunk_chars=st.integers(1, 12))
def test_the_chunks_tokens_are_the_whole_texts(encoding, text, places, chunk_chars):
    chunks = list(cut_text(split_at(text, places), chunk_chars))
    assert "".join(chunks) == text
    assert all(chunks)
    assert [token for chunk in chunks for token in encoding.encode_ordinary(chunk)] == encoding.encode_ordinary(text)


@settings(max_examples=300, deadline=None, database=None)
@given(text=MIXED_TEXT, places=st.lists(st.integers(0, 200), max_size=6), chunk_chars=st.integers(1, 12))
def test_how_the_text_arrives_does_not_matter(text, places, chunk_chars):
    assert list(cut_text(split_at(text, places), chunk_chars)) == list(cut_text([text], chunk_chars))


@settings(max_examples=300, deadline=None, database=None)
@given(text=MIXED_TEXT)
def test_every_cut_lies_between_a_non_space_and_a_space(text):
    white_space = re.compile(f"[{WHITE_SPACE}]")
    doubtful = re.compile(f"[{WHITE_SPACE}{DOUBTFUL}]")
    chunks = list(cut_text([text], 1))
    for left, right in itertools.pairwise(chunks):
        assert not doubtful.match(left[-1])
        assert white_space.match(right[0])


def test_white_space_is_the_pre_tokenizers():
    """Every code point: ours is white space exactly where tiktoken's own regex engine says so.

    An encoding whose pattern is white space alone drops all text that is none.
    """
    import tiktoken

    bytes_only = {bytes([byte]): byte for byte in range(256)}
    engine = tiktoken.Encoding("white space", pat_str=r"\s", mergeable_ranks=bytes_only, special_tokens={})
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    theirs = bytes(engine.encode_ordinary(everything)).decode()
    assert theirs == "".join(re.findall(f"[{WHITE_SPACE}]", everything))
    assert set("\x1c\x1d\x1e\x1f") == set(filter(str.isspace, everything)) - set(theirs)  # hence DOUBTFUL


def test_a_cut_after_a_newline_would_be_wrong(encoding):
    """The reason for the rule, and that the rule passes where the obvious way fails."""
    text = "foo\n\nbar"
    whole = encoding.encode_ordinary(text)
    assert encoding.encode_ordinary("foo\n\n") + encoding.encode_ordinary("bar") != whole
    assert list(cut_text([text], 1)) == ["foo", "\n\nbar"]


def test_chunks_are_little_longer_than_asked():
    text = "word " * 10_000
    chunks = list(cut_text([text], 1000))
    assert {len(chunk) for chunk in chunks[:-1]} <= set(range(1000, 1006))


@pytest.mark.parametrize("text", ["x" * 100_000, " " * 100_000, "\n" * 50_000 + "x" * 50_000])
def test_a_text_without_a_place_to_cut_stays_whole(text):
    assert list(cut_text(split_at(text, list(range(0, 100_000, 100))), 10)) == [text]


@pytest.mark.parametrize("pieces", [[], [""], ["", "", ""]])
def test_no_text_has_no_chunks(pieces):
    assert list(cut_text(pieces, 10)) == []


def test_it_reads_no_further_than_it_must():
    taken = []

    def pieces():
        for index in range(1000):
            taken.append(index)
            yield "some words here "

    chunks = cut_text(pieces(), 100)
    next(chunks)
    assert len(taken) < 10
