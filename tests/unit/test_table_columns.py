"""The tables' CSVs: every column is declared and documented, and fields have the type that is declared."""

from __future__ import annotations

import io
import re

import pandas as pd
import pytest

from contracts.outcomes import Outcome
from factories import LOSSES, ROOT, data_of, make_cell, make_comparison, make_record, make_study, ok, planned
from full_matrix import NO_BASELINE, STRONG, WEAK, full_data, full_study
from metrics.columns import BOOLEAN, INTEGER, NUMBER, TEXT
from papers import find_table, parity
from reporting.systems_comparison import systems_comparison
from reporting.table_columns import OWN_COLUMNS, PATTERNS, column_of, declaration_markdown, table_csv

FIELDS = {
    INTEGER: re.compile(r"-?\d+"),
    NUMBER: re.compile(r"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)"),
    BOOLEAN: re.compile("TRUE|FALSE"),
    TEXT: re.compile(".*", re.DOTALL),
}


def parity_frame() -> pd.DataFrame:
    cells = [make_cell("torch_plain", 1), make_cell("same", 2), make_cell("other", 2), make_cell("gone", 2)]
    losses = [LOSSES, LOSSES, [loss * 1.1 for loss in LOSSES]]
    outcomes = {planned(c).key: ok(make_record(c, losses=x)) for c, x in zip(cells, losses, strict=False)}
    outcomes[planned(cells[3]).key] = Outcome("missing", "rank 0 died", "crash")
    return parity.parity(data_of(make_study([make_comparison([planned(c) for c in cells], scaling="none")]), outcomes))


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    found = {
        f"{name} {table}": find_table("axonn", table)(full_data(name))
        for name in (WEAK, STRONG, NO_BASELINE)
        for table in full_study(name).tables
    }
    studies = {"here": STRONG, "there-too": NO_BASELINE}
    both = [full_data(study).measurements.assign(system=name, study="one") for name, study in studies.items()]
    return {**found, "systems": systems_comparison(both), "parity": parity_frame()}


def test_every_field_has_the_type_that_is_declared(frames: dict[str, pd.DataFrame]) -> None:
    seen = set()
    for table, frame in frames.items():
        read = pd.read_csv(io.StringIO(table_csv(frame)), dtype=str, keep_default_na=False)
        assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
        for name in read:
            type_ = column_of(name).type
            wrong = [field for field in read[name] if field and not FIELDS[type_].fullmatch(field)]
            assert not wrong, f"{table}: {name}: {wrong[:3]}"
            seen |= {(type_, field == "") for field in read[name]}
    # Of every type there were fields with something in them, and empty ones.
    assert {(type_, empty) for type_ in FIELDS for empty in (True, False)} == seen


def test_a_table_with_an_undeclared_column_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="column nonsense of a table is not declared"):
        table_csv(pd.DataFrame({"framework": ["a"], "nonsense": [1]}))


def test_nothing_is_declared_that_no_table_has(frames: dict[str, pd.DataFrame]) -> None:
    names = {name.partition(".")[2] or name for frame in frames.values() for name in frame.columns}
    assert [column.name for column in OWN_COLUMNS if column.name not in names] == []
    assert [pattern for pattern, _ in PATTERNS if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_the_documentation_has_the_declaration() -> None:
    assert declaration_markdown() in (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")


def test_every_row_says_which_cell_it_is(frames: dict[str, pd.DataFrame]) -> None:
    for table, frame in frames.items():
        for name in [name for name in frame.columns if name == "cell_id" or name.endswith(".cell_id")]:
            assert frame[name].str.fullmatch(r"[0-9a-f]{12}(;[0-9a-f]{12})*").all(), table
    assert all(any("cell_id" in name for name in frame.columns) for frame in frames.values())
    weak = frames[f"{WEAK} weak_scaling"]
    assert (~weak.loc[weak["status"] == "ok", "cell_id"].str.contains(";")).all()
    assert weak.loc[weak["result"].str.startswith("all "), "cell_id"].str.contains(";").all()


def test_the_smaller_ratio_is_called_min(frames: dict[str, pd.DataFrame]) -> None:
    pairs = 0
    for frame in frames.values():
        for name in [name for name in frame.columns if name.startswith("ratio_to_") and name.endswith("_min")]:
            known = frame.dropna(subset=[name])
            assert (known[name] <= known[name.removesuffix("_min") + "_max"]).all()
            pairs += len(known)
    assert pairs > 20
