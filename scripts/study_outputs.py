"""A study's outputs from whatever records there are: what the rules make one by one, made in one go.

Called when some cells failed, where the rules behind them do not run, and by `make_report.py --partial`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from make_figures import write_figure
from make_tables import write_table
from matrix.plan import Study, study_folder, without_record
from matrix.studies import load_hardware
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from records.reading import read_outcomes

# A day into 1970.
OLD_S = 86_400


def study_measurements(study: Study, root: Path) -> pd.DataFrame:
    """One row per (comparison, cell, repeat), missing ones included (metrics/columns.py)."""
    return measurement_rows(study, read_outcomes(study, root / "results"), load_hardware(root))


def write_study_outputs(study: Study, root: Path) -> Path:
    """measurements.csv, tables and figures of all that finished; returns the study's folder."""
    folder = study_folder(root / "results", study)
    path = folder / "measurements.csv"
    write_measurements(study_measurements(study, root), path)
    reference = root / "reference" / f"{study.reference}.csv" if study.reference else None
    for table in study.tables:
        write_table(path, study.paper, table, reference, folder / "tables")
    for figure in study.figures:
        write_figure(path, study.paper, figure, reference, folder / "figures")
    if without_record(study, root / "results"):
        # Older than any record that may come, or come back: the next call makes them anew, whatever else it runs.
        os.utime(path, (OLD_S, OLD_S))
    return folder


def missing_cells(study: Study, root: Path) -> list[str]:
    """A line for every cell that could run here and has no record: which, and why."""
    outcomes = read_outcomes(study, root / "results")
    lines = []
    for planned in study.runnable():
        outcome, cell = outcomes[planned.key], planned.cell
        if outcome.record is None:
            what = f"{cell.label()}, repeat {planned.repeat}"
            lines.append(f"{what}: {outcome.kind}: {outcome.reason}")
    return lines
