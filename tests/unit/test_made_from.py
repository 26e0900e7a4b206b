"""What outputs were made from is known by contents: what counts as changed, and that no time stamp does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from contracts.outcomes import Outcome
from factories import make_record
from launcher.slurm.queue import Queue
from papers import axonn, load_paper
from planning.plan import Study, record_path, study_folder
from records.reader import read_outcomes
from records.setting_aside import forget
from reporting.made_from import (
    change_note,
    drawn_changes,
    drawn_file,
    is_settled,
    left_notes,
    made_from_path,
    measurements_changes,
    measurements_digests,
    note_made_from,
    what_changed,
)
from reporting.study_outputs import write_study_outputs
from studies import comparison, expand, study_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study() -> Study:
    points = [("small", 1), ("small", 2)]
    return expand(study_config(frameworks={"torch_ddp": None}, comparisons=comparison("strong", points)))


@pytest.fixture
def root(study: Study, tmp_path: Path) -> Path:
    """A checkout with a record of every cell and all outputs made from them."""
    for name in ("workflow", "reference"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / f"config/systems/{study.system.name}.yaml").write_text("device: cpu\n")
    (tmp_path / f"config/studies/{study.name}.yaml").write_text("title: x\n")
    for planned in study.planned:
        path = record_path(tmp_path / "results", study.system.name, planned)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(make_record(planned.cell, planned.repeat, system=study.system.name)))
    write_study_outputs(study, axonn, tmp_path, Queue())
    return tmp_path


def record_of(study: Study, root: Path, number: int = 0) -> Path:
    return record_path(root / "results", study.system.name, study.planned[number])


def table_changes(study: Study, root: Path) -> list[str]:
    return drawn_changes(study, "table", study.tables[0], root)


def test_nothing_has_changed_whatever_the_times_are(study: Study, root: Path) -> None:
    for path in root.rglob("*"):
        os.utime(path, (2e9, 2e9))
    assert measurements_changes(study, root) == table_changes(study, root) == []


@pytest.mark.parametrize("name", ["config/models.yaml", "config/hardware.yaml", "config/studies/mine.yaml"])
def test_an_edited_file_is_named_however_old_it_looks(study: Study, root: Path, name: str) -> None:
    path = root / name.replace("mine", study.name)
    path.write_text(f"# edited\n{path.read_text()}")
    os.utime(path, (1e9, 1e9))
    assert measurements_changes(study, root) == [path.relative_to(root).as_posix()]


def test_a_record_that_is_replaced_set_aside_or_put_back_is_noticed(study: Study, root: Path) -> None:
    record = record_of(study, root)
    whole = record.read_text()
    record.write_text(f"{whole} ")
    os.utime(record, (1e9, 1e9))
    assert measurements_changes(study, root) == ["records"]
    record.write_text(whole)
    assert measurements_changes(study, root) == []

    (moved,) = forget(study, read_outcomes(study, root / "results"), root / "results", lambda o: o is not None)[:1]
    assert not moved.exists()
    assert measurements_changes(study, root) == ["records"]
    write_study_outputs(study, load_paper(study.paper), root, Queue())
    assert measurements_changes(study, root) == []
    (aside,) = moved.parent.glob("record.forgotten-*")
    aside.rename(moved)
    assert measurements_changes(study, root) == ["records"]


def test_another_set_of_cells_is_noticed(study: Study, root: Path) -> None:
    more = comparison("strong", [("small", 1), ("small", 2), ("small", 4)])
    larger = expand(study_config(frameworks={"torch_ddp": None}, comparisons=more))
    assert measurements_changes(larger, root) == ["its cells", "records"]


def test_measurements_that_others_wrote_are_noticed_and_tables_follow_them(study: Study, root: Path) -> None:
    path = study_folder(root / "results", study) / "measurements.csv"
    path.write_text(path.read_text() + "\n")
    assert measurements_changes(study, root) == ["the output itself"]
    assert table_changes(study, root) == ["measurements.csv"]


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_where_nothing_is_noted_all_counts_as_changed(study: Study, root: Path, content: str | None) -> None:
    path = made_from_path(study_folder(root / "results", study), "measurements")
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert measurements_changes(study, root) == ["everything, as far as is known"]


def test_a_source_that_is_no_more_or_new_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    note_made_from(path, {"kept": "1", "gone": "2"})
    assert what_changed(path, {"kept": "1", "new": "3"}) == ["new", "gone"]


def test_an_edit_of_the_code_is_noticed(study: Study, root: Path) -> None:
    digests = measurements_digests(study, root)
    path = root / "noted.json"
    note_made_from(path, {**digests, "code": "another"})
    assert what_changed(path, digests) == ["code"]


def test_what_the_next_call_has_to_mend_is_not_settled() -> None:
    assert is_settled({("a", 1): Outcome("ok"), ("b", 1): Outcome("missing", "", "crash")})
    for kind in ("corrupt_record", "unreadable_record"):
        assert not is_settled({("a", 1): Outcome("ok"), ("b", 1): Outcome("missing", "", kind)})


def test_notes_of_killed_calls_are_found_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "login-2.site")
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = tmp_path / f"1-{killed.pid}-login-2.site.txt"
    others = (
        change_note(tmp_path),
        tmp_path / f"1-{killed.pid}-login-1.site.txt",
        tmp_path / f"1-{killed.pid}.txt",  # as it was called before
        tmp_path / "notes.txt",
    )
    for path in (left, *others):
        path.touch()
    assert left_notes(tmp_path) == [left]
    assert left_notes(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("results/local/demo/tables/weak_scaling.md", ("local", "demo", "table", "weak_scaling")),
        ("results/n-1/demo/figures/a.b.svg", ("n-1", "demo", "figure", "a.b")),
        ("results/local/demo/measurements.csv", ("local", "demo", "measurements", "")),
        ("results/local/demo/measurements.columns.csv", None),
        ("results/local/demo/tables/weak_scaling", None),
        ("demo", None),
    ],
)
def test_an_output_is_known_by_its_path(path: str, expected: tuple[str, str, str, str] | None) -> None:
    assert drawn_file(path) == expected
