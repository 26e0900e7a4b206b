"""One study on two systems side by side: values by hand, what is not like for like, and nothing but CSV files read."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contracts.cell import Layout
from contracts.outcomes import Outcome
from factories import (
    HARDWARE,
    ROOT,
    TINY,
    make_cell,
    make_comparison,
    make_record,
    make_study,
    measured_cells,
    ok,
    planned,
)
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.plan import Obstacle, Study
from project_copy import copy_project_files
from reporting.latex_tables import to_latex
from reporting.rendering import to_markdown
from reporting.systems_comparison import systems_comparison
from reporting.systems_files import write_comparison
from workloads.training.training_cell import TrainingCell

V100 = {"device": "cuda", "device_name": "Tesla V100-SXM2-16GB"}
A100 = {"device": "cuda", "device_name": "NVIDIA A100-SXM4-40GB"}


def rows_of(study: Study, outcomes: Mapping[tuple[str, int], Outcome], system: str) -> pd.DataFrame:
    """The study's measurements as if a system of this name had made them."""
    on_system = replace(study, system=replace(study.system, name=system))
    return measurement_rows(on_system, outcomes, HARDWARE)


def measured_on(system: str, cells: Sequence[TrainingCell], times: Sequence[float] | float = 1.0, **record: Any):
    return rows_of(*measured_cells(cells, times, **record), system)


def one_row(*measurements: pd.DataFrame) -> dict[str, Any]:
    (row,) = systems_comparison(measurements).to_dict("records")
    return row


def one_pair(change: dict[str, Any], record: dict[str, Any] | None = None) -> dict[str, Any]:
    """Rows of a and b that are the same but for fields of b's cell or keys of b's record."""
    return one_row(measured_on("a", [make_cell()], 2.0), measured_on("b", [make_cell(**change)], 1.0, **(record or {})))


