"""What became of a planned cell: its record, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RECORDED_STATUSES = ("ok", "oom", "nan", "not_available")
STATUSES = (*RECORDED_STATUSES, "unsupported", "missing")

# Records that do not count and are left where they are: only a person knows whether they are good.
KINDS_THAT_STAY = ("unreadable_record", "misplaced_record")
# Why a cell is missing, by the kind of its outcome and of failure.json.
KINDS: Mapping[str, str] = {
    "never_ran": "nobody has asked for it yet, or the call ended before its turn",
    "forgotten": "its record was set aside by `status.py forget`, and it has not run since",
    "queued": "its job waits in Slurm's queue",
    "running": "it is being measured",
    "not_known": "it began on another machine, and whether it is still being measured cannot be told from here",
    "too_large": "it needs more GPUs than the system has",
    "corrupt_record": "its record was damaged, or no run can leave it, and was set aside",
    "unreadable_record": "its record is there and cannot be read; it stays",
    "misplaced_record": "its record is of another name of the system or the model; it stays and does not count",
    "corpus_failed": "the corpus could not be tokenized",
    "environment_failed": "its framework's Python could not be made",
    "refused": "the job was not submitted, or the cell not started: the reason has the words of who refused it",
    "crash": "a process failed",
    "killed": "a process was ended by a signal",
    "startup_timeout": "processes had not met the others in time",
    "time_limit": "it had not ended in time",
    "interrupted": "the launcher was told to stop, or was killed",
    "disk_full": "there was no room for what it writes",
    "gpu_missing": "a node had fewer GPUs than the cell needs there",
    "out_of_memory": "Slurm ended it for memory before its launcher could record it",
    "node_failure": "Slurm lost a node",
    "cancelled": "somebody cancelled its job",
    "preempted": "another job took its place",
}


@dataclass(frozen=True)
class Outcome:
    """`status` is one of STATUSES; `record` (see workflow/schemas/record.schema.yaml) is None without a record.

    `kind` tells missing cells apart (KINDS), and is "unsupported" for those; `code_changed` is None where there is no
    record. `job_id` is the scheduler's job that measured the cell or failed to, empty where there was none.
    """

    status: str
    reason: str = ""
    kind: str = ""
    record: Mapping[str, Any] | None = None
    code_changed: bool | None = None
    job_id: str = ""
