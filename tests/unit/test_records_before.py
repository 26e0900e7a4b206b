"""Records of the commit before count as they are: real ones of its demo, untouched, in tests/data/records_before."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from factories import HARDWARE
from metrics.columns import read_measurements, write_measurements
from metrics.rows import measurement_rows
from planning.plan import Study, record_path
from planning.studies import load_models
from records.reader import read_outcomes
from studies import cpu_system, expand
from workloads.training.training_cell import TrainingCell

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ROOT / "tests" / "data" / "records_before"
RECORDS = sorted(BEFORE.glob("local/cells/*/*/*/*/repeat1/record.json"))


def measured_with(cell: TrainingCell) -> TrainingCell:
    """The cell in the environment that its record was measured in: another version of torch is another cell."""
    return replace(cell, environment=json.loads(RECORDS[0].read_text())["identity"]["environment"])


@pytest.fixture
def study() -> Study:
    """The demo as it was, planned by today's code; `shared` is what `threads_per_process` leaves out."""
    config = yaml.safe_load((BEFORE / "demo.yaml").read_text())
    system = cpu_system(name="local", threads_per_process=None)
    planned = expand(config, system, load_models(ROOT))
    return replace(
        planned,
        comparisons=tuple(
            replace(one, cells=tuple(replace(p, cell=measured_with(p.cell)) for p in one.cells))
            for one in planned.comparisons
        ),
    )


def test_its_cells_have_their_ids(study: Study) -> None:
    expected = {record_path(BEFORE, "local", planned) for planned in study.planned}
    assert len(RECORDS) == 3
    assert set(RECORDS) <= expected


def test_its_records_count_and_give_the_same_batch_times(study: Study, tmp_path: Path) -> None:
    outcomes = read_outcomes(study, BEFORE)
    measured = {key: outcome for key, outcome in outcomes.items() if outcome.record is not None}
    assert {outcome.status for outcome in measured.values()} == {"ok"}
    assert len(measured) == len(RECORDS)
    write_measurements(measurement_rows(study, outcomes, HARDWARE), tmp_path / "measurements.csv")
    rows = read_measurements(tmp_path / "measurements.csv")
    rows = rows[rows["status"] == "ok"].drop_duplicates(["cell_id", "repeat"]).set_index("cell_id")
    for path in RECORDS:
        record = json.loads(path.read_text())
        ranks = record["ranks"]
        slowest = [max(rank["batch_end_s"][i] - rank["batch_start_s"][i] for rank in ranks) for i in range(1, 11)]
        row = rows.loc[record["cell_id"]]
        assert row["batch_time_s"] == pytest.approx(sum(slowest) / 10, rel=1e-12)
        assert row["tokens_per_s"] == pytest.approx(4 * 32 / (sum(slowest) / 10), rel=1e-12)
        # A fact that they do not hold is empty and costs them nothing.
        assert row["comparable"] and row["binding"] == row["driver"] == "" and pd.isna(row["host_cores"])


def test_other_code_is_a_mark_and_no_more(study: Study, tmp_path: Path) -> None:
    shutil.copytree(BEFORE / "local", tmp_path / "local")
    for path in tmp_path.rglob("record.json"):
        record = json.loads(path.read_text())
        record["code"] = dict.fromkeys(record["code"], "0" * 64)
        path.write_text(json.dumps(record))
    frames = [measurement_rows(study, read_outcomes(study, folder), HARDWARE) for folder in (BEFORE, tmp_path)]
    as_it_was, other = (frame[frame["status"] == "ok"] for frame in frames)
    assert other["code_changed"].all()
    for column in ("cell_id", "batch_time_s", "tokens_per_s", "speedup", "parallel_efficiency", "comparable"):
        assert other[column].equals(as_it_was[column]), column