def test_rates_ratio_and_utilization_are_those_worked_out_by_hand() -> None:
    row = one_pair({})
    # 8 sequences of 32 tokens are 256 tokens a step.
    assert (row["a.batch_time_s"], row["b.batch_time_s"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert (row["a.tokens_per_s"], row["b.tokens_per_s"]) == (pytest.approx(128.0), pytest.approx(256.0))
    assert row["b.tokens_per_s_over_a"] == pytest.approx(2.0)
    # 72 b s l h^2 = 150,994,944, times 1 + 32/384 + 512/1536, over the 2e11 FLOP/s of 2 x 1000^3 in 0.01 s.
    assert row["b.model_flops_utilization_percent"] == pytest.approx(0.106954752)
    assert row["a.model_flops_utilization_percent"] == pytest.approx(0.053477376)
    # 96 b s l h^2 = 201,326,592, times 1 + 32/384 + 512/2048.
    assert row["b.percentage_of_peak_throughput"] == pytest.approx(0.134217728)
    assert row["b.comparison_note"] == ""
    assert math.isnan(row["a.batch_time_spread_s"])


def test_the_table_is_marked_as_one_of_two_systems() -> None:
    frame = systems_comparison([measured_on("a", [make_cell()]), measured_on("b", [make_cell()])])
    assert frame["systems_compared"].tolist() == ["a + b"]
    text = to_markdown(frame)
    assert text.startswith("COMPARISON OF 2 SYSTEMS, a, b: A study for tests")
    assert "- Numbers of different systems stand side by side here" in text
    assert "Tokens/s over a" in text and "yes, as far as recorded" in text
    latex = to_latex(frame, "x")
    assert latex.isascii() and r"\caption{COMPARISON OF 2 SYSTEMS, a, b:" in latex


def test_repeats_are_mean_and_spread_and_the_ratio_is_of_mean_times() -> None:
    cell = make_cell()
    plan = [planned(cell, 1), planned(cell, 2)]
    outcomes = {one.key: ok(make_record(cell, one.repeat, t)) for one, t in zip(plan, (1.75, 2.25), strict=True)}
    repeated = rows_of(make_study([make_comparison(plan)]), outcomes, "b")
    row = one_row(measured_on("a", [cell], 2.0), repeated)
    assert (row["a.repeats"], row["b.repeats"]) == ("1", "2")
    assert row["b.batch_time_s"] == pytest.approx(2.0)
    assert row["b.batch_time_spread_s"] == pytest.approx(math.sqrt(2) / 4)
    # 256 tokens in a mean of 2 s on both; the mean of the rates would be (256/1.75 + 256/2.25) / 2 = 130.
    assert row["b.tokens_per_s"] == pytest.approx(128.0)
    assert row["b.tokens_per_s_spread"] == pytest.approx(128 * math.sqrt(2) / 8)
    assert row["b.tokens_per_s_over_a"] == pytest.approx(1.0)
    # One repeat of a: its spread is not known, and so that of the ratio.
    assert math.isnan(row["b.tokens_per_s_over_a_spread"]) and row["b.lead"] == "one repeat"
    text = to_markdown(systems_comparison([measured_on("a", [cell], 2.0), repeated]))
    assert "| 2 | 2.000 ± 0.354 |" in text and "| 1.00 (one repeat) |" in text


def repeated_on(system: str, times: Sequence[float]) -> pd.DataFrame:
    """The measurements of one cell with these times of its repeats."""
    plan = [planned(make_cell(), repeat) for repeat in range(1, len(times) + 1)]
    outcomes = {one.key: ok(make_record(one.cell, one.repeat, t)) for one, t in zip(plan, times, strict=True)}
    return rows_of(make_study([make_comparison(plan)]), outcomes, system)


@pytest.mark.parametrize(
    ("times", "ratio", "spread", "lead", "shown"),
    [
        # Against 2.0 ± 0.2 s: relative deviations 0.1 and 0.15, so the ratio 0.5 has 0.5 x sqrt(0.0325).
        ([3.4, 4.0, 4.6], 0.5, 0.0901387818866, "behind", "| 0.500 ± 0.090 |"),
        ([0.9, 1.0, 1.1], 2.0, 0.2828427124746, "ahead", "| 2.00 ± 0.28 |"),
        # 128 ± 12.8 tokens/s against 121.9 ± 11.6.
        ([1.9, 2.1, 2.3], 20 / 21, 0.131519274, "within spread", "| 0.952 ± 0.132 (within the spread) |"),
    ],
)
def test_a_ratio_has_a_spread_and_is_a_lead_only_outside_of_it(
    times: list[float], ratio: float, spread: float, lead: str, shown: str
) -> None:
    frame = systems_comparison([repeated_on("a", [1.8, 2.0, 2.2]), repeated_on("b", times)])
    (row,) = frame.to_dict("records")
    assert row["b.tokens_per_s_over_a"] == pytest.approx(ratio)
    assert row["b.tokens_per_s_over_a_spread"] == pytest.approx(spread)
    assert (row["b.lead"], row["b.repeats"], row["b.repeats_planned"]) == (lead, "3", "3")
    assert shown in to_markdown(frame)


def test_a_system_whose_repeats_differ_twofold_has_no_lead() -> None:
    frame = systems_comparison([repeated_on("a", [1.0, 1.0]), repeated_on("b", [2.0, 4.0])])
    (row,) = frame.to_dict("records")
    assert row["b.tokens_per_s_over_a"] == pytest.approx(1 / 3) and row["b.lead"] == ""
    assert "not comparable on b itself (see its notes)" in row["b.comparison_note"]
    assert "unsteady" in row["b.notes"]


def test_each_system_shows_its_own_best_layout() -> None:
    data, tensor = (make_cell("f", 2, layout=layout) for layout in (Layout(2), Layout(1, tensor_parallel=2)))
    row = one_row(measured_on("a", [data, tensor], [1.0, 2.0]), measured_on("b", [data, tensor], [4.0, 0.5]))
    assert (row["a.layout"], row["b.layout"]) == ("data 2, micro-batch 1", "tensor 2, micro-batch 1")
    assert (row["a.num_layouts"], row["b.num_layouts"]) == ("2", "2")
    assert row["b.tokens_per_s_over_a"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "record", "named"),
    [
        ({}, {"device_name": "Other CPU"}, "device Other CPU, not Test CPU"),
        ({"precision": "bf16"}, {}, "precision bf16, not fp32"),
        ({"activation_checkpointing": "full"}, {}, "activation checkpointing full, not none"),
        ({}, {"git_commit": "1" * 40}, "code of commit 1111111, not 0000000"),
        ({"corpus": {"source": "local", "revision": "2"}}, {}, "corpus local 2, not bundled"),
        ({"seed": 7}, {}, "seed 7, not 1234"),
        ({}, {"git_commit": None}, "code not known to be the same (no commit recorded on b)"),
        (
            {},
            {"versions": {"python": "3.11.7", "torch": "2.12.0", "kernel": "6.1"}},
            "torch 2.12.0, not 2.13.0",
        ),
    ],
)
def test_other_settings_are_named_beside_the_ratio(change: dict[str, Any], record: dict[str, Any], named: str) -> None:
    row = one_pair(change, record)
    assert row["b.comparison_note"] == f"not like for like: {named}"
    assert row["b.tokens_per_s_over_a"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"global_batch_size": 16}, "global batch 16, not 8"),
        # 2 x 512 x 64 + 32 x 64 + 2 (12 x 64^2 + 13 x 64) + 2 x 64 = 167,680; 16 positions or a matrix less.
        ({"model": replace(TINY, seq_length=16)}, "sequence length 16, not 32; parameters 166656, not 167680"),
        ({"model": replace(TINY, num_heads=4)}, "heads 4, not 2"),
        ({"model": replace(TINY, tie_embeddings=True)}, "parameters 134912, not 167680"),
    ],
)
def test_other_work_has_no_ratio(change: dict[str, Any], named: str) -> None:
    row = one_pair(change)
    assert row["b.comparison_note"] == f"not like for like: {named}"
    assert math.isnan(row["b.tokens_per_s_over_a"])
    # What was measured is there all the same.
    assert row["b.batch_time_s"] == pytest.approx(1.0)


