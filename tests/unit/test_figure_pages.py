"""Figures as they are printed, of the paper's full matrix and of awkward studies: nothing covers anything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from contracts.outcomes import Outcome
from factories import (
    PAPER_12B,
    TINY,
    data_of,
    make_cell,
    make_comparison,
    make_record,
    make_study,
    measured_study,
    ok,
    planned,
)
from figure_boxes import covering_texts, drawn, texts_of
from full_matrix import NAMES, NO_BASELINE, REFERENCE, STRONG, TWO_DEVICES, WEAK, full_data, full_study
from models.gpt import Gpt
from papers import axonn
from planning.adaptors import frameworks_shown_as
from planning.plan import Obstacle
from reporting.figure_forms import COLUMN, FORMS, SMALLEST_PT, Form
from reporting.figures import drawing_style, log_ticks, save_figure
from reporting.reference import read_reference
from reporting.results import results_of
from reporting.study_data import StudyData

pytestmark = pytest.mark.slow

NINE = tuple(frameworks_shown_as())
LONG_MODEL = dataclasses.replace(TINY, name="a-model-of-a-user-with-a-very-long-name-of-which-only-the-end-differs-7b")
OTHER_LONG_MODEL = dataclasses.replace(LONG_MODEL, name=LONG_MODEL.name.replace("7b", "13b"), num_layers=4)
LONG_NAME = "a_framework_of_a_user_with_a_very_long_name"


def study_data_of(study: Any, outcomes: Any, title: str = "") -> StudyData:
    named = dataclasses.replace(study, shown_as=frameworks_shown_as(), title=title or study.title)
    return data_of(named, outcomes)


def one_point() -> StudyData:
    return study_data_of(*measured_study({("axonn", 1): 1.0}))


def nine_frameworks() -> StudyData:
    times = {(name, n): [(8 + i) / n, (8.2 + i) / n] for i, name in enumerate(NINE) for n in (1, 2, 4, 8)}
    study, outcomes = measured_study(times)
    endings = ("oom", "nan", "not_available")
    for index, one in enumerate(study.planned):
        if index // 2 % 5 == 1:  # both repeats of every fifth cell
            ending = endings[index // 10 % 4 : index // 10 % 4 + 1]
            record = make_record(one.cell, one.repeat, status=ending[0], ranks=[]) if ending else None
            outcomes[one.key] = ok(record) if record else Outcome("missing", "crashed", "crash")
    return study_data_of(study, outcomes)


def many_numbers_of_gpus() -> StudyData:
    times = {(name, n): 8.0 / n for name in ("axonn", "deepspeed") for n in range(1, 25)}
    study, outcomes = measured_study(times)
    for one in list(study.planned)[::7]:
        outcomes[one.key] = Outcome("missing", "crashed", "crash")
    return study_data_of(study, outcomes)


def long_names() -> StudyData:
    """Of frameworks, models, comparisons and the study, with signs that mean something to TeX."""

    def cells(models: list[tuple[Gpt, int]]) -> list[Any]:
        names = (LONG_NAME + "_1", LONG_NAME + "_2", "megatron_lm")
        return [planned(make_cell(name, n, model)) for name in names for model, n in models]

    strong, weak = cells([(LONG_MODEL, 1), (LONG_MODEL, 2)]), cells([(LONG_MODEL, 1), (OTHER_LONG_MODEL, 2)])
    outcomes = {one.key: ok(make_record(one.cell, 1, 2.0 + i)) for i, one in enumerate([*strong, *weak])}
    outcomes[strong[1].key] = ok(make_record(strong[1].cell, status="oom", ranks=[]))
    study = make_study(
        [
            make_comparison(strong, "a_comparison_with_a_name_that_goes_on_and_on_and_on_and_on"),
            make_comparison(weak, "another_one", scaling="weak_model"),
        ]
    )
    return study_data_of(study, outcomes, f"Costs $5 and $6_a^2, {'and so on, ' * 20}{'x' * 150}")


def four_decades() -> StudyData:
    times = {("axonn", 1): 100.0, ("axonn", 2): 1.0, ("axonn", 4): 0.01, ("deepspeed", 1): 50.0}
    return study_data_of(*measured_study({**times, ("deepspeed", 2): 40.0, ("deepspeed", 4): [30.0, 200.0, 1.0]}))


def nothing_measured() -> StudyData:
    obstacle = Obstacle("missing", "needs more GPUs than this system has")
    plan = [planned(make_cell(f, n, device="cuda"), obstacle=obstacle) for f in NINE for n in (48, 96)]
    return study_data_of(make_study([make_comparison(plan)], device="cuda"), {})


def only_published() -> StudyData:
    cells = [planned(make_cell(name, 48, PAPER_12B, device="cuda")) for name in ("axonn", "megatron_lm")]
    study = make_study([make_comparison(cells, scaling="weak_model")], device="cuda")
    return dataclasses.replace(study_data_of(study, {}), reference=read_reference(REFERENCE))


def one_absent() -> StudyData:
    study, outcomes = measured_study({("axonn", 1): 1.0, ("axonn", 2): 0.5, ("axonn", 4): 0.25})
    outcomes[study.planned[1].key] = Outcome("missing", "crashed", "crash")
    return study_data_of(study, outcomes)


def on_another_system() -> StudyData:
    """The strong-scaling study of fewer frameworks, measured by another machine."""
    data = full_data(STRONG)
    rows = data.measurements[data.measurements["framework"].isin(["deepspeed", "torch_tensor"])]
    return dataclasses.replace(data, measurements=rows.assign(system="elsewhere").reset_index(drop=True))


AWKWARD: dict[str, Callable[[], StudyData]] = {
    one.__name__: one
    for one in (
        one_point, nine_frameworks, many_numbers_of_gpus, long_names, four_decades, nothing_measured, only_published,
        one_absent, on_another_system,
    )
}  # fmt: skip
CASES = (*NAMES, *AWKWARD)


@cache
def data_named(case: str) -> StudyData:
    return AWKWARD[case]() if case in AWKWARD else full_data(case)


@cache
def figures_of(case: str) -> dict[tuple[str, Form], Figure]:
    """Every figure that the study has, in every form."""
    data = data_named(case)
    names = [name for name in axonn.FIGURES if name != "strong_scaling" or case not in (WEAK, "only_published")]
    figures = {}
    for form in FORMS:
        with drawing_style(form):
            figures |= {(name, form): drawn(axonn.FIGURES[name](data, form)) for name in names}
    return figures


@pytest.mark.parametrize("case", CASES)
def test_no_text_covers_text_or_data_or_leaves_the_page(case: str) -> None:
    for (name, form), figure in figures_of(case).items():
        assert figure.get_size_inches()[0] == form.width_in
        with drawing_style(form):
            assert covering_texts(figure) == [], (name, form.suffix)


@pytest.mark.parametrize("case", CASES)
def test_no_letters_are_smaller_than_venues_take(case: str) -> None:
    for figure in figures_of(case).values():
        assert min(size for _, _, size in texts_of(figure)) >= SMALLEST_PT == 7.0


@pytest.mark.parametrize("case", CASES)
def test_a_column_has_no_title_and_no_caption(case: str) -> None:
    for (name, form), figure in figures_of(case).items():
        shown = " ".join(text for text, _, _ in texts_of(figure))
        assert ("Precision" in shown) == ("global batch" in shown) == (form is not COLUMN), name


def curves_of(figure: Figure) -> dict[tuple[int, str], dict[float, float]]:
    """(which axes, framework) -> its points."""
    return {
        (index, bar.get_label()): dict(zip(*bar.lines[0].get_data(), strict=True))
        for index, axes in enumerate(figure.axes)
        for bar in axes.containers
        if isinstance(bar, ErrorbarContainer) and bar.get_label()[0] != "_"
    }


@pytest.mark.parametrize("case", [STRONG, NO_BASELINE, TWO_DEVICES, "nine_frameworks", "one_absent"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or "full")
def test_no_line_passes_a_point_that_is_not_there(case: str, form: Form) -> None:
    curves = curves_of(figures_of(case)["strong_scaling", form])
    results = results_of(data_named(case), ("strong",))
    passed = 0
    for framework in {r.framework for r in results}:
        measured = {r.num_gpus: r.tokens_per_s.mean for r in results if r.framework == framework and r.tokens_per_s.n}
        points = curves.get((0, framework), {})
        assert {n: y for n, y in points.items() if not math.isnan(y)} == measured
        between = {r.num_gpus for r in results if measured and min(measured) < r.num_gpus < max(measured)}
        gaps = between - set(measured)
        # A point of a line for each of them, so that the line is broken there.
        assert gaps <= set(points)
        passed += len(gaps)
    assert passed or case == TWO_DEVICES


def looks_of(figure: Figure) -> dict[tuple[str, str], Any]:
    """How each framework is drawn: (bar or curve, framework) -> colour, and hatch or marker and line."""
    looks: dict[tuple[str, str], Any] = {}
    for axes in figure.axes:
        for container in axes.containers:
            framework = container.get_label()
            if isinstance(container, ErrorbarContainer):
                line = container.lines[0]
                if line is not None:
                    looks["curve", framework] = (line.get_color(), line.get_marker(), line._unscaled_dash_pattern)
            else:
                (bar,) = container
                looks["bar", framework] = (bar.get_facecolor(), bar.get_hatch(), bar.get_hatchcolor())
    return looks


def test_a_framework_looks_the_same_in_every_figure() -> None:
    seen: dict[tuple[str, str], set[Any]] = {}
    for case in CASES:
        if case == "long_names":
            continue  # of frameworks that no adaptor declares
        for figure in figures_of(case).values():
            for key, look in looks_of(figure).items():
                seen.setdefault(key, set()).add(look)
    assert {framework for _, framework in seen} == set(NINE)
    assert all(len(looks) == 1 for looks in seen.values())
    for kind in ("bar", "curve"):
        assert len({look for (of, _), looks in seen.items() if of == kind for look in looks}) == len(NINE)


def shown_in(figure: Figure) -> str:
    return " ".join(text.replace("\n", " ") for text, _, _ in texts_of(figure))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or "full")
def test_without_a_common_baseline_the_figure_says_what_to_do(form: Form) -> None:
    figure = figures_of(NO_BASELINE)["strong_scaling", form]
    assert "No speedup: there is no number of GPUs at which every framework has a result" in shown_in(figure)
    assert "baseline: own_smallest" in shown_in(figure)
    assert {framework for _, framework in curves_of(figure)} >= {"axonn", "megatron_lm", "deepspeed"}


def test_a_layout_on_another_device_takes_nothing_else_out_and_is_named() -> None:
    other, same = (results_of(full_data(name), ("strong",)) for name in (TWO_DEVICES, STRONG))
    assert all(r.comparable and r.speedup.n for r in other if r.is_measured)
    assert {r.device_name for r in other if r.is_measured} == {r.device_name for r in same if r.is_measured}
    figure = figures_of(TWO_DEVICES)["strong_scaling", FORMS[0]]
    shown = shown_in(figure)
    assert "Left out: PyTorch FSDP (96), layout data 96, micro-batch 4" in shown
    assert "device kind NVIDIA A100-SXM4-40GB, most rows of the comparison have Tesla V100-SXM2-16GB" in shown


def test_what_must_not_be_compared_is_marked_in_a_column_too() -> None:
    results = results_of(full_data(STRONG), ("strong",))
    apart = [r.framework_name for r in results if r.is_measured and not r.comparable]
    assert apart == ["DeepSpeed"]
    for name, form in figures_of(STRONG):
        assert "not compared" in shown_in(figures_of(STRONG)[name, form]), (name, form.suffix)


def test_names_are_those_that_readers_know() -> None:
    shown = shown_in(figures_of(WEAK)["training_time", COLUMN])
    assert "Megatron-LM" in shown and "12B" in shown
    assert not any(name in shown for name in ("megatron_lm", "axonn", "torch_", "12b"))


def test_the_papers_strong_scaling_shows_days_and_percent_of_peak() -> None:
    assert set(full_study(STRONG).figures) == {"strong_scaling", "training_time", "percentage_of_peak"}


def test_letters_of_a_pdf_are_embedded_as_outlines(tmp_path: Any) -> None:
    paths = save_figure(figures_of(STRONG)["strong_scaling", COLUMN], tmp_path, "strong_scaling", COLUMN)
    assert [path.name for path in paths] == ["strong_scaling_column.pdf"]
    content = paths[0].read_bytes()
    assert b"/FontFile2" in content and b"/Type3" not in content


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.8, 9.5, [1, 2, 5]),
        (20_000, 300_000, [20_000, 50_000, 100_000, 200_000]),
        (0.9, 11_000, [1, 10, 100, 1000, 10_000]),
        (2.1, 2.9, [2.2, 2.5, 2.8]),
        (2.01, 2.03, [math.sqrt(2.01 * 2.03)]),
        (1e-9, 2e9, [1e-9, 1e-5, 1e-1, 1e3, 1e7]),
    ],
)
def test_ticks_of_logarithmic_axes_are_few_and_round(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)


def test_the_style_is_left_as_it_was() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with drawing_style(COLUMN):
        assert matplotlib.rcParams["pdf.fonttype"] == 42
    assert dict(matplotlib.rcParams) == before
