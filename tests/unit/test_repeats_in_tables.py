"""Repeats in tables: rates follow from the mean time, leads have a spread, and n is seen. All values by hand."""

import math

import pandas as pd
import pytest

from contracts.cell import Layout
from contracts.outcomes import Outcome
from factories import LOSSES, data_of, make_cell, make_comparison, make_record, make_study, measured_study, ok, planned
from papers import axonn
from reporting import scaling_figures as axonn_figures
from reporting.figures import IDEAL
from reporting.latex_tables import to_latex
from reporting.leads import AHEAD, BEHIND, ONE_REPEAT, WITHIN_SPREAD, verdict
from reporting.rendering import to_markdown
from reporting.results import results_of
from reporting.spreads import Spread, difference, following, ratio, spread_of

# 3e11 tokens in steps of 256 tokens are 1,171,875,000 steps; at 1 s each that is
DAY = 13_563.368055555555


def rows_by_framework(frame):
    return {row["framework"]: row for row in frame.to_dict("records")}


def study_of(cells, outcomes):
    """A comparison of these cells, each with an outcome for every repeat: a time in s, or an Outcome."""
    plan, found = [], {}
    for cell, of_repeats in zip(cells, outcomes, strict=True):
        for repeat, outcome in enumerate(of_repeats, start=1):
            plan.append(planned(cell, repeat))
            is_time = not isinstance(outcome, Outcome)
            found[plan[-1].key] = ok(make_record(cell, repeat, outcome)) if is_time else outcome
    return make_study([make_comparison(plan)]), found


