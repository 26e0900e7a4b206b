"""Collect a study's records into measurements.csv, and set damaged ones aside."""

from __future__ import annotations

from pathlib import Path

from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.studies import load_hardware, load_study
from records.setting_aside import records_that_stay, set_aside_damaged
from records.standing import outcomes_now
from reporting.made_from import measurements_digests, note_made_from


def collect(study_name: str, system: str, output: Path, made_from: Path | None, root: Path) -> list[str]:
    """Write the measurements of a study, and return what is wrong with its records, one sentence for each.

    made_from: where to write the digests of what went into the file. They are written only where nothing is wrong, so
    that the next call collects again. Raises ConfigError for a mistake in a file.
    """
    study = load_study(study_name, system, root)
    # Before anything is read: what changes in the meantime makes the CSV anew at the next call.
    digests = measurements_digests(study, root)
    outcomes = outcomes_now(study, root / "results", root)
    damaged = set_aside_damaged(study, outcomes, root / "results")
    staying = records_that_stay(study, outcomes, root / "results")
    write_measurements(measurement_rows(study, outcomes, load_hardware(root)), output)
    if made_from and not damaged and not staying:
        note_made_from(made_from, digests, output)
    aside = "set aside, the next call measures the cell again"
    return [
        *(f"{path.relative_to(root)}: {reason}" for path, reason in staying),
        *(f"{path.relative_to(root)}: {reason}; {aside}" for path, reason in damaged),
    ]
