"""Does a corpus have enough text for the batches of a cell? One that has not would be trained on twice in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError
from corpus.sources import HUB_CORPORA, TEXT_SUFFIXES, TRAIN, Corpus, file_kind
from corpus.verify import read_tokens_info
from workloads.training.loop import NUM_BATCHES
from workloads.training.training_cell import TrainingCell


@dataclass(frozen=True)
class TokenCount:
    """How many tokens a corpus has for training: exactly, or at most, before it has been tokenized."""

    number: int
    exact: bool

    def words(self) -> str:
        return f"{self.number:,}" if self.exact else f"at most {self.number:,}, a token being at least a byte of text"


def tokens_needed(cell: TrainingCell) -> int:
    """Return how many tokens the batches of a cell take without any of them twice.

    Every sequence goes on where the one before it ends; the last target is one more, and the reader of the batches
    starts no sequence so late that the last token of all would be its target.
    """
    return NUM_BATCHES * cell.global_batch_size * cell.model.seq_length + 2


def check_enough_tokens(where: str, corpus: str, count: TokenCount, cells: Iterable[TrainingCell]) -> None:
    """Raise ConfigError where the batches of a cell would start the text over."""
    largest = max(cells, key=tokens_needed, default=None)
    if largest is not None and tokens_needed(largest) > count.number:
        raise ConfigError(
            f"{where}: {NUM_BATCHES} batches of {largest.global_batch_size} sequences of {largest.model.seq_length} "
            f"tokens ({largest.model.name}) need {tokens_needed(largest):,} tokens, and the corpus {corpus} has "
            f"{count.words()}; use a smaller batch or a longer text, or it would be trained on more than once"
        )


def token_count(corpus: Corpus, results: Path) -> TokenCount | None:
    """Return what is known of a corpus: from its tokens where they are there, else from its text; None where nothing.

    Reads the JSON beside the tokens, and the sizes of text files.
    """
    path = results / "tokens" / corpus.key / f"{TRAIN}.json"
    if path.is_file():
        try:
            return TokenCount(read_tokens_info(path).num_tokens, exact=True)
        except ValueError:
            pass  # no finished tokens: the launcher refuses them, and says what to do
    if not corpus.files:
        hub = HUB_CORPORA.get(corpus.name)
        if hub is None or TRAIN not in hub.counts:
            return None
        rows, num_bytes = hub.counts[TRAIN]
        return TokenCount(num_bytes - 4 * rows, exact=False)
    files = corpus.files[TRAIN]
    if not all(file_kind(file) in TEXT_SUFFIXES for file in files):
        return None  # a table is compressed, and has other columns
    return TokenCount(sum(file.stat().st_size for file in files), exact=False)
