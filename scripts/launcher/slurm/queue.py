"""What Slurm says about jobs: which of this folder's cells are in the queue, and how a job ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from contracts.outcomes import EndKind
from launcher.slurm.asking import QueueError, ask_slurm, this_user
from planning.plan import PlannedCell
from settings.systems import System

# No node name, path or comment contains it.
SEPARATOR = "\x1f"
FIELDS = "%i %T %r %N %V %Z %k".replace(" ", SEPARATOR)
IN_QUEUE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "RESIZING"}
    | {"SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED"}
)
# How a job ended, in the words of our own failures (see docs/cluster.md).
KINDS: Mapping[str, str] = {
    "TIMEOUT": EndKind.TIME_LIMIT,
    "DEADLINE": EndKind.TIME_LIMIT,
    "OUT_OF_MEMORY": EndKind.OUT_OF_MEMORY,
    "NODE_FAIL": EndKind.NODE_FAILURE,
    "BOOT_FAIL": EndKind.NODE_FAILURE,
    "LAUNCH_FAILED": EndKind.NODE_FAILURE,
    "RECONFIG_FAIL": EndKind.NODE_FAILURE,
    "CANCELLED": EndKind.CANCELLED,
    "PREEMPTED": EndKind.PREEMPTED,
    "FAILED": EndKind.CRASH,
}


@dataclass(frozen=True)
class SlurmJob:
    """One job, as Slurm shows it; `state` without what Slurm appends to it ("CANCELLED by 1000")."""

    job_id: str
    state: str
    reason: str
    nodes: str
    submitted: str  # local time, ISO format
    workdir: str
    comment: str

    @property
    def is_in_queue(self) -> bool:
        return self.state in IN_QUEUE

    @property
    def is_waiting(self) -> bool:
        return self.state in ("PENDING", "CONFIGURING")

    @property
    def kind(self) -> str | None:
        """Return the kind of failure, where the state says it. A job that failed without a node was never begun."""
        return EndKind.REFUSED if self.state == "FAILED" and not self.nodes else KINDS.get(self.state)

    def is_older_than(self, at: str) -> bool:
        """Return whether it was submitted before `at` (ISO, with a time zone); False where Slurm does not say when."""
        try:
            return datetime.fromisoformat(self.submitted).astimezone() < datetime.fromisoformat(at)
        except ValueError:
            return False

    def words(self) -> str:
        """`Slurm job 42: NODE_FAIL (nodes n1,n2)`, with Slurm's reason where it gives one."""
        details = [self.reason] if self.reason not in ("", "None") else []
        details += [f"nodes {self.nodes}"] if self.nodes else []
        return f"Slurm job {self.job_id}: {self.state}" + (f" ({', '.join(details)})" if details else "")


def has_slurm() -> bool:
    return shutil.which("squeue") is not None


@dataclass(frozen=True)
class Queue:
    """What Slurm said once of this user's jobs, ended ones too, or in `silence` why it said nothing.

    Whoever looks at many cells asks once: a controller that is away takes half a minute for each question.
    """

    jobs: tuple[SlurmJob, ...] = ()
    silence: str = ""


def look_at_queue(system: System) -> Queue:
    """Ask for this user's jobs; an empty queue where the cells of the system are no jobs of Slurm."""
    if system.slurm is None:
        return Queue()
    if not has_slurm():
        return Queue(silence="squeue is not on PATH")
    try:
        return Queue(tuple(own_jobs()))
    except QueueError as error:
        return Queue(silence=str(error))


def own_jobs() -> list[SlurmJob]:
    """Return this user's jobs that the controller knows, ended ones too (for MinJobAge seconds). Raises QueueError."""
    return _jobs(["squeue", "--user", this_user(), "--states=all", "--noheader", f"--format={FIELDS}"])


def jobs_named(name: str) -> list[SlurmJob]:
    """Return the jobs of this name that the controller knows, ended ones too. Raises QueueError."""
    return _jobs(["squeue", "--name", name, "--states=all", "--noheader", f"--format={FIELDS}"])


