"""Read what became of a study's cells. A record that cannot be trusted counts as missing, with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fastjsonschema

from contracts.cell import identity_hash
from contracts.outcomes import EndKind, Outcome
from launcher.verdicts import Failure, read_failure
from planning.plan import PlannedCell, Study, record_path
from records.belonging import measured_elsewhere
from records.code_digests import SCRIPTS, accepted_digests, differs
from records.plausible import problem_of, writable
from settings.config import load_schema


class MisplacedRecord(ValueError):
    """A whole record of the cell that was measured under another name of its system or model."""


# A damaged record may quote itself at any length.
REASON_CHARACTERS = 300


def read_outcomes(
    study: Study,
    results: Path,
    scripts: Path = SCRIPTS,
    failures: Mapping[tuple[str, int], Failure] = MappingProxyType({}),
) -> dict[tuple[str, int], Outcome]:
    """Return the outcome of every planned cell of the study, by (cell id, repeat).

    failures: of cells without a record, accounts that count for more than what is kept beside them.
    """
    outcomes: dict[tuple[str, int], Outcome] = {}
    for planned in study.planned:
        if planned.key not in outcomes:
            path = record_path(results, study.system.name, planned)
            outcomes[planned.key] = read_outcome(planned, path, study.system.name, scripts, failures.get(planned.key))
    return outcomes


def read_outcome(
    planned: PlannedCell, path: Path, system: str, scripts: Path = SCRIPTS, known: Failure | None = None
) -> Outcome:
    """Return what became of one planned cell on `system`. A record that was copied here counts as well."""
    if planned.obstacle and planned.obstacle.status == "unsupported":
        return Outcome("unsupported", planned.obstacle.reason, "unsupported")
    try:
        record = read_record(path, planned, system)
    except FileNotFoundError:
        return _without_record(planned, path, known)
    except OSError as error:
        return Outcome(
            "missing",
            f"the record cannot be read ({error.strerror}); it stays, look at its file system and rights",
            EndKind.UNREADABLE_RECORD,
        )
    except MisplacedRecord as error:
        return Outcome("missing", str(error), EndKind.MISPLACED_RECORD)
    except ValueError as error:
        return Outcome("missing", str(error), EndKind.CORRUPT_RECORD)
    return Outcome(
        status=record["status"],
        reason=record["reason"],
        record=record,
        code_changed=_is_other_code(record["code"], record["framework"], scripts),
        job_id=record["launch"]["job_id"] or "",
    )


def read_record(path: Path, planned: PlannedCell, system: str) -> dict[str, Any]:
    """Return the record at `path`, which lies where the results of `planned` on `system` are kept.

    Raise ValueError when it is damaged, another cell's, or one that no run can leave; MisplacedRecord when it is whole
    and of another system or model label; OSError when it cannot be read.
    The schema is compiled once, so that ten thousand records are read in seconds.
    """
    try:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
        problem = _problem(record, planned)
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if problem:
        raise ValueError(f"the record is damaged ({writable(problem[:REASON_CHARACTERS])})")
    elsewhere = measured_elsewhere(record, planned.cell, system)
    if elsewhere:
        raise MisplacedRecord(writable(elsewhere))
    return record


def _problem(record: Any, planned: PlannedCell) -> str | None:
    try:
        _schema_check()(record)
    except fastjsonschema.JsonSchemaException as error:
        return str(error.message)
    cell_id, repeat = planned.key
    if identity_hash(record["identity"]) != cell_id:
        return "its identity is not this cell's"
    if (record["cell_id"], record["repeat"]) != (cell_id, repeat):
        return f"it is of cell {record['cell_id']} repeat {record['repeat']}"
    return problem_of(record, planned.cell)


def _without_record(planned: PlannedCell, path: Path, known: Failure | None) -> Outcome:
    if planned.obstacle:
        return Outcome("missing", planned.obstacle.reason, EndKind.TOO_LARGE)
    failure = known or read_failure(path.parent)
    if failure and failure.is_running:
        reason, kind = f"being measured on {failure.host} since {failure.at}", EndKind.RUNNING
        return Outcome("missing", reason, kind, job_id=failure.job_id or "")
    if failure and failure.may_be_running:
        reason = f"it began on {failure.host} at {failure.at}, and whether it is at work still cannot be told from here"
        return Outcome("missing", reason, EndKind.NOT_KNOWN, job_id=failure.job_id or "")
    if failure:
        return Outcome("missing", failure.full_reason, failure.kind, job_id=failure.job_id or "")
    if any(path.parent.glob("record.forgotten-*.json")):
        return Outcome("missing", "its record was set aside by `forget`, and it has not run since", EndKind.FORGOTTEN)
    return Outcome("missing", "not run yet", EndKind.NEVER_RAN)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite_float(text: str) -> float:
    """JSON has no infinity, and Python reads 1e999 as one."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is larger than any number that is measured")
    return value


@cache
def _schema_check() -> Callable[[Any], Any]:
    return fastjsonschema.compile(load_schema("record", SCRIPTS.parent))


def _is_other_code(recorded: Mapping[str, str], framework: str, scripts: Path) -> bool:
    accepted = _accepted_today(framework, scripts)
    return accepted is None or differs(recorded, accepted)


@cache
def _accepted_today(framework: str, scripts: Path) -> Mapping[str, frozenset[str]] | None:
    """Return None when the adaptor is gone or broken: then today's code is certainly not the record's."""
    try:
        return accepted_digests(framework, scripts)
    except (OSError, SyntaxError):
        return None
