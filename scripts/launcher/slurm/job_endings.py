"""Why a Slurm job ended, for a launcher that was told to stop and for cells whose launcher could not say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from contracts.outcomes import EndKind
from launcher.slurm.asking import QueueError, ask_slurm
from launcher.slurm.queue import (
    Queue,
    SlurmJob,
    current_job_id,
    ended_without_word,
    find_job,
    find_jobs,
    jobs_of_cells,
    slurm_log,
)
from launcher.verdicts import Failure, kept_failure, log_tail, now, read_failure
from planning.plan import Study, record_path, without_record
from settings.systems import System

# Ends of which Slurm knows more than the launcher, which only sees a signal, or sees nothing at all.
SLURM_KNOWS = (
    EndKind.INTERRUPTED,
    EndKind.KILLED,
    EndKind.TIME_LIMIT,
    EndKind.NODE_FAILURE,
    EndKind.CANCELLED,
    EndKind.PREEMPTED,
    EndKind.OUT_OF_MEMORY,
)
# A job that is being ended shows COMPLETING still, and its reason what for.
KINDS_BY_REASON = {
    "TimeLimit": EndKind.TIME_LIMIT,
    "NodeDown": EndKind.NODE_FAILURE,
    "OutOfMemory": EndKind.OUT_OF_MEMORY,
}


Key = tuple[str, int]
NOTHING_KNOWN: Mapping[Key, Failure] = MappingProxyType({})


@dataclass(frozen=True)
class Account:
    """What is known of a cell without a record: why there is none, and its latest job where Slurm knows it."""

    failure: Failure | None
    job: SlurmJob | None = None


def with_slurms_account(failure: Failure, job: SlurmJob | None = None) -> Failure:
    """Return the failure with what Slurm says of its job, where that says more; `job` is looked up when not given."""
    if failure.job_id is None or failure.kind not in SLURM_KNOWS:
        return failure
    job = job or find_job(failure.job_id)
    if job is None or (job.kind == EndKind.CRASH and failure.kind != EndKind.INTERRUPTED):
        return failure
    known = job.kind or KINDS_BY_REASON.get(job.reason)
    if known is None:  # it is running or being ended, and Slurm does not say what for
        return failure
    return replace(failure, scheduler=job.words(), kind=failure.kind if known == EndKind.CRASH else known)


class OtherJobs:
    """Whether other jobs ran on this job's nodes: asked before and after it where nodes are not handed out whole."""

    def __init__(self, system: System) -> None:
        self._exclusive = system.slurm is not None and system.slurm.exclusive
        self._ask = system.slurm is not None and not self._exclusive
        self._before = _shares_nodes() if self._ask else None

    def shared(self) -> bool | None:
        """Return None where it is not known: on this machine alone, or when Slurm gave no answer."""
        if self._exclusive:
            return False
        if not self._ask:
            return None
        seen = (self._before, _shares_nodes())
        return True if True in seen else None if None in seen else False


def _shares_nodes() -> bool | None:
    job_id = current_job_id()
    job = find_job(job_id) if job_id else None
    if job is None or not job.nodes:
        return None
    try:
        shown = ask_slurm(["squeue", "--nodelist", job.nodes, "--states=RUNNING", "--noheader", "--format=%i"])
    except QueueError:
        return None
    return any(other != job_id for other in shown.split())


def ask_slurm_for_reasons(
    study: Study, results: Path, folder: Path, queue: Queue, failures: Mapping[Key, Failure] = NOTHING_KNOWN
) -> dict[Key, Account]:
    """Complete what stands beside the cells without a record with Slurm's account, before Slurm forgets the jobs.

    Return what is known of each such cell, whether it could be kept beside it or not, by the cell's key. folder: where
    the jobs were submitted from. failures: accounts that count for more than those beside the cells. Nothing more is
    asked where Slurm did not answer for the queue.
    """
    missing = without_record(study, results)
    cells = {planned.key: planned for planned in missing}
    folders = {key: record_path(results, study.system.name, planned).parent for key, planned in cells.items()}
    accounts = {key: Account(failures.get(key) or read_failure(folder)) for key, folder in folders.items()}
    if study.system.slurm is None or queue.silence:
        return accounts
    jobs = jobs_of_cells(study.system.name, missing, queue.jobs, folder)
    # So few, so that a thousand cells that crashed are no thousand questions to Slurm at every call.
    unlisted = {
        account.failure.job_id: key
        for key, account in accounts.items()
        if account.failure and account.failure.job_id and key not in jobs and _slurm_may_know_more(account.failure)
    }
    known = find_jobs(list(unlisted)) if unlisted else {}
    jobs |= {unlisted[job_id]: job for job_id, job in known.items()}
    logs = {key: slurm_log(results, study.system.name, cells[key], job.job_id) for key, job in jobs.items()}
    completed = {key: _completed(folders[key], accounts[key].failure, job, logs[key]) for key, job in jobs.items()}
    return accounts | {key: Account(completed[key], job) for key, job in jobs.items()}


def _slurm_may_know_more(failure: Failure) -> bool:
    """Return whether Slurm could add anything to an account: the end is one that it knows, and it has not told yet, or
    when the job was still being ended.
    """
    return failure.kind in SLURM_KNOWS and (failure.scheduler is None or "COMPLETING" in failure.scheduler)


def _completed(folder: Path, failure: Failure | None, job: SlurmJob, log: Path) -> Failure | None:
    """Return the account of one cell's repeat, completed and kept where Slurm says more of its latest job.

    log: what Slurm itself kept of what that job printed.
    """
    if job.kind is None:
        return failure
    if failure and failure.job_id != job.job_id and job.is_older_than(failure.at):
        return failure  # it is of a later try than the job
    if failure is None or failure.job_id != job.job_id:
        # The job ended before its launcher could write anything.
        lines = log_tail(log)
        reason = ended_without_word(lines)
        return kept_failure(folder, Failure(job.kind, reason, None, lines, now(), job.nodes, job.job_id, job.words()))
    completed = with_slurms_account(failure, job)
    if completed == failure:
        return failure
    lines = failure.last_lines or log_tail(folder / "log.txt") or log_tail(log)
    return kept_failure(folder, replace(completed, last_lines=lines))
