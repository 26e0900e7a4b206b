"""One part of a cell: start its ranks, wait for their common end, report what became of them.

The launcher calls it for the machine it runs on. Under Slurm it starts `launch_part.py` on every node of the job, and
under MPI once for every rank, since it is MPI's own starter that tells a process which rank it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.cores import available_cores
from contracts.inherited import rank_environment
from contracts.outcomes import EndKind
from contracts.placement import NODE_VARIABLE, Part, host_name, parts
from launcher.host_load import host_memory_kills, read_host_clock, spent_s
from launcher.login_shell import without_shell_settings
from launcher.processes import Ending, Limits, LogWriter, RankCommand, run_ranks
from launcher.shared_settings import rank_variables, shared_settings, threads_per_process
from workloads.child import LAUNCHER_VARIABLE
from workloads.rendezvous import TIMEOUT_S, meeting_variables
from workloads.thread_limits import openmp_lacked_a_thread, tasks_ran_out


@dataclass(frozen=True)
class LaunchPlan:
    """What every part of a cell is told; JSON in the folder of the exchange.

    command: starts one training process. meeting_folder: where rank 0 says at which port of master_address the ranks
    meet. token: tells this launch from every other. environment: the system file's variables. cores: what the scheduler
    gives the cell on each node; None where it has all of the machine. threads: of every process; None where the
    processes of a node share its cores. gpus_visible: the scheduler shows each node its GPUs, so a missing one can be
    noticed before anything starts. mpi: the ranks are started under MPI, a part each. in_slurm: the parts are tasks
    of a Slurm step. memory_limited: each process is held to an amount of memory. startup_timeout_s: how long ranks wait
    for one another.
    """

    command: Sequence[str]
    num_gpus: int
    num_nodes: int
    master_address: str
    meeting_folder: str
    token: str
    environment: Mapping[str, str]
    cores: int | None = None
    threads: int | None = None
    gpus_visible: bool = False
    mpi: bool = False
    in_slurm: bool = False
    memory_limited: bool = False
    startup_timeout_s: float = TIMEOUT_S

    def parts(self) -> list[Part]:
        """Its ranks as they are watched."""
        return parts(self.num_gpus, self.num_nodes, one_rank_each=self.mpi)

    def shares(self, num_ranks: int) -> tuple[int, int, dict[str, str]]:
        """On a node with `num_ranks` ranks: its cores, the threads of each process, the variables each process gets."""
        cores = available_cores() if self.cores is None else min(available_cores(), self.cores)
        threads = self.threads or threads_per_process(cores, num_ranks)
        return cores, threads, shared_settings(threads, self.environment)


@dataclass(frozen=True)
class PartReport:
    """What became of one part's ranks. `kind` and what follows it are an Ending's (launcher/processes.py).

    settings: the variables every process got. Times in seconds; host_cpu_s is the processor time spent meanwhile on the
    cores that the part may run on (None where it is not known; counted_cores says how many), own_cpu_s that of this
    part.
    """

    part: int
    node: int
    host: str
    cpu_cores: int
    threads_per_process: int
    settings: Mapping[str, str]
    wall_s: float
    host_cpu_s: float | None
    own_cpu_s: float
    killed_for_memory: bool
    ended_unix_s: float
    kind: str
    reason: str
    rank: int | None
    last_lines: Sequence[str]
    signal: int | None = None
    counted_cores: int | None = None

    @property
    def ending(self) -> Ending:
        return Ending(self.kind, self.reason, self.rank, tuple(self.last_lines), self.signal)


def run_part(job: LaunchPlan, index: int, limits: Limits, log: LogWriter) -> PartReport:
    """Run the ranks of part `index` of the job, on this machine, to their common end."""
    part = job.parts()[index]
    host = host_name()  # once: it may change meanwhile, and what the ranks are told is what the report says
    cores, threads, settings = job.shares(part.local_size)
    kills_before = host_memory_kills()
    before = read_host_clock()
    lacking = missing_gpus(part.local_size, os.environ) if job.gpus_visible else ""
    if lacking:
        ending = Ending(EndKind.GPU_MISSING, f"node {host} {lacking}")
    else:
        try:
            ending = run_ranks(_commands(job, part, host, settings), limits, log)
        except OSError as error:  # a Python that this node does not see, a user's limit of processes
            what = f" ({error.filename})" if error.filename else ""
            ending = Ending(EndKind.CRASH, f"node {host} could not start its ranks: {error.strerror or error}{what}")
    after = read_host_clock()
    kills_after = host_memory_kills()
    return PartReport(
        part=index,
        node=part.node,
        host=host,
        cpu_cores=cores,
        threads_per_process=threads,
        settings=settings,
        wall_s=after.wall_s - before.wall_s,
        host_cpu_s=spent_s(before.busy_s, after.busy_s),
        own_cpu_s=after.own_s - before.own_s,
        killed_for_memory=(kills_before is not None and kills_after is not None and kills_after > kills_before)
        or (job.memory_limited and openmp_lacked_a_thread(ending.last_lines) and not tasks_ran_out()),
        ended_unix_s=time.time(),
        kind=ending.kind,
        reason=ending.reason,
        rank=ending.rank,
        last_lines=ending.last_lines,
        signal=ending.signal,
        counted_cores=after.cores,
    )


def silent_part(job: LaunchPlan, index: int, host: str, wall_s: float) -> PartReport:
    """In place of a part that was killed before it could report; what others used there is not known."""
    part = job.parts()[index]
    cores, threads, settings = job.shares(part.local_size)
    return PartReport(
        part=index,
        node=part.node,
        host=host,
        cpu_cores=cores,
        threads_per_process=threads,
        settings=settings,
        wall_s=wall_s,
        host_cpu_s=None,
        own_cpu_s=0.0,
        killed_for_memory=False,
        ended_unix_s=time.time(),
        kind=EndKind.KILLED,
        reason="",
        rank=None,
        last_lines=(),
    )


def missing_gpus(wanted: int, environment: Mapping[str, str]) -> str:
    """What is wrong with the GPUs the scheduler shows this node's step, or "" when there are as many as wanted."""
    shown = environment.get("SLURM_GPUS_ON_NODE", "")
    if not shown.isdecimal():
        return f"was given no GPU, and the cell needs {wanted} there" if wanted else ""
    if int(shown) < wanted:
        return f"shows {shown} of the {wanted} GPUs that the cell needs there"
    return ""


def _commands(job: LaunchPlan, part: Part, host: str, settings: Mapping[str, str]) -> list[RankCommand]:
    def variables(rank: int) -> dict[str, str]:
        local = part.first_local + rank - part.ranks.start
        return rank_variables(rank, local, job.num_gpus, part.local_size)

    meeting = meeting_variables(Path(job.meeting_folder), job.master_address, job.token, job.startup_timeout_s)
    # Where a starter began this part, it began it without the shell's settings, and what there is now is its own.
    is_started = job.in_slurm or job.mpi
    environment = os.environ if is_started else without_shell_settings(os.environ, in_slurm=False)
    inherited = rank_environment(environment, in_slurm=job.in_slurm, mpi=job.mpi)
    shared: dict[str, Any] = {
        **inherited,
        **settings,
        **meeting,
        NODE_VARIABLE: host,
        LAUNCHER_VARIABLE: str(os.getpid()),
    }
    return [RankCommand(rank, job.command, {**shared, **variables(rank)}) for rank in part.ranks]
