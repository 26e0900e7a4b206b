"""Which text a corpus is, and which files it lies in.

`resolve_corpus` runs at every Snakemake parse, so that nothing heavy is imported here; see corpus/reading.py for
the text itself.
"""

import dataclasses
import difflib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.project_files import shipped
from corpus.gpt2 import tokenizer_name
from corpus.shards import check_shards

BUNDLED = "bundled"
BUNDLED_FOLDER = "corpora/bundled"
TRAIN = "train"
SPLITS = (TRAIN, "validation", "test")
SPLIT_OF_WORD = {"train": TRAIN, "validation": "validation", "valid": "validation", "val": "validation",
                 "dev": "validation", "test": "test"}  # fmt: skip
TEXT_SUFFIXES = (".raw", ".tokens", ".txt")
TABLE_SUFFIXES = (".parquet", ".arrow")
LOCAL_EXAMPLE = '{"path": "a folder or file with text"}'

# Files that lie beside a corpus and are no part of it.
_BESIDE = re.compile(r"(readme|license|licence|notice|copying|citation|changelog)\b|cache-.*\.arrow$|\.", re.IGNORECASE)
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDS_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True)
class HubCorpus:
    """A data set on the Hugging Face hub.

    counts: (rows, num_bytes) per split, as the hub's own card gives them; num_bytes is the size in Arrow: the text in
    UTF-8 plus four bytes for every row. files: per split, the names of the parquet files that hold it.
    """

    path: str
    config: str
    revision: str
    counts: dict[str, tuple[int, int]]
    files: dict[str, tuple[str, ...]]


WIKITEXT_103 = HubCorpus(
    path="Salesforce/wikitext",
    config="wikitext-103-raw-v1",
    revision="b08601e04326c79dfdd32d625aee71d232d685c3",
    counts={"train": (1_801_350, 546_500_949), "validation": (3_760, 1_159_288), "test": (4_358, 1_305_088)},
    files={
        "train": ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
        "validation": ("validation-00000-of-00001.parquet",),
        "test": ("test-00000-of-00001.parquet",),
    },
)
HUB_CORPORA = {"wikitext-103": WIKITEXT_103}


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A resolved corpus. Equal corpora have the same text, wherever it lies on this machine.

    name: a label, safe as a folder's name. source: the hub's data set, "bundled" or "local". revision: changes when
    the text does. splits: names, "train" always among them. files: per split, the files to read in this order (empty
    for a corpus of the hub).
    """

    name: str
    source: str
    revision: str
    splits: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def identity(self) -> dict[str, str]:
        """What decides the tokens: {"source", "revision", "tokenizer"}. Neither the label nor the place does."""
        return {"source": self.source, "revision": self.revision, "tokenizer": tokenizer_name()}

    @property
    def key(self) -> str:
        """The folder name of this corpus' tokens: the label and 8 hex digits of the identity."""
        canonical = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        return f"{self.name}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"


