"""Tables: what they say, in CSV, Markdown and LaTeX, from measurements.csv and published numbers alone."""

import re

import pandas as pd
import pytest

from contracts.cell import Layout
from contracts.outcomes import Outcome
from factories import (
    HARDWARE,
    LOSSES,
    PAPER_12B,
    ROOT,
    SMALL,
    TINY,
    data_of,
    make_cell,
    make_comparison,
    make_record,
    make_study,
    measured_cells,
    measured_study,
    ok,
    planned,
)  # fmt: skip
from make_tables import main
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from papers import axonn, find_figure, find_table, load_paper, paper_names, parity
from planning.plan import Obstacle
from reporting.latex_tables import to_latex
from reporting.latex_text import escape_latex
from reporting.reference import read_reference
from reporting.rendering import format_number, format_range, format_ratios, format_spread, to_markdown
from reporting.spreads import Spread
from reporting.study_data import study_data
from reporting.table_files import write_table

REFERENCE = ROOT / "reference" / "axonn_2021.csv"


def by_point(frame):
    return {(r["framework"], r["num_gpus"]): r for r in frame.to_dict("records")}


def endings_study():
    """One framework that is measured on 1, 2 and 4 processes, and one that ends otherwise everywhere."""
    study, outcomes = measured_study({("a", n): 8.0 / n for n in (1, 2, 4)})
    cells = [make_cell("b", n) for n in (1, 2, 4, 8)] + [make_cell("a", 8)]
    plan = [
        planned(cells[0]),
        planned(cells[1], obstacle=Obstacle("unsupported", "2 heads & 50% of {them}")),
        planned(cells[2]),
        *[planned(c, obstacle=Obstacle("missing", "needs 8 GPUs, this system has 4")) for c in cells[3:]],
    ]
    outcomes[plan[0].key] = ok(make_record(cells[0], status="oom", ranks=[]))
    outcomes[plan[2].key] = Outcome("missing", "rank 1 died with signal 9", "crash")
    return make_study([make_comparison([*study.planned, *plan])]), outcomes


def test_speedup_and_days_saved_are_against_the_best_other_framework():
    study, outcomes = measured_study({("a", 1): 2.0, ("b", 1): 3.0, ("c", 1): 4.0})
    rows = by_point(axonn.strong_scaling(data_of(study, outcomes)))
    # 3e11 tokens in steps of 256 tokens: 1,171,875,000 steps; at 1 s each 13,563.3680555... days.
    day = 13_563.368055555555
    assert rows["a", 1]["training_days"] == pytest.approx(2 * day)
    assert rows["a", 1]["best_other"] == "b" and rows["b", 1]["best_other"] == "a" and rows["c", 1]["best_other"] == "a"
    assert rows["a", 1]["speedup_over_best_other"] == pytest.approx(1.5)
    assert rows["a", 1]["days_saved"] == pytest.approx(day)
    assert rows["a", 1]["percent_saved"] == pytest.approx(100 / 3)
    assert rows["c", 1]["speedup_over_best_other"] == pytest.approx(0.5)
    assert rows["c", 1]["days_saved"] == pytest.approx(-2 * day)


def test_repeats_are_mean_and_spread():
    study, outcomes = measured_study({("a", 1): [1.8, 2.0, 2.2], ("a", 2): 1.0})
    frame = axonn.strong_scaling(data_of(study, outcomes))
    rows = by_point(frame)
    assert rows["a", 1]["batch_time_s"] == pytest.approx(2.0)
    assert rows["a", 1]["batch_time_spread_s"] == pytest.approx(0.2)
    assert rows["a", 1]["repeats"] == 3 and pd.isna(rows["a", 2]["batch_time_spread_s"])
    assert rows["a", 2]["speedup"] == pytest.approx(2.0)
    text = to_markdown(frame)
    assert "| 3 | 2.000 ± 0.200 |" in text and "| 1 | 1.000 (batches ± 0.000) |" in text
    assert "Of 3 repeats: mean time ± sample standard deviation over the repeats" in text
    assert "Where Repeats says 1, values are of one repeat: ± beside a batch time is over the ten batches" in text


