"""The batches every framework trains on: a pure function of tokens and step, cut into the data ranks' shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BatchReader:
    """Reads one data rank's share of each global batch.

    Sequence j of step i starts at token ((i B + j) s) mod (n - s - 1), with B the global batch size, s the sequence
    length and n the number of tokens: consecutive text, started over where a small corpus ends. The global batch is
    the same however many ranks share it: rank r of D takes sequences r B / D up to (r + 1) B / D.

    tokens: uint16 [n], a memory map as a rule; only what is asked for is read.

    Raises ValueError for tokens of another type, fewer than s + 2 of them, or a batch that D ranks cannot share evenly.
    """

    tokens: np.ndarray
    seq_length: int
    vocab_size: int
    global_batch_size: int
    data_rank: int = 0
    data_size: int = 1

    def __post_init__(self) -> None:
        if self.tokens.dtype != np.uint16 or self.tokens.ndim != 1:
            raise ValueError(f"tokens are {self.tokens.dtype} {self.tokens.shape}, expected one row of uint16")
        if len(self.tokens) < self.seq_length + 2:
            raise ValueError(
                f"the corpus has {len(self.tokens)} tokens: sequences of {self.seq_length} need at least "
                f"{self.seq_length + 2}"
            )
        if self.global_batch_size % self.data_size:
            raise ValueError(f"{self.data_size} data ranks cannot share {self.global_batch_size} sequences evenly")
        if not 0 <= self.data_rank < self.data_size:
            raise ValueError(f"there is no data rank {self.data_rank} of {self.data_size}")

    def read(self, step: int) -> np.ndarray:
        """This rank's sequences of batch `step` (counted from 0), int64 [global_batch_size / data_size, s + 1].

        The first s columns are the inputs, the last s the targets. Raises ValueError where a token id is not below
        `vocab_size`: the model has no embedding for it.
        """
        share = self.global_batch_size // self.data_size
        first = step * self.global_batch_size + self.data_rank * share
        starts = (np.arange(first, first + share) * self.seq_length) % (len(self.tokens) - self.seq_length - 1)
        batch = np.stack([self.tokens[start : start + self.seq_length + 1] for start in starts]).astype(np.int64)
        if batch.max() >= self.vocab_size:
            raise ValueError(
                f"token id {batch.max()} in batch {step} is outside the model's vocabulary of {self.vocab_size}: "
                "the corpus was tokenized with a larger one"
            )
        return batch