def test_code_that_changed_on_one_system_is_named() -> None:
    rows = [measured_on(name, [make_cell()]) for name in ("a", "b")]
    both = one_row(*(frame.assign(code_changed=True) for frame in rows))
    assert both["b.comparison_note"] == ""
    only = one_row(rows[0], rows[1].assign(code_changed=True))
    assert only["b.comparison_note"] == "not like for like: code changed since it was measured on b"


def test_uncommitted_changes_are_not_taken_for_the_same_code() -> None:
    frames = [measured_on(name, [make_cell()], git_dirty=True) for name in ("a", "b")]
    assert one_row(*frames)["b.comparison_note"] == (
        "not like for like: code not known to be the same (uncommitted changes to 0000000-dirty)"
    )


def test_gpus_and_processes_are_told_apart_and_so_are_their_percentages() -> None:
    frame = systems_comparison([
        measured_on("laptop", [make_cell()], 2.0),
        measured_on("cluster", [make_cell(device="cuda")], 0.5, **V100),
    ])  # fmt: skip
    (row,) = frame.to_dict("records")
    assert row["cluster.comparison_note"] == (
        "not like for like: GPUs, not CPU processes; device Tesla V100-SXM2-16GB, not Test CPU"
    )
    assert row["cluster.tokens_per_s_over_laptop"] == pytest.approx(4.0)
    # 213,909,504 FLOP in half a second, of 125e12 FLOP/s
    assert row["cluster.model_flops_utilization_percent"] == pytest.approx(100 * 213_909_504 / 0.5 / 125e12)
    text = to_markdown(frame)
    assert "| GPUs or processes |" in text
    assert "Percentages of a CPU's measured rate and percentages of a GPU's peak cannot be compared." in text


def test_threads_are_named_where_a_process_stands_for_a_gpu() -> None:
    rows = [measured_on("a", [make_cell()]), measured_on("b", [make_cell()]).assign(threads_per_process=4)]
    assert one_row(*rows)["b.comparison_note"] == "not like for like: threads per process 4, not 1"


