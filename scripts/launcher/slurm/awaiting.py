"""Wait for the Slurm jobs of an earlier call that measure cells, until their records are there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from launcher.slurm.asking import QueueError
from launcher.slurm.queue import SlurmJob, find_job, own_jobs
from launcher.verdicts import read_failure

# A shared file system may show what a node has written this much later.
LATE_RECORD_S = 60.0


def await_jobs(
    records: dict[str, Path],
    interval_s: float,
    late_record_s: float = LATE_RECORD_S,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Wait for all jobs, and return those that ended without a record; each is told with the reason.

    records: the record that a job will write, by the job's id.
    """
    waiting, failed = dict(records), []
    ended_s: dict[str, float] = {}  # how long ago a job without a record was seen to have ended
    told: str | None = None
    while True:
        try:
            listed = {job.job_id: job for job in own_jobs()}
        except QueueError as error:
            # A controller that is being restarted: the jobs go on meanwhile.
            if told != str(error):
                told = str(error)
                _tell(f"{told}; asking again")
            sleep(interval_s)
            continue
        for job_id, record in list(waiting.items()):
            if job_id not in ended_s and _is_in_queue(job_id, listed):
                continue
            seen_s = ended_s.setdefault(job_id, 0.0)
            there, failure = _is_there(record), read_failure(record.parent)
            if there:
                del waiting[job_id]
            elif seen_s < late_record_s and not (failure and failure.launcher is None):  # no last word of its launcher
                ended_s[job_id] += interval_s
            else:
                del waiting[job_id]
                failed.append(job_id)
                said = f"{failure.kind}: {failure.full_reason}" if failure else "it ended without a record"
                _tell(f"{record.parent}: job {job_id}: {said}")
        if not waiting:
            return failed
        sleep(interval_s)


def _is_there(record: Path) -> bool:
    if record.parent.is_dir():
        list(record.parent.iterdir())  # has a network file system look again
    return record.is_file()


def _is_in_queue(job_id: str, listed: dict[str, SlurmJob]) -> bool:
    job = listed.get(job_id) or find_job(job_id)
    return job is not None and job.is_in_queue


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