def find_job(job_id: str) -> SlurmJob | None:
    """Return what the controller, or else the accounting, knows of a job; None where neither does or can be asked."""
    return find_jobs([job_id]).get(job_id)


def find_jobs(job_ids: Sequence[str]) -> dict[str, SlurmJob]:
    """Return what the controller, or else the accounting, knows of some jobs, with one question to each."""
    found: dict[str, SlurmJob] = {}
    for ask in (_listed, _accounted):
        if left := [job_id for job_id in job_ids if job_id not in found]:
            found |= {job.job_id: job for job in ask(left) if job.job_id in left}
    return found


def job_nodes(job_id: str | None) -> list[str]:
    """Return the names of a job's nodes in the order of their numbers in it; empty where Slurm gives no answer."""
    job = find_job(job_id) if job_id else None
    if job is None or not job.nodes:
        return []
    try:
        return ask_slurm(["scontrol", "show", "hostnames", job.nodes]).split()
    except QueueError:
        return []


def current_job_id() -> str | None:
    """Return the id of the Slurm job this process runs in."""
    return os.environ.get("SLURM_JOB_ID")


def job_comment(system: str, planned: PlannedCell) -> str:
    """Return what Snakemake's Slurm plugin notes on the job of a cell: the rule and its wildcards, in their order."""
    return f"rule_train_cell_wildcards_{_wildcards(system, planned)}"


def slurm_log(results: Path, system: str, planned: PlannedCell, job_id: str) -> Path:
    """Return where the profile has Slurm write what a cell's job prints."""
    return results / "slurm-logs" / "rule_train_cell" / _wildcards(system, planned) / f"{job_id}.log"


def ended_without_word(lines: Sequence[str]) -> str:
    """Return the reason for a job whose launcher said nothing: the end of Slurm's log, `lines`."""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "it ended before its launcher could say anything" + (f"; Slurm's log ends with: {said}" if said else "")


def jobs_of_cells(
    system: str, cells: Iterable[PlannedCell], jobs: Iterable[SlurmJob], folder: Path
) -> dict[tuple[str, int], SlurmJob]:
    """Return the latest job of each cell among `jobs` that were submitted from `folder`, by the cell's key."""
    latest: dict[str, SlurmJob] = {}
    for job in sorted(jobs, key=lambda job: _number(job.job_id)):
        if job.workdir and Path(job.workdir).resolve() == folder.resolve():
            latest[job.comment] = job
    comments = {planned.key: job_comment(system, planned) for planned in cells}
    return {key: latest[comment] for key, comment in comments.items() if comment in latest}


def _wildcards(system: str, planned: PlannedCell) -> str:
    cell = planned.cell
    return "_".join(map(str, (system, cell.framework, cell.model.name, cell.num_gpus, cell.cell_id, planned.repeat)))


def _jobs(command: list[str]) -> list[SlurmJob]:
    rows = [line.split(SEPARATOR) for line in ask_slurm(command).splitlines()]
    return [SlurmJob(row[0], row[1].split()[0], *row[2:]) for row in rows if len(row) == 7]


def _listed(job_ids: Sequence[str]) -> list[SlurmJob]:
    try:
        return _jobs(["squeue", "--jobs", ",".join(job_ids), "--states=all", "--noheader", f"--format={FIELDS}"])
    except QueueError:  # squeue fails for a single job that is gone
        return []


def _accounted(job_ids: Sequence[str]) -> list[SlurmJob]:
    fields = "JobIDRaw,State,Reason,NodeList,Submit,WorkDir,Comment"
    command = ["sacct", "-X", "--jobs", ",".join(job_ids), "--noheader", "--parsable2", f"--delimiter={SEPARATOR}"]
    try:
        return _jobs([*command, f"--format={fields}"])
    except QueueError:  # no accounting on this cluster
        return []


def _number(job_id: str) -> int:
    """Return a job id as a number, which counts upwards; for the task of an array (`42_7`) that of the job."""
    digits = job_id.partition("_")[0]
    return int(digits) if digits.isdecimal() else 0
