"""What became of a study's cells: a row for every cell and repeat, and a line for the whole study."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO

from contracts.atomic import replace_when_complete
from contracts.outcomes import EndKind, Outcome
from planning.budget import hours_text
from planning.plan import PlannedCell, Study
from planning.plan_lines import threads_words

COLUMNS = (
    "study", "framework", "model", "num_gpus", "global_batch_size", "layout", "repeat", "state", "status", "kind",
    "code_changed", "duration_s", "gpu_hours", "job_id", "cell_id", "reason",
)  # fmt: skip


def status_rows(study: Study, outcomes: Mapping[tuple[str, int], Outcome]) -> list[dict[str, object]]:
    """Return one row per cell and repeat, however many comparisons share it."""
    planned = {p.key: p for p in study.planned}
    return [_row(study, planned[key], outcome) for key, outcome in outcomes.items()]


def state_of(outcome: Outcome) -> str:
    """Return where a cell stands: done, stale (done, by other code), queued, running, not known (begun where it cannot
    be seen), failed, missing (never tried, or too large for the system), unsupported.
    """
    if outcome.record is not None:
        return "stale" if outcome.code_changed else "done"
    if outcome.status == "unsupported":
        return "unsupported"
    if outcome.kind in (EndKind.QUEUED, EndKind.RUNNING, EndKind.NOT_KNOWN):
        return outcome.kind.replace("_", " ")
    return "missing" if outcome.kind in (EndKind.NEVER_RAN, EndKind.TOO_LARGE, EndKind.FORGOTTEN) else "failed"


def _row(study: Study, planned: PlannedCell, outcome: Outcome) -> dict[str, object]:
    cell = planned.cell
    seconds = duration_s(outcome)
    return {
        "study": study.name,
        "framework": cell.framework,
        "model": cell.model.name,
        "num_gpus": cell.num_gpus,
        "global_batch_size": cell.global_batch_size,
        "layout": cell.layout.label(),
        "repeat": planned.repeat,
        "state": state_of(outcome),
        "status": outcome.status,
        "kind": outcome.kind,
        "code_changed": "" if outcome.code_changed is None else str(outcome.code_changed).lower(),
        "duration_s": "" if seconds is None else f"{seconds:g}",
        "gpu_hours": "" if seconds is None else f"{seconds * cell.num_gpus / 3600:.4g}",
        "job_id": outcome.job_id,
        "cell_id": cell.cell_id,
        "reason": outcome.reason,
    }


def duration_s(outcome: Outcome) -> float | None:
    """Return the time from the start of the launch to its end, from the record; None where a clock was set back."""
    if outcome.record is None:
        return None
    began, ended = (datetime.fromisoformat(outcome.record[key]) for key in ("started_at", "finished_at"))
    return (ended - began).total_seconds() if ended >= began else None


def print_table(rows: Sequence[Mapping[str, object]], file: IO[str]) -> None:
    shown = [
        column for column in COLUMNS if column not in ("study", "gpu_hours") and any(row[column] != "" for row in rows)
    ]
    widths = {column: max(len(column), *(len(str(row[column])) for row in rows)) for column in shown}
    print("  ".join(column.ljust(widths[column]) for column in shown).rstrip(), file=file)
    for row in rows:
        print("  ".join(str(row[column]).ljust(widths[column]) for column in shown).rstrip(), file=file)


def summary(study: Study, rows: Sequence[Mapping[str, object]]) -> str:
    counts = Counter(str(row["state"]) for row in rows)
    changed = sum(row["code_changed"] == "true" for row in rows)
    text = f"{study.name} on {study.system.name}: {len(rows)} cells: " + ", ".join(
        f"{n} {s}" for s, n in counts.items()
    )
    hours = sum(float(str(row["gpu_hours"])) for row in rows if row["gpu_hours"] != "")
    unit, units = study.system.device.unit, study.system.device.units
    text += f"; {hours_text(hours)} {unit}-hours of the {units} that measured them"
    if study.system.threads_derived:
        text += f"; {threads_words(study.system)}"
    if changed:
        text += f"; {changed} measured by other code than today's (status.py forget --code-changed {study.name})"
    return text


def write_status(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Write the rows as a CSV, complete or not at all."""
    with replace_when_complete(path, "w") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