def parse_corpus_argument(text: str) -> str | dict[str, Any]:
    """Return what a command line says for a corpus: a name, or a mapping written as JSON ('{"path": "..."}')."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        mapping: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the corpus {text!r} is not valid JSON ({error}): write it like {LOCAL_EXAMPLE}") from error
    return mapping


def resolve_corpus(value: str | dict[str, Any], root: Path) -> Corpus:
    """Return the corpus that a configuration names.

    `value` is "bundled", "wikitext-103", or {"path": a file or folder, "name": an optional label}. A relative path is
    relative to `root`, the repository's folder; `~` is the home folder.

    A local corpus is one file, or a folder with files of one kind per split: text (`*.raw`, `*.tokens`, `*.txt`; UTF-8)
    or tables with a column `text` (`*.parquet`, `*.arrow`). A file's split is the word train, validation (valid, val,
    dev) or test in its name, or the name of the folder it lies in; shards are read in the order of their numbers. Where
    no file is named for train, those without such a word are train; a single file is train, whatever its name.

    The revision of a local corpus is a fingerprint of every file's name (relative to the folder), size, and first and
    last 64 KiB: reading gigabytes at every start would cost too much, and times of change say nothing about content.
    An edit in the middle of a file that keeps its size therefore goes unseen here; `text_sha256` beside the tokens has
    the whole text. Raises ValueError for anything that is no corpus, with what to do.
    """
    if isinstance(value, dict):
        return _resolve_local(value, Path(root))
    if not isinstance(value, str):
        raise ValueError(f"the corpus is {value!r}: give one of {_names()}, or {LOCAL_EXAMPLE}")
    if value == BUNDLED:
        return _resolve_bundled(Path(root))
    if value in HUB_CORPORA:
        hub = HUB_CORPORA[value]
        return Corpus(name=value, source=f"{hub.path}/{hub.config}", revision=hub.revision, splits=tuple(hub.counts))
    raise ValueError(f"there is no corpus named {value!r}: {_suggestion(value, Path(root))}")


def check_split(corpus: Corpus, split: str) -> None:
    """Raise ValueError where the corpus has no such split."""
    if split not in corpus.splits:
        raise ValueError(f"the corpus {corpus.name!r} has no split {split!r}: it has {', '.join(corpus.splits)}")


def file_kind(path: Path) -> str:
    """Return what decides how a file is read: its suffix in lower case, among TEXT_SUFFIXES or TABLE_SUFFIXES."""
    return path.suffix.lower()


def _names() -> str:
    return ", ".join(repr(name) for name in (BUNDLED, *HUB_CORPORA))


def _suggestion(value: str, root: Path) -> str:
    if value and _exists(_absolute(value, root)):
        return f"for a local file or folder write {json.dumps({'path': value})}"
    nearest = difflib.get_close_matches(value.lower(), [BUNDLED, *HUB_CORPORA], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{hint}There are {_names()}, and local text by {LOCAL_EXAMPLE}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def _absolute(path: str, root: Path) -> Path:
    try:
        return root / Path(path).expanduser()
    except RuntimeError as error:  # of a user whom this machine does not know
        raise ValueError(f"the corpus' path {path!r}: there is no such home folder; write the path out") from error


def _resolve_bundled(root: Path) -> Corpus:
    folder = shipped(root, BUNDLED_FOLDER)
    files = {split: (folder / f"{split}.txt",) for split in SPLITS}
    digest = hashlib.sha256()
    for split, (path,) in files.items():
        try:
            digest.update(f"{split} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        except OSError as error:
            raise ValueError(
                f"the bundled corpus' file {path} cannot be read ({error.strerror}): restore it from the repository"
            ) from error
    return Corpus(name=BUNDLED, source=BUNDLED, revision=digest.hexdigest()[:16], splits=SPLITS, files=files)


def _resolve_local(value: dict[str, Any], root: Path) -> Corpus:
    unknown = sorted(set(value) - {"path", "name"}, key=str)
    if unknown:
        raise ValueError(f"the corpus {value!r} has the unknown key {unknown[0]!r}: a local corpus takes path and name")
    if not isinstance(value.get("path"), str) or not value["path"]:
        raise ValueError(f"the corpus {value!r} has no path: write it like {LOCAL_EXAMPLE}")
    path = _absolute(value["path"], root)
    try:
        if not path.exists():
            raise ValueError(
                f"the corpus' path {path} does not exist: correct it (a relative path starts at {root}), or use one of "
                f"{_names()}"
            )
        name = _local_name(value, path)
        folder = path if path.is_dir() else path.parent
        files = _find_files(path) if path.is_dir() else {TRAIN: (_checked_file(path),)}
        for split, paths in files.items():
            for file in paths:
                if not stat.S_ISREG(file.stat().st_mode):
                    raise ValueError(f"the corpus' file {file} is no regular file: give one, or move this one away")
            check_shards(paths)
            if not any(file.stat().st_size for file in paths):
                raise ValueError(f"the corpus' split {split} is empty ({paths[0]}): give a file with text")
        revision = _fingerprint(files, folder)
    except OSError as error:
        raise ValueError(f"the corpus' file {error.filename} cannot be read ({error.strerror})") from error
    return Corpus(name=name, source="local", revision=revision, splits=tuple(files), files=files)


def _local_name(value: dict[str, Any], path: Path) -> str:
    name = value.get("name")
    if name is None:
        # resolve() so that "." or a trailing ".." has a name too.
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().stem if path.is_file() else path.resolve().name)
        return name.strip("-._")[:64] or "local"
    if not isinstance(name, str) or not _SAFE_NAME.fullmatch(name):
        raise ValueError(
            f"the corpus' name {name!r} cannot name a folder: use letters, digits, '.', '_' and '-', at most 64, with "
            "a letter or digit first"
        )
    return name


def _checked_file(path: Path) -> Path:
    if file_kind(path) not in TEXT_SUFFIXES + TABLE_SUFFIXES:
        raise ValueError(f"the corpus' file {path} is of no kind that can be read: {_kinds()}")
    return path


def _kinds() -> str:
    return f"give UTF-8 text ({', '.join(TEXT_SUFFIXES)}) or tables ({', '.join(TABLE_SUFFIXES)})"


def _readable_files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.iterdir()
        # not is_file(): a shard that is a broken link must be an error later, and not be left out
        if file_kind(path) in TEXT_SUFFIXES + TABLE_SUFFIXES and not path.is_dir() and not _BESIDE.match(path.name)
    ]


def _find_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Return the folder's files by split, each split's in the natural order of their names."""
    found: dict[str, list[Path]] = {}
    without_split = []
    subfolders = [path for path in folder.iterdir() if path.is_dir()]
    for path in _readable_files(folder):
        split = _split_in_name(path.stem, path)
        found.setdefault(split, []).append(path) if split else without_split.append(path)
    for subfolder in subfolders:
        if subfolder.name.lower() in SPLIT_OF_WORD:
            found.setdefault(SPLIT_OF_WORD[subfolder.name.lower()], []).extend(_readable_files(subfolder))
    found = {split: paths for split, paths in found.items() if paths}
    if not found and not without_split:
        deeper = sorted(path for path in subfolders if _readable_files(path))
        hint = f" (the folder {deeper[0]} has some)" if deeper else ""
        raise ValueError(f"the corpus' folder {folder} has no text to read{hint}: {_kinds()}")
    if without_split and TRAIN in found:
        raise ValueError(
            f"the corpus' folder {folder} has files named for train, and {min(without_split).name} without a split in "
            "its name: rename it, move it away, or give the path of a single file"
        )
    if without_split:
        found[TRAIN] = without_split
    if TRAIN not in found:
        raise ValueError(
            f"the corpus' folder {folder} has files for {', '.join(sorted(found))} and none for train: add one with "
            "'train' in its name, or give the path of a single file to train on"
        )
    for split, paths in found.items():
        kinds = sorted({file_kind(path) for path in paths})
        if len(kinds) > 1:
            raise ValueError(
                f"the corpus' folder {folder} has files of several kinds for {split} ({', '.join(kinds)}), so that the "
                "same text may be there twice: keep one kind, or give the path of a single file"
            )
    return {split: tuple(sorted(found[split], key=_natural_order(folder))) for split in SPLITS if split in found}


