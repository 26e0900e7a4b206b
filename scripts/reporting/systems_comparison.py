"""One study on several systems side by side: the only place where numbers of two machines share a table, and marked so.

Every framework appears with the layout that its system's own tables show. Whatever differs between two rows besides the
machine is named, and where they did not do the same work there is no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from metrics.peaks import MEASURED
from planning.plan import SCALINGS
from reporting.captions import SCALING_TEXT, counted, repeats_text, sentences, settings_text, units_of
from reporting.leads import marked, verdict
from reporting.rendering import DISPLAYS, EMPTY, Display, Span, format_number, format_spread
from reporting.result_texts import batch_time_text, layout_text
from reporting.results import Result, grouped, is_true, results_of
from reporting.spreads import Spread, ratio
from reporting.study_data import StudyData, study_data
from reporting.systems_differences import SETTINGS, WORK, Side, different, different_code, different_devices

NOT_LIKE_FOR_LIKE = "not like for like: "
NOT_PLANNED = "not in its measurements.csv"
LIKE_FOR_LIKE = "yes, as far as recorded"

_COLUMNS = [
    "comparison", "model", "num_gpus", "framework", "status", "best_layout", "repeat", "cell_id", "layout", "device",
    "threads_per_process", "git_commit", "code_changed", "versions",
    *SETTINGS, *WORK,
]  # fmt: skip
Point = tuple[str, str, int, str]  # comparison, model, number of GPUs, framework


@dataclass(frozen=True)
class Pair:
    """Another system's side against the first's: what differs besides the machine's name, and whether the work does.

    `ratio` is tokens/s over the first's, from the mean times of both; empty where a side has no result or the work
    differs. `lead` says whether it is more than its spread (reporting/leads.py).
    """

    differences: tuple[str, ...]
    ratio: Spread
    lead: str
    is_measured: bool

    @property
    def note(self) -> str:
        return NOT_LIKE_FOR_LIKE + "; ".join(self.differences) if self.differences else ""


@dataclass(frozen=True)
class ComparedRow:
    """One point on every system, by the system's name; None where its measurements do not have the point."""

    point: Point
    sides: Mapping[str, Side | None]
    pairs: Mapping[str, Pair | None]  # of every system but the first


