"""Figures: what is drawn, and that the same numbers give the same files (where it lies: test_figure_pages.py)."""

import matplotlib
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Text

from contracts.outcomes import Outcome
from factories import (
    HARDWARE,
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
from make_figures import main
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from papers import axonn
from planning.plan import Obstacle
from reporting import scaling_figures as axonn_figures
from reporting.figure_files import write_figure
from reporting.figure_forms import file_endings
from reporting.figures import IDEAL
from reporting.rendering import DISPLAYS


def figure_study(repeats=1):
    """Strong scaling of two frameworks on 1, 2 and 4 processes, and weak scaling over two models, with gaps."""
    times = {(f, n): [8.0 / n + 0.1 * r for r in range(repeats)] for f in ("fast", "slow") for n in (1, 2, 4)}
    strong, outcomes = measured_study(times)
    key = next(p.key for p in strong.planned if (p.cell.framework, p.cell.num_gpus) == ("slow", 4))
    outcomes[key] = Outcome("missing", "rank 1 died", "crash")
    for repeat in range(2, repeats + 1):
        outcomes[key[0], repeat] = outcomes[key]
    weak = [planned(make_cell(f, n, m)) for f in ("fast", "slow") for n, m in ((1, TINY), (2, SMALL))]
    outcomes |= {p.key: ok(make_record(p.cell, 1, 2.0)) for p in weak if p.key not in outcomes}
    outcomes[weak[3].key] = ok(make_record(weak[3].cell, status="oom", ranks=[]))
    unsupported = planned(make_cell("none", 2), obstacle=Obstacle("unsupported", "no such layout"))
    large = planned(make_cell("fast", 64), obstacle=Obstacle("missing", "needs 64 GPUs, this system has 8"))
    return make_study([
        make_comparison([*strong.planned, unsupported, large], "strong"),
        make_comparison(weak, "weak", scaling="weak_model"),
    ]), outcomes  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return data_of(*figure_study())


def texts_of(figure):
    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


def panels_of(figure):
    """The axes with data; those of the rows below them have no label."""
    return [axes for axes in figure.axes if axes.get_ylabel()]


def rows_of(figure):
    """(framework, where on the axis of x) -> the word in its row below the axes."""
    found = {}
    for axes in figure.axes:
        if not axes.get_ylabel():
            names = [label.get_text() for label in axes.get_yticklabels()]
            found |= {(names[int(t.get_position()[1])], t.get_position()[0]): t.get_text() for t in axes.texts}
    return found


def bars_of(axes):
    return [patch for patch in axes.patches if patch.get_height() > 0]


@pytest.mark.parametrize("name", sorted(axonn.FIGURES))
def test_device_and_endings_are_written(data, name):
    shown = " ".join(text.get_text().replace("\n", " ") for text in texts_of(axonn.FIGURES[name](data)))
    assert "CPU processes on Test CPU, not GPUs" in shown
    assert "missing" in shown and "unsupported" in shown
    assert "needs 64 processes" in shown or "too large for this system" in shown
    assert "A study for tests" in shown and "Number of processes" in shown
    assert ("OOM" in shown) == (name != "strong_scaling")  # the OOM is in the weak comparison


def test_bars_have_the_tables_values(data):
    strong, weak = panels_of(axonn_figures.training_time(data))
    # 3e11 tokens at 256 tokens a step and 1 s a step are 13,563.368 days.
    heights = sorted(bar.get_height() for bar in bars_of(strong))
    assert heights == pytest.approx(sorted(13_563.368 * t for t in (8, 4, 2, 8, 4)), rel=1e-6)
    assert len(bars_of(weak)) == 3
    assert strong.get_ylabel() == "Training time (days)"
    assert [t.get_text() for t in weak.get_xticklabels()] == ["1\ntiny", "2\nsmall"]


def test_the_word_stands_below_the_place_of_the_bar(data):
    figure = axonn_figures.percentage_of_peak(data)
    rows = rows_of(figure)
    _, weak = panels_of(figure)
    # "slow" ran out of memory on 2 processes, the second of two places.
    assert rows["slow", 1] == "OOM" and [t.get_text() for t in weak.get_xticklabels()][1] == "2\nsmall"
    # Both bars of the first place, and one where the other is not.
    assert sorted(round(bar.get_x() + bar.get_width() / 2, 9) for bar in bars_of(weak)) == [-0.2, 0.2, 0.8]


def error_bars_of(axes):
    return [one for one in axes.containers if isinstance(one, ErrorbarContainer)]


def test_error_bars_only_with_repeats(data):
    assert not any(map(error_bars_of, panels_of(axonn_figures.training_time(data))))
    repeated = panels_of(axonn_figures.training_time(data_of(*figure_study(repeats=3))))[0]
    assert len(error_bars_of(repeated)) == 5


def ideal_lines(axes):
    return [line for line in axes.lines if line.get_gid() == IDEAL]


def curves(axes):
    return [line for line in axes.lines if line.get_marker() not in ("None", None, "", "_", "|")]


@pytest.mark.parametrize(("baseline", "starts"), [("smallest_common", [2]), ("own_smallest", [1, 2])])
def test_ideal_lines_pass_through_the_baseline_used(baseline, starts):
    times = {("a", 1): 8.0, ("a", 2): 5.0, ("a", 4): 3.0, ("b", 2): 6.0, ("b", 4): 4.0}
    figure = axonn_figures.strong_scaling(data_of(*measured_study(times, baseline=baseline)))
    throughput, speedup = panels_of(figure)
    assert throughput.get_xscale() == throughput.get_yscale() == speedup.get_xscale() == speedup.get_yscale() == "log"
    dashed = ideal_lines(speedup)
    assert len(dashed) == len(starts)
    for start, line in zip(starts, dashed, strict=True):
        assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[start] == pytest.approx(1.0)
        assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[4] == pytest.approx(4 / start)
    # Tokens/s of b on 2: 256 / 6; its ideal on 4 is twice that.
    through = [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in ideal_lines(throughput)]
    assert any(y[2] == pytest.approx(256 / 6) and y[4] == pytest.approx(512 / 6) for y in through)
    assert {tuple(line.get_xdata()) for line in curves(throughput)} == {(1, 2, 4), (2, 4)}


def test_a_study_of_which_nothing_is_measured_is_drawn():
    plan = [
        planned(make_cell(f, n, device="cuda"), obstacle=Obstacle("missing", f"needs {n} GPUs, this system has 8"))
        for f in ("a", "b")
        for n in (48, 96)
    ]
    data = data_of(make_study([make_comparison(plan)], device="cuda"), {})
    for draw in axonn.FIGURES.values():
        shown = " ".join(text.get_text() for text in texts_of(draw(data)))
        assert "nothing measured yet" in shown
        assert ("needs 48 GPUs" in shown and "needs 96 GPUs" in shown) or "too large for this system" in shown


def test_a_study_without_the_comparison_is_refused():
    data = data_of(*measured_study({("a", 1): 1.0}, scaling="none"))
    for draw in axonn.FIGURES.values():
        with pytest.raises(ValueError, match="take the figure out of the study file"):
            draw(data)


def test_drawing_leaves_no_global_state(data):
    before = dict(matplotlib.rcParams)
    axonn_figures.training_time(data)
    axonn_figures.strong_scaling(data)
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.pyplot.get_fignums() == []


def test_files_are_the_same_every_time_whatever_the_order_of_rows(tmp_path):
    measurements = measurement_rows(*figure_study(), HARDWARE)
    for name, frame in (("one", measurements), ("two", measurements.sample(frac=1, random_state=1))):
        write_measurements(frame, tmp_path / name / "measurements.csv")
        paths = write_figure(
            tmp_path / name / "measurements.csv",
            axonn.FIGURES["strong_scaling"],
            "strong_scaling",
            None,
            tmp_path / name,
        )
        assert [p.name for p in paths] == [f"strong_scaling{ending}" for ending in file_endings()]
    assert file_endings() == (".svg", ".pdf", ".png", "_column.pdf")
    for ending in file_endings():
        one, two = ((tmp_path / name / f"strong_scaling{ending}").read_bytes() for name in ("one", "two"))
        assert one == two and len(one) > 5000, ending


def test_command_line(tmp_path, monkeypatch, capsys):
    write_measurements(measurement_rows(*figure_study(), HARDWARE), tmp_path / "m.csv")
    common = [
        "make_figures.py",
        "--measurements",
        str(tmp_path / "m.csv"),
        "--paper",
        "axonn",
        "--output-dir",
        str(tmp_path / "f"),
    ]
    monkeypatch.setattr("sys.argv", [*common, "--figure", "nonsense"])
    assert main() == 2 and "percentage_of_peak" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*common, "--figure", "training_time"])
    assert main() == 0 and (tmp_path / "f" / "training_time.svg").exists()


