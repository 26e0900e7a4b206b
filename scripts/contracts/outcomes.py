"""What became of a planned cell: its record, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

RECORDED_STATUSES = ("ok", "oom", "nan", "not_available")
STATUSES = (*RECORDED_STATUSES, "unsupported", "missing")


class EndKind(StrEnum):
    """Why a cell is missing: `kind` of an outcome, of failure.json and of measurements.csv. Each has its sentence."""

    sentence: str

    def __new__(cls, kind: str, sentence: str) -> EndKind:
        member = str.__new__(cls, kind)
        member._value_ = kind
        member.sentence = sentence
        return member

    NEVER_RAN = "never_ran", "nobody has asked for it yet, or the call ended before its turn"
    FORGOTTEN = "forgotten", "its record was set aside by `status.py forget`, and it has not run since"
    QUEUED = "queued", "its job waits in Slurm's queue"
    RUNNING = "running", "it is being measured"
    NOT_KNOWN = (
        "not_known",
        "it began on another machine, and whether it is still being measured cannot be told from here",
    )
    TOO_LARGE = "too_large", "it needs more GPUs than the system has"
    CORRUPT_RECORD = "corrupt_record", "its record was damaged, or no run can leave it, and was set aside"
    UNREADABLE_RECORD = "unreadable_record", "its record is there and cannot be read; it stays"
    MISPLACED_RECORD = (
        "misplaced_record",
        "its record is of another name of the system or the model; it stays and does not count",
    )
    CORPUS_FAILED = "corpus_failed", "the corpus could not be tokenized"
    ENVIRONMENT_FAILED = "environment_failed", "its framework's Python could not be made"
    REFUSED = (
        "refused",
        "the job was not submitted, or the cell not started: the reason has the words of who refused it",
    )
    CRASH = "crash", "a process failed"
    KILLED = "killed", "a process was ended by a signal"
    STARTUP_TIMEOUT = "startup_timeout", "processes had not met the others in time"
    TIME_LIMIT = "time_limit", "it had not ended in time"
    INTERRUPTED = "interrupted", "the launcher was told to stop, or was killed"
    DISK_FULL = "disk_full", "there was no room for what it writes"
    GPU_MISSING = "gpu_missing", "a node had fewer GPUs than the cell needs there"
    OUT_OF_MEMORY = "out_of_memory", "Slurm ended it for memory before its launcher could record it"
    NODE_FAILURE = "node_failure", "Slurm lost a node"
    CANCELLED = "cancelled", "somebody cancelled its job"
    PREEMPTED = "preempted", "another job took its place"


# Records that do not count and are left where they are: only a person knows whether they are good.
KINDS_THAT_STAY = (EndKind.UNREADABLE_RECORD, EndKind.MISPLACED_RECORD)


@dataclass(frozen=True)
class Outcome:
    """`status` is one of STATUSES; `record` (see workflow/schemas/record.schema.yaml) is None without a record.

    `kind` tells missing cells apart (EndKind), and is "unsupported" for those; `code_changed` is None where there is no
    record. `job_id` is the scheduler's job that measured the cell or failed to, empty where there was none.
    """

    status: str
    reason: str = ""
    kind: str = ""
    record: Mapping[str, Any] | None = None
    code_changed: bool | None = None
    job_id: str = ""
