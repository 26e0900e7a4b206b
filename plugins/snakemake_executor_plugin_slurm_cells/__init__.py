"""Executor `slurm-cells` of Snakemake: a job runs its rule's own command, and Slurm is asked until it answers.

It is snakemake-executor-plugin-slurm 2.8.0 with other methods where that one

- has a job start Snakemake twice to come to the command, which reads the configuration again;
- gives up all its jobs when one question to Slurm fails, and any job that Slurm has forgotten (MinJobAge);
- waits for ever for a preempted job and for one that can never start;
- takes a submission for refused that Slurm did not answer, or that a partition refused which is closed for a moment;
- asks every 180 s after a while, and ends only after the last of these pauses;
- submits on after Ctrl-C, and overlooks a job that it was just asking about.

How a job is asked for (`get_submit_command`, accounts, partitions, `slurm_extra`, logs) is that plugin's own code.

Tried before: the settings of that plugin alone (none of them keeps the jobs, `status_attempts` included); its executor
with its own `check_active_jobs` around which failed questions were caught (it has cleared its list of jobs by then); an
executor of our own on RemoteExecutor (the command line of sbatch would have had to be written again).
"""

# No `from __future__ import annotations`: Snakemake reads the types of the settings.

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_executor_plugin_slurm import common_settings
from snakemake_executor_plugin_slurm.utils import get_job_wildcards
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Slurm is asked so soon after something has happened; then every time twice as late, up to the setting of the profile.
SHORTEST_PAUSE_S = 2
# A submission without an answer is looked for so long before it is taken for lost.
LOST_AFTER_S = 10
# How long Ctrl-C tries to cancel jobs while Slurm does not answer.
CANCELLING_S = 60


