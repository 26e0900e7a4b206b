"""What became of a planned cell: its record, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RECORDED_STATUSES = ("ok", "oom", "nan", "not_available")
STATUSES = (*RECORDED_STATUSES, "unsupported", "missing")


@dataclass(frozen=True)
class Outcome:
    """`status` is one of STATUSES; `record` (see workflow/schemas/record.schema.yaml) is None without a record.

    `kind` tells missing cells apart (never_ran, running, crash, killed, startup_timeout, time_limit, interrupted,
    disk_full, corrupt_record, unreadable_record, too_large, ...); `code_changed` is None where there is no record.
    `job_id` is the scheduler's job that measured the cell or failed to, empty where there was none.
    """

    status: str
    reason: str = ""
    kind: str = ""
    record: Mapping[str, Any] | None = None
    code_changed: bool | None = None
    job_id: str = ""