def test_what_differs_in_every_row_is_said_once() -> None:
    cells = [make_cell("f", n, device="cuda") for n in (1, 2)]
    other = [cells[0], replace(cells[1], precision="bf16")]
    frame = systems_comparison([measured_on("a", cells, **V100), measured_on("b", other, **A100)])
    text = to_markdown(frame)
    device = "device NVIDIA A100-SXM4-40GB, not Tesla V100-SXM2-16GB"
    # Two precisions in one comparison of b are not compared on b either.
    doubted = "not comparable on b itself (see its notes)"
    assert f"All rows of b with a result beside a's: not like for like: {device}; {doubted}." in text
    assert text.count(device) == 1
    assert "| not like for like: precision bf16, not fp32; see below |" in text
    assert [device in note for note in frame["b.comparison_note"]] == [True, True]


def test_what_has_no_result_is_in_its_place_with_the_reason() -> None:
    """On b: out of memory, crashed, unsupported, too large; and a point that its study does not have."""
    cells = [make_cell("f", n) for n in (1, 2, 3, 4, 5)]
    plan = [
        planned(cells[0]),
        planned(cells[1]),
        planned(cells[2], obstacle=Obstacle("unsupported", "no such split")),
        planned(cells[3], obstacle=Obstacle("missing", "needs 4 GPUs, this system (b) has 3")),
    ]
    outcomes = {
        plan[0].key: ok(make_record(cells[0], status="oom", ranks=[])),
        plan[1].key: Outcome("missing", "rank 1 died", "crash"),
    }
    frame = systems_comparison([
        measured_on("a", cells), rows_of(make_study([make_comparison(plan)]), outcomes, "b")
    ])  # fmt: skip
    assert frame["num_gpus"].tolist() == [1, 2, 3, 4, 5]
    results = [
        "OOM",
        "missing: crash: rank 1 died",
        "unsupported: no such split",
        "missing: needs 4 GPUs, this system (b) has 3",
        "not in its measurements.csv",
    ]
    assert frame["b.result"].tolist() == results
    assert frame["b.status"].tolist() == ["oom", "missing", "unsupported", "missing", ""]
    numbers = ["b.batch_time_s", "b.tokens_per_s", "b.model_flops_utilization_percent", "b.tokens_per_s_over_a"]
    assert frame[numbers].isna().all(axis=None)
    assert frame["b.repeats"].tolist() == [""] * 5
    text = to_markdown(frame)
    for reason in results:
        assert f"| b | {reason} |" in text
    assert to_latex(frame, "x").isascii()


def test_settings_of_a_cell_without_a_result_are_compared_too() -> None:
    cell = make_cell(global_batch_size=16)
    failed = rows_of(make_study([make_comparison([planned(cell)])]), {}, "b")
    row = one_row(measured_on("a", [make_cell()]), failed)
    assert row["b.comparison_note"] == "not like for like: global batch 16, not 8"
    assert row["b.status"] == "missing"


def test_three_systems_are_set_against_the_first() -> None:
    frame = systems_comparison([
        measured_on(name, [make_cell()], t) for name, t in (("a", 3.0), ("b", 1.0), ("c", 6.0))
    ])  # fmt: skip
    (row,) = frame.to_dict("records")
    assert (row["b.tokens_per_s_over_a"], row["c.tokens_per_s_over_a"]) == (pytest.approx(3.0), pytest.approx(0.5))
    assert row["systems_compared"] == "a + b + c"
    assert to_markdown(frame).startswith("COMPARISON OF 3 SYSTEMS, a, b, c:")


def test_the_order_of_rows_changes_nothing() -> None:
    cells = [make_cell(f, n) for f in ("f", "g") for n in (1, 2)]
    frames = [measured_on("a", cells, [1.0, 0.7, 0.9, 0.3]), measured_on("b", cells[:3], [2.0, 0.1, 0.6])]
    shuffled = [frame.sample(frac=1, random_state=3) for frame in frames]
    pd.testing.assert_frame_equal(systems_comparison(frames), systems_comparison(shuffled), check_exact=True)


def test_what_is_no_comparison_is_refused() -> None:
    a, b = (measured_on(name, [make_cell()]) for name in ("a", "b"))
    with pytest.raises(ValueError, match="two systems or more"):
        systems_comparison([a])
    with pytest.raises(ValueError, match="system a is given twice"):
        systems_comparison([a, a])
    with pytest.raises(ValueError, match=r"2 studies \(demo, other\)"):
        systems_comparison([a, b.assign(study="other")])


