"""A record that cannot be trusted counts as missing with a reason, whatever was done to it; the others are read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from contracts.outcomes import Outcome
from factories import make_cell, make_record
from launcher.processes import LAST_LINE_LIMIT, LogWriter
from metrics.rows import measurement_rows
from planning.plan import PlannedCell, Study, record_path
from records.code_digests import SCRIPTS
from records.reader import read_outcomes
from records.setting_aside import forget, records_that_stay, set_aside_damaged
from settings.config import check_config
from studies import comparison, expand, study_config

ROOT = Path(__file__).resolve().parents[2]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def study() -> Study:
    return expand(
        study_config(frameworks={"torch_ddp": None}, comparisons=comparison("strong", [("small", 1), ("small", 2)]))
    )


def write_record(results: Path, study: Study, planned: PlannedCell, change: Change | None = None) -> Path:
    record = json.loads(json.dumps(make_record(planned.cell, planned.repeat, system=study.system.name)))
    if change:
        change(record)
    path = record_path(results, study.system.name, planned)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    return path


DAMAGE: dict[str, Change] = {
    "ranks is a number": lambda r: r.update(ranks=5),
    "ranks holds a number": lambda r: r.update(ranks=[1]),
    "no launch": lambda r: r.update(launch=None),
    "no versions": lambda r: r.pop("versions"),
    "no settings": lambda r: r.pop("settings"),
    "no start": lambda r: r.pop("started_at"),
    "an end that is no time": lambda r: r.update(finished_at="zz"),
    "a rank without a device": lambda r: r["ranks"][0].pop("device_name"),
    "a stamp that is text": lambda r: r["ranks"][0]["batch_end_s"].__setitem__(3, "x"),
    "a stamp that is null": lambda r: r["ranks"][0]["batch_end_s"].__setitem__(3, None),
    "a batch less": lambda r: r["ranks"][0]["batch_end_s"].pop(),
    "a rank less": lambda r: r["ranks"].pop(),
    "a product in no time": lambda r: r["ranks"][0].update(matmul_seconds=[0, 0]),
    "a framework that is a list": lambda r: r.update(framework=[1]),
    "an unknown status": lambda r: r.update(status="fine"),
    "another cell": lambda r: r["identity"].update(global_batch_size=4),
    "another repeat": lambda r: r.update(repeat=2),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_missing_and_can_be_set_aside(study: Study, tmp_path: Path, damage: str) -> None:
    whole, broken = study.planned
    write_record(tmp_path, study, whole)
    path = write_record(tmp_path, study, broken, DAMAGE[damage])
    outcomes = read_outcomes(study, tmp_path)
    assert outcomes[whole.key].status == "ok"
    assert (outcomes[broken.key].status, outcomes[broken.key].kind) == ("missing", "corrupt_record")
    rows = measurement_rows(study, outcomes, {})
    assert list(rows["status"]) == ["ok", "missing"]
    assert [moved for moved, _ in set_aside_damaged(study, outcomes, tmp_path)] == [path]
    assert not path.exists()
    assert len(list(path.parent.glob("record.damaged-*.json"))) == 1


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": NaN}', "[]", "null", "3"])
def test_a_file_that_is_no_record_is_missing(study: Study, tmp_path: Path, text: str) -> None:
    path = write_record(tmp_path, study, study.planned[0])
    path.write_text(text)
    assert read_outcomes(study, tmp_path)[study.planned[0].key].kind == "corrupt_record"


def test_a_value_that_breaks_arithmetic_takes_no_other_row_with_it(study: Study, tmp_path: Path) -> None:
    whole, broken = study.planned
    write_record(tmp_path, study, whole)
    write_record(tmp_path, study, broken, lambda r: r["ranks"][0]["batch_end_s"].__setitem__(3, 1e308))
    outcomes = read_outcomes(study, tmp_path)
    record = make_record(broken.cell)
    record["ranks"][0]["batch_end_s"][3] = 1e308
    # Whether it is noticed while it is read, or only where it is computed with.
    for outcome in (outcomes[broken.key], Outcome("ok", record=record, code_changed=False)):
        rows = measurement_rows(study, {**outcomes, broken.key: outcome}, {})
        assert list(rows["status"]) == ["ok", "missing"]
        assert list(rows["kind"]) == ["", "corrupt_record"]
        assert list(rows["batch_time_s"].notna()) == [True, False]


def test_a_record_that_cannot_be_read_stays(study: Study, tmp_path: Path) -> None:
    """It may be whole: a network file system's error, say. A folder in its place gives root such an error as well."""
    path = write_record(tmp_path, study, study.planned[0])
    path.unlink()
    path.mkdir()
    outcomes = read_outcomes(study, tmp_path)
    assert outcomes[study.planned[0].key].kind == "unreadable_record"
    assert set_aside_damaged(study, outcomes, tmp_path) == []
    assert [found for found, _ in records_that_stay(study, outcomes, tmp_path)] == [path]
    assert path.exists()


def test_a_cell_that_is_being_measured_is_running_until_its_launcher_is_gone(study: Study, tmp_path: Path) -> None:
    planned = study.planned[0]
    folder = record_path(tmp_path, study.system.name, planned).parent
    folder.mkdir(parents=True)
    begin = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    begin += "from launcher.verdicts import clear_former_launch\n"
    begin += "clear_former_launch(Path(sys.argv[2]), '42'); print('begun', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", begin, str(SCRIPTS), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "begun\n"
        assert read_outcomes(study, tmp_path)[planned.key].kind == "running"
        launcher.kill()
    outcome = read_outcomes(study, tmp_path)[planned.key]
    assert (outcome.kind, outcome.reason) == ("interrupted", "the launcher was killed before it could say why")
    assert outcome.job_id == "42"


def test_forgetting_keeps_the_record_beside_its_cell(study: Study, tmp_path: Path) -> None:
    path = write_record(tmp_path, study, study.planned[0])
    outcomes = read_outcomes(study, tmp_path)
    assert forget(study, outcomes, tmp_path, lambda o: o.status == "oom") == []
    assert forget(study, outcomes, tmp_path, lambda o: o.status == "ok") == [path]
    assert len(list(path.parent.glob("record.forgotten-*.json"))) == 1


def test_output_without_end_is_cut(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("x" * 1_000_000 + "\nlast\n")
    log = LogWriter((tmp_path / "log.txt").open("w"))
    with source.open() as stream:
        log.copy(0, stream)
    log.close()
    assert log.last_lines(0)[-1] == "last"
    assert max(map(len, log.last_lines(0))) <= LAST_LINE_LIMIT


def test_a_setting_that_no_record_can_hold_is_told_in_words() -> None:
    record = make_record(make_cell(), settings={"initial_weights": "shared", "config": {"a": 1}}, check=False)
    with pytest.raises(ConfigError, match="is not a text or a number or true or false or nothing"):
        check_config(record, "record", ROOT, "record")
