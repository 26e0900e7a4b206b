"""Repeats of a layout: one mean time, its spread, and when the mean is worth nothing. All numbers by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from contracts.cell import Layout
from contracts.outcomes import Outcome
from factories import make_cell, make_comparison, make_record, make_study, measured_study, ok, planned
from metrics.rows import measurement_rows
from planning.plan import Study

Outcomes = dict[tuple[str, int], Outcome]


def rows_of(study: Study, outcomes: Outcomes) -> dict[tuple[str, int, int], dict[str, Any]]:
    frame = measurement_rows(study, outcomes, {})
    return {(row["framework"], row["num_gpus"], row["repeat"]): row for row in frame.to_dict("records")}


def with_ending(study: Study, outcomes: Outcomes, framework: str, num_gpus: int, repeat: int, **record: Any) -> None:
    """Let one repeat have ended with other arguments of `make_record`."""
    cell = next(p.cell for p in study.planned if (p.cell.framework, p.cell.num_gpus) == (framework, num_gpus))
    outcomes[cell.cell_id, repeat] = ok(make_record(cell, repeat, **record))


def test_t_t_and_2t_make_a_baseline_of_exactly_one() -> None:
    """The mean of 1, 1 and 2 s is 4/3 s; averaging rates instead gave a baseline of 10/9 = 1.11."""
    rows = rows_of(*measured_study({("a", 1): [1.0, 1.0, 2.0], ("a", 2): [1.0, 1.0, 1.0]}))
    for repeat in (1, 2, 3):
        base, other = rows["a", 1, repeat], rows["a", 2, repeat]
        assert (base["speedup"], base["parallel_efficiency"]) == (1.0, 1.0)
        assert (base["speedup_spread"], base["parallel_efficiency_spread"]) == (0.0, 0.0)
        assert base["layout_batch_time_s"] == pytest.approx(4 / 3)
        # Squared distances from 4/3: 1/9 + 1/9 + 4/9 = 2/3, over two.
        assert base["layout_batch_time_spread_s"] == pytest.approx((1 / 3) ** 0.5)
        assert other["speedup"] == pytest.approx(4 / 3) and other["repeats_measured"] == 3
        assert other["parallel_efficiency"] == pytest.approx(2 / 3)
    assert [rows["a", 1, repeat]["batch_time_s"] for repeat in (1, 2, 3)] == pytest.approx([1, 1, 2])


def test_spread_of_a_speedup_is_of_first_order_from_the_times() -> None:
    """Means 1.1 and 0.62 s with deviations 0.1 and 0.02 s: 1.774194 x hypot(0.1 / 1.1, 0.02 / 0.62) = 0.171143."""
    row = rows_of(*measured_study({("a", 1): [1.0, 1.1, 1.2], ("a", 2): [0.6, 0.62, 0.64]}))["a", 2, 1]
    assert row["speedup"] == pytest.approx(1.1 / 0.62)
    assert row["speedup_spread"] == pytest.approx(0.171143, rel=1e-5)
    assert row["parallel_efficiency_spread"] == pytest.approx(0.171143 / 2, rel=1e-5)


def test_with_one_repeat_the_spread_over_repeats_is_unknown_and_not_zero() -> None:
    rows = rows_of(*measured_study({("a", 1): [1.0], ("a", 2): [0.6]}))
    assert rows["a", 2, 1]["repeats_measured"] == 1
    assert pd.isna(rows["a", 2, 1]["layout_batch_time_spread_s"]) and pd.isna(rows["a", 2, 1]["speedup_spread"])
    assert rows["a", 1, 1]["speedup_spread"] == 0.0  # over itself


def test_no_repeat_is_superlinear_that_its_layout_is_not() -> None:
    """1.1 over 0.55 s is twice; the first repeat alone, 1.1 over 0.5 s, was called superlinear."""
    rows = rows_of(*measured_study({("a", 1): [1.0, 1.0, 1.3], ("a", 2): [0.5, 0.5, 0.65]}))
    assert [rows["a", 2, repeat]["notes"] for repeat in (1, 2, 3)] == [""] * 3


@pytest.mark.parametrize(("times", "is_superlinear"), [([0.48, 0.5, 0.46], False), ([0.401, 0.4, 0.399], True)])
def test_superlinear_is_only_what_lies_beyond_the_spread(times: list[float], is_superlinear: bool) -> None:
    """Efficiencies 1.042 ± 0.045 and 1.250 ± 0.013 (deviations of 0.01, 0.02 and 0.001 s)."""
    row = rows_of(*measured_study({("a", 1): [0.99, 1.0, 1.01], ("a", 2): times}))["a", 2, 1]
    assert ("superlinear" in row["notes"]) == is_superlinear


def test_two_repeats_that_differ_twofold_are_noted_and_no_winner() -> None:
    rows = rows_of(*measured_study({("a", 1): [1.0, 1.0], ("a", 2): [0.5, 1.0], ("b", 1): 1.0, ("b", 2): 0.7}))
    for repeat in (1, 2):
        row = rows["a", 2, repeat]
        assert row["comparable"] is False and row["speedup"] == pytest.approx(1 / 0.75)
        assert "unsteady: its 2 repeats took from 0.5 to 1 s a batch" in row["notes"]
        assert row["repeats_measured"] == 2
    assert rows["a", 1, 1]["comparable"] is True and rows["b", 2, 1]["comparable"] is True


@pytest.mark.parametrize(("slowest", "is_unsteady"), [(1.49, False), (1.51, True)])
def test_unsteady_is_half_as_long_again(slowest: float, is_unsteady: bool) -> None:
    row = rows_of(*measured_study({("a", 1): [1.0, slowest]}))["a", 1, 1]
    assert ("unsteady" in row["notes"]) == is_unsteady == (row["comparable"] is False)
    assert row["speedup"] == 1.0


def test_an_unsteady_baseline_is_told_of_all_that_it_is_a_baseline_of() -> None:
    row = rows_of(*measured_study({("a", 1): [1.0, 2.0], ("a", 2): [0.8, 0.8]}))["a", 2, 1]
    assert row["notes"] == "its baseline is unsteady" and row["comparable"] is True


@pytest.mark.parametrize("status", ["oom", "nan"])
def test_a_layout_that_failed_in_some_repeats_is_no_winner(status: str) -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.0, 1.0], ("a", 2): [0.5, 0.6, 0.6]})
    failed = {"ranks": []} if status == "oom" else {"losses": ["nan"] * 11}
    with_ending(study, outcomes, "a", 2, 3, status=status, **failed)
    rows = rows_of(study, outcomes)
    assert rows["a", 2, 1]["repeats_measured"] == 2 and rows["a", 2, 1]["comparable"] is False
    assert (
        f"unsteady: its 2 repeats took from 0.5 to 0.6 s a batch, repeat 3 ended {status}" in rows["a", 2, 1]["notes"]
    )
    assert rows["a", 2, 1]["speedup"] == pytest.approx(1 / 0.55)
    assert rows["a", 2, 3]["best_layout"] is False and pd.isna(rows["a", 2, 3]["repeats_measured"])


def two_layouts(first: list[float], second: list[float]) -> dict[tuple[int, int], dict[str, Any]]:
    """A framework on 2 processes in two layouts; rows by (tensor parallel, repeat)."""
    cells = [make_cell("a", 2, layout=Layout(2 // t, tensor_parallel=t)) for t in (1, 2)]
    plan, outcomes = [], {}
    for cell, times in zip(cells, (first, second), strict=True):
        for repeat, seconds in enumerate(times, start=1):
            plan.append(planned(cell, repeat))
            outcomes[plan[-1].key] = ok(make_record(cell, repeat, seconds))
    frame = measurement_rows(make_study([make_comparison(plan)]), outcomes, {})
    return {(row["tensor_parallel"], row["repeat"]): row for row in frame.to_dict("records")}


def test_an_unsteady_layout_is_best_only_where_there_is_no_other() -> None:
    rows = two_layouts([0.1, 0.9], [0.8, 0.8])
    assert [rows[1, 1]["best_layout"], rows[2, 1]["best_layout"]] == [False, True]
    rows = two_layouts([0.1, 0.9], [0.8, 1.6])
    assert [rows[1, 1]["best_layout"], rows[2, 1]["best_layout"]] == [True, False]


def test_repeats_on_two_device_kinds_are_never_averaged() -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.0], ("a", 2): [0.5, 0.6], ("b", 1): 1.0, ("b", 2): 0.7})
    with_ending(study, outcomes, "a", 2, 2, batch_times_s=0.6, device_name="Other CPU")
    rows = rows_of(study, outcomes)
    for repeat in (1, 2):
        row = rows["a", 2, repeat]
        assert row["comparable"] is False and pd.isna(row["speedup"]) and row["baseline"] == ""
        assert pd.isna(row["layout_batch_time_s"]) and row["repeats_measured"] == 2
        assert "its repeats ran on 2 device kinds (Other CPU, Test CPU)" in row["notes"]
    assert rows["b", 2, 1]["speedup"] == pytest.approx(1 / 0.7) and rows["a", 1, 1]["comparable"] is True


def test_repeats_on_two_device_kinds_are_no_baseline() -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.0], ("a", 2): 0.5, ("a", 4): 0.3}, baseline="own_smallest")
    with_ending(study, outcomes, "a", 1, 2, batch_times_s=1.0, device_name="Other CPU")
    rows = rows_of(study, outcomes)
    assert rows["a", 2, 1]["speedup"] == 1.0 and rows["a", 4, 1]["speedup"] == pytest.approx(5 / 3)
    assert rows["a", 4, 1]["baseline_num_gpus"] == 2


def test_without_scaling_repeats_of_two_kinds_are_not_averaged_either() -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.0]}, scaling="none")
    with_ending(study, outcomes, "a", 1, 2, batch_times_s=1.0, device_name="Other CPU")
    row = rows_of(study, outcomes)["a", 1, 1]
    assert row["comparable"] is False and pd.isna(row["layout_batch_time_s"]) and row["best_layout"] is True