def systems_comparison(measurements: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One row per comparison, model, number of GPUs and framework, from the measurements of one study on each system.

    Columns of a system are `<system>.<column>`; `<other>.tokens_per_s_over_<first>` is the ratio to the first system's
    tokens/s, `<other>.comparison_note` says what is not like for like. A number that is unknown is empty.
    Raises ValueError for fewer than two systems, a system given twice, and measurements of several studies.
    """
    by_system = _data_by_system(measurements)
    rows = _compared_rows(by_system)
    study = next(iter(by_system.values())).study
    frame = pd.DataFrame([_csv_row(study, row) for row in rows])
    frame.attrs[DISPLAYS] = tuple(
        _display(by_system, members) for members in grouped(rows, lambda row: row.point[0]).values()
    )
    return frame


def _data_by_system(measurements: Sequence[pd.DataFrame]) -> dict[str, StudyData]:
    found: dict[str, StudyData] = {}
    for frame in measurements:
        data = study_data(frame)
        system = str(frame["system"].iloc[0])
        if system in found:
            raise ValueError(f"system {system} is given twice; a comparison needs different systems")
        found[system] = data
    studies = sorted({data.study for data in found.values()})
    if len(studies) > 1:
        raise ValueError(f"measurements of {len(studies)} studies ({', '.join(studies)}): compare one study at a time")
    if len(found) < 2:
        raise ValueError("a comparison needs the measurements of two systems or more")
    return found


def _compared_rows(by_system: Mapping[str, StudyData]) -> list[ComparedRow]:
    sides = {system: _sides(data) for system, data in by_system.items()}
    points = {point: side for of_system in sides.values() for point, side in of_system.items()}
    first = next(iter(sides))

    def order(point: Point) -> tuple[Any, ...]:
        comparison, model, num_gpus, framework = point
        return comparison, points[point].result.num_parameters or 0, model, num_gpus, framework

    rows = []
    for point in sorted(points, key=order):
        here = {system: of_system.get(point) for system, of_system in sides.items()}
        pairs = {system: _pair(system, side, first, here[first]) for system, side in here.items() if system != first}
        rows.append(ComparedRow(point, here, pairs))
    return rows


def _sides(data: StudyData) -> dict[Point, Side]:
    rows: dict[Point, list[dict[str, Any]]] = {}
    for row in data.measurements[_COLUMNS].to_dict("records"):
        rows.setdefault((row["comparison"], row["model"], row["num_gpus"], row["framework"]), []).append(row)
    sides = {}
    for result in results_of(data, SCALINGS):
        point = (result.comparison, result.model, result.num_gpus, result.framework)
        # The order of the file decides nothing, not even the last digit of a mean.
        of_point = sorted(rows[point], key=lambda row: (row["layout"], row["cell_id"], row["repeat"]))
        best = [row for row in of_point if row["status"] == "ok" and is_true(row["best_layout"])]
        sides[point] = Side(result, tuple(best or of_point))
    return sides


def _pair(system: str, side: Side | None, first: str, first_side: Side | None) -> Pair | None:
    if side is None or first_side is None:
        return None
    work = different(WORK, side, first_side)
    here, there = side.result, first_side.result
    measured = here.is_measured and there.is_measured
    differences = [
        *different_devices(side, first_side),
        *different(SETTINGS, side, first_side),
        *work,
        *(different_code(system, side, first, first_side) if measured else []),
        *(_doubted(system, here) + _doubted(first, there) if measured else []),
    ]
    if not measured or work:
        return Pair(tuple(differences), Spread(), "", measured)
    over_first = ratio(here.tokens_per_s, there.tokens_per_s)
    lead = verdict(over_first) if here.comparable and there.comparable else ""
    return Pair(tuple(differences), over_first, lead, measured)


def _doubted(system: str, result: Result) -> list[str]:
    return [] if result.comparable else [f"not comparable on {system} itself (see its notes)"]


def _csv_row(study: str, row: ComparedRow) -> dict[str, Any]:
    comparison, model, num_gpus, framework = row.point
    systems = list(row.sides)
    scaling = next(side.result.scaling for side in row.sides.values() if side)
    columns: dict[str, Any] = {
        "systems_compared": " + ".join(systems),
        "study": study,
        "comparison": comparison,
        "scaling": scaling,
        "model": model,
        "num_gpus": num_gpus,
        "framework": framework,
    }
    for system, side in row.sides.items():
        columns |= {f"{system}.{name}": value for name, value in _side_columns(side).items()}
    for system, pair in row.pairs.items():
        columns |= {
            f"{system}.tokens_per_s_over_{systems[0]}": pair.ratio.mean if pair else math.nan,
            f"{system}.tokens_per_s_over_{systems[0]}_spread": pair.ratio.deviation if pair else math.nan,
            f"{system}.lead": pair.lead if pair else "",
            f"{system}.comparison_note": pair.note if pair else "",
        }
    return columns


def _side_columns(side: Side | None) -> dict[str, Any]:
    result = side.result if side else None
    return {
        "status": result.status if result else "",
        "result": result.text if result else NOT_PLANNED,
        "device_name": result.device_name if result else "",
        "layout": result.layout if result else "",
        "cell_id": result.cell_id if result else "",
        "num_layouts": str(result.num_layouts) if result else "",
        "repeats": str(result.repeats) if result and result.repeats else "",
        "repeats_planned": str(result.repeats_planned) if result else "",
        "batch_time_s": result.batch_time_s.mean if result else math.nan,
        "batch_time_spread_s": result.batch_time_s.deviation if result else math.nan,
        "batch_time_std_s": result.batch_time_std_s if result else math.nan,
        "tokens_per_s": result.tokens_per_s.mean if result else math.nan,
        "tokens_per_s_spread": result.tokens_per_s.deviation if result else math.nan,
        "model_flops_utilization_percent": result.utilization_percent.mean if result else math.nan,
        "model_flops_utilization_percent_spread": result.utilization_percent.deviation if result else math.nan,
        "percentage_of_peak_throughput": result.percentage_of_peak.mean if result else math.nan,
        "percentage_of_peak_throughput_spread": result.percentage_of_peak.deviation if result else math.nan,
        "peak_source": result.peak_source if result else "",
        **{column: side.values(column) if side else "" for column in (*SETTINGS, *WORK, "git_commit")},
        "notes": "; ".join(result.notes) if result else "",
    }


def _display(by_system: Mapping[str, StudyData], rows: Sequence[ComparedRow]) -> Display:
    """The rows of one comparison of the study: a line for every system, the systems of a point together."""
    first = next(iter(by_system))
    results = {
        system: [side.result for row in rows for name, side in row.sides.items() if side and name == system]
        for system in by_system
    }
    units = " or ".join(sorted({units_of(of_system) for of_system in results.values() if of_system}))
    common = _common_differences(rows)
    headings = (
        "Model", units[0].upper() + units[1:], "Framework", "System", "Device", "Repeats", "Batch time (s)",
        "Tokens/s", "Model FLOP/s utilization (%)", "Percent of peak", f"Tokens/s over {first}", "Like for like?",
        "Best layout",
    )  # fmt: skip
    cells = []
    for row in rows:
        # On whichever system it is, it is the same framework and model.
        one = next(side.result for side in row.sides.values() if side)
        for system, side in row.sides.items():
            head = (one.model_name, str(one.num_gpus), one.framework_name, system)
            rest = _cells(side, row.pairs.get(system), system == first, common.get(system, ()), len(headings) - 4)
            cells.append((*head, *rest))
    notes = [
        "Numbers of different systems stand side by side here, each marked with its system: a ratio is of whole "
        "machines, with all that differs between them, not of a framework or of a device alone.",
        *_percentage_notes(results),
        *(
            f"All rows of {system} with a result beside {first}'s: {NOT_LIKE_FOR_LIKE}{'; '.join(differences)}."
            for system, differences in common.items()
            if differences
        ),
        *(
            f"{side.result.model_name} on {counted(side.result.num_gpus, units_of([side.result]))}, "
            f"{side.result.framework_name}, {system}: {note}"
            for row in rows
            for system, side in row.sides.items()
            if side
            for note in side.result.shown_notes
        ),
    ]
    return Display(
        _caption(by_system, rows[0].point[0]), headings, tuple(cells), tuple(notes), wide=(11, 12), group=3,
        details=_details(results, units), fold=(5,), aside=(4, 12), aside_title="devices and layouts",
    )  # fmt: skip


def _cells(
    side: Side | None, pair: Pair | None, is_first: bool, common: Sequence[str], width: int
) -> tuple[str | Span, ...]:
    """What follows the system's name in its line; a cell over all of it where there is no result."""
    if side is None:
        return (Span(NOT_PLANNED, width),)
    result = side.result
    if not result.is_measured:
        return (Span(result.shown_text + (f" ({pair.note})" if pair and pair.note else ""), width),)
    return (
        result.device_name or EMPTY,
        result.repeats_text,
        batch_time_text(result),
        format_spread(result.tokens_per_s),
        format_spread(result.utilization_percent),
        format_spread(result.percentage_of_peak),
        format_number(1.0, 3) if is_first else marked(format_spread(pair.ratio, 3), pair.lead) if pair else EMPTY,
        _comparability(pair, common),
        layout_text(result),
    )


def _comparability(pair: Pair | None, common: Sequence[str]) -> str:
    """What is not like for like in this line; what is so in all of them stands below the table."""
    if pair is None or not (pair.is_measured or pair.differences):
        return EMPTY
    # What is below the table is of rows that have a result on both sides.
    own = [d for d in pair.differences if not (pair.is_measured and d in common)]
    told = [*own, *(["see below"] if len(own) < len(pair.differences) else [])]
    return NOT_LIKE_FOR_LIKE + "; ".join(told) if told else LIKE_FOR_LIKE


def _common_differences(rows: Sequence[ComparedRow]) -> dict[str, tuple[str, ...]]:
    """By system: what differs from the first in every line where both have a result. Of one line nothing is common."""
    common = {}
    for system in rows[0].pairs:
        pairs = [pair for row in rows if (pair := row.pairs[system]) and pair.is_measured]
        if len(pairs) > 1:
            common[system] = tuple(d for d in pairs[0].differences if all(d in pair.differences for pair in pairs))
    return common


def _percentage_notes(results: Mapping[str, Sequence[Result]]) -> list[str]:
    sources = {r.peak_source == MEASURED for of_system in results.values() for r in of_system if r.peak_source}
    if len(sources) < 2:
        return []
    return ["Percentages of a CPU's measured rate and percentages of a GPU's peak cannot be compared."]


def _devices(results: Sequence[Result]) -> str:
    names = sorted({result.device_name for result in results if result.device_name})
    kind = " (CPU processes, not GPUs)" if results and units_of(results) == "processes" else ""
    return (", ".join(names) or "nothing measured yet") + kind


def _caption(by_system: Mapping[str, StudyData], comparison: str) -> str:
    systems = list(by_system)
    title = by_system[systems[0]].title
    return f"COMPARISON OF {len(systems)} SYSTEMS, {', '.join(systems)}: {title}, comparison {comparison}"


def _details(results: Mapping[str, Sequence[Result]], units: str) -> str:
    everything = [result for of_system in results.values() for result in of_system]
    parts = [
        SCALING_TEXT[everything[0].scaling].format(units=units),
        *(f"system {system}: {_devices(of_system)}" for system, of_system in results.items()),
        settings_text(everything),
        "percent of peak: the paper's formula; model FLOP/s utilization counts no recomputation",
        "best layout: of each framework on each system by itself",
        repeats_text(everything),
        "a ratio within the spread is no lead, and with one repeat the spread is not known",
    ]
    return sentences(parts)
