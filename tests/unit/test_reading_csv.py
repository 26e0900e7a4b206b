"""measurements.csv and the tables' CSVs in pandas, DuckDB and R, as docs/tables.md reads them: types and values."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from factories import ROOT
from full_matrix import WEAK, full_data, full_study, write_measurements_of
from metrics.columns import BOOLEAN, COLUMNS, INTEGER, NUMBER, TEXT, read_measurements
from papers import find_table
from reporting.table_columns import column_of
from reporting.table_files import write_frame

PANDAS = {TEXT: "string", INTEGER: "Int64", NUMBER: "float64", BOOLEAN: "boolean"}
DUCKDB = {TEXT: "VARCHAR", INTEGER: "BIGINT", NUMBER: "DOUBLE", BOOLEAN: "BOOLEAN"}
R = {TEXT: "character", INTEGER: "numeric", NUMBER: "numeric", BOOLEAN: "logical"}
NAN = "nan"  # a status that readers take for a missing value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """measurements.csv of the weak-scaling study, and its tables."""
    folder = tmp_path_factory.mktemp("csv")
    write_measurements_of(WEAK, folder)
    for table in full_study(WEAK).tables:
        write_frame(find_table("axonn", table)(full_data(WEAK)), folder, table, table)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> pd.DataFrame:
    frame = read_measurements(folder / "measurements.csv")
    assert (frame["status"] == NAN).any() and frame["baseline_num_gpus"].isna().any()
    return frame


def recipe(language: str, words: str) -> str:
    """The block of docs/tables.md in a language that has these words."""
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if words in b)
    return block


def known(values: pd.Series) -> list[object]:
    """Values with None for what is empty, however a reader says that."""
    return [None if pd.isna(value) or value == "" else value for value in values]


def test_pandas(folder: Path, expected: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, pd.DataFrame] = {}
    exec(recipe("python", "import pandas"), names)
    read = names["measurements"]
    assert {name: str(read[name].dtype) for name in read} == {c.name: PANDAS[c.type] for c in COLUMNS}
    for column in COLUMNS:
        assert known(read[column.name]) == known(expected[column.name]), column.name


def test_pandas_infers_the_types_of_tables(folder: Path) -> None:
    for table in full_study(WEAK).tables:
        path = folder / f"{table}.csv"
        read = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype_backend="numpy_nullable")
        for name in read:
            if column_of(name).type == BOOLEAN and read[name].notna().any():
                assert read[name].dtype == "boolean", (table, name)
            if column_of(name).type == INTEGER and read[name].notna().any():
                assert read[name].dtype == "Int64", (table, name)
        assert NAN in set(read["status"])


def test_duckdb(folder: Path, expected: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"duckdb": duckdb}
    exec(recipe("python", "import duckdb"), names)
    relation = names["measurements"]
    types = {row[0]: row[1] for row in relation.query("m", "DESCRIBE m").fetchall()}
    assert types == {c.name: DUCKDB[c.type] for c in COLUMNS}
    for column in COLUMNS:
        values = [row[0] for row in relation.select(f'"{column.name}"').fetchall()]
        assert values == known(expected[column.name]), column.name


def test_duckdb_infers_numbers_integers_and_booleans(folder: Path, expected: pd.DataFrame) -> None:
    duckdb = pytest.importorskip("duckdb")
    for name in ("measurements", *full_study(WEAK).tables):
        path = folder / f"{name}.csv"
        types = {row[0]: row[1] for row in duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()}
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        for column, found in types.items():
            wanted = column_of(column).type
            if wanted != TEXT and (frame[column] != "").any():
                assert found == DUCKDB[wanted], (name, column)


def in_r(script: str, folder: Path) -> dict[str, list[str]]:
    """The words of a script's lines, by the first."""
    if not shutil.which("Rscript"):
        pytest.skip("R is not installed here (Debian: r-base-core), and the package index has no R")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("R_")}
    done = subprocess.run(
        ["Rscript", "--vanilla", "-e", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split("\t"))}


def test_r(folder: Path, expected: pd.DataFrame) -> None:
    show = """
    for (name in names(measurements)) {
        values <- measurements[[name]]
        cat(name, class(values), sum(is.na(values)), if (is.character(values)) "" else sum(values, na.rm = TRUE),
            sep = "\\t", fill = FALSE)
        cat("\\n")
    }
    cat("statuses", sort(unique(measurements$status)), sep = "\\t")
    """
    found = in_r(recipe("r", "colClasses") + "options(digits = 15)\n" + show, folder)
    assert found.pop("statuses") == sorted(set(expected["status"]))
    assert {name: words[0] for name, words in found.items()} == {c.name: R[c.type] for c in COLUMNS}
    for column in COLUMNS:
        values = expected[column.name]
        empty = int((values.isna() | (values == "")).sum())
        assert int(found[column.name][1]) == empty, column.name
        if column.type != TEXT:
            assert float(found[column.name][2]) == pytest.approx(float(values.sum())), column.name


def test_r_infers_numbers_integers_and_booleans(folder: Path, expected: pd.DataFrame) -> None:
    script = """
    for (table in c(%s)) {
        frame <- read.csv(paste0(table, ".csv"), check.names = FALSE)
        for (name in names(frame)) cat(paste(table, name, sep = "/"), class(frame[[name]]), sum(is.na(frame[[name]])),
                                       "\\n", sep = "\\t")
    }
    """
    tables = ("measurements", *full_study(WEAK).tables)
    found = in_r(script % ", ".join(json.dumps(table) for table in tables), folder)
    for table in tables:
        frame = pd.read_csv(folder / f"{table}.csv", dtype=str, keep_default_na=False)
        for column in frame:
            wanted, (class_, missing, *_) = column_of(column).type, found[f"{table}/{column}"]
            if wanted == TEXT or (frame[column] == "").all():
                continue
            # R calls whole numbers that fit its 32 bits integer.
            assert class_ in {NUMBER: ("numeric", "integer"), INTEGER: ("numeric", "integer")}.get(wanted, ("logical",))
            assert int(missing) == (frame[column] == "").sum()


def test_a_file_of_before_still_reads(folder: Path, tmp_path: Path, expected: pd.DataFrame) -> None:
    """With True and False, as pandas spells them."""
    text = (folder / "measurements.csv").read_text(encoding="utf-8")
    (tmp_path / "measurements.csv").write_text(re.sub(",(TRUE|FALSE)(?=,)", lambda m: m[0].title(), text), "utf-8")
    assert ",True," in (tmp_path / "measurements.csv").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(read_measurements(tmp_path / "measurements.csv"), expected)
