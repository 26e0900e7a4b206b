"""Small corpora on disk for tests, and the whole text of one."""

from __future__ import annotations

from pathlib import Path

from corpus import sources
from corpus.reading import read_text
from corpus.sources import resolve_corpus

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Tokens of\n\na text's words, <|endoftext|> 漢字 🙂 and \x1c\x85 so on.  \n"


def write_folder(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def write_parquet(path: Path, rows: list, column: str = "text", more: dict | None = None, **options) -> Path:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({column: rows, **(more or {})}), path, **options)
    return path


def local(path: Path, **more) -> sources.Corpus:
    return resolve_corpus({"path": str(path), **more}, ROOT)


def whole(corpus: sources.Corpus, split: str = "train") -> str:
    return "".join(read_text(corpus, split))


def corpus_of(path: Path, text: str = TEXT):
    path.write_bytes(text.encode())
    return resolve_corpus({"path": str(path)}, ROOT)
