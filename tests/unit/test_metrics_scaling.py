"""Speedup, efficiency, baselines and best layouts, worked out by hand."""

import random

import pytest

from contracts.cell import Layout
from contracts.outcomes import Outcome
from factories import (
    SMALL,
    TINY,
    OtherArchitecture,
    make_cell,
    make_comparison,
    make_record,
    make_study,
    measured_study,
    ok,
    planned,
)
from metrics.rows import measurement_rows


def rows_of(study, outcomes, hardware=None):
    frame = measurement_rows(study, outcomes, hardware or {})
    return {(row["framework"], row["num_gpus"], row["repeat"]): row for row in frame.to_dict("records")}


def test_strong_scaling_is_t0_over_t():
    study, outcomes = measured_study({("torch_ddp", 1): 8.0, ("torch_ddp", 2): 5.0, ("torch_ddp", 4): 4.0})
    rows = rows_of(study, outcomes)
    assert rows["torch_ddp", 1, 1]["speedup"] == pytest.approx(1.0)
    assert rows["torch_ddp", 2, 1]["speedup"] == pytest.approx(1.6)
    assert rows["torch_ddp", 4, 1]["speedup"] == pytest.approx(2.0)
    assert rows["torch_ddp", 4, 1]["parallel_efficiency"] == pytest.approx(0.5)
    assert rows["torch_ddp", 4, 1]["baseline"] == rows["torch_ddp", 1, 1]["cell_id"]
    assert rows["torch_ddp", 4, 1]["baseline_num_gpus"] == 1


def test_baseline_is_the_mean_over_repeats():
    study, outcomes = measured_study({("torch_ddp", 1): [8.0, 10.0], ("torch_ddp", 2): [6.0, 4.5]})
    rows = rows_of(study, outcomes)
    # (8 + 10) / 2 over (6 + 4.5) / 2, the same for each repeat.
    assert rows["torch_ddp", 2, 1]["speedup"] == rows["torch_ddp", 2, 2]["speedup"] == pytest.approx(9.0 / 5.25)
    assert rows["torch_ddp", 1, 1]["speedup"] == rows["torch_ddp", 1, 2]["speedup"] == 1.0


TIMES = {("a", 1): 8.0, ("a", 2): 4.0, ("a", 4): 2.5, ("b", 2): 6.0, ("b", 4): 4.0}


def test_smallest_common_baseline_is_where_every_framework_has_a_result():
    rows = rows_of(*measured_study(TIMES, baseline="smallest_common"))
    assert rows["a", 4, 1]["speedup"] == pytest.approx(4.0 / 2.5)
    assert rows["a", 4, 1]["parallel_efficiency"] == pytest.approx(0.8)
    assert rows["a", 1, 1]["speedup"] == pytest.approx(0.5)
    assert rows["a", 1, 1]["parallel_efficiency"] == pytest.approx(1.0)
    assert rows["b", 4, 1]["baseline_num_gpus"] == 2


def test_own_smallest_baseline():
    rows = rows_of(*measured_study(TIMES, baseline="own_smallest"))
    assert rows["a", 4, 1]["speedup"] == pytest.approx(8.0 / 2.5)
    assert rows["b", 4, 1]["speedup"] == pytest.approx(1.5)


def test_no_common_number_of_gpus_leaves_it_empty_and_says_so():
    row = rows_of(*measured_study({("a", 1): 8.0, ("b", 2): 6.0}))["a", 1, 1]
    assert row["speedup"] != row["speedup"] and row["baseline"] == ""
    # It can be compared with others at its own point, so the note does not say that it is not.
    assert "no baseline: no number of GPUs at which every framework has a result" in row["notes"]
    assert row["comparable"] and "not compared" not in row["notes"]


def test_superlinear_speedup_is_flagged_and_kept():
    row = rows_of(*measured_study({("a", 1): 8.0, ("a", 2): 3.2}))["a", 2, 1]
    assert row["speedup"] == pytest.approx(2.5)
    assert "superlinear: speedup 2.5 over an ideal of 2" in row["notes"]


def test_weak_batch_compares_tokens_per_second():
    cells = [make_cell("a", n, global_batch_size=4 * n) for n in (1, 2)]
    outcomes = {planned(c).key: ok(make_record(c, 1, t)) for c, t in zip(cells, (2.0, 2.5), strict=True)}
    rows = rows_of(make_study([make_comparison([planned(c) for c in cells], scaling="weak_batch")]), outcomes)
    # Twice the tokens in 2.5 s instead of 2 s.
    assert rows["a", 2, 1]["speedup"] == pytest.approx(1.6)
    assert rows["a", 2, 1]["parallel_efficiency"] == pytest.approx(0.8)


def test_weak_model_compares_flops_per_gpu_and_has_no_speedup():
    cells = [make_cell("a", 1, TINY), make_cell("a", 2, SMALL)]
    outcomes = {planned(c).key: ok(make_record(c, 1, t)) for c, t in zip(cells, (1.0, 1.25), strict=True)}
    rows = rows_of(make_study([make_comparison([planned(c) for c in cells], scaling="weak_model")]), outcomes)
    # 72 b s l h^2 (1 + s/6h + V/12lh) / (72 b s h^2): TINY 2 (13/12 + 512/1536) = 17/6, SMALL 4 (13/12 + 512/3072) = 5.
    # SMALL on two GPUs in 1.25 s: 5 / 2 / 1.25 = 2 a second and GPU, against 17/6.
    assert rows["a", 2, 1]["parallel_efficiency"] == pytest.approx(12 / 17)
    assert rows["a", 2, 1]["speedup"] != rows["a", 2, 1]["speedup"]
    assert rows["a", 2, 1]["baseline"] == cells[0].cell_id


