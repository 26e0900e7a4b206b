"""What a cell asks Slurm for: pure functions from the system file and the cell to Snakemake's resources."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

from contracts.cell import Cell
from settings.systems import SlurmSite


def site_resources(site: SlurmSite) -> dict[str, Any]:
    """The same for every training job of a system. Keys that are left out stay Slurm's own default."""
    named = {
        "slurm_partition": site.partition,
        "slurm_account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
    }
    # An empty `mpi`: a job that starts Snakemake (with conda) then has its command started once, on the first node, and
    # not inside an `srun -n1`, which would keep the launcher from starting steps on all nodes.
    return {"mpi": "", **{key: value for key, value in named.items() if value}}


def cell_resources(site: SlurmSite, cell: Cell, time_limit_s: float) -> dict[str, Any]:
    """Of one cell: nodes, GPUs and memory per node, cores, minutes.

    GPUs are asked for per node: a total would let Slurm spread them unevenly. A value is None where nothing is asked.
    """
    on_node = gpus_on_node(cell)
    kind = f"{site.gpu_type}:" if site.gpu_type else ""
    extra = [
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={kind}{on_node}"] if site.gpu_request == "gpus_per_node" else []),
        *(["--exclusive"] if site.exclusive else []),
        *([f"--reservation={site.reservation}"] if site.reservation else []),
        *site.extra,
    ]
    memory_gib = site.memory_per_gpu_gib
    return {
        "nodes": cell.num_nodes,
        # The plugin asks for one task in all where it sees no `gres`, and Slurm then gives one node only.
        "tasks": None if site.gpu_request == "gres" else cell.num_nodes,
        "gres": f"gpu:{kind}{on_node}" if site.gpu_request == "gres" else None,
        # As a text: Snakemake accepts no empty `mem_mb`, and leaving it out asks for its own default of 1 GB.
        "mem": None if memory_gib is None else f"{math.ceil(1024 * memory_gib * on_node)} MB",
        "runtime": math.ceil(time_limit_s / 60 + site.job_overhead_minutes),
        # The plugin puts this text into a shell's command line as it is; all other values it quotes itself.
        "slurm_extra": " ".join(map(_quoted, extra)),
        "threads": site.cpus_per_gpu * on_node,
    }


def _quoted(option: str) -> str:
    """Return an option as one word for a shell. One that ends as a short option does, such as `--reservation=our-n`, is
    quoted too: before the next one the Slurm plugin would take `-n ` for an option, and refuse it.
    """
    return f"'{option}'" if re.search(r"-\w$", option) and shlex.quote(option) == option else shlex.quote(option)


def unsafe_folder(folder: Path) -> str:
    """Return why jobs cannot be submitted from a folder, or nothing: Slurm acts on these signs in the path of a log."""
    found = sorted(set(str(folder)) & set("%\\\n"))
    if not found:
        return ""
    return f"the folder {str(folder)!r} has {' '.join(found)} in its path, which Slurm would act on; rename it"


def gpus_on_node(cell: Cell) -> int:
    """Return the most GPUs the cell uses on one of its nodes (contracts/placement.py fills them evenly)."""
    return -(-cell.num_gpus // cell.num_nodes)


def charged_gpus(site: SlurmSite, cell: Cell, gpus_per_node: int) -> int:
    """GPUs that the cell's job keeps from others: with whole nodes all of theirs."""
    return cell.num_nodes * (gpus_per_node if site.exclusive else gpus_on_node(cell))
