"""What became of a study's cells, and which of them are being measured now: one answer for all who show it."""

from __future__ import annotations

from pathlib import Path

from launching.results import Failure, read_failure
from matrix.outcomes import Outcome
from matrix.plan import Study, record_path, without_record
from records.reading import read_outcomes
from scheduling.endings import ask_slurm_for_reasons
from scheduling.queue import Queue, SlurmJob, look_at_queue

Key = tuple[str, int]


def outcomes_now(study: Study, results: Path, folder: Path, queue: Queue | None = None) -> dict[Key, Outcome]:
    """Return the outcome of every planned cell as `read_outcomes` does, but for those whose job Slurm knows.

    Beside the cells without a record what Slurm says of their end is noted. folder: where jobs are submitted from.
    queue: what Slurm said already; it is asked where that is not given and a record is missing.
    """
    missing = without_record(study, results)
    if queue is None:
        queue = look_at_queue(study.system) if missing else Queue()
    jobs = ask_slurm_for_reasons(study, results, folder, queue)
    outcomes = read_outcomes(study, results)
    answers = study.system.slurm is not None and not queue.silence
    for planned in missing:
        outcome = outcomes[planned.key]
        if outcome.record is None:  # one that came meanwhile counts
            failure = read_failure(record_path(results, study.system.name, planned).parent)
            outcomes[planned.key] = _outcome_by_queue(outcome, failure, jobs.get(planned.key), answers=answers)
    return outcomes


def _outcome_by_queue(outcome: Outcome, failure: Failure | None, job: SlurmJob | None, *, answers: bool) -> Outcome:
    """Return the outcome of a cell without a record, by its latest job. `answers`: Slurm names all jobs that live."""
    if job is not None and job.is_in_queue and not _has_said_its_last(failure, job):
        kind = "queued" if job.is_waiting else "running"
        return Outcome("missing", job.words(), kind, job_id=job.job_id)
    if outcome.kind == "not_known" and answers and failure and failure.job_id:
        return Outcome("missing", failure.full_reason, failure.kind, job_id=failure.job_id)
    return outcome


def _has_said_its_last(failure: Failure | None, job: SlurmJob) -> bool:
    """Return whether the launcher of a job has given its account and the job is only being cleared away."""
    told = failure is not None and failure.launcher is None and failure.job_id == job.job_id
    return told and job.state == "COMPLETING"
