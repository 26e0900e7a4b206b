"""Every number of every table once more, from the raw stamps and by other code (by which rules: recomputation.py)."""

import csv
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recomputed_study
from papers import find_table
from recomputation import Numbers, num_parameters
from recomputed_study import Measured
from recomputed_tables import measurements, parity_table, scaling_table, systems_table
from reporting.systems_files import write_comparison
from reporting.table_files import write_table

REFERENCE = Path(__file__).parents[2] / "reference" / "axonn_2021.csv"
POINT = ("comparison", "model", "num_gpus", "framework")
WEAK, STRONG = ("weak_model", "weak_batch"), ("strong",)
# A heading of the tables for readers, and the column whose number stands under it; beside it stands its spread.
PRINTED = {
    "Training days": "training_days",
    "Percent of peak": "percentage_of_peak_throughput",
    "Speedup over best other": "speedup_over_best_other",
    "Days saved": "days_saved",
    "Speedup": "speedup",
    "Parallel efficiency": "parallel_efficiency",
}
NUMBER = re.compile(r"−?[\d,]+(?:\.\d+)?")
EMPTY = "–"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def cpu(root) -> Measured:
    return recomputed_study.cpu_study(root, "local")


@pytest.fixture(scope="module")
def paper(root) -> Measured:
    return recomputed_study.paper_study(root)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(measured: Measured, name: str, reference: Path | None = None, paper: str = "axonn") -> list[dict[str, str]]:
    write_table(
        measured.folder / "measurements.csv", find_table(paper, name), name, reference, measured.folder / "tables"
    )
    return read(measured.folder / "tables" / f"{name}.csv")


def assert_same(row: dict[str, str], expected: Numbers, where: Any) -> None:
    """Fail unless each field of the row is the expected value; None is an empty field."""
    for name, value in expected.items():
        field = row[name]
        if value is None or isinstance(value, str | bool):
            said = str(value).upper() if isinstance(value, bool) else value or ""
            assert field == said, (where, name)
        else:
            assert field != "" and math.isclose(float(field), value, rel_tol=1e-9), (where, name, field, value)


def assert_rows(rows: list[dict[str, str]], expected: dict[Any, Numbers]) -> None:
    """Fail unless the rows are the expected ones, and those of points without a time hold no derived number."""
    by_point = {(r["comparison"], r["model"], int(r["num_gpus"]), r["framework"]): r for r in rows}
    assert len(by_point) == len(rows) and by_point.keys() >= expected.keys()
    derived = set().union(*expected.values()) - {"num_parameters", "num_layouts", "repeats", "repeats_planned"}
    for point, row in by_point.items():
        if point in expected:
            assert row["status"] == "ok" and row["result"] == ""
            assert_same(row, dict.fromkeys(derived & row.keys() - TEXTS) | expected[point], point)
        else:
            assert row["status"] != "ok" and row["result"] and row["repeats"] == "0"
            assert not any(row[name] for name in derived if not name.startswith("published")), point


# Columns of text: empty is no unknown number there.
TEXTS = {"best_other", "lead", "published_best_other"}


@pytest.mark.parametrize("name", ["cpu", "paper"])
def test_measurements_follow_from_the_stamps(name: str, request: pytest.FixtureRequest) -> None:
    measured = request.getfixturevalue(name)
    rows = {
        (row["comparison"], row["cell_id"], int(row["repeat"])): row
        for row in read(measured.folder / "measurements.csv")
    }
    expected = measurements(measured.plan, measured.records)
    assert len(rows) == len(measured.plan) and len(expected) > 20
    assert {key for key, row in rows.items() if row["status"] == "ok"} == expected.keys()
    columns = set().union(*expected.values())
    for key, row in rows.items():
        if key in expected:
            assert_same(row, expected[key], key)
        else:
            assert not any(row[name] for name in columns - {"best_layout"}) and row["best_layout"] != "TRUE", key
    if name == "cpu":
        # What the study was made for is in it.
        checks = {row["timing_check"] for row in rows.values()}
        assert checks >= {"ok", "window", "drift", "outlier"}
        assert {row["status"] for row in rows.values()} == {"ok", "oom", "nan", "missing"}


