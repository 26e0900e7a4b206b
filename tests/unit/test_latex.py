"""Tables through a real LaTeX: the paper's full matrix in the classes that its readers write in."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from factories import data_of, make_cell, make_record, measured_cells, ok
from full_matrix import NAMES, full_data, full_study
from latex import compile_latex, complaints, install_latex
from papers import axonn, find_table, parity
from reporting.latex_tables import to_latex
from reporting.latex_text import escape_latex
from reporting.rendering import DISPLAYS, Display, Span
from reporting.systems_comparison import systems_comparison
from reporting.table_files import write_frame
from test_compare_systems import measured_on

# Installing a LaTeX may be part of it.
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

# With what it takes for each to start; acmart's own packages need a title.
CLASSES = {
    "article": r"\documentclass{article}",
    "article-11pt-twocolumn": r"\documentclass[11pt,twocolumn]{article}",
    "IEEEtran-conference": r"\documentclass[conference]{IEEEtran}",
    "IEEEtran-journal": r"\documentclass[journal]{IEEEtran}",
    "acmart-sigconf": r"\documentclass[sigconf,nonacm]{acmart}",
    "acmart-acmsmall": r"\documentclass[acmsmall,nonacm]{acmart}",
}
# A table is scaled down where a class's text is narrower than the columns: from 8 pt to no less than this.
SMALLEST_PT = 5.5
WORDS = "Grüße, Ångström: α ≥ β µs x² ½ ﬁ 中文 🚀 👩‍🚀 e̶̛̹ \x1b[31m\x00 --size ``a'' \"q\" a_b & 5% $x #1 {y} ~^\\ <>|"


@pytest.fixture(scope="module")
def latex() -> None:
    if reason := install_latex():
        # In CI a LaTeX that cannot be had is a failure: skipped tests there would go unnoticed.
        (pytest.fail if os.environ.get("CI_REQUIRES_ALL") else pytest.skip)(reason)


def document(class_line: str, body: str) -> str:
    packages = r"\usepackage{array,booktabs,graphicx}"
    title = r"\title{T}\author{A}\begin{document}\maketitle Text."
    return "\n".join((class_line, packages, title, body, r"\end{document}", ""))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table of the full matrix, of a comparison of systems, of parity; and one of texts that nobody expects."""
    folder = tmp_path_factory.mktemp("tables")
    frames = {
        f"{name}-{table}": find_table("axonn", table)(full_data(name))
        for name in NAMES
        for table in full_study(name).tables
    }
    systems = [full_data(name).measurements.assign(system=f"system_{name[-4:]}", study="one") for name in NAMES[1:3]]
    frames["systems"] = systems_comparison(systems)
    frames["cpu"] = systems_comparison([measured_on("a", [make_cell()]), measured_on("b", [make_cell()])])
    study, outcomes = measured_cells([make_cell("torch_plain", 1), make_cell("a", 2), make_cell("b", 2)])
    frames["parity"] = parity.parity(data_of(study, outcomes))
    frames["odd"] = odd_table()
    for name, frame in frames.items():
        write_frame(frame, folder, name, name)
    return folder


def odd_table() -> pd.DataFrame:
    """A table of long words, long texts and characters of every kind."""
    study, outcomes = measured_cells([make_cell("a", 1), make_cell("b", 1)])
    for key in list(outcomes)[1:]:
        cell = next(p.cell for p in study.planned if p.key == key)
        outcomes[key] = ok(make_record(cell, status="not_available", reason="x" * 400 + WORDS, ranks=[], check=False))
    frame = axonn.strong_scaling(data_of(study, outcomes))
    rows = [("m" * 100, "[1]", f"*{WORDS}", WORDS * 5, "w" * 300), ("m", "2", Span(WORDS * 9, 3))] * 8
    odd = Display(f"{WORDS} {'x' * 200}", ("Model", "A", "B", "C", "D"), tuple(rows), (WORDS * 20,) * 9, (3,), 1)
    frame.attrs[DISPLAYS] = (*frame.attrs[DISPLAYS], odd)
    return frame


