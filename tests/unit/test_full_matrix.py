"""The records made up for the paper's full matrix are such as a run can leave, and the same every time."""

from __future__ import annotations

import pytest

from factories import record_schema
from full_matrix import DEVICE_NAME, NAMES, NO_BASELINE, STRONG, TWO_DEVICES, WEAK, full_data, full_outcomes, full_study
from records.plausible import problem_of


@pytest.mark.parametrize("name", NAMES)
def test_a_run_can_leave_these_records(name: str) -> None:
    outcomes, by_status = full_outcomes(name), {}
    for planned in full_study(name).planned:
        outcome = outcomes[planned.key]
        if outcome.record is not None:
            by_status.setdefault((outcome.status, planned.cell.framework), []).append((planned.cell, outcome.record))
    assert {"ok", "oom"} <= {status for status, _ in by_status}
    for kept in by_status.values():
        for cell, record in kept[:2]:
            record_schema().validate(record)
            assert problem_of(record, cell) is None


def test_the_matrix_has_every_ending() -> None:
    statuses = {name: set(full_data(name).measurements["status"]) for name in NAMES}
    assert statuses[WEAK] == {"ok", "oom", "nan", "missing"}
    assert statuses[STRONG] == statuses[NO_BASELINE] == {"ok", "oom", "nan", "missing", "not_available"}
    gpus = {name: set(full_data(name).measurements["num_gpus"]) for name in NAMES}
    assert all(numbers == {48, 96, 192, 384} for numbers in gpus.values())
    assert full_data(WEAK).measurements["baseline_num_gpus"].notna().any()
    assert full_data(NO_BASELINE).measurements["baseline_num_gpus"].isna().all()
    assert set(full_data(TWO_DEVICES).measurements["device_name"]) > {DEVICE_NAME}


def test_the_numbers_are_the_same_every_time() -> None:
    before = full_data(WEAK).measurements["batch_time_s"].tolist()
    for cached in (full_study, full_outcomes, full_data):
        cached.cache_clear()
    after = full_data(WEAK).measurements["batch_time_s"].tolist()
    assert [f"{t:.17g}" for t in before] == [f"{t:.17g}" for t in after]
