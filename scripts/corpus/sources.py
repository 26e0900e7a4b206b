"""Which text a corpus is, where it lies, and a stream of it.

`resolve_corpus` runs at every Snakemake parse, so that nothing heavy is imported until text is read.
"""

import codecs
import dataclasses
import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.gpt2 import tokenizer_name

if TYPE_CHECKING:
    import pyarrow

BUNDLED = "bundled"
BUNDLED_FOLDER = Path("corpora") / "bundled"
TRAIN = "train"
SPLITS = (TRAIN, "validation", "test")
SPLIT_OF_WORD = {"train": TRAIN, "validation": "validation", "valid": "validation", "val": "validation",
                 "dev": "validation", "test": "test"}  # fmt: skip
TEXT_SUFFIXES = (".raw", ".tokens", ".txt")
TABLE_SUFFIXES = (".parquet", ".arrow")
TEXT_COLUMN = "text"

# Files that lie beside a corpus and are no part of it.
_BESIDE = re.compile(r"(readme|license|licence|notice|copying|citation|changelog)\b|cache-.*\.arrow$|\.", re.IGNORECASE)
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDS_BYTES = 64 * 1024
_READ_BYTES = 1024 * 1024
_ROWS_PER_PIECE = 1000
_OFFSET_BYTES_PER_ROW = 4


@dataclasses.dataclass(frozen=True)
class HubCorpus:
    """A data set on the Hugging Face hub; `counts` is (rows, num_bytes) per split, as the hub's own card gives them.

    num_bytes is the size in Arrow: the text in UTF-8 plus four bytes for every row.
    """

    path: str
    config: str
    revision: str
    counts: dict[str, tuple[int, int]]


WIKITEXT_103 = HubCorpus(
    path="Salesforce/wikitext",
    config="wikitext-103-raw-v1",
    revision="b08601e04326c79dfdd32d625aee71d232d685c3",
    counts={"train": (1_801_350, 546_500_949), "validation": (3_760, 1_159_288), "test": (4_358, 1_305_088)},
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
        raise ValueError(f"the corpus {text!r} is not valid JSON ({error}): write it like {_LOCAL_EXAMPLE}") from error
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
        raise ValueError(f"the corpus is {value!r}: give one of {_names()}, or {_LOCAL_EXAMPLE}")
    if value == BUNDLED:
        return _resolve_bundled(Path(root))
    if value in HUB_CORPORA:
        hub = HUB_CORPORA[value]
        return Corpus(name=value, source=f"{hub.path}/{hub.config}", revision=hub.revision, splits=tuple(hub.counts))
    raise ValueError(f"there is no corpus named {value!r}: {_suggestion(value, Path(root))}")


def read_text(corpus: Corpus, split: str) -> Iterator[str]:
    """Return a stream of the split's text, in order, in pieces of about a megabyte or less.

    Joined, the pieces are the rows or files as they are: nothing is added between them, no line end is translated, no
    byte order mark dropped. Memory holds one piece at a time.

    Raises ValueError at once for a split the corpus has not, and while reading for text that is not UTF-8 (file and
    byte), a table without the column `text`, a hub that cannot be reached, or a corpus of the hub that is not what it
    was (rows and bytes are counted).
    """
    check_split(corpus, split)
    if not corpus.files:
        return _read_hub(HUB_CORPORA[corpus.name], split)
    return _read_files(corpus.files[split])


def text_size_bytes(corpus: Corpus, split: str) -> int | None:
    """Return the size of the split's text in UTF-8 where it is known without reading it, else None."""
    check_split(corpus, split)
    if not corpus.files:
        num_rows, num_bytes = HUB_CORPORA[corpus.name].counts[split]
        return num_bytes - _OFFSET_BYTES_PER_ROW * num_rows
    paths = corpus.files[split]
    if _kind(paths[0]) in TABLE_SUFFIXES:
        return None
    return sum(path.stat().st_size for path in paths)


def check_split(corpus: Corpus, split: str) -> None:
    """Raise ValueError where the corpus has no such split."""
    if split not in corpus.splits:
        raise ValueError(f"the corpus {corpus.name!r} has no split {split!r}: it has {', '.join(corpus.splits)}")


# ---------------------------------------------------------------------------------------------------------------------
# Resolving

_LOCAL_EXAMPLE = '{"path": "a folder or file with text"}'


def _names() -> str:
    return ", ".join(repr(name) for name in (BUNDLED, *HUB_CORPORA))


def _suggestion(value: str, root: Path) -> str:
    if _absolute(value, root).exists():
        return f"for a local file or folder write {json.dumps({'path': value})}"
    nearest = difflib.get_close_matches(value.lower(), [BUNDLED, *HUB_CORPORA], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{hint}There are {_names()}, and local text by {_LOCAL_EXAMPLE}"


def _absolute(path: str, root: Path) -> Path:
    return root / Path(path).expanduser()


def _resolve_bundled(root: Path) -> Corpus:
    folder = root / BUNDLED_FOLDER
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
        raise ValueError(f"the corpus {value!r} has no path: write it like {_LOCAL_EXAMPLE}")
    path = _absolute(value["path"], root)
    name = _local_name(value, path)
    if not path.exists():
        raise ValueError(
            f"the corpus' path {path} does not exist: correct it (a relative path starts at {root}), or use one of "
            f"{_names()}"
        )
    folder = path if path.is_dir() else path.parent
    try:
        files = _find_files(path) if path.is_dir() else {TRAIN: (_checked_file(path),)}
        for split, paths in files.items():
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
    if _kind(path) not in TEXT_SUFFIXES + TABLE_SUFFIXES:
        raise ValueError(f"the corpus' file {path} is of no kind that can be read: {_kinds()}")
    return path


def _kind(path: Path) -> str:
    return path.suffix.lower()


def _kinds() -> str:
    return f"give UTF-8 text ({', '.join(TEXT_SUFFIXES)}) or tables ({', '.join(TABLE_SUFFIXES)})"


def _readable_files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.iterdir()
        # not is_file(): a shard that is a broken link must be an error later, and not be left out
        if _kind(path) in TEXT_SUFFIXES + TABLE_SUFFIXES and not path.is_dir() and not _BESIDE.match(path.name)
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
        kinds = sorted({_kind(path) for path in paths})
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


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def _read_files(paths: tuple[Path, ...]) -> Iterator[str]:
    for path in paths:
        try:
            yield from _read_text_file(path) if _kind(path) in TEXT_SUFFIXES else _read_table_file(path)
        except OSError as error:
            raise ValueError(f"the corpus' file {path} cannot be read: {error}") from error


def _read_text_file(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="strict")
    read_bytes = 0
    with path.open("rb") as file:  # bytes, so that no line end is translated
        while True:
            block = file.read(_READ_BYTES)
            pending_bytes = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"the corpus' file {path} is not UTF-8 at byte {read_bytes - pending_bytes + error.start} "
                    f"({error.reason}): convert the file to UTF-8"
                ) from error
            read_bytes += len(block)
            if text:
                yield text
            if not block:
                return


def _read_table_file(path: Path) -> Iterator[str]:
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError(f"reading {path} needs the package pyarrow: install what envs/workflow.txt lists") from error
    try:
        batches = _parquet_batches(path) if _kind(path) == ".parquet" else _arrow_batches(path)
        for batch in batches:
            yield from (piece for piece, _ in _texts_of(batch, str(path)))
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"the corpus' file {path} is not a valid {path.suffix[1:]} file: {error}") from error