# -- the command -------------------------------------------------------------------------------------------------------


def write_results(root: Path, *systems: str) -> None:
    """results/<system>/demo/measurements.csv of each, a twice as fast as the next."""
    for index, system in enumerate(systems):
        write_measurements(
            measured_on(system, [make_cell()], 2.0**index), root / "results" / system / "demo" / "measurements.csv"
        )


def project(root: Path) -> Path:
    """As much of a project as the messages need: its studies and systems."""
    for path, text in {
        "studies/demo.yaml": "",
        "studies/parity.yaml": "",
        "systems/local.yaml": "device: auto\n",
        "systems/cluster.yaml": "device: cuda\nslurm: {}\n",
    }.items():
        (root / "config" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "config" / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("study", "systems", "message"),
    [
        ("demoo", ("local", "laptop"), r"there is no study 'demoo' .*did you mean 'demo'\?"),
        ("demo", ("local", "laptp"), r"there is no system 'laptp' .*did you mean 'laptop'\?"),
        ("demo", ("local", "local"), "system local is given twice"),
        ("demo", ("local", "../laptop"), "system '../laptop': a name is letters"),
        ("../demo", ("local", "laptop"), "study '../demo': a name is letters"),
        ("parity", ("local", "laptop"), r"results/local/parity/measurements.csv: .*`\./run parity --config system=loc"),
        ("demo", ("local", "cluster"), r"one of: laptop, local.*`\./run demo --profile slurm --config system="),
        ("parity", ("laptop", "local"), r"^results/laptop/parity/measurements.csv: .* copy results/laptop/parity here"),
    ],
)  # fmt: skip
def test_a_wrong_name_or_no_file_is_one_message_and_nothing_written(
    tmp_path: Path, study: str, systems: tuple[str, ...], message: str
) -> None:
    write_results(project(tmp_path), "local", "laptop")
    with pytest.raises(ValueError, match=message) as raised:
        write_comparison(study, systems, tmp_path)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "results" / "comparisons").exists()


def test_measurements_under_another_systems_name_are_refused(tmp_path: Path) -> None:
    write_results(project(tmp_path), "local", "laptop")
    (tmp_path / "results" / "laptop").rename(tmp_path / "results" / "desktop")
    with pytest.raises(ValueError, match=r"results/desktop/demo/.*: is of system 'laptop', not 'desktop'"):
        write_comparison("demo", ("local", "desktop"), tmp_path)
    (tmp_path / "results" / "desktop" / "demo" / "measurements.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no measurements\.csv of this project"):
        write_comparison("demo", ("local", "desktop"), tmp_path)
    assert not (tmp_path / "results" / "comparisons").exists()


def test_the_command_writes_three_files_and_nothing_else(tmp_path: Path) -> None:
    root = copy_project_files(ROOT, tmp_path / "project")
    write_results(root, "fast", "slow")

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-B", "scripts/compare_systems.py", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=100,
        )

    before = {path for path in root.rglob("*") if path.is_file()}
    wrong = command("demo", "fast", "fsat")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'fast'?" in wrong.stderr and "Traceback" not in wrong.stderr
    assert {path for path in root.rglob("*") if path.is_file()} == before
    done = command("demo", "fast", "slow")
    assert (done.returncode, done.stderr) == (0, "")
    folder = root / "results" / "comparisons" / "demo"
    written = {folder / f"fast+slow.{suffix}" for suffix in ("csv", "md", "tex")}
    assert {path for path in root.rglob("*") if path.is_file()} - before == written
    assert all(str(path.relative_to(root)) in done.stdout for path in written)
    (row,) = pd.read_csv(folder / "fast+slow.csv").to_dict("records")
    assert row["systems_compared"] == "fast + slow"
    assert row["slow.tokens_per_s_over_fast"] == pytest.approx(0.5)
    assert r"\label{tab:demo-fast+slow}" in (folder / "fast+slow.tex").read_text()
