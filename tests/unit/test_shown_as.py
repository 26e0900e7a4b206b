"""Names and styles of frameworks and models for readers: declared beside them, unique, the same in every study."""

from __future__ import annotations

import dataclasses

import pytest

from contracts.shown_as import ShownAs, mistake_in, with_styles
from factories import (
    HARDWARE,
    PAPER_12B,
    TINY,
    data_of,
    make_cell,
    make_comparison,
    make_study,
    measured_study,
    planned,
)
from metrics.rows import measurement_rows
from papers import axonn
from planning.adaptors import adaptor_names, frameworks_shown_as
from planning.studies import load_models
from reporting.rendering import to_markdown
from studies import ROOT


def test_every_adaptor_has_a_name_and_a_style_of_its_own() -> None:
    shown = frameworks_shown_as()
    assert set(shown) == set(adaptor_names())
    assert len({one.style for one in shown.values()}) == len({one.name for one in shown.values()}) == len(shown)
    assert shown["megatron_lm"].name == "Megatron-LM" and shown["torch_ddp"].name == "PyTorch DDP"


def test_who_declares_no_style_gets_the_next_free_one_whatever_the_order() -> None:
    declared = {"zeta": ShownAs(), "b": ShownAs("B", 1), "alpha": ShownAs("Alpha"), "a": ShownAs("A", 0)}
    expected = {"a": 0, "b": 1, "alpha": 2, "zeta": 3}
    for names in (sorted(declared), sorted(declared, reverse=True)):
        shown = with_styles({name: declared[name] for name in names})
        assert {name: one.style for name, one in shown.items()} == expected
        assert {name: one.name for name, one in shown.items()} == {"a": "A", "b": "B", "alpha": "Alpha", "zeta": "zeta"}


def test_of_two_that_declare_one_style_the_first_by_name_keeps_it() -> None:
    shown = with_styles({"mine": ShownAs("Mine", 0), "axonn": ShownAs("AxoNN", 0)})
    assert (shown["axonn"].style, shown["mine"].style) == (0, 1)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("Megatron-LM", "gives no"),
        (ShownAs(" Megatron"), "no line"),
        (ShownAs("two\nlines"), "no line"),
        (ShownAs("x" * 41), "no line"),
        (ShownAs("x", -1), "style -1"),
        (ShownAs("x", True), "style True"),
    ],
)
def test_what_an_adaptor_must_not_declare(shown: object, expected: str) -> None:
    assert expected in mistake_in(shown)


def test_names_of_models_change_no_identity() -> None:
    shown = {name: model.shown_as for name, model in load_models(ROOT).items() if model.shown_as}
    assert shown == {"axonn-12b": "12B", "axonn-24b": "24B", "axonn-50b": "50B", "axonn-100b": "100B"}
    named = dataclasses.replace(PAPER_12B, shown_as="12B")
    assert make_cell("axonn", 48, named).cell_id == make_cell("axonn", 48, PAPER_12B).cell_id


def test_measurements_have_the_names() -> None:
    cells = [planned(make_cell(name, 1, dataclasses.replace(PAPER_12B, shown_as="12B"))) for name in ("axonn", "fast")]
    study = dataclasses.replace(make_study([make_comparison(cells)]), shown_as=frameworks_shown_as())
    rows = measurement_rows(study, {}, HARDWARE).set_index("framework")
    assert rows.loc["axonn", ["framework_shown_as", "framework_style", "model_shown_as"]].tolist() == [
        "AxoNN",
        0,
        "12B",
    ]
    assert rows.loc["fast", "framework_shown_as"] == "" and rows["framework_style"].isna().tolist() == [False, True]


def test_tables_show_the_names_and_their_csv_keeps_the_keys() -> None:
    model = dataclasses.replace(TINY, shown_as="Tiny")
    study, outcomes = measured_study({("axonn", 1): 1.0, ("megatron_lm", 1): 2.0}, model=model)
    data = data_of(dataclasses.replace(study, shown_as=frameworks_shown_as()), outcomes)
    for table in (axonn.strong_scaling, axonn.hyperparameters):
        frame = table(data)
        assert set(frame["framework"]) == {"axonn", "megatron_lm"} and set(frame["model"]) == {"tiny"}
        shown = to_markdown(frame)
        assert "| Tiny | 1 | AxoNN |" in shown and "Megatron-LM" in shown
        assert "megatron_lm" not in shown
    assert "- Tiny (tiny): 2 layers" in to_markdown(axonn.hyperparameters(data))
