"""Records after every kind of damage: read, collected, tabled and drawn without a traceback or an impossible number.

Every case is a pure function of its number, which is part of each failure's message: `one_case(number, folder)` shows
it alone. `./test` runs the first 1,000, `./test --long` further 10,000.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contracts.cell import Layout
from contracts.outcomes import RECORDED_STATUSES, Outcome
from factories import HARDWARE, ROOT, SMALL, TINY, make_cell, make_comparison, make_record, make_study, ok, planned
from metrics.columns import COLUMNS, NUMBER, TEXT, read_measurements, write_measurements
from metrics.rows import measurement_rows
from papers import axonn, find_figure, parity
from planning.plan import PlannedCell, Study
from record_mutations import mutated_text
from records.reader import read_outcome
from reporting.figure_files import write_figure
from reporting.study_data import load_study_data
from reporting.table_files import write_frame

Outcomes = dict[tuple[str, int], Outcome]
CASES = 1_000
LONG_CASES = 10_000
PER_STUDY = 20  # cases that share one study and its tables: most of the time goes there
TABLED, DRAWN = 5, 25  # of so many studies one has its tables made, one its figures drawn
CORPUS = {"source": "bundled", "revision": "1", "tokenizer": "gpt2"}
PROCESS = {
    "threads": 1, "affinity_cores": 8, "variables": {"OMP_NUM_THREADS": "1"}, "processor": "Test CPU", "host_cores": 8,
    "kernel": "6.1.0", "driver": None, "python": "3.11.7",
}  # fmt: skip
# Columns that are not above zero wherever they are not empty.
MAY_BE_ZERO = {
    "input_time_s", "batch_time_std_s", "layout_batch_time_spread_s", "speedup_spread", "parallel_efficiency_spread",
    "others_cpu_percent", "peak_memory_gib",
}  # fmt: skip
MAY_BE_NEGATIVE = {"reported_disagreement_percent", "final_loss"}
# What a row says of its own record alone, whatever stands beside it.
OWN = ("status", "reason", "kind", "batch_time_s", "batch_time_std_s", "tokens_per_s", "losses", "hosts", "versions")


@cache
def study_and_outcomes() -> tuple[Study, Outcomes]:
    """Sixty records of every status: one to four processes on one and two nodes, CPU and GPU, in four comparisons."""
    cells: dict[str, list[PlannedCell]] = {"strong": [], "none": [], "cuda": [], "model": []}
    outcomes: Outcomes = {}

    def add(comparison: str, one: PlannedCell, times: float = 1.0, **record: Any) -> None:
        cells[comparison].append(one)
        made = make_record(one.cell, one.repeat, times, **record)
        made["tokens"] |= CORPUS
        made["launch"]["others_cpu_cores"] = 8
        for rank in made["ranks"]:
            rank["process"] = copy.deepcopy(PROCESS)
        outcomes[one.key] = ok(made)

    for framework in ("torch_plain", "torch_ddp", "torch_fsdp", "axonn"):
        for num_gpus in (1, 2, 4):
            for repeat in (1, 2):
                cell = make_cell(framework, num_gpus, corpus=CORPUS, gpus_per_node=3)
                add("strong", planned(cell, repeat), 4.0 / num_gpus + 0.01 * repeat)
                on_gpu = make_cell(framework, num_gpus, device="cuda", precision="bf16", corpus=CORPUS)
                add("cuda", planned(on_gpu, repeat), 0.5 / num_gpus, device_name="Tesla V100-SXM2-16GB")
        split = Layout(1, tensor_parallel=2, pipeline_parallel=2)
        add("none", planned(make_cell(framework, 4, SMALL, layout=split, corpus=CORPUS)))
        cells["model"] += [planned(make_cell(framework, 1, corpus=CORPUS, gpus_per_node=3))]
        add("model", planned(make_cell(framework, 2, SMALL, corpus=CORPUS)), 1.5)
        losses = [6.0, "nan", *["inf"] * 9]
        add("none", planned(make_cell(framework, 1, SMALL, corpus=CORPUS)), status="nan", losses=losses)
        add("none", planned(make_cell(framework, 2, TINY, seed=2, corpus=CORPUS)), status="oom", reason="r", ranks=[])
    gone = planned(make_cell("torch_ddp", 1, TINY, seed=3, corpus=CORPUS))
    add("none", gone, status="not_available", reason="no server", ranks=[])
    scalings = {"strong": "strong", "none": "none", "cuda": "strong", "model": "weak_model"}
    return make_study([make_comparison(cells[name], name, scalings[name]) for name in cells]), outcomes


def one_case(number: int, folder: Path) -> tuple[PlannedCell, Outcome]:
    """Damage one of the records in the way of this case, and read it."""
    study, outcomes = study_and_outcomes()
    source = random.Random(f"record {number}")
    one = source.choice(study.planned)
    record = outcomes[one.key].record
    assert record is not None
    path = folder / f"{number}.json"
    # surrogatepass: bytes that are no UTF-8 stand in files as well.
    path.write_bytes(mutated_text(json.loads(json.dumps(record)), source).encode("utf-8", "surrogatepass"))
    return one, read_outcome(one, path, "local", ROOT / "scripts")


def check_outcome(outcome: Outcome) -> None:
    """Either a record that can be what a run left, or one sentence why it is none."""
    outcome.reason.encode("utf-8")
    if outcome.record is None:
        assert outcome.status == "missing"
        assert outcome.kind in ("corrupt_record", "misplaced_record")
        assert 10 < len(outcome.reason) < 1000
        assert "Traceback" not in outcome.reason
        return
    assert outcome.status in RECORDED_STATUSES
    for rank in outcome.record["ranks"]:
        stamps = [s for pair in zip(rank["batch_start_s"], rank["batch_end_s"], strict=True) for s in pair]
        assert len(stamps) == 22
        assert all(b >= a for a, b in pairwise(stamps))
        assert stamps[-1] - stamps[0] <= outcome.record["launch"]["wall_s"] + 1e-6 * abs(stamps[-1])


def check_number(name: str, value: float) -> None:
    assert math.isfinite(value), f"{name} is {value}"
    if name == "reported_disagreement_percent":
        assert value >= -100
    elif name not in MAY_BE_NEGATIVE:
        assert value >= 0 if name in MAY_BE_ZERO else value > 0, f"{name} is {value}"


def check_row(row: Mapping[str, Any], outcome: Outcome) -> None:
    """The row tells of its record what reading it told, in possible numbers; its times follow from the raw stamps."""
    assert (row["status"], row["kind"]) == (outcome.status, outcome.kind), row["reason"]
    for column in COLUMNS:
        if column.type == NUMBER and not math.isnan(row[column.name]):
            check_number(column.name, row[column.name])
    if outcome.status != "ok" or outcome.record is None:
        assert math.isnan(row["batch_time_s"]) and math.isnan(row["speedup"])
        return
    assert "inf" not in row["losses"] and "nan" not in row["losses"]
    ranks = outcome.record["ranks"]
    slowest = [max(rank["batch_end_s"][i] - rank["batch_start_s"][i] for rank in ranks) for i in range(1, 11)]
    assert row["batch_time_s"] == pytest.approx(sum(slowest) / 10, rel=1e-12)


def check_frame(frame: pd.DataFrame, outcomes: Outcomes, damaged: set[tuple[str, int]], before: pd.DataFrame) -> None:
    """All rows are there, and those of the whole records say of themselves what they said before."""
    assert len(frame) == len(before)
    for row, former in zip(frame.to_dict("records"), before.to_dict("records"), strict=True):
        key = (row["cell_id"], row["repeat"])
        assert (key, row["comparison"]) == ((former["cell_id"], former["repeat"]), former["comparison"])
        check_row(row, outcomes[key])
        if key not in damaged:
            for name in OWN:
                same = row[name] == former[name] or (row[name] != row[name] and former[name] != former[name])
                assert same, f"{name} of another row was {former[name]} and is {row[name]}"


def check_tables(measurements: Path, folder: Path, *, figures: bool) -> None:
    reference = ROOT / "reference" / "axonn_2021.csv"
    data = load_study_data(measurements, reference)
    for paper in (axonn, parity):
        name = paper.__name__.rpartition(".")[2]
        for table, make in paper.TABLES.items():
            frame = make(data)
            write_frame(frame, folder, table, table)
            for column in frame:
                numbers = [value for value in frame[column] if isinstance(value, float)]
                assert not any(math.isinf(number) for number in numbers), f"{table}: {column}: {numbers}"
        for figure in paper.FIGURES if figures else ():
            write_figure(measurements, find_figure(name, figure), figure, reference, folder)


@cache
def whole_frame() -> pd.DataFrame:
    study, outcomes = study_and_outcomes()
    return measurement_rows(study, outcomes, HARDWARE)


def run_cases(numbers: range, folder: Path) -> tuple[int, int]:
    """All cases of one study; returns how many records counted and how many did not."""
    study, whole = study_and_outcomes()
    outcomes, damaged = dict(whole), set()
    counted = refused = 0
    for number in numbers:
        try:
            one, outcome = one_case(number, folder)
            check_outcome(outcome)
        except Exception as error:
            raise AssertionError(f"case {number}: {type(error).__name__}: {error}") from error
        counted, refused = counted + (outcome.record is not None), refused + (outcome.record is None)
        outcomes[one.key] = outcome
        damaged.add(one.key)
    try:
        frame = measurement_rows(study, outcomes, HARDWARE)
        measurements = folder / "measurements.csv"
        write_measurements(frame, measurements)
        check_frame(read_measurements(measurements), outcomes, damaged, whole_frame())
        index = numbers.start // PER_STUDY
        if index % TABLED == 0:
            check_tables(measurements, folder, figures=index % DRAWN == 0)
    except Exception as error:
        raise AssertionError(f"cases {numbers.start} to {numbers.stop - 1}: {type(error).__name__}: {error}") from error
    return counted, refused


def run_all(first: int, last: int, folder: Path) -> None:
    counts = [run_cases(range(n, min(n + PER_STUDY, last)), folder) for n in range(first, last, PER_STUDY)]
    counted, refused = (sum(numbers) for numbers in zip(*counts, strict=True))
    # A fuzz that damages all, or nothing, tests half of what it should.
    assert counted > 0.15 * (last - first) and refused > 0.15 * (last - first), (counted, refused)


def test_no_damage_brings_a_traceback_or_an_impossible_number(tmp_path: Path) -> None:
    run_all(0, CASES, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_damage_of_many_more_does(tmp_path: Path) -> None:
    run_all(CASES, CASES + LONG_CASES, tmp_path)


def test_the_whole_records_all_count(tmp_path: Path) -> None:
    """What the cases start from is no damage itself."""
    study, outcomes = study_and_outcomes()
    for one in study.planned:
        path = tmp_path / "record.json"
        path.write_text(json.dumps(outcomes[one.key].record))
        assert read_outcome(one, path, "local", ROOT / "scripts").reason == outcomes[one.key].reason
    assert {column.name for column in COLUMNS if column.type in (NUMBER, TEXT)} >= {
        *OWN,
        *MAY_BE_ZERO,
        *MAY_BE_NEGATIVE,
    }