def test_strong_scaling_on_processes(cpu: Measured) -> None:
    expected = scaling_table(cpu.plan, cpu.records, STRONG)
    assert_rows(table(cpu, "strong_scaling"), expected)
    by_point = {(name, gpus, framework): row for (name, _, gpus, framework), row in expected.items()}
    # These are the study's own, seen by hand: unsteady repeats lead nobody, and the other layout is the best.
    assert by_point["strong", 2, "torch_pipeline"]["best_other"] == ""
    assert 0.3 < by_point["strong", 4, "torch_ddp"]["batch_time_s"] < 0.33
    assert {row["lead"] for row in expected.values()} == {"ahead", "behind", "within spread", "one repeat", ""}


def test_weak_scaling_on_processes(cpu: Measured) -> None:
    expected = scaling_table(cpu.plan, cpu.records, WEAK)
    assert_rows(table(cpu, "weak_scaling"), expected)
    # The efficiency of one process, with two as the smallest number that both frameworks have.
    assert expected["weak model", "tiny", 1, "torch_ddp"]["baseline_num_gpus"] == 2


@pytest.mark.parametrize(("name", "scalings"), [("weak_scaling", WEAK), ("strong_scaling", STRONG)])
def test_tables_of_the_paper_with_published_values(paper: Measured, name: str, scalings: tuple[str, ...]) -> None:
    expected = scaling_table(paper.plan, paper.records, scalings, read(REFERENCE))
    assert_rows(table(paper, name, REFERENCE), expected)
    axonn = expected["weak" if scalings == WEAK else "strong", "axonn-12b", 48, "axonn"]
    assert 100 < axonn["training_days"] < 115 and 49 < axonn["percentage_of_peak_throughput"] < 55
    if scalings == WEAK:
        # The best other is one that the source did not run.
        assert (axonn["best_other"], axonn["published_best_other"]) == ("torch_fsdp", "deepspeed")


@pytest.mark.parametrize("name", ["cpu", "paper"])
def test_hyperparameters_count_what_ran(name: str, request: pytest.FixtureRequest) -> None:
    measured = request.getfixturevalue(name)
    rows = {row["cell_id"]: row for row in table(measured, "hyperparameters")}
    best = {key[1]: row["best_layout"] for key, row in measurements(measured.plan, measured.records).items()}
    assert rows.keys() == {p.cell_id for p in measured.plan}
    for cell_id, row in rows.items():
        repeats = {p.repeat for p in measured.plan if p.cell_id == cell_id}
        ok = [r for r in repeats if measured.records.get((cell_id, r), {}).get("status") == "ok"]
        identity = next((record["identity"] for (one, _), record in measured.records.items() if one == cell_id), None)
        expected = {"repeats": len(ok), "repeats_planned": len(repeats), "best_layout": best.get(cell_id, False)}
        if identity:
            own, b = identity["layout"], identity["global_batch_size"]
            expected |= {
                "num_parameters": num_parameters(identity["model"]),
                "global_batch_size": b,
                "num_micro_batches": b // (own["data_parallel"] * own["micro_batch_size"]),
            }
        assert_same(row, expected, cell_id)


def test_parity_is_of_the_losses_of_all_batches(cpu: Measured) -> None:
    expected = parity_table(cpu.plan, cpu.records, "torch_plain")
    rows = {(row["cell_id"], int(row["repeat"])): row for row in table(cpu, "parity", paper="parity")}
    assert {key for key, row in rows.items() if row["max_relative_difference"]} == expected.keys()
    for key, difference in expected.items():
        assert_same(rows[key], {"max_relative_difference": difference}, key)
        assert rows[key]["within_tolerance"] == str(difference <= 1e-4).upper()
    assert {row["within_tolerance"] for row in rows.values()} == {"TRUE", "FALSE", ""}


