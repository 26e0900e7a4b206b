"""Read a finished token file, and check that it is what its JSON says."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    import numpy

DTYPE = "uint16"
BYTES_PER_TOKEN = 2
# Cells are trained on this split of a corpus.
TRAINING_SPLIT = "train"
_READ_BYTES = 4 * 1024 * 1024
_COMMAND = "scripts/tokenize_corpus.py"
_REMEDY = f"delete both files and make them again with {_COMMAND}"


class UnreadableTokens(ValueError):
    """A file is there and cannot be read: nothing is known of what it holds."""


@dataclasses.dataclass(frozen=True)
class TokensInfo:
    """What is known of one split's tokens: the JSON beside the token file, field by field.

    source, revision, tokenizer: the corpus' identity. text_sha256 and text_bytes: of the text in UTF-8. tokens_sha256:
    of the token file, `num_tokens` little-endian unsigned 16-bit integers and nothing else. created: when, UTC.
    """

    source: str
    revision: str
    split: str
    tokenizer: str
    text_sha256: str
    text_bytes: int
    num_tokens: int
    tokens_sha256: str
    dtype: str
    created: str

    @property
    def identity(self) -> dict[str, str]:
        """The corpus' identity, equal to `Corpus.identity` of the corpus these tokens were made from."""
        return {"source": self.source, "revision": self.revision, "tokenizer": self.tokenizer}


def tokens_path(json_path: Path) -> Path:
    """Return the path of the token file that the JSON at `json_path` describes."""
    return Path(json_path).with_suffix(".bin")


def read_tokens_info(json_path: Path) -> TokensInfo:
    """Return what the JSON of a finished token file says, without looking at the tokens.

    Raises ValueError where there is no such file or it is not one of ours.
    """
    json_path = Path(json_path)
    try:
        data = json.loads(json_path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there are no finished tokens at {json_path}: make them with {_COMMAND}") from error
    except OSError as error:
        raise UnreadableTokens(f"{json_path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{json_path} is not valid JSON ({error}): {_REMEDY}") from error
    fields = get_type_hints(TokensInfo)
    if not isinstance(data, dict) or set(data) != set(fields):
        raise ValueError(f"{json_path} does not have the keys {', '.join(fields)}: {_REMEDY}")
    for name, kind in fields.items():
        if type(data[name]) is not kind:
            raise ValueError(f"{json_path} has {name} = {data[name]!r}, which is no {kind.__name__}: {_REMEDY}")
    if data["dtype"] != DTYPE:
        raise ValueError(f"{json_path} has dtype = {data['dtype']!r}, but tokens are {DTYPE}: {_REMEDY}")
    return TokensInfo(**data)


def check_tokens(json_path: Path) -> TokensInfo:
    """Read the whole token file and return its info if size and SHA-256 are what the JSON says.

    Raises ValueError otherwise: what is wrong, where, and what to do; UnreadableTokens where that is not known.
    """
    info = read_tokens_info(json_path)
    path = tokens_path(json_path)
    _check_size(path, info)
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except OSError as error:
        raise UnreadableTokens(f"the token file {path} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != info.tokens_sha256:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is {digest.hexdigest()}, but {json_path} says {info.tokens_sha256}: "
            f"{_REMEDY}"
        )
    return info


def check_corpus(info: TokensInfo, corpus: Mapping[str, Any], json_path: Path) -> None:
    """Raise ValueError where the tokens are not TRAINING_SPLIT's of `corpus` (as in a cell's identity)."""
    found = {**info.identity, "split": info.split}
    for key, wanted in {**corpus, "split": TRAINING_SPLIT}.items():
        if found.get(key) != wanted:
            raise ValueError(
                f"{json_path} is another corpus's: it holds tokens of {key} {found.get(key)}, and the cell's is "
                f"{wanted}; move it and {tokens_path(json_path).name} away, and the next call makes them anew"
            )


def open_tokens(json_path: Path) -> "numpy.memmap[Any, Any]":
    """Return the tokens as a read-only memory map, uint16 [num_tokens].

    Checks the size and not the content (see `check_tokens`). Raises ValueError.
    """
    import numpy

    info = read_tokens_info(json_path)
    path = tokens_path(json_path)
    _check_size(path, info)
    return numpy.memmap(path, dtype="<u2", mode="r", shape=(info.num_tokens,))


def _check_size(path: Path, info: TokensInfo) -> None:
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError as error:
        raise ValueError(f"the token file {path} is missing: {_REMEDY}") from error
    except OSError as error:
        raise UnreadableTokens(f"the token file {path} cannot be read: {error.strerror}") from error
    if info.num_tokens < 1 or size_bytes != BYTES_PER_TOKEN * info.num_tokens:
        raise ValueError(
            f"{path} has {size_bytes} bytes, but {info.num_tokens} tokens take {BYTES_PER_TOKEN * info.num_tokens}: "
            f"{_REMEDY}"
        )