def test_cells_without_a_result_are_seen_in_their_place():
    frame = axonn.strong_scaling(data_of(*endings_study()))
    rows = by_point(frame)
    assert rows["b", 1]["result"] == "OOM"
    assert rows["b", 2]["result"] == "unsupported: 2 heads & 50% of {them}"
    assert rows["b", 4]["result"] == "missing: crash: rank 1 died with signal 9"
    assert rows["a", 8]["result"] == "missing: needs 8 GPUs, this system has 4"
    assert all(pd.isna(rows["b", n]["batch_time_s"]) for n in (1, 2, 4, 8))
    # Nothing to set them against, so neither framework has a speedup over another.
    assert pd.isna(rows["a", 1]["speedup_over_best_other"])
    for text in (to_markdown(frame), to_latex(frame, "x")):
        assert (
            "OOM" in text
            and "missing: crash: rank 1 died with signal 9" in text
            and "needs 8 GPUs, this system has 4" in text
        )


def test_caption_says_device_scaling_and_baseline():
    text = to_markdown(axonn.strong_scaling(data_of(*endings_study())))
    assert "CPU processes on Test CPU, not GPUs" in text
    assert "Strong scaling (model and batch stay the same)" in text
    assert "the smallest number of processes at which every framework has a result (here 1)" in text
    assert "A study for tests" in text


def test_best_layout_is_shown_and_others_counted():
    layouts = (Layout(4), Layout(2, tensor_parallel=2), Layout(1, 4))
    study, outcomes = measured_cells([make_cell("a", 4, layout=layout) for layout in layouts], [3.0, 2.0, None])
    frame = axonn.strong_scaling(data_of(study, outcomes))
    row = frame.iloc[0]
    assert len(frame) == 1 and row["batch_time_s"] == pytest.approx(2.0)
    assert row["layout"] == "data 2 x tensor 2, micro-batch 1" and row["num_layouts"] == 3
    assert "layout tensor 4, micro-batch 1: missing: never_ran: has not run yet" in row["notes"]
    assert "(best of 3)" in to_markdown(frame)


def test_weak_scaling_has_efficiency_and_no_speedup():
    cells = [make_cell(f, n, m) for f in "ab" for n, m in ((1, TINY), (2, SMALL))]
    study, outcomes = measured_cells(cells, (1.0, 1.25, 2.0, 2.5), "weak_model")
    frame = axonn.weak_scaling(data_of(study, outcomes))
    rows = by_point(frame)
    assert rows["a", 2]["parallel_efficiency"] == pytest.approx(12 / 17)  # see test_metrics_scaling
    assert pd.isna(rows["a", 2]["speedup"]) and rows["a", 2]["speedup_over_best_other"] == pytest.approx(2.0)
    assert frame["model"].tolist() == ["tiny", "tiny", "small", "small"]
    with pytest.raises(ValueError, match="no comparison whose scaling is strong"):
        axonn.strong_scaling(data_of(study, outcomes))


def test_mixed_sets_get_no_speedup_over_others():
    study, outcomes = measured_cells([make_cell("a", 1), make_cell("b", 1, precision="bf16")])
    frame = axonn.strong_scaling(data_of(study, outcomes))
    assert frame["speedup_over_best_other"].isna().all() and frame["days_saved"].isna().all()
    assert "not compared: 2 precisions" in to_markdown(frame)


def published_rows(framework="axonn", device_name="Tesla V100-SXM2-16GB", **changes):
    settings = {"device": "cuda", "precision": "fp16", "activation_checkpointing": "full", "global_batch_size": 16384}
    cell = make_cell(framework, 48, PAPER_12B, **(settings | changes))
    # A batch at 54.78 % of 48 V100 takes 16384 * 512 * 9.69706e10 / 3.2868e15 s (see test_metrics_flops).
    seconds = 16384 * 512 * 9.69706e10 / 3.2868e15
    study, outcomes = measured_cells([cell], seconds, "weak_model", device="cuda", device_name=device_name)
    return axonn.weak_scaling(data_of(study, outcomes, read_reference(REFERENCE)))


