"""What a cell left when its job ended, read for the terminal: its record, or why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.verdicts import Failure, read_failure
from metrics.timing import timing_of_ranks
from terminal.shown_cells import shown_path
from workloads.training.loop import NUM_BATCHES

# A rank says so in its log (train.py); what a launch of before has left there is older than the job.
BATCH = re.compile(rf"^\[rank 0\] batch (\d+) of {NUM_BATCHES}$", re.MULTILINE)
TAIL_BYTES = 65_536


@dataclass(frozen=True)
class CellEnd:
    """result: for the column of the batch time; details: lines below it; took_s: None where it is not known.

    reason: why there is no record, as its launcher or Slurm says; empty where neither has said so yet.
    """

    result: str
    details: tuple[str, ...] = ()
    took_s: float | None = None
    reason: str = ""
    is_ok: bool = False
    has_record: bool = True


def ending_with_record(folder: Path) -> CellEnd:
    """Return what the record in a cell's folder says. Whether it can be trusted is found when it is collected."""
    try:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        took_s = _took_s(record)
        if record["status"] == "ok":
            time_s = timing_of_ranks(record["ranks"]).batch_time_s
            return CellEnd(f"{time_s:#.4g} s", took_s=took_s, is_ok=True)
        reason = record["reason"] or "no reason was given"
        return CellEnd(record["status"], (reason, f"log: {shown_path(folder / 'log.txt')}"), took_s)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return CellEnd("unreadable", (f"{shown_path(folder / 'record.json')} cannot be read: {error}",))


def ending_without_record(folder: Path, began: datetime, why: str = "") -> CellEnd:
    """Return why a job that began then has left no record, with its ranks' last lines.

    why: what its executor says of it, if anything.
    """
    log = f"log: {shown_path(folder / 'log.txt')}"
    failure = _failure_since(folder, began)
    if failure is None:
        return CellEnd("no result", (why or "its launcher ended without saying why", log), has_record=False)
    reason = f"{failure.kind}: {failure.full_reason}"
    lines = (*(f"  {line}" for line in failure.last_lines), *([why] if why else []))
    return CellEnd("no result", (reason, *lines, log), reason=reason, has_record=False)


def is_running(folder: Path, submitted: datetime) -> bool:
    """Return whether a job that was submitted then has begun, as far as its files show here."""
    failure = _failure_since(folder, submitted)
    return failure is not None and failure.launcher is not None


def batch_of(log: Path, began: datetime) -> int | None:
    """Return which batch a cell is in, as its log says; None where it says none."""
    try:
        if log.stat().st_mtime < began.timestamp():
            return None
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            found = BATCH.findall(file.read().decode("utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[-1]) if found else None


def _failure_since(folder: Path, began: datetime) -> Failure | None:
    """Return the note of a failure unless it is a former try's; seconds of two hosts may differ a little."""
    failure = read_failure(folder)
    if failure is None:
        return None
    try:
        at = datetime.fromisoformat(failure.at)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return failure if at.timestamp() >= began.timestamp() - 60 else None


def _took_s(record: Mapping[str, Any]) -> float | None:
    began, ended = (datetime.fromisoformat(record[key]) for key in ("started_at", "finished_at"))
    return (ended - began).total_seconds() if ended >= began else None
