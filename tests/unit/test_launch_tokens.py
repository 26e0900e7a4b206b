"""A cell is trained on its own corpus: another one's file in its place is refused before anything starts."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.verify import TokensInfo, check_corpus, read_tokens_info
from factories import make_cell

ROOT = Path(__file__).resolve().parents[2]
CORPUS = {"source": "bundled", "revision": "1", "tokenizer": "gpt2:9f08c598c09a"}


def write_tokens(folder: Path, **changes: Any) -> Path:
    """A whole token file of 2,000 tokens and its JSON, of the corpus CORPUS unless `changes` say otherwise."""
    tokens = (np.arange(2000) % 500).astype("<u2")
    (folder / "train.bin").write_bytes(tokens.tobytes())
    digest = hashlib.sha256(tokens.tobytes()).hexdigest()
    facts = {
        **CORPUS,
        "split": "train",
        "text_sha256": "0" * 64,
        "text_bytes": 8000,
        "num_tokens": 2000,
        "tokens_sha256": digest,
        "dtype": "uint16",
        "created": "2026-11-29T12:00:00+00:00",
    }
    path = folder / "train.json"
    path.write_text(json.dumps(facts | changes))
    return path


def info_of(folder: Path, **changes: Any) -> TokensInfo:
    return read_tokens_info(write_tokens(folder, **changes))


@pytest.mark.parametrize(
    "change", [{"source": "wikitext"}, {"revision": "2"}, {"tokenizer": "bytes"}, {"split": "validation"}], ids=str
)
def test_another_corpus_is_refused_by_name(change: dict[str, str], tmp_path: Path) -> None:
    ((key, value),) = change.items()
    with pytest.raises(ValueError, match=f"{key} {value}.*the cell's is {(CORPUS | {'split': 'train'})[key]}"):
        check_corpus(info_of(tmp_path, **change), CORPUS, tmp_path / "train.json")


def test_its_own_corpus_is_taken(tmp_path: Path) -> None:
    check_corpus(info_of(tmp_path), CORPUS, tmp_path / "train.json")


@pytest.mark.parametrize("change", [{"source": "wikitext"}, {"split": "test"}], ids=str)
def test_nothing_is_started_on_another_corpus(change: dict[str, str], tmp_path: Path) -> None:
    cell = make_cell(corpus=CORPUS, environment={"name": "torch", "requirements": []}, gpus_per_node=1)
    folder = tmp_path / cell.cell_id / "repeat1"
    tokens = write_tokens(tmp_path, **change)
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), "--system", "local", "--cell", cell.identity_json]
    command += ["--model-name", "tiny", "--repeat", "1", "--tokens", str(tokens), "--time-limit-s", "60"]
    command += ["--record", str(folder / "record.json"), "--log", str(folder / "log.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    failure = json.loads((folder / "failure.json").read_text())
    assert failure["kind"] == "refused"
    assert next(iter(change.values())) in failure["reason"]
    assert "the next call makes them anew" in failure["reason"]
    # It may be somebody's: whole files are left where they are.
    assert tokens.exists()
    assert [path.name for path in folder.iterdir()] == ["failure.json"]


def test_nothing_is_started_on_too_few_tokens(tmp_path: Path) -> None:
    cell = make_cell(
        corpus=CORPUS, environment={"name": "torch", "requirements": []}, gpus_per_node=1, global_batch_size=4096
    )
    folder = tmp_path / cell.cell_id / "repeat1"
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), "--system", "local", "--cell", cell.identity_json]
    command += ["--model-name", "tiny", "--repeat", "1", "--tokens", str(write_tokens(tmp_path)), "--time-limit-s", "9"]
    command += ["--record", str(folder / "record.json"), "--log", str(folder / "log.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    failure = json.loads((folder / "failure.json").read_text())
    assert failure["kind"] == "refused" and "has 2,000; use a smaller batch or a longer text" in failure["reason"]
    assert [path.name for path in folder.iterdir()] == ["failure.json"]
