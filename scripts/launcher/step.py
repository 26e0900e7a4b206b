"""A cell whose parts (`launch_part.py`) are started by srun or mpiexec, and watched as one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from contracts.inherited import starting_environment
from contracts.outcomes import EndKind
from contracts.placement import Part, ranks_by_node
from launcher.login_shell import without_shell_settings
from launcher.part import LaunchPlan, PartReport, silent_part
from launcher.processes import (
    POLL_S,
    TERMINATE_GRACE_S,
    Closing,
    Ending,
    LateRanks,
    Limits,
    LogWriter,
    late_ranks,
    signal_name,
    start_process,
)
from launcher.starters import Starter, part_command
from workloads.exchange import SPOKEN_REPORT, Exchange

# How long a starter may take to end its parts after it was told to.
STEP_GRACE_S = 15.0
# What slurmstepd and srun print when a step used more memory than it had, with and without cgroups.
MEMORY_WORDS = ("oom-kill", "oom_kill", "Out Of Memory", "exceeded memory limit", "exceeded job memory limit")
# "slurmstepd-n1:" where several nodes are one machine.
SLURM_PREFIXES = ("srun:", "slurmstepd")


def run_step(
    exchange: Exchange, job: LaunchPlan, starter: Starter, scripts: Path, limits: Limits, log: LogWriter
) -> tuple[Ending, list[PartReport], bool]:
    """Run all parts' ranks to their common end; (how they ended, the parts' reports, whether memory ran out).

    Nodes whose names the starter does not know go by their number.
    """
    parts = job.parts()
    nodes = starter.nodes
    names = [nodes[node] if node < len(nodes) else f"{node} of the job" for node in range(job.num_nodes)]
    exchange.write_plan(asdict(job))
    words: list[str] = []
    spoken: list[str] = []
    began = time.monotonic()
    step = start_process(
        part_command(starter, scripts, exchange.folder),
        starting_environment(without_shell_settings(os.environ, in_slurm=job.in_slurm), in_slurm=job.in_slurm),
        die_with_us=not starter.outlives_us,
    )
    assert step.stdout is not None

    def copy() -> None:
        for line in log.pass_on(step.stdout):
            if line.startswith(SLURM_PREFIXES):
                words.append(line)
            elif line.startswith(SPOKEN_REPORT):
                spoken.append(line.removeprefix(SPOKEN_REPORT))

    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    try:
        stopped = _watch(starter.name, step, job, names, exchange, limits)
    finally:
        _end(step)
        reader.join(timeout=TERMINATE_GRACE_S)
    reports = [PartReport(**report) for report in (*exchange.read_part_reports(len(parts)), *map(json.loads, spoken))]
    out_of_memory = any(word in line for word in MEMORY_WORDS for line in words)
    reported = {report.part for report in reports}
    wall_s = time.monotonic() - began
    silent = [
        silent_part(job, index, _node_of(part, names, exchange), wall_s)
        for index, part in enumerate(parts)
        if index not in reported
    ]
    ending = stopped or step_ending(starter.name, step.returncode, reports, silent, words)
    return ending, sorted([*reports, *silent], key=lambda report: report.part), out_of_memory


def _node_of(part: Part, names: Sequence[str], exchange: Exchange) -> str:
    """Return the node of a part as its first rank told it; one that left no result goes by what the starter knows."""
    result = exchange.read_result(part.ranks.start)
    return result["rank"]["host"] if result else names[part.node]


def _watch(
    starter: str,
    step: subprocess.Popen[str],
    job: LaunchPlan,
    names: Sequence[str],
    exchange: Exchange,
    limits: Limits,
) -> Ending | None:
    """Until the step ends (None) or has to be ended."""
    began = time.monotonic()
    all_started = False
    # The parts end their own ranks first; this is for a starter that hangs itself.
    closing = Closing(replace(limits, closing_grace_s=limits.closing_grace_s + STEP_GRACE_S), ())
    while step.poll() is None:
        if closing.lasts_too_long():
            return Ending(EndKind.KILLED, f"{starter} did not end")
        stop = limits.stop_reason()
        if stop:
            return Ending(*stop)
        elapsed = time.monotonic() - began
        all_started = all_started or all(limits.has_started(rank) for rank in range(job.num_gpus))
        if not all_started and elapsed > limits.startup_timeout_s:
            exchange.look_again()
            if late := late_ranks(range(job.num_gpus), limits):
                return _startup_timeout(job.num_gpus, names, late, limits)
        if elapsed > limits.time_limit_s:
            return Ending(
                EndKind.TIME_LIMIT, f"not finished after the time limit of {limits.time_limit_s / 60:g} minutes"
            )
        time.sleep(POLL_S)
    return None


def _startup_timeout(num_ranks: int, names: Sequence[str], late: LateRanks, limits: Limits) -> Ending:
    """Name the late ranks with their node."""
    node_of = {rank: names[node] for node, ranks in enumerate(ranks_by_node(num_ranks, len(names))) for rank in ranks}
    listed = ", ".join(f"{rank} (node {node_of[rank]})" for rank in late.ranks)
    reason = f"rank {listed} of {num_ranks} {late.what} after {limits.startup_timeout_s:g} s"
    return Ending(EndKind.STARTUP_TIMEOUT, reason, late.ranks[0])


def step_ending(
    starter: str, status: int, reports: Sequence[PartReport], silent: Sequence[PartReport], words: Sequence[str]
) -> Ending:
    """The first part that failed by itself is the cause; those that were ended with it are not.

    A rank that was killed comes before one that failed: others fail because they lost their connection to it.
    Without a part's own report, no last lines are given: the log has those of the ranks beside the starter's.
    """
    failed = [report for report in reports if report.kind]
    by_itself = [report for report in failed if report.kind != EndKind.INTERRUPTED]
    if by_itself:
        return min(by_itself, key=lambda report: (report.kind != EndKind.KILLED, report.ended_unix_s)).ending
    if not failed and not silent and status == 0:
        return Ending()
    said = f": {words[0]}" if words else ""
    if status < 0:
        said = f": {starter} was ended by {signal_name(-status)}"
    hosts = dict.fromkeys(report.host for report in silent)
    where = f"node {', '.join(hosts)} ended before it could report" if hosts else f"{starter} ended with {status}"
    return Ending(EndKind.KILLED, f"{where}{said}", None)


def _end(step: subprocess.Popen[str]) -> None:
    """Have the starter end its parts; SIGKILL to srun alone would leave the step to Slurm's own timeout."""
    for number, grace_s in ((signal.SIGTERM, STEP_GRACE_S), (signal.SIGKILL, TERMINATE_GRACE_S)):
        if step.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(step.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.wait(timeout=grace_s)


def node_address(fallback: str, environment: Mapping[str, str] = os.environ) -> str:
    """The address of this node as Slurm knows it: node names need not resolve."""
    name = environment.get("SLURMD_NODENAME", "")
    if not name:
        return fallback
    try:
        shown = subprocess.run(
            ["scontrol", "show", "node", "--oneliner", name], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return name
    return next((word.partition("=")[2] for word in shown.split() if word.startswith("NodeAddr=")), name)
