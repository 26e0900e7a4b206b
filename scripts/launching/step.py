"""A cell's processes in a Slurm job: one `launch_node.py` on every node, started and watched as one step of the job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from launching.exchange import Exchange
from launching.node import NodeJob, NodeReport, silent_node
from launching.placement import ranks_by_node
from launching.processes import POLL_S, TERMINATE_GRACE_S, Ending, Limits, LogWriter, late_ranks, start_process

# How long srun may take to end its step after it was told to.
STEP_GRACE_S = 15.0
# What slurmstepd and srun print when a step used more memory than it had, with and without cgroups.
MEMORY_WORDS = ("oom-kill", "oom_kill", "Out Of Memory", "exceeded memory limit", "exceeded job memory limit")
# "slurmstepd-n1:" where several nodes are one machine.
SLURM_PREFIXES = ("srun:", "slurmstepd")


def run_step(
    exchange: Exchange, job: NodeJob, nodes: Sequence[str], scripts: Path, limits: Limits, log: LogWriter
) -> tuple[Ending, list[NodeReport], bool]:
    """Run all nodes' ranks to their common end; (how they ended, the nodes' reports, whether memory ran out).

    nodes: their names, in order; empty where they are not known. srun is told the cores of each: since Slurm 22.05 a
    step does not take over what the job asked for.
    """
    num_nodes = job.num_nodes
    names = [nodes[node] if node < len(nodes) else f"{node} of the job" for node in range(num_nodes)]
    exchange.write_node_job(asdict(job))
    command = ["srun", f"--nodes={num_nodes}", f"--ntasks={num_nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    command += [f"--cpus-per-task={job.cores}", sys.executable, str(scripts / "launch_node.py")]
    command += ["--exchange", str(exchange.folder)]
    words: list[str] = []
    began = time.monotonic()
    step = start_process(command, os.environ)
    assert step.stdout is not None

    def copy() -> None:
        for line in log.pass_on(step.stdout):
            if line.startswith(SLURM_PREFIXES):
                words.append(line)

    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    try:
        stopped = _watch(step, job, names, limits)
    finally:
        _end(step)
        reader.join(timeout=TERMINATE_GRACE_S)
    reports = [NodeReport(**report) for report in exchange.read_node_reports(num_nodes)]
    out_of_memory = any(word in line for word in MEMORY_WORDS for line in words)
    ending = stopped or _step_ending(step.returncode, reports, names, words)
    reported = {report.node for report in reports}
    wall_s = time.monotonic() - began
    silent = [silent_node(job, node, name, wall_s) for node, name in enumerate(names) if node not in reported]
    return ending, sorted([*reports, *silent], key=lambda report: report.node), out_of_memory


def _watch(step: subprocess.Popen[str], job: NodeJob, names: Sequence[str], limits: Limits) -> Ending | None:
    """Until the step ends (None) or has to be ended."""
    began = time.monotonic()
    all_started = False
    while step.poll() is None:
        stop = limits.stop_reason()
        if stop:
            return Ending(*stop)
        elapsed = time.monotonic() - began
        all_started = all_started or all(limits.has_started(rank) for rank in range(job.num_gpus))
        if not all_started and elapsed > limits.startup_timeout_s:
            return _startup_timeout(job.num_gpus, names, limits)
        if elapsed > limits.time_limit_s:
            return Ending("time_limit", f"not finished after the time limit of {limits.time_limit_s / 60:g} minutes")
        time.sleep(POLL_S)
    return None


def _startup_timeout(num_ranks: int, names: Sequence[str], limits: Limits) -> Ending:
    """Name the late ranks with their node."""
    late, what = late_ranks(range(num_ranks), limits)
    node_of = {rank: names[node] for node, ranks in enumerate(ranks_by_node(num_ranks, len(names))) for rank in ranks}
    listed = ", ".join(f"{rank} (node {node_of[rank]})" for rank in late)
    reason = f"rank {listed} of {num_ranks} {what} after {limits.startup_timeout_s:g} s"
    return Ending("startup_timeout", reason, late[0])


def _step_ending(status: int, reports: Sequence[NodeReport], names: Sequence[str], words: Sequence[str]) -> Ending:
    """The first node that failed by itself is the cause; those that were ended with it are not."""
    failed = [report for report in reports if report.kind]
    by_itself = [report for report in failed if report.kind != "interrupted"]
    if by_itself:
        return min(by_itself, key=lambda report: report.ended_unix_s).ending
    if not failed and len(reports) == len(names) and status == 0:
        return Ending()
    reported = {report.node for report in reports}
    silent = [name for node, name in enumerate(names) if node not in reported]
    said = f": {words[0]}" if words else ""
    if status < 0:
        said = f": srun was ended by {signal.Signals(-status).name}"
    where = f"node {', '.join(silent)} left no account" if silent else f"srun ended with {status}"
    return Ending("killed", f"{where}{said}", None, tuple(words[-5:]))


def _end(step: subprocess.Popen[str]) -> None:
    """Have srun end its step on all nodes; SIGKILL to srun alone would leave the step to Slurm's own timeout."""
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
