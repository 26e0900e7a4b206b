"""The last lines of a call: what of a study is measured, where it is, who was fastest and whether that is a lead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from planning.plan import Study, study_folder
from reporting.captions import counted, units_of
from reporting.leads import AHEAD, ONE_REPEAT, WITHIN_SPREAD, lead_over_best_other
from reporting.results import Result, grouped, results_of
from reporting.study_data import StudyData, load_study_data
from terminal.short_words import counted_words
from terminal.shown_cells import shown_path

NOTHING = "no point has comparable results of two frameworks, so nobody is called the fastest"
SCALINGS = ("strong", "weak_batch", "weak_model")


def last_lines(study: Study, results: Path) -> list[str]:
    """Return what a call says of a study at its end, from its measurements as they lie on disk."""
    folder = study_folder(results, study)
    data = load_study_data(folder / "measurements.csv")
    return [measured_line(data.measurements), *fastest_lines(data), where_line(study, folder)]


def measured_line(measurements: pd.DataFrame) -> str:
    """Return how many cells have which status, a cell of several comparisons counted once."""
    cells = measurements.drop_duplicates(["cell_id", "repeat"])
    counts = Counter(
        f"missing ({row.kind})" if row.status == "missing" and row.kind else row.status for row in cells.itertuples()
    )
    told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items(), key=lambda one: one[0] != "ok"))
    return f"{cells['study'].iloc[0]} on {cells['system'].iloc[0]}: {counted_words(len(cells), 'cell')}: {told}"


def where_line(study: Study, folder: Path) -> str:
    """Return the folder of the results, with the table and the figure to open first."""
    first = [f"tables/{study.tables[0]}.md"] if study.tables else []
    first += [f"figures/{study.figures[0]}.png"] if study.figures else []
    there = [path for path in first if (folder / path).is_file()]
    return f"open {' and '.join(there)} in {shown_path(folder)}" if there else f"results are in {shown_path(folder)}"


def fastest_lines(data: StudyData) -> list[str]:
    """Return who is fastest in each comparison, at its largest number of GPUs with something to compare."""
    lines = []
    for name, results in grouped(results_of(data, SCALINGS), lambda result: result.comparison).items():
        points = grouped(results, lambda result: (result.num_gpus, result.num_parameters or 0, result.model))
        largest_first = [points[key] for key in sorted(points, reverse=True)]
        lines.append(f"{name}: {_first_told(largest_first)}")
    return lines


def _first_told(points: Sequence[Sequence[Result]]) -> str:
    return next((text for text in map(fastest_text, points) if text), NOTHING)


def fastest_text(point: Sequence[Result]) -> str:
    """Return who is fastest at a point and what that is worth, as the tables have it; empty where nobody can be.

    What stands in for CUDA on a CPU is left out: its times mean nothing.
    """
    compared = [r for r in point if r.is_measured and r.comparable and not r.cuda_stand_in]
    if len({result.framework for result in compared}) < 2:
        return ""
    fastest = min(compared, key=lambda r: (r.training_days.mean, r.framework))
    lead = lead_over_best_other(fastest, compared)
    assert lead.other, "another framework is among the compared"
    where = f"{fastest.model} on {counted(fastest.num_gpus, units_of(compared))}"
    times = f"{_times(lead.speedup.mean, lead.speedup.deviation)} as fast as {lead.other.framework}"
    told = {
        AHEAD: f"{fastest.framework} is fastest, {times}, more than the spread of the repeats",
        WITHIN_SPREAD: f"no lead: {fastest.framework} is {times}, within the spread of the repeats",
        ONE_REPEAT: f"{fastest.framework} is {times}; one repeat does not tell whether that is noise",
    }[lead.verdict]
    return f"{where}: {told}{_absent_text(point, compared)}"


def _times(mean: float, deviation: float) -> str:
    return f"{mean:.2f} times" if math.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f} times"


def _absent_text(point: Sequence[Result], compared: Sequence[Result]) -> str:
    absent = sorted({r.framework for r in point} - {r.framework for r in compared})
    return f" ({', '.join(absent)} not compared)" if absent else ""
