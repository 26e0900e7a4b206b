"""A corpus too small for the batches of a cell is refused: its text would be trained on more than once in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import ConfigError
from corpus.sources import resolve_corpus
from factories import make_cell
from planning.studies import load_study, study_names
from test_launch_tokens import write_tokens
from workloads.training.batches import BatchReader
from workloads.training.tokens_needed import TokenCount, check_enough_tokens, token_count, tokens_needed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("batch", [1, 3])
def test_so_many_tokens_are_the_fewest_that_no_batch_repeats(batch: int) -> None:
    cell = make_cell(global_batch_size=batch)
    s = cell.model.seq_length

    def first_tokens(num_tokens: int) -> list[int]:
        reader = BatchReader(np.arange(num_tokens, dtype=np.uint16), s, 50304, batch)
        return [int(row[0]) for step in range(11) for row in reader.read(step)]

    assert first_tokens(tokens_needed(cell)) == [s * sequence for sequence in range(11 * batch)]
    assert first_tokens(tokens_needed(cell) - 1)[-1] == 0  # started over


def test_one_token_too_few_is_refused_with_both_numbers() -> None:
    small, large = make_cell(global_batch_size=2), make_cell(global_batch_size=1024)
    needed = tokens_needed(large)
    check_enough_tokens("study.yaml", "mine", TokenCount(needed, True), [small, large])
    expected = f"^study.yaml: 11 batches of 1024 sequences.*need {needed:,} tokens.*corpus mine has {needed - 1:,};"
    with pytest.raises(ConfigError, match=expected):
        check_enough_tokens("study.yaml", "mine", TokenCount(needed - 1, True), [small, large])
    with pytest.raises(ConfigError, match=f"at most {needed - 1:,}"):
        check_enough_tokens("study.yaml", "mine", TokenCount(needed - 1, False), [small, large])
    check_enough_tokens("study.yaml", "mine", TokenCount(1, True), [])  # what has a record keeps it


def test_a_text_has_at_most_as_many_tokens_as_bytes_and_its_tokens_are_counted(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.txt").write_text("some words " * 100)
    (tmp_path / "texts" / "test.txt").write_text("others " * 1000)
    corpus = resolve_corpus({"path": str(tmp_path / "texts")}, tmp_path)
    assert token_count(corpus, tmp_path) == TokenCount(1100, exact=False)
    folder = tmp_path / "tokens" / corpus.key
    folder.mkdir(parents=True)
    write_tokens(folder, **corpus.identity)
    assert token_count(corpus, tmp_path) == TokenCount(2000, exact=True)
    (folder / "train.json").write_text("{")
    assert token_count(corpus, tmp_path) == TokenCount(1100, exact=False)


def test_what_is_not_known_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    assert token_count(resolve_corpus({"path": str(tmp_path / "train.parquet")}, tmp_path), tmp_path) is None
    hub = resolve_corpus("wikitext-103", ROOT)
    assert token_count(hub, tmp_path) == TokenCount(539_295_549, exact=False)
    assert token_count(replace(hub, name="another"), tmp_path) is None


# The bundled text has 226,946 tokens as it is cut today; wikitext-103, of 539 million bytes, at least these.
TOKENS = {"bundled": 226_946, "wikitext-103": 115_000_000}


@pytest.mark.parametrize("name", study_names(ROOT))
def test_the_studies_of_the_project_have_enough_text(name: str) -> None:
    study = load_study(name, "example-summit-like" if name.startswith("axonn") else "local", ROOT)
    count = TokenCount(TOKENS[study.corpus.name], exact=True)
    check_enough_tokens(name, study.corpus.name, count, [planned.cell for planned in study.planned])
