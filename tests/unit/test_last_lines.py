"""The last lines of a call: what is measured, where it is, and whether the fastest is faster than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.outcomes import Outcome
from factories import HARDWARE, data_of, make_cell, make_comparison, make_study, measured_study, ok, planned
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.plan import study_folder
from terminal.last_lines import fastest_lines, last_lines, measured_line
from test_repeats_in_tables import study_of
from workloads.training.training_cell import TrainingCell

NOTHING = "no point has comparable results of two frameworks, so nobody is called the fastest"


def told(times: dict[tuple[str, int], float | Sequence[float]], **cell: object) -> list[str]:
    return fastest_lines(data_of(*measured_study(times, **cell)))


def test_a_lead_above_the_spread_is_called_one() -> None:
    # 1.5 times, with relative deviations of 0.01 and 0.01 / 1.5 to first order: 1.5 * 0.01202 = 0.018.
    (line,) = told({("a", 2): [0.99, 1.0, 1.01], ("b", 2): [1.49, 1.5, 1.51]})
    assert line == (
        "main: tiny on 2 processes: a is fastest, 1.50 ± 0.02 times as fast as b, more than the spread of the repeats"
    )


def test_a_lead_inside_the_spread_is_none() -> None:
    # Relative deviations of 0.1 and 0.1 / 1.1: 1.1 * 0.1351 = 0.149.
    (line,) = told({("a", 1): [0.9, 1.0, 1.1], ("b", 1): [1.0, 1.1, 1.2]})
    assert line.endswith("no lead: a is 1.10 ± 0.15 times as fast as b, within the spread of the repeats")


def test_unsteady_repeats_win_nothing() -> None:
    assert told({("a", 1): [0.8, 1.0, 1.2], ("b", 1): [2.0, 2.0, 2.0]}) == [f"main: {NOTHING}"]


def test_of_one_repeat_nobody_can_say() -> None:
    (line,) = told({("a", 1): 1.0, ("b", 1): 2.0}, device="cuda")
    assert line == "main: tiny on 1 GPU: a is 2.00 times as fast as b; one repeat does not tell whether that is noise"


def test_the_largest_point_with_something_to_compare_is_told() -> None:
    (line,) = told({("a", 1): [1.0, 1.1], ("b", 1): [2.0, 2.1], ("a", 2): [0.5, 0.6]})
    assert line.startswith("main: tiny on 1 process: a is fastest")


def test_where_nothing_can_be_compared_that_is_said() -> None:
    assert told({("a", 1): 1.0, ("a", 2): 0.5}) == [f"main: {NOTHING}"]


def cells_of(*names: str) -> list[TrainingCell]:
    return [make_cell(name) for name in names]


def test_who_is_not_compared_is_named() -> None:
    missing = Outcome("missing", "rank 1 was ended by SIGKILL", "killed")
    (line,) = fastest_lines(data_of(*study_of(cells_of("a", "b", "c"), [[1.0], [2.0], [missing]])))
    assert line.endswith("that is noise (c not compared)")


def test_what_stands_in_for_cuda_wins_nothing() -> None:
    study, outcomes = measured_study({("a", 1): 1.0, ("b", 1): 2.0, ("c", 1): 3.0})
    data = data_of(study, outcomes)
    stand_in = data.measurements.assign(cuda_stand_in=data.measurements["framework"] == "a")
    (line,) = fastest_lines(replace(data, measurements=stand_in))
    assert "b is 1.50 times as fast as c" in line and line.endswith("(a not compared)")


def test_each_cell_is_counted_once_with_what_became_of_it() -> None:
    (a, b, c) = cells_of("a", "b", "c")
    plan = [planned(a), planned(b), planned(c)]
    outcomes = {
        plan[0].key: ok(measured_study({("a", 1): 1.0})[1][plan[0].key].record),
        plan[1].key: Outcome("missing", "rank 1 was ended by SIGKILL", "killed"),
        plan[2].key: Outcome("missing", "rank 1 was ended by SIGKILL", "killed"),
    }
    study = make_study([make_comparison(plan, "one"), make_comparison(plan, "another")])
    line = measured_line(data_of(study, outcomes).measurements)
    assert line == "demo on local: 3 cells: 1 ok, 2 missing (killed)"


@pytest.mark.parametrize("made", [True, False])
def test_the_table_to_open_is_named_where_it_is_there(tmp_path: Path, made: bool) -> None:
    study, outcomes = measured_study({("a", 1): 1.0, ("b", 1): 2.0})
    folder = study_folder(tmp_path, study)
    (folder / "tables").mkdir(parents=True)
    write_measurements(measurement_rows(study, outcomes, HARDWARE), folder / "measurements.csv")
    if made:
        (folder / "tables/weak_scaling.md").touch()
    first, _, last = last_lines(study, tmp_path)
    assert first == "demo on local: 2 cells: 2 ok"
    assert last.startswith("open tables/weak_scaling.md in " if made else "results are in ")
    assert last.endswith("local/demo")
