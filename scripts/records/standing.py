"""What became of a study's cells, and which of them are being measured now: one answer for all who show it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contracts.outcomes import EndKind, Outcome
from launcher.slurm.job_endings import NOTHING_KNOWN, Account, Key, ask_slurm_for_reasons
from launcher.slurm.queue import Queue, SlurmJob, look_at_queue
from launcher.verdicts import Failure, remove_stray_failure
from planning.plan import Study, record_path, without_record
from records.reader import read_outcomes


def outcomes_now(
    study: Study,
    results: Path,
    folder: Path,
    queue: Queue | None = None,
    failures: Mapping[Key, Failure] = NOTHING_KNOWN,
) -> dict[Key, Outcome]:
    """Return the outcome of every planned cell as `read_outcomes` does, but for those whose job Slurm knows.

    Beside the cells without a record what Slurm says of their end is noted, where there is room; beside those with one
    no account of a failure stays. folder: where jobs are submitted from. queue: what Slurm said already; it is asked
    where that is not given and a record is missing. failures: what the caller knows of cells, kept beside them or not.
    """
    if queue is None:
        queue = look_at_queue(study.system) if without_record(study, results) else Queue()
    accounts = ask_slurm_for_reasons(study, results, folder, queue, failures)
    known = {key: account.failure for key, account in accounts.items() if account.failure}
    outcomes = read_outcomes(study, results, failures=known)
    answers = study.system.slurm is not None and not queue.silence
    for planned in study.runnable():
        if outcomes[planned.key].record is not None:
            remove_stray_failure(record_path(results, study.system.name, planned).parent)
        elif account := accounts.get(planned.key):
            outcomes[planned.key] = _outcome_by_queue(outcomes[planned.key], account, answers=answers)
    return outcomes


def _outcome_by_queue(outcome: Outcome, account: Account, *, answers: bool) -> Outcome:
    """Return the outcome of a cell without a record, by its latest job. `answers`: Slurm names all jobs that live."""
    failure, job = account.failure, account.job
    if job is not None and job.is_in_queue and not _has_said_its_last(failure, job):
        kind = EndKind.QUEUED if job.is_waiting else EndKind.RUNNING
        return Outcome("missing", job.words(), kind, job_id=job.job_id)
    if outcome.kind == EndKind.NOT_KNOWN and answers and failure and failure.job_id:
        return Outcome("missing", failure.full_reason, failure.kind, job_id=failure.job_id)
    return outcome


def _has_said_its_last(failure: Failure | None, job: SlurmJob) -> bool:
    """Return whether the launcher of a job has given its account and the job is only being cleared away."""
    told = failure is not None and failure.launcher is None and failure.job_id == job.job_id
    return told and job.state == "COMPLETING"