@dataclass
class ExecutorSettings(SlurmSettings):
    patience_s: int = field(
        default=600,
        metadata={
            "help": "For so many seconds a submission is tried again that a closed partition refuses, and a job is "
            "left in the queue that can never start when nothing else is left."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.array_jobs:
            raise WorkflowError("--slurm-cells-array-jobs: cells are jobs of their own; remove it")
        # A script on sbatch's standard input is read by no shell before it runs.
        self.pass_command_as_script = True
        # squeue, and sacct for what it has forgotten; the plugin would warn of either.
        self.status_command = None


class Executor(SlurmExecutor):
    def __post_init__(self, test_mode: bool = False) -> None:
        # Snakemake imports this module before the Snakefile has put scripts/ on the path.
        from launcher.slurm import asking, job_script, queue, watching

        self._asking, self._script, self._queue, self._watching = asking, job_script, queue, watching
        self._cancelled = False
        self._refused_again = False
        self._silent = False
        self._has_jobs_in_queue = False
        self._submitted: set[str] = set()
        self._since: dict[tuple[str, Any], float] = {}
        self._told: set[str] = set()
        super().__post_init__(test_mode)

    # These methods decide which command a job runs.

    def format_job_exec(self, job: Any) -> str:
        """Return the rule's own command; another Snakemake only where a command alone does not do."""
        if not self._runs_command(job):
            return super().format_job_exec(job)
        return self._script.job_script(
            job.shellcmd,
            python_folder=str(Path(sys.executable).parent),
            needed=[str(file) for file in job.get_wait_for_files()],
            patience_s=self.workflow.execution_settings.latency_wait,
        )

    def _runs_command(self, job: Any) -> bool:
        plain = not job.is_group() and job.is_shell and not job.is_shadow and job.benchmark is None
        return plain and not self.workflow.deployment_settings.deployment_method

    def get_account_arg(self, job: Any) -> Any:
        """Give the account of the system file; the plugin's guess asks sacct in a way that it never understands."""
        if not job.resources.get("slurm_account"):
            return iter([""])
        return super().get_account_arg(job)

    # Submission.

    def run_job(self, job: Any) -> None:
        if self._cancelled:
            return
        if self._runs_command(job):
            try:
                self.workflow.async_run(job.prepare())  # makes the folders of its files
            except (WorkflowError, OSError) as error:
                self.report_job_error(SubmittedJobInfo(job), msg=f"Job submission failed with exception: {error}")
                return
        super().run_job(job)

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        self._submitted.add(str(job_info.external_jobid))
        self._has_jobs_in_queue = True
        super().report_job_submission(job_info, register_job=register_job)

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any) -> None:
        """Keep a job whose submission may yet succeed among the active ones, without an id; else report it."""
        if job_info.external_jobid is None and not self._cancelled and self._may_succeed_later(job_info.job, msg or ""):
            self._refused_again = True
            with self.lock:
                self.active_jobs.append(SubmittedJobInfo(job_info.job))
            return
        super().report_job_error(job_info, msg=msg, **kwargs)

    def _may_succeed_later(self, job: Any, message: str) -> bool:
        words = self._watching.refusal(message)
        if self._watching.gives_no_answer(words):
            self._tell_once(f"Slurm does not answer a submission ({words}): it is asked again until it does")
            return True
        if self._watching.is_full(words) and self._has_jobs_in_queue:
            self._tell_once(f"{words}: Slurm takes no more jobs at a time; the others are submitted as these end")
            return True
        patience_s = self.workflow.executor_settings.patience_s
        # With no job of this call in the queue, what fills it are others of the user, which may take days.
        passes = self._watching.is_closed(words) or self._watching.is_full(words)
        if passes and self._seconds_since("refused", job) < patience_s:
            self._tell_once(f"{words}; jobs are submitted again for {patience_s} s, until it takes them")
            return True
        return False

    # Watching.

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        if not active_jobs:
            self.next_seconds_between_status_checks = SHORTEST_PAUSE_S
            return
        longest_s = self.workflow.executor_settings.init_seconds_before_status_checks
        pause_s = min(2 * self.next_seconds_between_status_checks, longest_s)
        listed = self._listed_jobs()
        self._refused_again = False
        if listed is not None:
            self._has_jobs_in_queue = any(job.is_in_queue for job in listed.values())
        hopeless = self._hopeless_jobs(active_jobs, listed or {})
        for info in active_jobs:
            if listed is None:
                ended = False
            elif info.external_jobid is None:
                ended = await self._submit_again(info.job, listed)
            else:
                ended = info.external_jobid in hopeless or self._has_ended(info, listed)
            if ended:
                pause_s = SHORTEST_PAUSE_S
            else:
                yield info
        self.next_seconds_between_status_checks = min(pause_s, longest_s)

    async def sleep(self) -> None:
        """Wait for the next question, but no longer than this call goes on."""
        until = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and time.monotonic() < until:
            await asyncio.sleep(0.2)

    def _listed_jobs(self) -> dict[str, Any] | None:
        """Return this call's jobs as Slurm lists them, by their ids; None when it gave no answer."""
        try:
            jobs = {job.job_id: job for job in self._queue.jobs_named(self.run_uuid)}
        except self._asking.QueueError as error:
            if not self._silent:
                self.logger.warning(f"{error}. Jobs go on meanwhile, and Slurm is asked again until it answers.")
            self._silent = True
            return None
        if self._silent:
            self.logger.warning("Slurm answers again.")
        self._silent = False
        return jobs

    async def _submit_again(self, job: Any, listed: dict[str, Any]) -> bool:
        """Return whether a job whose submission was refused or not answered needs no further try."""
        if found := self._watching.unknown_job(self._comment(job), listed.values(), self._submitted):
            # It was not answered, and Slurm has taken it all the same.
            self.report_job_submission(
                SubmittedJobInfo(job, external_jobid=found, aux={"slurm_logfile": self._log_of(job, found)})
            )
            return True
        if self._refused_again or self._seconds_since("unanswered", job) < LOST_AFTER_S:
            return False
        self._since.pop(("unanswered", job))
        await asyncio.to_thread(self.run_job, job)
        return True  # where it is refused again, it is among the active jobs again

    def _has_ended(self, info: SubmittedJobInfo, listed: dict[str, Any]) -> bool:
        """Report a job's end, if it has come."""
        job_id, job = info.external_jobid, listed.get(info.external_jobid)
        if job is None and all(Path(file).exists() for file in info.job.output):
            return self._report_success(info)
        if job is None and ("forgotten", job_id) not in self._since:
            job = self._queue.find_job(job_id)
        if job is not None and job.is_in_queue:
            return False
        if job is not None and job.state == "COMPLETED":
            return self._report_success(info)
        if job is None and self._seconds_since("forgotten", job_id) < self.workflow.execution_settings.latency_wait:
            return False  # what a node has written may show late
        said = (
            job.words() if job else f"Slurm job {job_id}: it has ended, Slurm has forgotten how, and it left no result"
        )
        self.report_job_error(info, msg=f"{said}. ", aux_logs=[str(info.aux["slurm_logfile"])])
        return True

    def _report_success(self, info: SubmittedJobInfo) -> bool:
        self.report_job_success(info)
        if not self.workflow.executor_settings.keep_successful_logs:
            with contextlib.suppress(OSError):
                info.aux["slurm_logfile"].unlink()
        return True

    def _hopeless_jobs(self, active_jobs: list[SubmittedJobInfo], listed: dict[str, Any]) -> set[str]:
        """Tell of jobs that can never start. Where nothing else is left for a while, cancel and report them."""
        advice = {job_id: words for job_id, job in listed.items() if (words := self._watching.never_starts(job))}
        # For a job with several partitions Slurm may show why one cannot run it, and then start it in another.
        waiting = [
            info
            for info in active_jobs
            if info.external_jobid in advice and "," not in str(info.job.resources.get("slurm_partition"))
        ]
        for words in dict.fromkeys(advice[info.external_jobid] for info in waiting):
            number = sum(advice[info.external_jobid] == words for info in waiting)
            self._tell_once(words, f"{number} of this call's jobs can never start. {words}")
        if not waiting or len(waiting) < len(active_jobs):
            self._since.pop(("hopeless", None), None)
            return set()
        if self._seconds_since("hopeless", None) < self.workflow.executor_settings.patience_s:
            return set()
        self.cancel_jobs(waiting)
        for info in waiting:
            self.report_job_error(info, msg=f"Slurm can never start the job: {advice[info.external_jobid]} ")
        return {info.external_jobid for info in waiting}

    # The end.

    def cancel(self) -> None:
        """Cancel all jobs, those too that are being submitted or asked about when Ctrl-C comes."""
        self._cancelled = True
        self.shutdown()
        self.cancel_jobs(self.active_jobs)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        deadline = time.monotonic() + CANCELLING_S
        while True:
            try:
                super().cancel_jobs(active_jobs)
                return
            except WorkflowError as error:
                if not self._watching.gives_no_answer(str(error)):
                    self.logger.warning(str(error))  # of one that had ended, say; the others are cancelled
                    return
                if time.monotonic() > deadline:
                    left = " ".join(info.external_jobid for info in active_jobs if info.external_jobid)
                    self.logger.error(f"Slurm does not answer, and jobs are left in its queue: scancel {left}")
                    return
                self._tell_once(f"Slurm does not answer; for {CANCELLING_S} s it is asked again to cancel the jobs")
            time.sleep(SHORTEST_PAUSE_S)

    # Small things.

    def _tell_once(self, text: str, shown: str = "") -> None:
        if text not in self._told:
            self._told.add(text)
            self.logger.warning(shown or text)

    def _seconds_since(self, what: str, whom: Any) -> float:
        """Return how long ago this was first asked."""
        return time.monotonic() - self._since.setdefault((what, whom), time.monotonic())

    def _comment(self, job: Any) -> str:
        wildcards = get_job_wildcards(job)
        return f"rule_{job.name}_wildcards_{wildcards}" if wildcards else f"rule_{job.name}"

    def _log_of(self, job: Any, job_id: str) -> Path:
        return self.slurm_logdir / f"rule_{job.name}" / get_job_wildcards(job) / f"{job_id}.log"