def test_weak_model_of_anOtherArchitecture_has_no_efficiency_and_says_why():
    cell = make_cell("a", 1, OtherArchitecture(TINY))
    study = make_study([make_comparison([planned(cell)], scaling="weak_model")])
    row = rows_of(study, {planned(cell).key: ok(make_record(cell))})["a", 1, 1]
    assert row["parallel_efficiency"] != row["parallel_efficiency"]
    assert "FLOPs of this architecture are unknown" in row["notes"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": "bf16"}, "2 precisions in one comparison (bf16, fp32)"),
        ({"activation_checkpointing": "full"}, "2 settings of activation checkpointing"),
        ({"global_batch_size": 16}, "2 batch sizes of tiny (8, 16) under strong scaling"),
    ],
)
def test_mixed_sets_are_not_compared(changes, reason):
    cells = [make_cell("a", 1), make_cell("a", 2, **changes)]
    outcomes = {planned(c).key: ok(make_record(c)) for c in cells}
    rows = rows_of(make_study([make_comparison([planned(c) for c in cells])]), outcomes)
    for row in rows.values():
        assert row["speedup"] != row["speedup"] and row["baseline"] == "" and row["comparable"] is False
        assert f"not compared: {reason}" in row["notes"]


def test_two_device_kinds_are_not_compared():
    cells = [make_cell("a", 1), make_cell("a", 2)]
    outcomes = {
        planned(c).key: ok(make_record(c, device_name=d)) for c, d in zip(cells, ("CPU X", "CPU Y"), strict=True)
    }
    row = rows_of(make_study([make_comparison([planned(c) for c in cells])]), outcomes)["a", 2, 1]
    assert row["speedup"] != row["speedup"]
    assert "not compared: device kind differs among rows of the comparison (CPU X, CPU Y)" in row["notes"]


def test_batch_and_model_both_growing_is_not_compared():
    cells = [make_cell("a", 1, TINY), make_cell("a", 2, SMALL, global_batch_size=16)]
    outcomes = {planned(c).key: ok(make_record(c)) for c in cells}
    row = rows_of(make_study([make_comparison([planned(c) for c in cells], scaling="weak_model")]), outcomes)["a", 2, 1]
    assert "2 batch sizes (8, 16) under weak_model scaling" in row["notes"]


def layouts_study(times, order=None):
    """One framework on 4 GPUs in three layouts, and on 1 GPU; times by degree of tensor parallelism."""
    cells = [make_cell("a", 1)] + [make_cell("a", 4, layout=Layout(4 // t, tensor_parallel=t)) for t in (1, 2, 4)]
    outcomes = {
        planned(c).key: ok(make_record(c, 1, s)) for c, s in zip(cells, (8.0, *times), strict=True) if s is not None
    }
    plan = [planned(c) for c in cells]
    if order is not None:
        order.shuffle(plan)
    return measurement_rows(make_study([make_comparison(plan)]), outcomes, {})


def test_the_fastest_layout_is_the_one_compared():
    frame = layouts_study((4.0, 2.5, None))
    best = frame[(frame["num_gpus"] == 4) & frame["best_layout"]]
    assert best["tensor_parallel"].tolist() == [2]
    slower = frame[(frame["num_gpus"] == 4) & (frame["tensor_parallel"] == 1)].iloc[0]
    assert slower["speedup"] == pytest.approx(2.0)


def test_tied_layouts_have_one_winner_whatever_the_order():
    winners = set()
    for seed in range(6):
        frame = layouts_study((4.0, 4.0, 4.0), random.Random(seed))
        best = frame[(frame["num_gpus"] == 4) & frame["best_layout"]]
        winners.add(tuple(best["layout"]))
    assert winners == {("data 2 x tensor 2, micro-batch 1",)}


def test_cells_that_are_not_ok_are_in_no_comparison():
    study, outcomes = measured_study({("a", 1): 8.0, ("a", 2): 4.0, ("b", 1): 8.0, ("b", 2): 1.0})
    b2 = next(p for p in study.planned if (p.cell.framework, p.cell.num_gpus) == ("b", 2))
    outcomes[b2.key] = Outcome(
        "nan", "loss", record=make_record(b2.cell, 1, 1.0, status="nan", losses=["nan"] * 11), code_changed=False
    )
    rows = rows_of(study, outcomes)
    assert rows["b", 2, 1]["speedup"] != rows["b", 2, 1]["speedup"]
    assert rows["b", 2, 1]["best_layout"] is False
    assert rows["a", 2, 1]["speedup"] == pytest.approx(2.0)


def test_no_scaling_means_no_numbers_and_no_complaint():
    study, outcomes = measured_study({("a", 1): 8.0, ("a", 2): 4.0}, scaling="none")
    row = rows_of(study, outcomes)["a", 2, 1]
    assert row["speedup"] != row["speedup"] and row["notes"] == "" and row["best_layout"] is True
