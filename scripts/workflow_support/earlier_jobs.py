"""Slurm jobs of an earlier call that are still in the queue: they are waited for, and no second one is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from snakemake.logging import logger

from launcher.slurm.jobs import awaited_jobs, chunks
from launcher.slurm.queue import look_at_queue
from workflow_support.call import RESULTS, Call

# So many jobs are awaited in one step that its command line is not too long.
JOBS_IN_A_STEP = 100


def find_jobs_in_queue(call: Call) -> None:
    """Look for jobs of any study before one is submitted. Where Slurm cannot be asked, a dry run goes on."""
    if not call.is_main or not call.system().slurm:
        return
    queue = look_at_queue(call.system())
    if queue.silence:
        call.queue_errors.append(queue.silence)
        logger.warning(f"Slurm cannot be asked which cells have a job in the queue: {queue.silence}")
    if queue.jobs:
        studies = call.readable_studies(call.system_name)
        call.jobs_in_queue.update(awaited_jobs(studies, RESULTS, Path.cwd(), queue.jobs))
    for record, job in call.jobs_in_queue.items():
        logger.warning(
            f"{record.parent}: job {job.job_id} of an earlier call is {job.state.lower()}; it is waited for, and no "
            f"second one submitted"
        )


def awaited_steps(call: Call) -> Iterator[tuple[list[str], list[str]]]:
    """Yield for each step that waits the records it brings and its arguments, JOB=RECORD each."""
    find_jobs_in_queue(call)
    for records in chunks(call.jobs_in_queue, JOBS_IN_A_STEP):
        jobs = [f"{call.jobs_in_queue[record].job_id}={record}" for record in records]
        yield list(map(str, records)), jobs
