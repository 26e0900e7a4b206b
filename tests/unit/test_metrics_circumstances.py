"""What a record says of the circumstances: as the processes had them, or as far as an older record knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from factories import HARDWARE, make_cell, make_comparison, make_record, make_study, ok, planned
from metrics.circumstances import effective_threads, others_cpu_percent
from metrics.rows import measurement_rows

PROCESS = {
    "threads": 3,
    "affinity_cores": 4,
    "variables": {"OMP_NUM_THREADS": "3", "KMP_AFFINITY": "compact"},
    "processor": "Test CPU",
    "host_cores": 16,
    "kernel": "6.1.0",
    "driver": None,
    "python": "3.12.1",
}


def record_of(num_gpus: int = 1, process: Mapping[str, Any] | None = None, **launch: Any) -> dict[str, Any]:
    """A record whose ranks say this of their process (nothing: an older record), with these facts of the launch."""
    record = make_record(make_cell(num_gpus=num_gpus))
    record["launch"] |= launch
    for rank in record["ranks"] if process else []:
        rank["process"] = dict(process)
    return record


def row_of(record: dict[str, Any], num_gpus: int = 1) -> dict[str, Any]:
    cell = make_cell(num_gpus=num_gpus)
    study = make_study([make_comparison([planned(cell)])])
    return measurement_rows(study, {planned(cell).key: ok(record)}, HARDWARE).to_dict("records")[0]


def test_columns_are_as_the_process_really_had_it() -> None:
    row = row_of(record_of(process=PROCESS))
    assert (row["threads_per_process"], row["host_cores"], row["binding"]) == (3, 16, "4")
    assert (row["kernel"], row["python"], row["driver"], row["processor"]) == ("6.1.0", "3.12.1", "", "Test CPU")
    assert row["variables"] == "KMP_AFFINITY=compact;OMP_NUM_THREADS=3"
    assert row["tokens_sha256"] == "0" * 64


def test_an_older_record_leaves_empty_what_it_does_not_hold() -> None:
    row = row_of(record_of())
    assert row["threads_per_process"] == 1 and row["variables"] == "OMP_NUM_THREADS=1"
    assert pd.isna(row["host_cores"]) and row["binding"] == row["driver"] == ""
    assert (row["python"], row["processor"]) == ("3.11.7", "Test CPU")
    assert row["status"] == "ok" and row["comparable"] is True and row["notes"] == ""


@pytest.mark.parametrize(
    ("environment", "threads"),
    [({"OMP_NUM_THREADS": "2"}, 2), ({"OMP_NUM_THREADS": "4,2"}, 4), ({"OMP_NUM_THREADS": "all"}, None), ({}, None)],
)
def test_threads_of_an_older_record_are_those_that_were_set(environment: dict[str, str], threads: int | None) -> None:
    """The launcher gave one thread; where the system's file sets OMP_NUM_THREADS, that is what the process had."""
    assert effective_threads(record_of(environment=environment, threads_per_process=1)) == threads


def test_processes_that_differ_leave_the_number_empty_and_show_both_bindings() -> None:
    record = record_of(2, PROCESS)
    record["ranks"][1]["process"] |= {"threads": 1, "affinity_cores": 1}
    row = row_of(record, 2)
    assert pd.isna(row["threads_per_process"]) and row["binding"] == "1 + 4"


def test_a_cell_that_has_not_run_shows_the_threads_it_will_have() -> None:
    cell = make_cell(threads_per_process=2)
    row = measurement_rows(make_study([make_comparison([planned(cell)])]), {}, HARDWARE).iloc[0]
    assert row["status"] == "missing" and row["threads_per_process"] == 2


def test_oversubscribed_goes_by_the_threads_that_there_were() -> None:
    """Two processes on eight cores: one thread each were given, and the system's file made them five each."""
    row = row_of(record_of(2, environment={"OMP_NUM_THREADS": "5"}), 2)
    assert row["oversubscribed"] is True and "(2 x 5)" in row["notes"]


def test_what_others_used_is_a_share_of_the_cores_it_was_counted_over() -> None:
    launch = {"others_cpu_s": 16.0, "wall_s": 10.0, "cpu_cores": 1}
    assert others_cpu_percent({**launch, "others_cpu_cores": 8}) == pytest.approx(20.0)
    # An older record counted over the whole host, whose number of cores it does not hold: never 160 %.
    assert others_cpu_percent(launch) is None
    assert others_cpu_percent({**launch, "others_cpu_cores": None}) is None
    assert others_cpu_percent({**launch, "cpu_cores": 2}) == pytest.approx(80.0)


@pytest.mark.parametrize("cores", [1e308, 10**30])
def test_a_number_that_no_table_holds_costs_only_its_own_row(cores: float) -> None:
    cells = [make_cell("a"), make_cell("b")]
    outcomes = {planned(cell).key: ok(make_record(cell)) for cell in cells}
    outcomes[cells[0].cell_id, 1].record["ranks"][0]["process"] = PROCESS | {"host_cores": cores}
    rows = measurement_rows(make_study([make_comparison([planned(cell) for cell in cells])]), outcomes, HARDWARE)
    assert rows["status"].tolist() == ["missing", "ok"] and rows["kind"].tolist() == ["corrupt_record", ""]
