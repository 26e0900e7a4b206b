"""A study's outputs from whatever records there are: what the rules make one by one, made in one go.

Called when some cells failed, where the rules behind them do not run, and by `write_outputs.py --partial`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from launcher.slurm.job_endings import NOTHING_KNOWN, Key
from launcher.slurm.queue import Queue, look_at_queue
from launcher.verdicts import Failure
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.plan import Study, study_folder
from planning.studies import load_hardware
from records.setting_aside import Outcomes, set_aside_damaged
from records.standing import outcomes_now
from reporting.figure_files import write_figure
from reporting.made_from import (
    drawn_digests,
    is_settled,
    made_from_path,
    measurements_digests,
    note_made_from,
    reference_path,
)
from reporting.table_files import write_table


class CellsMissing(Exception):
    """Cells of a study have no record, and outputs without them were not asked for."""


def write_study_outputs(
    study: Study, paper: ModuleType, root: Path, queue: Queue, failures: Mapping[Key, Failure] = NOTHING_KNOWN
) -> Path:
    """Write measurements.csv, tables and figures of all that finished; return the study's folder.

    paper: the module of papers/ that the study names, with TABLES and FIGURES. queue: what Slurm says of its jobs.
    failures: what the caller knows of cells without a record.

    Damaged records are set aside as in collect.py, so that the next call measures them with the cells that failed.
    """
    folder = study_folder(root / "results", study)
    path = folder / "measurements.csv"
    digests = measurements_digests(study, root)
    outcomes = outcomes_now(study, root / "results", root, queue, failures)
    set_aside_damaged(study, outcomes, root / "results")
    write_measurements(measurement_rows(study, outcomes, load_hardware(root)), path)
    if is_settled(outcomes):
        note_made_from(made_from_path(folder, "measurements"), digests, path)
    reference = reference_path(study, root)
    makers = (
        ("table", study.tables, paper.TABLES, write_table),
        ("figure", study.figures, paper.FIGURES, write_figure),
    )
    for kind, names, functions, write in makers:
        for name in names:
            drawn_from = drawn_digests(kind, study.paper, path, reference)
            write(path, functions[name], name, reference, folder / f"{kind}s")
            note_made_from(made_from_path(folder, kind, name), drawn_from)
    return folder


def write_present_outputs(study: Study, paper: ModuleType, root: Path, partial: bool) -> Path:
    """Write the outputs of a study as `write_study_outputs` does; with cells missing only where `partial` says so.

    Cells that this system is too small for are missing too. Raises CellsMissing.
    """
    queue = look_at_queue(study.system)
    outcomes = outcomes_now(study, root / "results", root, queue)
    missing = sum(outcome.status == "missing" for outcome in outcomes.values())
    if missing and not partial:
        raise CellsMissing(
            f"{missing} of {len(outcomes)} cells of {study.name} have no record yet; --partial writes what there is"
        )
    return write_study_outputs(study, paper, root, queue)


def missing_cells(study: Study, outcomes: Outcomes) -> dict[tuple[str, int], str]:
    """Return a line for every cell that could run here and has no record, by its id and repeat: which, and why."""
    lines = {}
    for planned in study.runnable():
        outcome, cell = outcomes[planned.key], planned.cell
        if outcome.record is None:
            what = f"{cell.label()}, repeat {planned.repeat}"
            lines[planned.key] = f"{what}: {outcome.kind}: {outcome.reason}"
    return lines