def test_published_range_with_the_ratio_to_both_ends():
    frame = published_rows()
    row = frame.iloc[0]
    assert (row["published_percentage_of_peak_throughput_min"], row["published_percentage_of_peak_throughput_max"]) == (
        49.4,
        54.78,
    )
    assert row["ratio_to_published_percentage_of_peak_throughput_min"] == pytest.approx(1.0, abs=1e-4)
    assert row["ratio_to_published_percentage_of_peak_throughput_max"] == pytest.approx(54.78 / 49.4, abs=1e-4)
    assert row["not_comparable_because"] == ""
    # There is no other framework to have saved days against, so the published savings have nothing beside them.
    assert not [name for name in frame.columns if "saved" in name and "published" in name]
    text = to_markdown(frame)
    assert "49.4–54.78" in text and "1.000–1.109" in text and "arXiv:2110.13005" in text
    assert "49.4--54.78" in to_latex(frame, "x")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device_name": "NVIDIA A100-SXM4-40GB"}, "device A100, not V100"),
        ({"precision": "fp32"}, "precision fp32, not half"),
        ({"activation_checkpointing": "none"}, "activation checkpointing none, not full"),
        ({"framework": "torch_fsdp"}, "framework torch_fsdp, not axonn"),
    ],
)
def test_published_numbers_say_why_they_are_not_comparable(changes, reason):
    frame = published_rows(**changes)
    assert frame.iloc[0]["not_comparable_because"] == reason
    assert f"not comparable because: {reason}" in to_markdown(frame)


def test_another_published_batch_is_a_difference(tmp_path):
    text = REFERENCE.read_text().replace("half,full,,", "half,full,1024,")
    (tmp_path / "r.csv").write_text(text)
    cell = make_cell("axonn", 48, PAPER_12B, device="cuda", precision="fp16", activation_checkpointing="full")
    study, outcomes = measured_cells([cell], scaling="weak_model", device_name="V100")
    frame = axonn.weak_scaling(data_of(study, outcomes, read_reference(tmp_path / "r.csv")))
    assert frame.iloc[0]["not_comparable_because"] == "global batch 8, not 1024"


def test_reference_holds_nothing_but_what_is_known():
    reference = read_reference(REFERENCE)
    values = {(r["metric"], r["value_min"], r["value_max"]) for r in reference.to_dict("records")}
    assert values == {("percentage_of_peak_throughput", 49.4, 54.78), ("days_saved", 22, 37), ("percent_saved", 15, 25)}
    assert (reference["source"] == "arXiv:2110.13005").all() and (reference["where"] == "abstract").all()


def test_a_file_that_is_no_reference_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"reference/README\.md lists what a file needs"):
        read_reference(tmp_path / "x.csv")


def test_hyperparameters_has_one_row_a_cell():
    study, outcomes = measured_study({("a", 1): [1.0, 2.0], ("b", 2): 1.0})
    both = make_study([study.comparisons[0], make_comparison(study.planned, "again")])
    frame = axonn.TABLES["hyperparameters"](data_of(both, outcomes))
    assert frame["framework"].tolist() == ["a", "b"]
    row = frame.iloc[0]
    assert (row["learning_rate"], row["seed"], row["num_micro_batches"], row["initial_weights"]) == (
        1e-3,
        1234,
        8,
        "shared",
    )
    assert row["best_layout"]
    assert "tiny: 2 layers, hidden size 64, 2 heads" in to_markdown(frame)


def parity_study(changed):
    """torch_plain on one process, and three others whose losses `changed` gives."""
    plain = make_cell("torch_plain", 1)
    cells = [plain, *[make_cell(name, 2) for name in changed]]
    losses = [LOSSES, *changed.values()]
    outcomes = {planned(c).key: ok(make_record(c, losses=x)) for c, x in zip(cells, losses, strict=True)}
    return make_study([make_comparison([planned(c) for c in cells], scaling="none")], name="parity"), outcomes