def test_unknown_percentages_are_said_and_not_drawn_as_zero():
    study, outcomes = measured_study({("a", 1): 1.0}, device="cuda", precision="bf16")
    figure = axonn_figures.percentage_of_peak(data_of(study, outcomes))
    assert rows_of(figure) == {("a", 0): "unknown"}
    assert not any(axes.patches for axes in panels_of(figure))


def test_whose_times_mean_nothing_stands_in_the_picture_and_above_the_table():
    settings = {"initial_weights": "shared", "cuda_stand_in": "axonn believes to be on CUDA"}
    data = data_of(*measured_cells([make_cell("axonn", n) for n in (1, 2)], settings=settings))
    told = "Times of axonn are of a CPU in CUDA's place, for correctness only"
    for draw in axonn.FIGURES.values():
        assert told in " ".join(text.get_text().replace("\n", " ") for text in texts_of(draw(data)))
    assert told in axonn.strong_scaling(data).attrs[DISPLAYS][0].details
    real = data_of(*measured_cells([make_cell("axonn")]))
    assert "CUDA's place" not in axonn.strong_scaling(real).attrs[DISPLAYS][0].details


def test_a_picture_says_which_of_its_numbers_the_tables_have_notes_on():
    study, outcomes = measured_study({("a", 1): 1.0, ("a", 2): 0.5, ("b", 1): 1.0, ("b", 2): 0.6})
    for key, outcome in list(outcomes.items()):
        if outcome.record["framework"] == "a":
            outcomes[key] = ok(outcome.record, code_changed=True)
    data = data_of(study, outcomes)
    for draw in axonn.FIGURES.values():
        told = " ".join(text.get_text().replace("\n", " ") for text in texts_of(draw(data)))
        assert "The tables have notes on a (1, 2), by number of processes." in told
    table = axonn.strong_scaling(data).attrs[DISPLAYS][0]
    assert "tiny on 1 process, a: code changed since it was measured" in table.notes
