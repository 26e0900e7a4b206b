"""Damaged files, too little memory, a full disk: none of it counts, and the next call repairs what can be repaired."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import Project, write_double

pytestmark = pytest.mark.slow


def test_a_damaged_record_is_set_aside_and_measured_again(project: Project) -> None:
    record = project.record("torch_ddp")
    record.write_text(record.read_text()[:-200])
    run = project.snakemake("tiny")
    assert run.returncode != 0
    assert "the record is damaged" in run.output
    rows = {row["framework"]: row for row in project.measurements()}
    assert rows["torch_ddp"]["kind"] == "corrupt_record"
    assert rows["torch_plain"]["status"] == "ok"
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert again.jobs("train_cell") == 1
    assert len(list(record.parent.glob("record.damaged-*.json"))) == 1


@pytest.mark.parametrize("change", ["status", "identity", "batches", "ranks"])
def test_a_record_that_is_not_what_it_says_does_not_count(project: Project, change: str) -> None:
    path = project.record("torch_ddp")
    record = json.loads(path.read_text())
    if change == "status":
        record["status"] = "fine"
    elif change == "identity":
        record["identity"]["global_batch_size"] = 4
    elif change == "batches":
        record["ranks"][0]["batch_end_s"].pop()
    else:
        record["ranks"] = []
    path.write_text(json.dumps(record))
    shown = project.script("status.py", "tiny")
    assert "1 failed, 1 done" in shown.output or "1 done, 1 failed" in shown.output
    assert "corrupt_record" in shown.output


def test_a_damaged_token_file_is_made_again(project: Project) -> None:
    (tokens,) = project.root.glob("results/tokens/*/train.bin")
    whole = tokens.read_bytes()
    tokens.write_bytes(b"\0\0" + whole[2:])
    project.record("torch_ddp").unlink()
    run = project.snakemake("tiny")
    assert run.returncode != 0
    assert "is damaged" in run.output
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert (again.jobs("tokenize_corpus"), again.jobs("train_cell")) == (1, 1)
    assert tokens.read_bytes() == whole


def test_a_corpus_that_cannot_be_tokenized_is_the_reason_of_its_cells(fresh_project: Project) -> None:
    (fresh_project.root / "mytexts").mkdir()
    (fresh_project.root / "mytexts/train.txt").write_bytes(b"some words\n\xff\xfe and more\n" * 200)
    fresh_project.write_study(corpus={"path": "mytexts"})
    run = fresh_project.snakemake("tiny")
    assert run.returncode != 0
    assert run.jobs("tokenize_corpus") == 1
    for row in fresh_project.measurements():
        assert (row["status"], row["kind"]) == ("missing", "corpus_failed")
        assert "the corpus could not be tokenized: " in row["reason"]
        assert "mytexts" in row["reason"] and "train.log" in row["reason"]
    assert "corpus_failed: the corpus could not be tokenized: " in run.output
    assert "2 failed" in fresh_project.script("status.py", "tiny").output


def test_too_little_memory_is_a_result_until_it_is_forgotten(project: Project) -> None:
    project.edit("config/systems/local.yaml", "cpu_processes: 4", "cpu_processes: 4\nmemory_limit_gib: 0.9")
    big = {"main": {"scaling": "strong", "cross": {"models": ["big"], "num_gpus": [1]}}}
    project.write_study(frameworks={"torch_ddp": None}, comparisons=big)
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    (row,) = project.measurements()
    assert row["status"] == "oom"
    assert row["batch_time_s"] == row["peak_memory_gib"] == ""
    assert "OOM" in project.table("strong_scaling")
    assert project.snakemake("tiny").nothing_done

    project.edit("config/systems/local.yaml", "memory_limit_gib: 0.9\n", "")
    assert project.snakemake("tiny", "--dry-run").jobs("train_cell") == 0
    assert project.script("status.py", "forget", "--status", "oom", "tiny").returncode == 0
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert project.measurements()[0]["status"] == "ok"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own in `folder`, with hardly any room."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"only root can mount a small file system: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def full_disk(project: Project) -> Iterator[Path]:
    """The cells' folder on such a file system."""
    folder = project.root / "results/local/cells/torch_ddp"
    with small_disk(folder):
        yield folder


def test_a_full_disk_leaves_no_record_and_room_repairs(project: Project, full_disk: Path) -> None:
    (full_disk / "filler").write_bytes(b"x" * 56 * 1024)
    run = project.snakemake("tiny")
    assert run.returncode != 0
    assert "No space left on device" in run.output or "disk_full" in run.output
    assert not list(full_disk.rglob("record.json"))
    assert not list(full_disk.rglob("*.tmp"))
    rows = {row["framework"]: row for row in project.measurements()}
    assert rows["torch_ddp"]["status"] == "missing"
    assert rows["torch_plain"]["status"] == "ok"
    (full_disk / "filler").unlink()
    again = project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert again.jobs("train_cell") == 1


HOLDING_ADAPTOR = '''"""Test double: `nothing`, that mounts a file system in the launch's folder."""

import os
import subprocess
from pathlib import Path

from frameworks import nothing

FRAMEWORK, unsupported_reason = nothing.FRAMEWORK, nothing.unsupported_reason


def create_engine(job):
    held = Path(os.environ["SCALING_EVAL_MEETING_FOLDER"]) / "held"
    held.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", held], check=True)
    return nothing.create_engine(job)
'''


def test_a_folder_that_cannot_be_removed_costs_no_record(fresh_project: Project, tmp_path: Path) -> None:
    """On a network file system a file that a process of another node holds stays until that process ends."""
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk"):  # whether it can be done at all
        pass
    write_double(fresh_project, "holding", HOLDING_ADAPTOR)
    fresh_project.write_study(frameworks={"holding": None})
    try:
        run = fresh_project.snakemake("tiny")
    finally:
        for held in fresh_project.root.glob("results/local/cells/**/ranks-*/held"):
            subprocess.run(["umount", "-l", held], check=True)
    assert run.returncode == 0, run.output
    assert json.loads(fresh_project.record("holding").read_text())["status"] == "ok"
