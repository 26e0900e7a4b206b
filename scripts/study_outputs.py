"""A study's outputs from whatever records there are: what the rules make one by one, made in one go.

Called when some cells failed, where the rules behind them do not run, and by `make_report.py --partial`.
"""

from __future__ import annotations

import os
from pathlib import Path

from make_figures import write_figure
from make_tables import write_table
from matrix.plan import Study, study_folder, without_record
from matrix.studies import load_hardware
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from records.reading import read_outcomes
from records.setting_aside import set_aside_damaged

# A day into 1970.
OLD_S = 86_400


def write_study_outputs(study: Study, root: Path) -> Path:
    """Write measurements.csv, tables and figures of all that finished; return the study's folder.

    Damaged records are set aside as in collect.py, so that the next call measures them with the cells that failed.
    """
    folder = study_folder(root / "results", study)
    path = folder / "measurements.csv"
    outcomes = read_outcomes(study, root / "results")
    set_aside_damaged(study, outcomes, root / "results")
    write_measurements(measurement_rows(study, outcomes, load_hardware(root)), path)
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
    """Return a line for every cell that could run here and has no record: which, and why."""
    outcomes = read_outcomes(study, root / "results")
    lines = []
    for planned in study.runnable():
        outcome, cell = outcomes[planned.key], planned.cell
        if outcome.record is None:
            what = f"{cell.label()}, repeat {planned.repeat}"
            lines.append(f"{what}: {outcome.kind}: {outcome.reason}")
    return lines
