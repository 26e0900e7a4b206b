"""The tokens that a training cell reads: whole, of the right corpus, and enough of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus.verify import UnreadableTokens, check_corpus, check_tokens
from workloads.training.tokens_needed import TokenCount, check_enough_tokens
from workloads.training.training_cell import TrainingCell


def facts_of_tokens(cell: TrainingCell, path: Path | None) -> dict[str, Any]:
    """Check the tokens behind the JSON `path`, and return what a record says of them.

    Raises ValueError where they are damaged, of another corpus or too few. Damaged ones are set aside.
    """
    if path is None:
        raise ValueError("--tokens is missing: a training cell reads a token file; give the JSON beside it")
    tokens = verified_tokens(path)
    check_corpus(tokens, cell.corpus, path)
    check_enough_tokens("--tokens", str(path), TokenCount(tokens.num_tokens, exact=True), [cell])
    return {
        "tokens": {
            "split": tokens.split,
            "sha256": tokens.tokens_sha256,
            "num_tokens": tokens.num_tokens,
            **tokens.identity,
        }
    }


def verified_tokens(path: Path) -> Any:
    """The token file's facts; a damaged one is set aside, so that the next call makes it anew."""
    try:
        return check_tokens(path)
    except UnreadableTokens:
        raise  # what one node cannot read may be whole
    except ValueError as error:
        if not path.exists():
            raise
        path.replace(path.with_name(f"{path.name}.damaged"))
        raise ValueError(f"{error}; it was set aside, and the next call tokenizes again") from None