@pytest.mark.usefixtures("latex")
@pytest.mark.parametrize("name", CLASSES)
def test_every_table_fits_the_page_of_every_class(name: str, tables: Path, tmp_path: Path) -> None:
    paths = sorted(tables.glob("*.tex"))
    assert len(paths) == 2 * len(NAMES) + 4
    body = "\n".join(rf"\typeout{{TABLE {path.stem}}}\input{{{path}}}\clearpage" for path in paths)
    log = compile_latex(document(CLASSES[name], body), tmp_path)
    assert complaints(log) == []
    assert log.count("TABLE ") == len(paths)
    assert (tmp_path / "document.pdf").stat().st_size > 50_000


@pytest.mark.usefixtures("latex")
def test_what_runs_off_the_page_is_noticed(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    wide = r"\begin{table*}\begin{tabular}{l}" + "x" * 300 + r"\end{tabular}\end{table*}"
    high = r"\begin{table*}" + r"x\\" * 100 + r"\end{table*}"
    for body, words in ((wide, "Overfull"), (high, "Float too large"), (r"\nothing", "! "), (r"\ref{x}", "undefined")):
        log = compile_latex(document(CLASSES["article"], body), tmp_path)
        assert any(words in line for line in complaints(log)), words


def test_tables_are_scaled_no_further_than_they_can_be_read(tables: Path) -> None:
    found = 0
    for path in tables.glob("axonn*.tex"):
        for width in re.findall(r"\\ifdim\\evalwidth<([\d.]+)pt", path.read_text(encoding="ascii")):
            assert 8 * min(1, 345 / float(width)) >= SMALLEST_PT, path.stem
            found += 1
    assert found >= 2 * len(NAMES)


@pytest.mark.usefixtures("latex")
def test_every_character_is_printed_or_replaced(tmp_path: Path) -> None:
    """All of those that European texts, mathematics and messages of programs have, and some of every other kind."""
    numbers = [*range(0x2C00), *range(0xF900, 0x10000, 3), *range(0x1D400, 0x1F700), 0xD800, 0x4E2D, 0x10FFFF]
    lines = [escape_latex(f"x{chr(number)}y {chr(number)}") for number in numbers]
    assert all(line.isascii() and line.isprintable() for line in lines)
    log = compile_latex(document(CLASSES["article"], "\\par\n".join(lines)), tmp_path, runs=1)
    # Lines of such words need not be full.
    assert [line for line in complaints(log) if "Overfull" not in line] == []
    assert "Missing character" not in log


def test_headings_do_not_break_inside_a_word(tables: Path) -> None:
    for path in tables.glob("*.tex"):
        text = path.read_text(encoding="ascii")
        for heading in re.findall(r"\\parbox\[b\]\{\\hsize\}\{(.*?)\\strut\}", text):
            assert r"\allowbreak" not in heading


def test_a_table_goes_on_with_its_headings_and_says_so() -> None:
    text = to_latex(find_table("axonn", "hyperparameters")(full_data(NAMES[1])), "x")
    floats = text.split(r"\begin{table*}")[1:]
    assert len(floats) > 2
    assert all(r"\toprule" in one and "Layout" in one for one in floats[:-1])
    assert all(f"continued ({number} of {len(floats)})" in one for number, one in enumerate(floats[1:], start=2))
    assert text.count(r"\caption{") == text.count(r"\label{tab:x}") == 1


def test_a_machine_without_a_latex_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (install_latex() or "").startswith("these tests need a LaTeX with pdflatex, IEEEtran.cls, acmart.cls")
    assert (install_latex() or "").endswith("and only root may install it")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (install_latex() or "").endswith("there is no apt-get to install it")
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(
        "#!/bin/sh\necho Reading lists...\necho E: Unable to locate package texlive-publishers\nexit 100\n"
    )
    apt_get.chmod(0o755)
    assert (install_latex() or "").endswith("E: Unable to locate package texlive-publishers")
