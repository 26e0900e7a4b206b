"""Set records aside, so that their cells run again. Nothing is deleted: a record is worth the hours it took."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from contracts.outcomes import KINDS_THAT_STAY, EndKind, Outcome
from launcher.verdicts import Failure, now, write_failure
from planning.plan import Study, record_path

Outcomes = Mapping[tuple[str, int], Outcome]


def set_aside_damaged(study: Study, outcomes: Outcomes, results: Path) -> list[tuple[Path, str]]:
    """Set aside every record that cannot be trusted and keep the reason beside it; return (path, reason) of each.

    One that was set aside before and has not been measured again is no longer there, and not among them.
    """
    damaged = []
    for path, outcome in _chosen(study, outcomes, results, lambda o: o.kind == EndKind.CORRUPT_RECORD):
        if path.exists():
            _rename(path, "damaged")
            failure = Failure(EndKind.CORRUPT_RECORD, outcome.reason, None, (), now(), socket.gethostname(), None)
            write_failure(path.parent, failure)
            damaged.append((path, outcome.reason))
    return damaged


def records_that_stay(study: Study, outcomes: Outcomes, results: Path) -> list[tuple[Path, str]]:
    """Return (path, reason) of every record that is there and does not count, and may be a good one all the same."""
    chosen = _chosen(study, outcomes, results, lambda o: o.kind in KINDS_THAT_STAY)
    return [(path, outcome.reason) for path, outcome in chosen]


def forget(study: Study, outcomes: Outcomes, results: Path, wanted: Callable[[Outcome], bool]) -> list[Path]:
    """Set aside the records of the outcomes that `wanted` picks; return where they were."""
    chosen = [path for path, _ in _chosen(study, outcomes, results, lambda o: o.record is not None and wanted(o))]
    for path in chosen:
        _rename(path, "forgotten")
    return chosen


def _chosen(
    study: Study, outcomes: Outcomes, results: Path, wanted: Callable[[Outcome], bool]
) -> list[tuple[Path, Outcome]]:
    planned = {p.key: p for p in study.planned}
    return [
        (record_path(results, study.system.name, planned[key]), outcome)
        for key, outcome in outcomes.items()
        if wanted(outcome)
    ]


def _rename(path: Path, why: str) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    path.replace(path.with_name(f"record.{why}-{stamp}.json"))