def test_first_order_spread_of_what_follows_from_times() -> None:
    time, other = Spread(2.0, 0.2, 3), Spread(4.0, 0.6, 2)
    assert following(time, 128.0) == Spread(128.0, pytest.approx(12.8), 3)
    # Relative deviations 0.1 and 0.15: sqrt(0.01 + 0.0225) = 0.180277563773.
    assert ratio(other, time) == Spread(2.0, pytest.approx(0.360555127546), 2)
    # sqrt(0.04 + 0.36)
    assert difference(other, time) == Spread(2.0, pytest.approx(0.632455532034), 2)
    assert spread_of([1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3)
    one = spread_of([2.0])
    assert one.mean == 2.0 and math.isnan(one.deviation) and math.isnan(ratio(one, time).deviation)
    assert spread_of([]).n == 0 and math.isnan(spread_of([]).mean)


@pytest.mark.parametrize(
    ("mean", "deviation", "expected"),
    [
        (2.0, 0.6, AHEAD),
        (0.5, 0.15, BEHIND),
        (1.5, 0.5, WITHIN_SPREAD),
        (0.5, 0.25, WITHIN_SPREAD),
        (1.0, 0.0, WITHIN_SPREAD),
        # The inverse, 1.25 ± 0.28, holds 1: who is not behind is not ahead of either.
        (0.8, 0.18, WITHIN_SPREAD),
        (2.0, math.nan, ONE_REPEAT),
        (math.nan, math.nan, ""),
    ],
)
def test_a_lead_is_more_than_its_spread(mean: float, deviation: float, expected: str) -> None:
    assert verdict(Spread(mean, deviation, 2)) == expected


def test_a_lead_in_days_is_one_in_percent_and_as_a_ratio_too() -> None:
    # Days differ by 1.45 times (hence more than their spread of sqrt(2)), and 1.145 ± 0.152 of b over a may be 1.
    data = data_of(*measured_study({("a", 1): [9.0, 10.0, 11.0], ("b", 1): [10.45, 11.45, 12.45]}))
    a, b = (rows_by_framework(axonn.strong_scaling(data))[name] for name in "ab")
    assert a["days_saved"] > a["days_saved_spread"] and a["percent_saved"] > a["percent_saved_spread"]
    assert a["speedup_over_best_other"] - a["speedup_over_best_other_spread"] < 1
    assert (a["lead"], b["lead"]) == ("within spread", "within spread")


def test_rates_follow_from_the_mean_time_and_leads_have_a_spread() -> None:
    data = data_of(*measured_study({("a", 1): [1.8, 2.0, 2.2], ("b", 1): [3.4, 4.0, 4.6]}))
    frame = axonn.strong_scaling(data)
    a, b = (rows_by_framework(frame)[name] for name in "ab")
    assert (a["batch_time_s"], a["batch_time_spread_s"]) == (pytest.approx(2.0), pytest.approx(0.2))
    assert (a["training_days"], a["training_days_spread"]) == (pytest.approx(2 * DAY), pytest.approx(0.2 * DAY))
    # 201,326,592 x (1 + 32/384 + 512/2048) FLOP in 2 s of 2e11 FLOP/s (see test_compare_systems).
    assert a["percentage_of_peak_throughput"] == pytest.approx(0.067108864)
    assert a["percentage_of_peak_throughput_spread"] == pytest.approx(0.0067108864)
    # The mean of the rates would be 128.6: (256/1.8 + 256/2 + 256/2.2) / 3.
    rate = next(r for r in results_of(data, ("strong",)) if r.framework == "a").tokens_per_s
    assert rate == Spread(pytest.approx(128.0), pytest.approx(12.8), 3)
    assert (a["speedup_over_best_other"], a["speedup_over_best_other_spread"]) == (
        pytest.approx(2.0),
        pytest.approx(0.360555127546),
    )
    assert (a["days_saved"], a["days_saved_spread"]) == (pytest.approx(2 * DAY), pytest.approx(0.632455532034 * DAY))
    assert (a["percent_saved"], a["percent_saved_spread"]) == (pytest.approx(50.0), pytest.approx(9.01387818866))
    assert (a["lead"], b["lead"]) == ("ahead", "behind")
    assert b["percent_saved"] == pytest.approx(-100.0) and b["percent_saved_spread"] == pytest.approx(36.0555127546)
    assert "| b | 2.00 ± 0.36 |" in to_markdown(frame)


def test_a_row_that_is_slower_in_days_is_slower_in_percent_too() -> None:
    # The mean of the rates of b (256/3 x (1/1.0 + 1/1.45 + 1/1.45)) is higher than a's 200, its mean time longer.
    data = data_of(*measured_study({("a", 1): [1.28, 1.28, 1.28], ("b", 1): [1.0, 1.45, 1.45]}))
    a, b = (rows_by_framework(axonn.strong_scaling(data))[name] for name in "ab")
    assert b["training_days"] > a["training_days"]
    assert b["percentage_of_peak_throughput"] < a["percentage_of_peak_throughput"]


def test_a_baseline_is_exactly_one_whatever_its_repeats() -> None:
    # On the code of before these repeats gave a baseline of 1.025, the mean of 17/15, 17/15 and 17/21.
    times = {("a", 1): [1.0, 1.0, 1.4], ("a", 2): [0.5, 0.6, 0.7], ("b", 1): [1.0, 1.0, 1.4], ("b", 2): 0.6}
    data = data_of(*measured_study(times))
    frame = axonn.strong_scaling(data)
    one, two = (frame[(frame["framework"] == "a") & (frame["num_gpus"] == n)].iloc[0] for n in (1, 2))
    assert one["speedup"] == 1.0 and one["parallel_efficiency"] == 1.0
    assert one["speedup_spread"] == 0.0 and one["parallel_efficiency_spread"] == 0.0
    # 3.4 s / 3 over 0.6 s; relative deviations 0.2309401/1.1333333 = 0.20377068 and 0.1/0.6 = 0.16666667.
    assert two["speedup"] == pytest.approx(17 / 9) and two["parallel_efficiency"] == pytest.approx(17 / 18)
    assert two["speedup_spread"] == pytest.approx(17 / 9 * 0.263249443, rel=1e-6)
    assert two["parallel_efficiency_spread"] == pytest.approx(17 / 18 * 0.263249443, rel=1e-6)
    assert "| 1 (baseline) | 1 (baseline) |" in to_markdown(frame) and "superlinear" not in to_markdown(frame)
    assert "| 1.89 ± 0.50 | 0.944 ± 0.249 |" in to_markdown(frame)
    throughput, speedup = axonn_figures.strong_scaling(data).axes
    ideals = [line for line in speedup.lines if line.get_gid() == IDEAL]
    assert [list(line.get_ydata()) for line in ideals] == [[1.0, 2.0]]
    # 256 tokens in a mean of 3.4 s / 3; the two frameworks share neither colour nor line.
    ideals = [line for line in throughput.lines if line.get_gid() == IDEAL]
    assert [line.get_ydata()[0] for line in ideals] == pytest.approx([256 * 3 / 3.4] * 2)


@pytest.mark.parametrize("how", ["differ", "oom", "nan"])
def test_every_row_over_an_unsteady_baseline_says_so(how: str) -> None:
    study, outcomes = measured_study(
        {("a", 1): [1.0, 1.0, 2.0 if how == "differ" else 1.0], ("a", 2): 0.6, ("a", 4): 0.3}
    )
    if how != "differ":
        third = next(one for one in study.planned if (one.cell.num_gpus, one.repeat) == (1, 3))
        losses = ["nan"] * 11 if how == "nan" else LOSSES
        outcomes[third.key] = ok(make_record(third.cell, 3, status=how, reason="it did", losses=losses))
    frame = axonn.strong_scaling(data_of(study, outcomes))
    assert list(frame["num_gpus"]) == [1, 2, 4] and all(frame["speedup"] > 0)
    assert [note.count("its baseline is unsteady") for note in frame["notes"]] == [0, 1, 1]
    shown = to_markdown(frame)
    assert all(f"- tiny on {number} processes, a: its baseline is unsteady" in shown for number in (2, 4))


def test_repeats_that_differ_twofold_are_shown_with_a_note_and_lead_nobody() -> None:
    data = data_of(*measured_study({("a", 1): [1.0, 1.0, 2.0], ("b", 1): [3.0, 3.0, 3.0], ("c", 1): [4.0, 4.1, 4.2]}))
    frame = axonn.strong_scaling(data)
    rows = rows_by_framework(frame)
    assert rows["a"]["batch_time_s"] == pytest.approx(4 / 3) and rows["a"]["repeats"] == 3
    assert rows["a"]["best_other"] == "" and rows["a"]["lead"] == "" and math.isnan(rows["a"]["days_saved"])
    assert "unsteady" in rows["a"]["notes"] and "from 1 to 2 s" in rows["a"]["notes"]
    # Nor is it the best other of the rest.
    assert (rows["b"]["best_other"], rows["c"]["best_other"]) == ("c", "b")
    assert "| not compared |" in to_markdown(frame)
    shown = " ".join(text.get_text() for text in axonn_figures.training_time(data).texts)
    assert "Not comparable, for the reasons in the tables' notes: a (1)." in shown


def test_a_layout_out_of_memory_in_some_repeats_is_no_best_one() -> None:
    data, tensor = (make_cell("a", 2, layout=layout) for layout in (Layout(2), Layout(1, tensor_parallel=2)))
    other, oom = make_cell("b", 2), Outcome("oom")
    study, outcomes = study_of([data, tensor, other], [[1.0, 1.0, oom], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    row = rows_by_framework(axonn.strong_scaling(data_of(study, outcomes)))["a"]
    assert row["layout"] == "tensor 2, micro-batch 1" and (row["repeats"], row["lead"]) == (3, "ahead")
    assert "layout data 2, micro-batch 1: OOM" in row["notes"]
    assert "layout data 2, micro-batch 1: passed over, not comparable" in row["notes"]
    study, outcomes = study_of([data, other], [[1.0, 1.0, oom], [3.0, 3.0, 3.0]])
    frame = axonn.strong_scaling(data_of(study, outcomes))
    row = rows_by_framework(frame)["a"]
    assert (row["repeats"], row["repeats_planned"], row["lead"]) == (2, 3, "")
    assert "| a | 2 of 3 |" in to_markdown(frame) and "a: repeat 3: OOM" in to_markdown(frame)


def test_a_lead_inside_the_spread_is_marked_and_so_is_one_repeat() -> None:
    close = axonn.strong_scaling(data_of(*measured_study({("a", 1): [1.8, 2.0, 2.2], ("b", 1): [1.9, 2.1, 2.3]})))
    assert close["lead"].tolist() == ["within spread", "within spread"]
    text = to_markdown(close)
    assert "(within the spread) | 1,356 ± 3,836 |" in text and "A lead within the spread is none." in text
    assert r"(within the spread) & 1,356~$\pm$~3,836" in to_latex(close, "x")
    once = axonn.strong_scaling(data_of(*measured_study({("a", 1): 1.0, ("b", 1): [2.0, 2.1]})))
    assert once["lead"].tolist() == ["one repeat", "one repeat"]
    assert once[["days_saved_spread", "percent_saved_spread", "speedup_over_best_other_spread"]].isna().all(axis=None)
    text = to_markdown(once)
    assert "| b | 2.05 (one repeat) |" in text
    assert "a lead within the spread is none, and with one repeat the spread is not known." in text.lower()


def test_one_repeat_shows_the_spread_of_its_batches_as_what_it_is() -> None:
    # Ten batches, five of 0.9 s and five of 1.1 s: deviation 0.1 x sqrt(10 / 9).
    batches = [0.9, 1.1] * 5
    cell = make_cell("a")
    study = make_study([make_comparison([planned(cell)])])
    frame = axonn.strong_scaling(data_of(study, {planned(cell).key: ok(make_record(cell, 1, batches))}))
    row = frame.iloc[0]
    assert row["batch_time_std_s"] == pytest.approx(0.105409255339) and math.isnan(row["batch_time_spread_s"])
    text = to_markdown(frame)
    assert "1.000 (batches ± 0.105)" in text
    assert "which says nothing about another run" in text and "Of 1" not in text


def test_repeats_that_are_missing_are_counted_and_named() -> None:
    cell, other = make_cell("a"), make_cell("b")
    crash = Outcome("missing", "rank 1 died with signal 9", "crash")
    study, outcomes = study_of([cell, other], [[1.0, 1.1, crash], [2.0, 2.0, 2.0]])
    frame = axonn.strong_scaling(data_of(study, outcomes))
    a = rows_by_framework(frame)["a"]
    assert (a["repeats"], a["repeats_planned"]) == (2, 3)
    text = to_markdown(frame)
    assert "| a | 2 of 3 |" in text and "| b | 3 |" in text
    assert "a: repeat 3: missing: crash: rank 1 died with signal 9" in text
    assert "Of 2 to 3 repeats" in text
    ran_with = axonn.TABLES["hyperparameters"](data_of(study, outcomes))
    assert ran_with[["repeats", "repeats_planned"]].to_numpy().tolist() == [[2, 3], [3, 3]]
    assert "| ok (2 of 3 repeats) |" in to_markdown(ran_with)


def test_repeats_on_two_device_kinds_have_no_mean() -> None:
    cell = make_cell("a")
    plan = [planned(cell, repeat) for repeat in (1, 2, 3)]
    names = ("Fast CPU", "Slow CPU", "Fast CPU")
    outcomes = {
        one.key: ok(make_record(cell, one.repeat, time, device_name=name))
        for one, time, name in zip(plan, (1.0, 1.2, 1.1), names, strict=True)
    }
    data = data_of(make_study([make_comparison(plan)]), outcomes)
    frame = axonn.strong_scaling(data)
    row = frame.iloc[0]
    told = "not averaged: its repeats ran on 2 device kinds (Fast CPU: 1, 1.1 s a batch; Slow CPU: 1.2 s a batch)"
    assert row["result"] == told and told in to_markdown(frame)
    numbers = ["batch_time_s", "training_days", "percentage_of_peak_throughput", "speedup", "days_saved"]
    assert frame[numbers].isna().all(axis=None) and row["repeats"] == 3
    _, rows = axonn_figures.training_time(data).axes
    assert [text.get_text() for text in rows.texts] == ["not averaged"]


def test_the_best_of_several_layouts_is_noted_where_the_next_is_as_fast() -> None:
    data, tensor, pipeline = (
        make_cell("a", 4, layout=layout) for layout in (Layout(4), Layout(1, tensor_parallel=4), Layout(1, 1, 4))
    )
    study, outcomes = study_of([data, tensor, pipeline], [[1.8, 2.0, 2.2], [1.9, 2.1, 2.3], [3.0, 3.0, 3.0]])
    row = axonn.strong_scaling(data_of(study, outcomes)).iloc[0]
    assert row["layout"] == "data 4, micro-batch 1"
    note = "best layout within the spread: layout tensor 4, micro-batch 1 takes 2.1 s a batch, 0.1 ± 0.28 s more"
    assert note in row["notes"]
    study, outcomes = study_of([data, tensor], [[1.8, 2.0, 2.2], [3.0, 3.0, 3.0]])
    assert "within the spread" not in axonn.strong_scaling(data_of(study, outcomes)).iloc[0]["notes"]


def test_a_cell_without_a_result_says_of_which_layout_and_why() -> None:
    layouts = (Layout(4), Layout(1, tensor_parallel=4), Layout(1, pipeline_parallel=4))
    cells = [make_cell("a", 4, layout=layout) for layout in layouts]
    long = "rank 0 died with exit code 1:\nRuntimeError: " + "x" * 300
    oom = Outcome("oom", record=None)
    crash = Outcome("missing", long, "crash")
    limit = Outcome("missing", "its time limit of 10 minutes ended it", "time_limit")
    study, outcomes = study_of(cells, [[oom, crash], [limit, limit], [limit, limit]])
    frame = axonn.strong_scaling(data_of(study, outcomes))
    whole = frame.iloc[0]["result"]
    assert f"layout data 4, micro-batch 1: repeat 1: OOM, repeat 2: missing: crash: {long}" in whole
    assert (
        "layouts pipeline 4, micro-batch 1 / tensor 4, micro-batch 1: missing: time_limit: its time limit of 10 minutes"
    ) in whole
    short = f"repeat 2: missing: crash: rank 0 died with exit code 1: RuntimeError: {'x' * 35}…;"
    markdown, latex = to_markdown(frame), to_latex(frame, "x")
    assert short in markdown and "x" * 36 not in markdown and "x" * 36 not in latex
    assert all(line.startswith("|") for line in markdown.splitlines() if "RuntimeError" in line)
    alike, outcomes = study_of(cells[:2], [[limit], [limit]])
    assert axonn.strong_scaling(data_of(alike, outcomes)).iloc[0]["result"] == (
        "all 2 layouts: missing: time_limit: its time limit of 10 minutes ended it"
    )


def test_error_bars_and_captions_of_figures_are_of_repeats() -> None:
    repeated = data_of(*measured_study({("a", 1): [1.8, 2.0, 2.2], ("b", 1): 4.0}))
    once = data_of(*measured_study({("a", 1): 2.0, ("b", 1): 4.0}))

    def caption(data) -> str:
        return " ".join(text.get_text().replace("\n", " ") for text in axonn_figures.training_time(data).texts)

    assert "Mean time of n = 1 to 3 repeats" in caption(repeated) and "none where n = 1" in caption(repeated)
    assert "One repeat (n = 1), so no error bars" in caption(once)
    (axes,) = axonn_figures.training_time(repeated).axes
    (bar,) = [c for c in axes.containers if "ErrorbarContainer" in type(c).__name__]
    (segment,) = bar.lines[2][0].get_segments()
    assert sorted(segment[:, 1]) == pytest.approx([1.8 * DAY, 2.2 * DAY])


def test_best_other_is_named_in_every_format() -> None:
    frame = axonn.strong_scaling(data_of(*measured_study({("a", 1): 1.0, ("b", 1): 2.0})))
    assert frame["best_other"].tolist() == ["b", "a"]
    assert "| Best other |" in to_markdown(frame)
    assert "| 0.06711 | – |" not in to_markdown(frame) and "| b | 2.00" in to_markdown(frame)
    assert r"& b & 2.00" in to_latex(frame, "x")


def test_csv_keeps_its_columns_and_their_order_of_meaning() -> None:
    frame = axonn.strong_scaling(data_of(*measured_study({("a", 1): 1.0})))
    before = {"repeats", "batch_time_s", "batch_time_spread_s", "best_other", "speedup_over_best_other", "days_saved"}
    added = {"repeats_planned", "batch_time_std_s", "speedup_over_best_other_spread", "days_saved_spread"}
    added |= {"percent_saved_spread", "lead", "speedup_spread", "parallel_efficiency_spread"}
    assert before | added <= set(frame.columns)
    assert pd.isna(frame.iloc[0]["days_saved"]) and frame.iloc[0]["lead"] == ""