def _parquet_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        _check_column(file.schema_arrow.names, str(path))
        yield from file.iter_batches(batch_size=_ROWS_PER_PIECE, columns=[TEXT_COLUMN], use_threads=False)


def _arrow_batches(path: Path) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow

    # Arrow has two formats under one suffix: the stream, which `datasets` writes, and the file with an index.
    with pyarrow.memory_map(str(path)) as source:
        try:
            reader = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = pyarrow.ipc.open_file(source)
        _check_column(reader.schema.names, str(path))
        if hasattr(reader, "num_record_batches"):
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            yield from reader


def _check_column(names: list[str], where: str) -> None:
    if TEXT_COLUMN not in names:
        raise ValueError(
            f"{where} has no column {TEXT_COLUMN!r}: its columns are {', '.join(names) or '(none)'}; rename the one "
            f"that holds the text to {TEXT_COLUMN!r}"
        )


def _texts_of(table: "pyarrow.RecordBatch | pyarrow.Table", where: str) -> Iterator[tuple[str, int]]:
    """Yield (text, rows) for up to a thousand rows at a time, joined as they are."""
    import pyarrow

    column = table[TEXT_COLUMN]
    is_text = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_string_view)
    if not any(check(column.type) for check in is_text):
        raise ValueError(f"{where} has a column {TEXT_COLUMN!r} of type {column.type}: it must hold strings")
    if column.null_count:
        raise ValueError(f"{where} has rows without text (null): remove them or make them empty strings")
    for start in range(0, len(column), _ROWS_PER_PIECE):
        rows = column.slice(start, _ROWS_PER_PIECE).to_pylist()
        yield "".join(rows), len(rows)


def _read_hub(hub: HubCorpus, split: str) -> Iterator[str]:
    dataset = _load_hub(hub, split)
    num_rows = text_bytes = 0
    for table in dataset.with_format("arrow").iter(batch_size=_ROWS_PER_PIECE):
        for piece, rows in _texts_of(table, f"{hub.path}, split {split}"):
            num_rows += rows
            text_bytes += len(piece.encode())
            yield piece
    found = (num_rows, text_bytes + _OFFSET_BYTES_PER_ROW * num_rows)
    if found != hub.counts[split]:
        raise ValueError(
            f"{hub.path} ({hub.config}, revision {hub.revision}), split {split}, has {found[0]} rows and {found[1]} "
            f"bytes, but must have {hub.counts[split][0]} and {hub.counts[split][1]}: the local copy is damaged or "
            "another; remove it from the Hugging Face cache and run again"
        )


def _load_hub(hub: HubCorpus, split: str) -> Any:
    """Return the split as a memory-mapped `datasets.Dataset`, from the cache of this machine where it is there."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"{hub.path} needs the package datasets: install what envs/workflow.txt lists") from error
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        dataset = datasets.load_dataset(hub.path, hub.config, revision=hub.revision, split=split)
    # What a missing network raises differs from version to version of the libraries below, and none of their
    # exceptions can be helped here in another way than the message says.
    except Exception as error:
        raise ValueError(
            f"{hub.path} ({hub.config}) could not be loaded from the Hugging Face hub, nor from this machine's cache "
            f"of it ({type(error).__name__}: {error}). Where the hub cannot be reached, give the text as a local "
            f"folder, {_LOCAL_EXAMPLE}, or use the corpus {BUNDLED!r}; where it can, run again"
        ) from error
    _check_column(dataset.column_names, hub.path)
    return dataset
