"""What starts the parts of a cell that is more than processes of this machine: srun, or MPI's own starter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.interpreter import environment_setup, interpreter_folder
from launcher.part import LaunchPlan
from settings.systems import System

# Where MPI's starters tell a process its rank: MPICH and what descends from it, Open MPI.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
SLURM_VARIABLE = "SLURM_PROCID"
MPI_FIND_TIMEOUT_S = 120


@dataclass(frozen=True)
class Starter:
    """A command to which the one of a part is added, once for all parts.

    part_variables: environment variables of which one tells a part its index. nodes: names of the nodes, in order.
    outlives_us: left alone when this process is killed, since somebody else ends it then.
    """

    name: str
    command: Sequence[str]
    part_variables: Sequence[str]
    nodes: Sequence[str]
    outlives_us: bool = False


def srun(job: LaunchPlan, nodes: Sequence[str], mpi: str) -> Starter:
    """A step of this Slurm job: a part on each node, or under MPI (of the kind `mpi`) one for each rank.

    It is told the cores of each task: since Slurm 22.05 a step does not take over what the job asked for. Ranks under
    MPI are not bound to cores of their own, so that they share their node's as all other frameworks' ranks do.
    """
    parts = job.parts()
    per_node = max(sum(part.node == node for part in parts) for node in range(job.num_nodes))
    cores = max(1, (job.cores or 1) // per_node)
    command = ["srun", f"--nodes={job.num_nodes}", f"--ntasks={len(parts)}", f"--ntasks-per-node={per_node}"]
    command += ["--kill-on-bad-exit=1", f"--cpus-per-task={cores}"]
    command += [f"--mpi={mpi}", "--distribution=block", "--cpu-bind=none"] if job.mpi else []
    return Starter("srun", command, [SLURM_VARIABLE], nodes, outlives_us=True)


def mpiexec(job: LaunchPlan, path: str, host: str) -> Starter:
    """MPI's own starter on this machine, a part for each rank."""
    return Starter("mpiexec", [path, "-n", str(job.num_gpus)], RANK_VARIABLES, [host])


def find_mpiexec(system: System, environment: str, root: Path) -> str | None:
    """mpiexec of an environment: beside its Python, as the wheel `mpich` brings it, or on PATH after its setup."""
    folder = interpreter_folder(system, environment, root)
    if folder and (folder / "mpiexec").is_file():
        return str(folder / "mpiexec")
    lines = [*environment_setup(system, environment), "command -v mpiexec"]
    try:
        found = subprocess.run(
            ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=MPI_FIND_TIMEOUT_S, check=False
        ).stdout.split()
    except subprocess.TimeoutExpired:
        return None
    return found[-1] if found and Path(found[-1]).is_file() else None


def part_command(starter: Starter, scripts: Path, exchange: Path) -> list[str]:
    """The whole command line that starts all parts."""
    part = [sys.executable, str(scripts / "launch_part.py"), "--exchange", str(exchange)]
    return [*starter.command, *part, "--part-from", ",".join(starter.part_variables)]


def part_index(variables: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Which part this process is."""
    for variable in variables:
        if environment.get(variable, "").isdecimal():
            return int(environment[variable])
    raise ValueError(f"whoever started this process did not tell it which part it is: none of {', '.join(variables)}")