def test_parity_catches_a_framework_that_computes_another_model():
    study, outcomes = parity_study({
        "right": [loss * 1.00005 for loss in LOSSES],
        "wrong": [*LOSSES[:10], LOSSES[10] * 1.003],
        "nans": [*LOSSES[:10], "nan"],
    })  # fmt: skip
    frame = parity.parity(data_of(study, outcomes))
    rows = frame.set_index("framework").to_dict("index")
    assert rows["torch_plain"]["max_relative_difference"] == 0.0
    assert rows["right"]["max_relative_difference"] == pytest.approx(5e-5) and rows["right"]["within_tolerance"]
    assert rows["wrong"]["max_relative_difference"] == pytest.approx(3e-3) and not rows["wrong"]["within_tolerance"]
    assert not rows["nans"]["within_tolerance"]
    assert {"framework", "layout", "num_gpus", "status", "max_relative_difference"} <= set(frame.columns)
    assert re.search(r"\| wrong .* 3.0e-03 \| NO \|", to_markdown(frame))


def test_parity_says_why_nothing_could_be_compared():
    study, outcomes = parity_study({"a": LOSSES, "b": LOSSES})
    plain, _, b = study.planned
    outcomes[b.key] = Outcome("missing", "rank 0 died", "crash")
    other = make_cell("c", 1, seed=1)
    plan = [
        *study.planned,
        planned(other),
        planned(make_cell("d", 2), obstacle=Obstacle("unsupported", "no such layout")),
    ]
    outcomes[planned(other).key] = ok(make_record(other))
    rows = parity.parity(data_of(make_study([make_comparison(plan, scaling="none")]), outcomes)).set_index("framework")
    assert rows.loc["b", "reason"] == "missing: crash: rank 0 died" and pd.isna(rows.loc["b", "within_tolerance"])
    assert rows.loc["d", "reason"] == "unsupported: no such layout"
    assert "no result of torch_plain" in rows.loc["c", "reason"] and pd.isna(rows.loc["c", "within_tolerance"])
    outcomes.pop(plain.key)
    rows = parity.parity(data_of(study, outcomes)).set_index("framework")
    assert "no result of torch_plain" in rows.loc["a", "reason"]


def test_parity_by_other_code_than_todays_says_so():
    study, outcomes = parity_study({"a": LOSSES, "b": LOSSES})
    _, a, _ = study.planned
    outcomes[a.key] = ok(outcomes[a.key].record, code_changed=True)
    rows = parity.parity(data_of(study, outcomes)).set_index("framework")
    assert rows.loc["a", "reason"] == "code changed since it was measured" and rows.loc["a", "within_tolerance"]
    assert rows.loc["b", "reason"] == ""


def test_parity_of_ranks_that_disagree_fails():
    study, outcomes = parity_study({"a": LOSSES})
    cell = make_cell("t", 2, layout=Layout(1, tensor_parallel=2))
    record = make_record(cell)
    record["ranks"][1]["losses"][10] += 1
    outcomes[planned(cell).key] = ok(record)
    study = make_study([make_comparison([*study.planned, planned(cell)], scaling="none")])
    row = parity.parity(data_of(study, outcomes)).set_index("framework").loc["t"]
    assert row["within_tolerance"] is False or not row["within_tolerance"]
    assert "disagree" in row["reason"]


@pytest.mark.parametrize("table", ["strong_scaling", "hyperparameters"])
def test_the_order_of_rows_changes_nothing(table):
    study, outcomes = endings_study()
    measurements = measurement_rows(study, outcomes, HARDWARE)
    make = find_table("axonn", table)
    frames = [make(study_data(m)) for m in (measurements, measurements.sample(frac=1, random_state=3))]
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert to_markdown(frames[0]) == to_markdown(frames[1])


def test_files_are_written_and_the_csv_reads_back(tmp_path):
    study, outcomes = endings_study()
    write_measurements(measurement_rows(study, outcomes, HARDWARE), tmp_path / "measurements.csv")
    paths = write_table(
        tmp_path / "measurements.csv", axonn.TABLES["strong_scaling"], "strong_scaling", REFERENCE, tmp_path / "tables"
    )
    assert [p.name for p in paths] == ["strong_scaling.csv", "strong_scaling.md", "strong_scaling.tex"]
    frame = pd.read_csv(paths[0])
    assert frame[frame["framework"] == "a"]["batch_time_s"].tolist()[:3] == pytest.approx([8.0, 4.0, 2.0])
    assert sorted(p.name for p in (tmp_path / "tables").iterdir()) == sorted(p.name for p in paths)