def _split_in_name(stem: str, path: Path) -> str | None:
    splits = {SPLIT_OF_WORD[word] for word in re.findall(r"[a-z]+", stem.lower()) if word in SPLIT_OF_WORD}
    if len(splits) > 1:
        raise ValueError(f"the corpus' file {path} names several splits ({', '.join(sorted(splits))}): rename it")
    return splits.pop() if splits else None


def _natural_order(folder: Path) -> Any:
    """Return a sort key by relative name, with numbers in it by value: part2 comes before part10."""

    def key(path: Path) -> tuple[list[tuple[int, int, str]], str]:
        name = path.relative_to(folder).as_posix()
        parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]
        return parts, name

    return key


def _fingerprint(files: Mapping[str, tuple[Path, ...]], folder: Path) -> str:
    digest = hashlib.sha256()
    for split, paths in files.items():
        for path in paths:
            with path.open("rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                ends = hashlib.sha256(file.read(_ENDS_BYTES))
                file.seek(max(size_bytes - _ENDS_BYTES, 0))
                ends.update(file.read(_ENDS_BYTES))
            entry = [split, path.relative_to(folder).as_posix(), size_bytes, ends.hexdigest()]
            digest.update(json.dumps(entry).encode() + b"\n")
    return digest.hexdigest()[:16]