def test_systems_beside_each_other(root: Path, cpu: Measured, paper: Measured) -> None:
    slower = recomputed_study.cpu_study(root, "slower", 1.3, ["torch_ddp", "torch_fsdp"])
    faster = recomputed_study.paper_study_elsewhere(root)
    for study, systems in (
        ("cpu", {"local": cpu, "slower": slower}),
        ("paper", {"v100": paper, "a100": faster}),
    ):
        write_comparison(study, [*systems], root)
        rows = read(root / "results" / "comparisons" / study / f"{'+'.join(systems)}.csv")
        expected = systems_table({name: (one.plan, one.records) for name, one in systems.items()})
        by_point = {(r["comparison"], r["model"], int(r["num_gpus"]), r["framework"]): r for r in rows}
        assert by_point.keys() >= expected.keys()
        numbers = set().union(*expected.values())
        for point, row in by_point.items():
            assert_same(row, dict.fromkeys(numbers) | expected.get(point, {}), point)
        assert sum(f"{[*systems][1]}.tokens_per_s" in row for row in expected.values()) >= 2
        text = (root / "results" / "comparisons" / study / f"{'+'.join(systems)}.md").read_text(encoding="utf-8")
        assert "on 1 process, " in text or study == "paper"
        assert "on 1 processes" not in text


@pytest.mark.parametrize(
    ("study", "name"),
    [("cpu", "weak_scaling"), ("cpu", "strong_scaling"), ("paper", "weak_scaling"), ("paper", "strong_scaling")],
)
def test_what_is_printed_is_the_number_of_the_csv_rounded(
    study: str, name: str, request: pytest.FixtureRequest
) -> None:
    measured = request.getfixturevalue(study)
    rows = table(measured, name, REFERENCE if study == "paper" else None)
    markdown = markdown_tables((measured.folder / "tables" / f"{name}.md").read_text(encoding="utf-8"))
    assert_latex_says((measured.folder / "tables" / f"{name}.tex").read_text(encoding="utf-8"), markdown)
    comparisons = list(dict.fromkeys(row["comparison"] for row in rows))
    printed = 0
    for comparison, lines in zip(comparisons, markdown, strict=False):
        own = [row for row in rows if row["comparison"] == comparison]
        assert len(own) == len(lines)
        for row, line in zip(own, lines, strict=True):
            if row["status"] != "ok":
                assert line["Repeats"] and not NUMBER.fullmatch(line["Repeats"]) and line["Batch time (s)"] == EMPTY
                continue
            repeats = row["repeats"]
            assert line["Repeats"] == (
                repeats if repeats == row["repeats_planned"] else f"{repeats} of {row['repeats_planned']}"
            )
            inside = "batch_time_std_s" if repeats == "1" else "batch_time_spread_s"
            assert_printed(line["Batch time (s)"], row["batch_time_s"], row[inside])
            assert ("(batches ±" in line["Batch time (s)"]) == (repeats == "1")
            assert line["Best other"] == (row["best_other"] or (EMPTY if row["lead"] else line["Best other"]))
            for heading, column in PRINTED.items():
                if heading in line:
                    assert_printed(line[heading], row[column], row[f"{column}_spread"])
                    printed += line[heading] != EMPTY
            marks = {"within spread": "(within the spread)", "one repeat": "(one repeat)"}
            for mark in marks.values():
                assert (mark in line["Speedup over best other"]) == (marks.get(row["lead"]) == mark)
    assert printed > 20
    if study == "paper":
        assert_published_printed(rows, markdown[-1])


def assert_published_printed(rows: list[dict[str, str]], lines: list[dict[str, str]]) -> None:
    """Fail unless the last table sets the CSV's measured values beside its published ones."""
    columns = {
        "percent of peak": ("percentage_of_peak_throughput", "percentage_of_peak_throughput"),
        "days saved": ("days_saved_over_published_best_other", "days_saved"),
        "percent of days saved": ("percent_saved_over_published_best_other", "percent_saved"),
    }
    for line in lines:
        row = next(
            r
            for r in rows
            if (r["model"], r["num_gpus"], r["framework"]) == (line["Model"], line["GPUs"], line["Framework"])
        )
        metric, _, other = line["Metric"].partition(" over ")
        measured, published = columns[metric]
        assert_printed(line["Measured"], row[measured], row[f"{measured}_spread"])
        assert other == (row["published_best_other"] if "saved" in metric else "")
        for heading, names in (("Published", "published_"), ("Ratio", "ratio_to_published_")):
            ends = [float(row[f"{names}{published}_{end}"]) for end in ("min", "max")]
            assert [float(end.replace("−", "-")) for end in re.split("–| to ", line[heading])] == pytest.approx(
                ends, rel=5e-4
            )