def test_latex_is_escaped_and_its_rows_are_whole():
    text = to_latex(axonn.strong_scaling(data_of(*endings_study())), "demo")
    assert r"2 heads \& 50\% of \{them\}" in text and r"\usepackage{booktabs}" in text
    assert text.isascii()
    for tabular in re.findall(r"\\begin\{tabular\}(.*)\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        columns = tabular[0].count(r"\arraybackslash")
        for line in tabular[1].splitlines():
            if not line.endswith(r"\\"):
                continue
            spanned = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + spanned == columns, line
    unescaped = re.sub(r"\\[{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}")
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}")


def test_latex_escapes_every_special_character():
    assert escape_latex(r"a_b & 5% $x #1 {y} ~^\ <>|") == (
        r"a\_b \& 5\% $\mathdollar$x \#1 \{y\} \textasciitilde{}\textasciicircum{}\textbackslash{} "
        r"\textless{}\textgreater{}\textbar{}"
    )


def test_numbers_for_readers():
    assert (
        format_number(0.123456) == "0.1235" and format_number(1234.5) == "1,234" and format_number(float("nan")) == "–"
    )
    assert format_number(-3.14159, 3) == "−3.14"
    assert format_spread(Spread(2.0, 0.1234, 3)) == "2.000 ± 0.123" and format_spread(Spread(2.0)) == "2.000"
    # A difference may be much smaller than its spread, whose digits would be noise.
    assert format_spread(Spread(0.01234, 12.345, 3)) == "0.01 ± 12.35"
    assert format_spread(Spread()) == "–"
    assert format_range(1.0, 1.0) == "1" and format_range(49.4, 54.78) == "49.4–54.78"
    assert format_range(22.0, 37.0) == "22–37" and format_range(float("nan"), float("nan")) == "–"
    assert format_ratios(1.0, 1.109) == "1.000–1.109" and format_ratios(0.99, 1.2) == "0.9900–1.2000"
    assert format_ratios(-0.45, -0.27) == "−0.4500 to −0.2700" and format_ratios(1.5, 1.5) == "1.500"
    assert format_ratios(float("nan"), float("nan")) == "–"


def test_papers_tables_and_figures_are_found_by_name():
    assert {"axonn", "parity"} <= set(paper_names()) and "figures" not in paper_names()
    assert set(load_paper("axonn").TABLES) == {"weak_scaling", "strong_scaling", "hyperparameters"}
    assert set(load_paper("axonn").FIGURES) == {"training_time", "percentage_of_peak", "strong_scaling"}
    assert load_paper("parity").FIGURES == {}
    with pytest.raises(ValueError, match=r"no paper 'axon' \(did you mean 'axonn'\? there are: .*parity"):
        load_paper("axon")
    for wrong in ("figures", "../axonn", "study_data"):
        with pytest.raises(ValueError, match="there is no paper"):
            load_paper(wrong)
    with pytest.raises(ValueError, match=r"has no table 'weak_scalin' .*did you mean 'weak_scaling'"):
        find_table("axonn", "weak_scalin")
    with pytest.raises(ValueError, match="has no figure"):
        find_figure("parity", "training_time")


def test_command_line_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    study, outcomes = endings_study()
    write_measurements(measurement_rows(study, outcomes, HARDWARE), tmp_path / "m.csv")
    common = [
        "make_tables.py",
        "--measurements",
        str(tmp_path / "m.csv"),
        "--paper",
        "axonn",
        "--output-dir",
        str(tmp_path / "t"),
    ]
    monkeypatch.setattr("sys.argv", [*common, "--table", "strong_scaling"])
    assert main() == 0 and (tmp_path / "t" / "strong_scaling.tex").exists()
    monkeypatch.setattr("sys.argv", [*common, "--table", "nonsense"])
    assert main() == 2 and "there are: hyperparameters, strong_scaling, weak_scaling" in capsys.readouterr().err


def test_measurements_of_two_studies_are_refused():
    frames = [
        measurement_rows(make_study([make_comparison([planned(make_cell())])], name=n), {}, HARDWARE)
        for n in ("x", "y")
    ]
    with pytest.raises(ValueError, match=r"2 values of study \(x, y\)"):
        study_data(pd.concat(frames))
