"""Wait for the Slurm jobs of an earlier call that measure cells; succeed when all their records are there.

A login shell that is killed leaves its jobs running. The next call must not start a second copy of such a cell.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from launching.results import read_failure
from scheduling.queue import QueueError, SlurmJob, find_job, own_jobs

# A shared file system may show what a node has written this much later.
LATE_RECORD_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", metavar="JOB=RECORD", help="a job in the queue and the record it will write")
    parser.add_argument("--interval-s", type=float, default=10.0, help="how often to ask")
    args = parser.parse_args()
    waiting = {job: Path(record) for job, _, record in (word.partition("=") for word in args.jobs)}
    return 1 if await_jobs(waiting, args.interval_s) else 0


def await_jobs(
    records: dict[str, Path],
    interval_s: float,
    late_record_s: float = LATE_RECORD_S,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Wait for all jobs; returns those that ended without a record, each told why. records: by the job's id."""
    waiting, failed = dict(records), []
    silent = False
    while waiting:
        try:
            listed = {job.job_id: job for job in own_jobs()}
        except QueueError as error:
            # A controller that is being restarted: the jobs go on meanwhile.
            if not silent:
                _tell(f"{error}; asking again")
            silent = True
            sleep(interval_s)
            continue
        silent = False
        for job_id in [job_id for job_id in waiting if not _is_in_queue(job_id, listed)]:
            record = waiting.pop(job_id)
            if not appears(record, late_record_s, sleep):
                failed.append(job_id)
                failure = read_failure(record.parent)
                said = f"{failure.kind}: {failure.full_reason}" if failure else "it ended without a record"
                _tell(f"{record.parent}: job {job_id}: {said}")
        if waiting:
            sleep(interval_s)
    return failed


def appears(record: Path, patience_s: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether the record of a job that has ended is there, or comes to be seen."""
    for _ in range(max(1, round(patience_s))):
        if record.parent.is_dir():
            list(record.parent.iterdir())  # has a network file system look again
        if record.is_file():
            return True
        failure = read_failure(record.parent)
        if failure and failure.launcher is None:  # the launcher's last word
            return False
        sleep(1.0)
    return record.is_file()


def _is_in_queue(job_id: str, listed: dict[str, SlurmJob]) -> bool:
    job = listed.get(job_id) or find_job(job_id)
    return job is not None and job.is_in_queue


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