def assert_printed(text: str, value: str, spread: str) -> None:
    """Fail unless the text is the value and its spread, rounded to one number of decimals, three digits or more."""
    if not value:
        assert text == EMPTY
        return
    if text == "1 (baseline)":
        assert float(value) == 1 and float(spread) == 0
        return
    shown = [one.replace(",", "").replace("−", "-") for one in NUMBER.findall(text)]
    exact = [float(one) for one in (value, spread) if one]
    assert len(shown) == len(exact), (text, value, spread)
    assert len({len(one.partition(".")[2]) for one in shown}) == 1, text
    for one, number in zip(shown, exact, strict=True):
        decimals = len(one.partition(".")[2])
        assert one == f"{number:.{decimals}f}", (text, value, spread)
        assert 10**-decimals <= 0.01 * max(map(abs, exact)), (text, value, spread)


def markdown_tables(text: str) -> list[list[dict[str, str]]]:
    """Return the lines of each table by their headings; an empty cell repeats the one above."""
    tables: list[list[dict[str, str]]] = []
    headings: list[str] = []
    for line in [*text.splitlines(), ""]:
        cells = [cell.strip().replace("\\|", "|").replace("\\<", "<") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            headings = []
        elif not headings:
            headings = cells
            tables.append([])
        elif set(cells) != {"---"}:
            above = tables[-1][-1] if tables[-1] else {}
            tables[-1].append({h: cell or above[h] for h, cell in zip(headings, cells, strict=True)})
    return tables


def assert_latex_says(latex: str, markdown: list[list[dict[str, str]]]) -> None:
    """Fail unless LaTeX has the cells of each Markdown table, but for columns that it tells once, below it."""
    expected: Counter[tuple[str, str, str, str]] = Counter()
    for lines in markdown:
        group = list(lines[0])[:2]
        for line in lines:
            where = ", ".join(f"{heading}: {line[heading]}" for heading in group)
            if line.get("Batch time (s)") == EMPTY:  # the reason stands in the place of all numbers
                seen = ("Framework", "Repeats")
                expected.update((where, line["Framework"], heading, line[heading]) for heading in seen)
                continue
            expected.update((where, line["Framework"], heading, cell) for heading, cell in [*line.items()][2:])
    found = latex_cells(latex)
    told = [key for key in expected if f"{key[2]}: {key[3]}" in latex]
    # A table of its own repeats whose numbers they are.
    assert set(found) == {*expected} - {key for key in told if key not in found}
    assert all(count <= found[key] for key, count in expected.items() if key not in told)


def latex_cells(text: str) -> Counter[tuple[str, str, str, str]]:
    """Return group, framework, heading and text of each cell."""
    cells: Counter[tuple[str, str, str, str]] = Counter()
    for body in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        heading, *lines = [line for line in body.splitlines() if line != r"\midrule"]
        headings = [unescaped(one) for one in re.findall(r"\\strut (.*?)\\strut\}", heading)]
        group = ""
        for line in lines:
            if found := re.search(r"\\itshape (.*)\} \\\\", line):
                group = unescaped(found[1]).removesuffix(" (continued)")
                continue
            row = [re.sub(r"^\\multicolumn.*?\\raggedright (.*)\}$", r"\1", one) for one in line[:-3].split(" & ")]
            row = [unescaped(one) for one in row]
            # The reason for a missing number stands in the place of all that follow the framework.
            places = [headings[0], "Repeats"] if len(row) == 2 < len(headings) else headings
            cells.update((group, row[0], place, cell) for place, cell in zip(places, row, strict=True))
    return cells


def unescaped(text: str) -> str:
    signs = {"pm": "±", "times": "×"}
    text = re.sub(r"\$\\(pm|times)\$", lambda found: signs[found[1]], text)
    for written, meant in (("$-$", "−"), ("--", EMPTY), (r"\ldots{}", "…"), ("~", " "), (r"\allowbreak{}", "")):
        text = text.replace(written, meant)
    return re.sub(r"\\([&%$#_{}])", r"\1", text)
