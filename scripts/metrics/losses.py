"""The global loss of every batch, from the losses of the ranks that hold one.

The global batch is cut into `data_size` equal shares; several ranks of one share (tensor parallel) print the same loss,
and ranks that hold none (all but the last pipeline stage) print null. So the global loss is the mean over shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Duplicates are one computation repeated in another order of summation, which differs by far less than this in every
# precision that computes its losses in fp32; a framework beyond it would not pass the study `parity` either.
DUPLICATE_TOLERANCE = 1e-4
SEPARATOR = ";"


def parse_loss(value: float | str | None) -> float | None:
    """Return a loss as a record writes it: a number, null, or the strings nan, inf and -inf, no numbers in JSON."""
    return None if value is None else float(value)


def global_losses(ranks: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the mean loss of the global batch (nats per token) for each batch, in order.

    Raises ValueError where ranks ran different numbers of batches, a share has no loss, or ranks of one share disagree.
    """
    if not ranks:
        raise ValueError("losses: the record holds no rank")
    lengths = {len(rank["losses"]) for rank in ranks}
    if len(lengths) != 1:
        raise ValueError(
            f"losses: ranks hold {', '.join(map(str, sorted(lengths)))} batches, so batches cannot be lined up"
        )
    return [_batch_loss(ranks, batch) for batch in range(lengths.pop())]


def losses_to_text(losses: Sequence[float]) -> str:
    """Return the column `losses`: shortest decimals that read back as the same numbers, joined by ";"."""
    return SEPARATOR.join(repr(float(loss)) for loss in losses)


def losses_from_text(text: str) -> list[float]:
    """Return the losses of a field of `losses_to_text`; an empty field is an empty list."""
    return [float(part) for part in text.split(SEPARATOR)] if text else []


def max_relative_difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """Return the largest |a - b| / |b| over the batches (b from `reference`); infinite where either is not finite.

    Raises ValueError where the two have different lengths or none.
    """
    if not losses or len(losses) != len(reference):
        raise ValueError(f"losses of {len(losses)} batches cannot be compared with those of {len(reference)}")
    worst = 0.0
    for a, b in zip(losses, reference, strict=True):
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.inf
        if a != b:
            worst = max(worst, abs(a - b) / abs(b) if b else math.inf)
    return worst


def _batch_loss(ranks: Sequence[Mapping[str, Any]], batch: int) -> float:
    shares: dict[int, float] = {}
    for rank in ranks:
        loss = parse_loss(rank["losses"][batch])
        if loss is None:
            continue
        held = shares.setdefault(rank["data_rank"], loss)
        if held != loss and not _agree(held, loss):
            raise ValueError(
                f"losses: ranks of share {rank['data_rank']} disagree in batch {batch + 1} ({held!r} and {loss!r}), "
                "so the framework does not compute one model"
            )
    wanted = ranks[0]["data_size"]
    if len(shares) != wanted:
        raise ValueError(f"losses: {len(shares)} of {wanted} shares hold a loss in batch {batch + 1}")
    return sum(shares[share] for share in sorted(shares)) / wanted


def _agree(a: float, b: float) -> bool:
    """Say whether two different values are the same loss."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= DUPLICATE_TOLERANCE * max(abs(a), abs(b))
    return math.isnan(a) and math.isnan(b)
